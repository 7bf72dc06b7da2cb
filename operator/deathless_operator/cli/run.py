"""`deathless-operator run`: what the chart says, as options or as environment, and the operator's process.

Every option may be given as `DEATHLESS_` and its name in capitals; an option wins. Design page 0005, "The operator's
command line", has the table.

Guarantees: exit code 0 when told to end, 76 (as every Fenced error) when the lease was lost, another when something
that must not end did; relations among the figures are checked before anything is opened. Does not: work.
"""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import click

from deathless.base.errors import InvalidConfig
from deathless_operator.cluster.connection import Connection
from deathless_operator.cluster.kubeconfig import connect
from deathless_operator.cluster.lease import LeaseTimes
from deathless_operator.handlers import log_format
from deathless_operator.handlers.process import Operator, RunOptions
from deathless_operator.model.settings import OperatorSettings


def listed(text: str) -> tuple[str, ...]:
    """Return the parts of a comma-separated text."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def port_numbers(text: str) -> tuple[int, ...]:
    """Return comma-separated port numbers.

    Raises:
        InvalidConfig: there is none, or one is no number from 1 to 65535.
    """
    found = listed(text)
    if not found or not all(part.isdigit() and 0 < int(part) < 65536 for part in found):
        raise InvalidConfig(f"--api-server-ports: {text!r} is no list of port numbers")
    return tuple(int(part) for part in found)


def prometheus_address(text: str) -> str:
    """Return an address without a slash at the end; empty stays.

    Raises:
        InvalidConfig: it is none of HTTP.
    """
    found = urlsplit(text)
    if text and (found.scheme not in ("http", "https") or not found.hostname or found.query or found.fragment):
        raise InvalidConfig(f"--prometheus-url: {text!r} is no address such as http://prometheus.monitoring:9090")
    return text.rstrip("/")


def run_options(given: dict[str, object], connection: Connection) -> RunOptions:
    """Return what the process is told.

    Args:
        given: the command's options by name, as click reads them.
        connection: the API server.

    Raises:
        InvalidConfig: a value or a relation among values is wrong.
    """
    namespace = str(given["namespace"]) or connection.namespace
    settings = OperatorSettings(
        namespace=namespace,
        image=str(given["image"]),
        pull_policy=str(given["image_pull_policy"]),
        pull_secrets=listed(str(given["image_pull_secrets"])),
        cluster_domain=str(given["cluster_domain"]),
        lock_endpoints=listed(str(given["lock_endpoints"])),
        lock_tls_secret=str(given["lock_tls_secret"]),
        lock_user_secret=str(given["lock_user_secret"]),
        lock_users=bool(given["lock_users"]),
        network_policies=bool(given["network_policies"]),
        api_server_ports=port_numbers(str(given["api_server_ports"])),
        prometheus_url=prometheus_address(str(given["prometheus_url"])),
        resync_s=int(str(given["resync_seconds"])),
        drill_agents=bool(given["drill_agents"]),
        drill_agent_account=str(given["drill_agent_service_account"]),
        drill_node_drain=bool(given["drill_node_drain"]),
    )
    times = LeaseTimes(
        duration_s=float(str(given["lease_seconds"])),
        renew_s=float(str(given["renew_seconds"])),
        retry_s=float(str(given["retry_seconds"])),
    )
    return RunOptions(
        connection=connection,
        settings=settings,
        namespaces=listed(str(given["watch_namespaces"])),
        lease_namespace=str(given["lease_namespace"]) or namespace,
        lease_name=str(given["lease_name"]),
        lease_times=times,
        elect=bool(given["leader_election"]),
        ports=(int(str(given["health_port"])), int(str(given["metrics_port"]))),
        identity=str(given["identity"]),
    )


_PORT = click.IntRange(0, 65535)


@click.command(
    "run", context_settings={"auto_envvar_prefix": "DEATHLESS", "show_default": True, "max_content_width": 110}
)
@click.option(
    "--namespace",
    envvar=["DEATHLESS_NAMESPACE", "POD_NAMESPACE"],
    default="",
    help="Namespace of the operator, its authority, agents and Lease; default: the account's.",
)
@click.option(
    "--identity",
    envvar=["DEATHLESS_IDENTITY", "POD_NAME"],
    default="",
    help="Holder of the Lease, with a random suffix added; default: the host name.",
)
@click.option(
    "--watch-namespaces", default="", help="Namespaces whose services are managed, comma-separated; default: all."
)
@click.option(
    "--leader-election/--no-leader-election", default=True, help="Whether to elect one of several operator processes."
)
@click.option("--lease-name", default="deathless-operator", help="Name of the Lease.")
@click.option("--lease-namespace", default="", help="Namespace of the Lease; default: --namespace.")
@click.option("--lease-seconds", type=float, default=15.0, help="Seconds after which a silent leader is replaced.")
@click.option("--renew-seconds", type=float, default=10.0, help="Seconds after which a leader that can't renew ends.")
@click.option(
    "--retry-seconds", type=float, default=2.0, help="Seconds between renewals, and between attempts to lead."
)
@click.option("--health-port", type=_PORT, default=8081, help="Port of /livez and /readyz; 0: any.")
@click.option("--metrics-port", type=_PORT, default=8080, help="Port of /metrics; 0: any.")
@click.option("--image", default="deathless:latest", help="Image of drill runners and agents.")
@click.option(
    "--image-pull-policy",
    type=click.Choice(["Always", "IfNotPresent", "Never"]),
    default="IfNotPresent",
    help="Pull policy of it, and of services' images without a policy.",
)
@click.option("--image-pull-secrets", default="", help="Names of the pull Secrets for it, separated by commas.")
@click.option("--lock-endpoints", default="", help="Lock store of services that name none, separated by commas.")
@click.option("--lock-tls-secret", default="", help="Secret with ca.crt, tls.crt and tls.key for it.")
@click.option("--lock-user-secret", default="", help="Secret with username and password for it.")
@click.option("--lock-users/--no-lock-users", default=False, help="Whether each service has a user of its own there.")
@click.option("--network-policies/--no-network-policies", default=True, help="Whether to create one for each service.")
@click.option("--api-server-ports", default="443,6443", help="Ports of the API server that replicas use.")
@click.option("--cluster-domain", default="cluster.local", help="Domain of the cluster's names.")
@click.option("--drill-agents/--no-drill-agents", default=False, help="Whether drills may start privileged agents.")
@click.option("--drill-agent-service-account", default="deathless-drill-agent", help="Service account of these agents.")
@click.option("--drill-node-drain/--no-drill-node-drain", default=False, help="Whether drills may drain nodes.")
@click.option("--prometheus-url", default="", help="Prometheus of which metrics of ramps are asked; default: none.")
@click.option(
    "--resync-seconds",
    type=click.IntRange(1, 86400),
    default=300,
    help="Reconcile each object at least this often, in seconds.",
)
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info")
@click.option("--log-format", type=click.Choice(["json", "text"]), default="json")
@click.option("--kubeconfig", default="", help="Kubeconfig; default: the pod's service account.")
def command(**given: object) -> int:
    """Run the operator: watch services and drills, and reconcile them."""
    log_format.set_up(str(given["log_level"]), as_json=given["log_format"] == "json")
    options = run_options(given, connect(str(given["kubeconfig"])))

    async def run() -> int:
        return await Operator(options).run()

    return asyncio.run(run())
