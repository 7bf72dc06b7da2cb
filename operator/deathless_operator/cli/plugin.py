"""`kubectl deathless`: what a person asks of services in a cluster, as a plugin of kubectl.

    status      how services are: who leads, who is ready, what is wrong
    switchover  let another replica lead, and wait until it does
    drill       break something on purpose, and be told what came of it
    logs        what the primary (or a replica) says
    call        call a handler, or ask a query, through the front door
    invocations, order, parked, retry-parked, unknown, settle, undelivered, retry-undelivered, discard-undelivered,
    peers, adopt-peer, resume-outside
                what operators see and order there, by a token of their own (`plugin_operators`)
    sources, sinks
                how far they are, and what becomes of rows that were refused (`plugin_sources`)
    pipelines   who drives a SparkPipeline, how its queries stand, rows that were refused (`plugin_pipelines`)
    fence       stop replicas from serving; unfence lets them again (`plugin_holds`, like the two below)
    pause       let the operator change nothing; resume lets it again
    adopt       accept what replicas refuse to start from, in a pod where the log is (`plugin_adopt`)
    upgrade     to which code a service is or would be upgraded, and a person's word for it (`plugin_upgrade`)

Guarantees: an error is one block (code, what, remedy) and an exit code of its class. With --json standard output holds
JSON alone. Does nothing that the operator or kubectl could not: it reads objects, sets annotations, makes a
FailoverDrill, deletes a pod.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import sys
import time
from typing import Any, get_args

import click
import msgspec
from click.shell_completion import ShellComplete, get_completion_class

from deathless.base.errors import DeathlessError, InvalidArgument, OutcomeUnknown
from deathless_operator.cli import plugin_view as view
from deathless_operator.cli.plugin_adopt import adopt
from deathless_operator.cli.plugin_cluster import Cluster, call, parse_arguments
from deathless_operator.cli.plugin_holds import HOLDS
from deathless_operator.cli.plugin_operators import COMMANDS
from deathless_operator.cli.plugin_options import (
    common,
    complete_service,
    handover_timeout_option,
    json_option,
    on_cluster,
    service_argument,
    shard_option,
    timeout_option,
)
from deathless_operator.cli.plugin_pipelines import pipelines
from deathless_operator.cli.plugin_sources import sinks, sources
from deathless_operator.cli.plugin_upgrade import upgrade
from deathless_operator.model import names
from deathless_operator.model.drill import DrillRun, FaultType

PROGRAM = "kubectl deathless"
EXIT_NOT_READY = 69
LOOK_S = 0.5


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--debug", is_flag=True, help="Show tracebacks of errors.")
def cli(debug: bool) -> None:
    """Replicated services that survive the death of any pod.

    \b
    kubectl deathless status
    kubectl deathless switchover bank
    kubectl deathless drill bank --fault Freeze
    kubectl deathless call bank deposit --key alice --arg amount=5
    kubectl deathless invocations bank
    kubectl deathless sources list bank
    kubectl deathless pipelines show delays
    """  # noqa: D301 - click's mark for a paragraph that keeps its lines


for each in (*COMMANDS, *HOLDS, adopt, pipelines, sinks, sources, upgrade):
    cli.add_command(each)


@cli.command()
@click.argument("service", default="", shell_complete=complete_service)
@common
@json_option
@click.option("-w", "--watch", is_flag=True, help="Keep watching until Ctrl-C.")
@click.option("--conditions", is_flag=True, help="Show every condition, not only those that need attention.")
def status(service: str, namespace: str, kubeconfig: str, as_json: bool, watch: bool, conditions: bool) -> int:
    """Show the status of a service, or of all in the namespace. The exit code is 69 while one is not Ready."""

    async def look(cluster: Cluster) -> int:
        while True:
            found = [await cluster.service(service)] if service else await cluster.services()
            drills = await cluster.drills(service) if service else []
            if as_json:
                told = [{"name": one.name, "status": one.status} for one in found]
                view.emit(told[0] if service else told)
            elif service:
                _show_service(found[0].name, found[0].status, drills, every=conditions)
            else:
                _show_services(cluster.namespace, [(one.name, one.status) for one in found])
            if not watch:
                return 0 if all(_is_ready(one.status) for one in found) else EXIT_NOT_READY
            await asyncio.sleep(2 * LOOK_S)

    result: int = on_cluster(namespace, kubeconfig, look)
    return result


def _is_ready(told: Any) -> bool:
    return any(one.type == "Ready" and one.status == "True" for one in told.conditions)


def _show_service(name: str, told: Any, drills: list[Any], *, every: bool) -> None:
    console = view.console()
    console.print(view.summary(name, told), style="" if _is_ready(told) else "bold red", markup=False)
    if told.doing:
        console.print(f"operator: {told.doing}", markup=False)
    if told.shards:
        console.print()
        console.print(view.table(view.SHARD_COLUMNS, view.shard_rows(told)))
    if told.members:
        console.print()
        console.print(view.table(view.REPLICA_COLUMNS, view.replica_rows(told)))
    rows = view.condition_rows(told.conditions, time.time(), every=every)
    if rows:
        console.print()
        console.print(view.table(view.CONDITION_COLUMNS, rows))
    runs = [row for drill in drills for row in view.run_rows(drill.name, drill.status)]
    if runs:
        console.print()
        console.print(view.table(view.RUN_COLUMNS, runs))


def _show_services(namespace: str, found: list[tuple[str, Any]]) -> None:
    console = view.console()
    if not found:
        console.print(f"no DeathlessService in namespace {namespace}", markup=False)
        return
    rows = [(name, told.ready, told.primary, told.epoch or None, _is_ready(told), told.doing) for name, told in found]
    console.print(view.table(("service", "replicas", "primary", "epoch", "ready", "operator"), rows))


@cli.command()
@service_argument
@common
@json_option
@handover_timeout_option
@shard_option
def switchover(
    service: str, namespace: str, kubeconfig: str, as_json: bool, timeout: float | None, shard: int | None
) -> int:
    """Make another replica primary, and wait until it is. No call is lost, and none fails.

    The primary first waits up to limits.handoverWaitS for at-most-once activities to end; it serves meanwhile.
    """
    moved = on_cluster(namespace, kubeconfig, lambda cluster: cluster.switch_over(service, timeout, view.tell, shard))
    if as_json:
        view.emit(msgspec.to_builtins(moved))
    else:
        view.console().print(
            f"{moved.after} leads in epoch {moved.epoch}, {moved.seconds:.2f} s after {moved.before} was asked to go",
            markup=False,
        )
    return 0


@cli.command()
@service_argument
@click.option(
    "--fault",
    default="ProcessKill",
    show_default=True,
    type=click.Choice(get_args(FaultType)),
    help="Which fault to cause.",
)
@click.option(
    "--role",
    default="Primary",
    show_default=True,
    type=click.Choice(["Primary", "Checkpointer", "Standby", "Any"]),
    help="The role of the replica to hit.",
)
@click.option(
    "--duration",
    default=10,
    show_default=True,
    type=click.IntRange(1, 600),
    help="Duration of a lasting fault, in seconds.",
)
@click.option(
    "--unavailable-max",
    default=5.0,
    show_default=True,
    help="The drill fails if a client waits longer than these seconds.",
)
@shard_option
@click.option("--keep", is_flag=True, help="Keep the FailoverDrill; otherwise it is deleted once it is judged.")
@click.option("--no-wait", is_flag=True, help="Create the FailoverDrill, print its name, and return.")
@common
@json_option
@timeout_option
def drill(  # noqa: PLR0913, PLR0917 - one parameter per option, click passes them by name
    service: str,
    fault: str,
    role: str,
    duration: int,
    unavailable_max: float,
    shard: int | None,
    keep: bool,
    no_wait: bool,
    namespace: str,
    kubeconfig: str,
    as_json: bool,
    timeout: float,
) -> int:
    """Cause a fault in a service on purpose, and report the result. The exit code is 0 if the drill passed.

    Calls are made all the time; the verdict says whether any was lost or doubled, and how long a client waited. No
    fault is caused while the service is unhealthy.
    """
    name = f"{service}-{secrets.token_hex(3)}"
    spec: dict[str, object] = {
        "serviceRef": {"name": service},
        "fault": {"type": fault, "role": role, "durationSeconds": duration} | ({"shard": shard} if shard else {}),
        "limits": {"unavailableSecondsMax": unavailable_max},
    }

    async def work(cluster: Cluster) -> DrillRun | None:
        await cluster.service(service)
        await cluster.make_drill(name, spec)
        if no_wait:
            return None
        try:
            return await _follow(cluster, name, max(timeout, 300.0 + duration))
        finally:
            if not keep:
                await cluster.delete_drill(name)

    run = on_cluster(namespace, kubeconfig, work)
    if run is None:
        view.emit({"name": name}) if as_json else view.tell(name)
        return 0
    if as_json:
        view.emit({"name": name, "run": run})
    else:
        for line in view.verdict_lines(run):
            view.console().print(line, style=view.STYLES.get(line.split(":")[0], ""), markup=False)
    return 0 if run.verdict == "Passed" else 1


async def _follow(cluster: Cluster, name: str, timeout_s: float) -> DrillRun:
    """Wait until a drill is judged. Raises: OutcomeUnknown, InvalidArgument."""
    began, said = time.monotonic(), ""
    while time.monotonic() - began < timeout_s:
        found = await cluster.drill(name)
        if found is None:
            raise InvalidArgument(f"drill {name} was deleted")
        if found.status.last is not None:
            return found.status.last
        for one in found.status.conditions:
            text = f"{one.reason}: {one.message}"
            if text != said and (one.type == "Running" or one.reason == "InvalidSpec"):
                view.tell(text)
                said = text
        await asyncio.sleep(LOOK_S)
    raise OutcomeUnknown(f"drill {name} was not judged within {timeout_s:g} s", remedy="check that the operator runs")


@cli.command()
@service_argument
@click.option("-r", "--replica", default="", metavar="NAME", help="r0, r1, ... instead of the primary.")
@click.option("-f", "--follow", is_flag=True, help="Keep showing new lines.")
@click.option("-p", "--previous", is_flag=True, help="Show the log of the container before its last start.")
@click.option(
    "--tail", default=200, show_default=True, type=click.IntRange(min=-1), help="Number of lines; -1 for all."
)
@shard_option
@common
def logs(
    service: str,
    replica: str,
    follow: bool,
    previous: bool,
    tail: int,
    shard: int | None,
    namespace: str,
    kubeconfig: str,
) -> int:
    """Show the log of the primary, or of another replica."""

    async def find(cluster: Cluster) -> tuple[str, str]:
        if not replica:
            return cluster.namespace, (await cluster.primary(service, shard)).name
        return cluster.namespace, (await cluster.replica(service, replica, shard)).name

    where, pod = on_cluster(namespace, kubeconfig, find)
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise InvalidArgument("kubectl is not on the PATH", remedy="install it")
    words = [kubectl, "logs", "--namespace", where, pod, "--container", names.CONTAINER, f"--tail={tail}"]
    words += ["--follow"] if follow else []
    words += ["--previous"] if previous else []
    words += ["--kubeconfig", kubeconfig] if kubeconfig else []
    sys.stdout.flush()
    os.execv(kubectl, words)  # noqa: S606 - the user's own kubectl takes over, without a shell


@cli.command(name="call")
@service_argument
@click.argument("handler")
@click.option("-k", "--key", default="", help="Key of the state; empty for a service of one object.")
@click.option(
    "-a",
    "--arg",
    "pairs",
    multiple=True,
    metavar="NAME=VALUE",
    help="An argument; VALUE is JSON, or taken as a string if it is not.",
)
@click.option("-q", "--query", is_flag=True, help="HANDLER is a query.")
@click.option("--idempotency-key", default="", metavar="KEY", help="The same key runs once; default: a generated one.")
@common
@json_option
@click.option(
    "--timeout",
    default=10.0,
    show_default=True,
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    help="How long to wait for an answer.",
)
def call_command(  # noqa: PLR0913, PLR0917 - one parameter per option, click passes them by name
    service: str,
    handler: str,
    key: str,
    pairs: tuple[str, ...],
    query: bool,
    idempotency_key: str,
    namespace: str,
    kubeconfig: str,
    as_json: bool,
    timeout: float,
) -> int:
    """Call HANDLER of a service over HTTP, and print the result as JSON.

    \b
    kubectl deathless call bank deposit --key alice --arg amount=5
    kubectl deathless call bank balance --key alice --query
    """  # noqa: D301 - click's mark for a paragraph that keeps its lines
    drawn = idempotency_key or secrets.token_hex(16)
    arguments = parse_arguments(pairs)
    result = on_cluster(
        namespace,
        kubeconfig,
        lambda cluster: call(
            cluster, service, handler, key, arguments, query=query, idempotency_key=drawn, timeout_s=timeout
        ),
    )
    view.emit({"result": result, "idempotencyKey": drawn} if as_json and not query else result)
    return 0


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> int:
    """Print the completion script of a shell, for the name kubectl-deathless. (`kubectl deathless` itself completes by
    the program kubectl_complete-deathless, which kubectl finds on the PATH.)
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows the shells that are offered"
    sys.stdout.write(kind(cli, {}, "kubectl-deathless", "_KUBECTL_DEATHLESS_COMPLETE").source())
    return 0


def complete(arguments: list[str] | None = None) -> int:
    """`kubectl_complete-deathless`: give kubectl what may follow, one per line, and its directive."""
    words = sys.argv[1:] if arguments is None else arguments
    *before, incomplete = words or [""]
    for item in ShellComplete(cli, {}, PROGRAM, "").get_completions(before, incomplete):
        sys.stdout.write(f"{item.value}\t{item.help}\n" if item.help else f"{item.value}\n")
    sys.stdout.write(":4\n")  # no file names
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run one command; gives the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        result = cli.main(args=arguments, prog_name=PROGRAM, standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        sys.stderr.write("stopped\n")
        return 130
    except DeathlessError as error:
        if "--debug" in arguments:
            raise
        return show_error(error, as_json="--json" in arguments)


def show_error(error: DeathlessError, *, as_json: bool) -> int:
    """Print an error as one block; gives the exit code of its class."""
    if as_json:
        told = {"code": error.code, "what": error.message, "remedy": error.advice, "exitCode": error.exit_code}
        sys.stderr.write(msgspec.json.encode({"error": told}).decode() + "\n")
        return error.exit_code
    red, plain = ("\x1b[1;31m", "\x1b[0m") if sys.stderr.isatty() else ("", "")
    sys.stderr.write(f"{red}error {error.code} {type(error).__name__}{plain}\n  what    {error.message}\n")
    if error.advice:
        sys.stderr.write(f"  remedy  {error.advice}\n")
    return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
