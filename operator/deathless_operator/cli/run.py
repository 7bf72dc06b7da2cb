"""`deathless-operator run`: what the chart says, as options or as environment, and the operator's process.

Every option may be given as `DEATHLESS_` and its name in capitals; an option wins. Design page 0005, "The operator's
command line", has the table.

Guarantees: exit code 0 when told to end, 76 (as every Fenced error) when the lease was lost, another when something
that must not end did; relations among the figures are checked before anything is opened. Does not: work.
"""

from __future__ import annotations

import asyncio

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
    help="Where the operator lives: its authority, agents and Lease; the account's own when empty.",
)
@click.option(
    "--identity",
    envvar=["DEATHLESS_IDENTITY", "POD_NAME"],
    default="",
    help="Holder of the Lease; a random end is added. The host name when empty.",
)
@click.option("--watch-namespaces", default="", help="Namespaces whose services are served, by commas; all when empty.")
@click.option("--leader-election/--no-leader-election", default=True, help="Whether one of several is elected.")
@click.option("--lease-name", default="deathless-operator", help="Name of the Lease.")
@click.option("--lease-namespace", default="", help="Namespace of the Lease; --namespace when empty.")
@click.option("--lease-seconds", type=float, default=15.0, help="A silent leader is followed after this.")
@click.option("--renew-seconds", type=float, default=10.0, help="A leader that cannot renew ends after this.")
@click.option("--retry-seconds", type=float, default=2.0, help="Between renewals, and between looks.")
@click.option("--health-port", type=_PORT, default=8081, help="Port of /livez and /readyz; 0: any.")
@click.option("--metrics-port", type=_PORT, default=8080, help="Port of /metrics; 0: any.")
@click.option("--image", default="deathless:latest", help="Image of drill runners and agents.")
@click.option(
    "--image-pull-policy",
    type=click.Choice(["Always", "IfNotPresent", "Never"]),
    default="IfNotPresent",
    help="When it is pulled, and images of services that do not say.",
)
@click.option("--image-pull-secrets", default="", help="Names of Secrets to pull it with, by commas.")
@click.option("--lock-endpoints", default="", help="Lock store of services that name none, by commas.")
@click.option("--lock-tls-secret", default="", help="Secret with ca.crt, tls.crt, tls.key for it.")
@click.option("--lock-user-secret", default="", help="Secret with username and password for it.")
@click.option("--lock-users/--no-lock-users", default=False, help="Each service has a user of its own there.")
@click.option("--network-policies/--no-network-policies", default=True, help="Make one for each service.")
@click.option("--api-server-ports", default="443,6443", help="Ports at which replicas reach the API server.")
@click.option("--cluster-domain", default="cluster.local", help="Domain of the cluster's names.")
@click.option("--drill-agents/--no-drill-agents", default=False, help="Whether drills may start privileged agents.")
@click.option("--drill-agent-service-account", default="deathless-drill-agent", help="Their account.")
@click.option("--drill-node-drain/--no-drill-node-drain", default=False, help="Whether drills may drain nodes.")
@click.option(
    "--resync-seconds", type=click.IntRange(1, 86400), default=300, help="Look at each object at least so often."
)
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info")
@click.option("--log-format", type=click.Choice(["json", "text"]), default="json")
@click.option("--kubeconfig", default="", help="Where the API server is; the pod's own account when empty.")
def command(**given: object) -> int:
    """Run the operator: watch services and drills, and do what is to be done about them."""
    log_format.set_up(str(given["log_level"]), as_json=given["log_format"] == "json")
    options = run_options(given, connect(str(given["kubeconfig"])))

    async def run() -> int:
        return await Operator(options).run()

    return asyncio.run(run())
