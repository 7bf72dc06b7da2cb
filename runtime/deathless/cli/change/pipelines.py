"""`deathless pipelines ...`: who drives a pipeline, how its queries stand, and rows that were refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click
import msgspec

from deathless.base.errors import InvalidArgument
from deathless.base.listings.texts import show_bytes, show_time
from deathless.cli.options import ListedGroup, json_option, service_options, target
from deathless.cli.output import print_json, print_json_line, print_table

if TYPE_CHECKING:
    from deathless.pipelines.client import PipelineClient
    from deathless.pipelines.service import QueryView, RefusedView
    from deathless.shell.operate.target import Target

F = TypeVar("F", bound=Callable[..., object])
CELL_MAX: Final = 60  # characters
PAGE: Final = 250  # refused rows asked for, or sent, at once

query_argument = click.argument("query")
ids_argument = click.argument("ids", nargs=-1, metavar="[ID]...", type=click.IntRange(min=1))


@click.group(cls=ListedGroup)
def pipelines() -> None:
    """Pipelines of Spark: drivers, queries, and rows that handlers refused.

    \b
    deathless pipelines drive delays.py:build -f delays.yaml     runs a driver; twice for a warm standby
    deathless pipelines show -f delays.yaml
    deathless pipelines refused alarms -f delays.yaml
    """


def _services(pairs: tuple[str, ...]) -> dict[str, str]:
    """Give places of services by name. Raises: InvalidArgument."""
    found = {}
    for text in pairs:
        name, equals, folder = text.partition("=")
        remote = folder.startswith(("http://", "https://"))
        if not equals or not (remote or Path(folder).is_dir()):
            raise InvalidArgument(f"--service takes NAME=FOLDER of a service's directory, or NAME=URL, not {text!r}")
        found[name] = folder if remote else str(Path(folder).absolute())
    return found


@pipelines.command("drive")
@click.argument("module", metavar="MODULE:FUNCTION")
@click.option("--trigger", default="100 milliseconds", show_default=True, help="Pause between two batches.")
@click.option("--conf", multiple=True, metavar="NAME=VALUE", help="Configuration of Spark; may be repeated.")
@click.option(
    "--service",
    "services",
    multiple=True,
    metavar="NAME=PLACE",
    help="Where a service that is read is found: its folder, or the URL of its HTTP port (several are divided by "
    "commas); default: services beside the pipeline's own folder.",
)
@service_options
@json_option
def drive(
    module: str,
    trigger: str,
    conf: tuple[str, ...],
    services: tuple[str, ...],
    manifest: str,
    directory: str,
    as_json: bool,
) -> int:
    """Keep a Spark driver, which runs the queries of FUNCTION(spark) when it is its turn.

    Run it two times, or on two machines: the second driver is warmed up and waits, and goes on when the first one dies.
    Needs Java 17 and `pip install deathless[spark]`. Ctrl-C ends the driver, and another one goes on.
    What happens to it is told line by line.

    \b
    deathless pipelines drive delays.py:build -f delays.yaml
    deathless pipelines drive delays.py:build -f delays.yaml --conf spark.master=local[4]
    """
    found = target(manifest, directory, every=True)
    from deathless.pipelines.client import PipelineClient
    from deathless.shell.process.logs import configure
    from deathless.spark.agent import Agent, agent_name, driver_command
    from deathless.spark.options import offer_services
    from deathless.spark.session import check, configuration, read_conf

    configuration(read_conf(conf))
    check()
    named = _services(services)
    offer_services(named, "" if named else str(Path(found.config.service_directory).parent))
    path, _, function = module.rpartition(":")
    if not path:
        raise InvalidArgument(f"{module!r} names no function; write path/to/file.py:function or module:function")
    place = str(Path(path).absolute()) if path.endswith(".py") else path
    configure("info", found.config.service, "agent")
    command = driver_command(f"{place}:{function}", manifest, directory, conf, trigger)

    def tell(event: str, number: int) -> None:
        if as_json:
            print_json_line({"event": event, "number": number})
        else:
            print(f"driver {number or '-'}  {event}", flush=True)

    with PipelineClient.of(found) as client, Agent(client, agent_name(), command, tell) as agent:
        agent.run()
    return 0


@pipelines.command("show")
@click.argument("query", required=False)
@service_options
@json_option
def show(query: str | None, manifest: str, directory: str, as_json: bool) -> int:
    """Show who drives and how the queries stand, or one QUERY in detail."""
    with _client(target(manifest, directory, every=True)) as client:
        drivers = client.drivers()
        views = {name: client.show(name) for name in ([query] if query else drivers.queries)}
    if as_json:
        print_json({"drivers": drivers, "queries": views})
        return 0
    if query:
        _print_query(views[query])
        return 0
    state = drivers.failed or ("suspended" if drivers.suspended else "")
    print(f"driver   {drivers.agent or 'none'}, number {drivers.number}" + (f"; {state}" if state else ""))
    standbys = [
        f"{name} ({'warm' if agent.warm else 'starting'})"
        for name, agent in drivers.agents.items()
        if name != drivers.agent
    ]
    print(f"standby  {', '.join(standbys) or 'none'}")
    rows = [
        (name, view.tip.batch if view.tip else "", show_time(view.tip.time_us) if view.tip else "", view.applied,
         view.waiting_rows, view.refused, view.stopped[:CELL_MAX] or "runs")
        for name, view in views.items()
    ]  # fmt: skip
    if rows:
        print_table(("query", "batch", "decided", "rows applied", "waiting", "refused", "state"), rows)
    return 0


def _print_query(view: QueryView) -> None:
    told = {
        "state": view.stopped or "runs",
        "driver": view.number,
        "batch": view.tip.batch if view.tip else "none",
        "batches": f"{view.batches} decided",
        "decided": show_time(view.tip.time_us) if view.tip else "",
        "position": view.tip.position if view.tip else "",
        "rows applied": view.applied,
        "rows waiting": view.waiting_rows,
        "bytes kept": show_bytes(view.held_bytes),
        "refused": f"{view.refusals}, of which {view.refused} are listed",
    }
    for label, value in told.items():
        print(f"{label:<13} {value}")


@pipelines.command("refused")
@query_argument
@service_options
@json_option
def refused(query: str, manifest: str, directory: str, as_json: bool) -> int:
    """List rows that their handlers refused."""
    with _client(target(manifest, directory, every=True)) as client:
        rows = _refused(client, query)
    if as_json:
        print_json({"refused": rows})
    elif not rows:
        print("no row is listed")
    else:
        print_table(
            ("id", "key", "handler", "error", "row"),
            [
                (
                    each.id, each.row.key, f"{each.row.service}.{each.row.method}",
                    f"{each.row.code} {each.row.text}"[:CELL_MAX],
                    msgspec.json.encode(each.row.arguments).decode()[:CELL_MAX],
                )
                for each in rows
            ],
        )  # fmt: skip
    return 0


@pipelines.command("retry")
@query_argument
@ids_argument
@service_options
@json_option
def retry(query: str, ids: tuple[int, ...], manifest: str, directory: str, as_json: bool) -> int:
    """Send refused rows once more: those with these IDs, or all that are listed."""
    with _client(target(manifest, directory, every=True)) as client:
        chosen = list(ids) or [each.id for each in _refused(client, query)]
        again = [each for at in range(0, len(chosen), PAGE) for each in client.retry(query, chosen[at : at + PAGE])]
    if as_json:
        print_json({"sent": len(chosen), "refusedAgain": again})
    else:
        print(f"{len(chosen)} sent, {len(again)} refused again")
    return 0


@pipelines.command("drop")
@query_argument
@ids_argument
@service_options
@json_option
def drop(query: str, ids: tuple[int, ...], manifest: str, directory: str, as_json: bool) -> int:
    """Let go of refused rows for ever: those with these IDs."""
    if not ids:
        raise click.UsageError("name the rows: their IDs are those that `deathless pipelines refused` shows")
    with _client(target(manifest, directory, every=True)) as client:
        dropped = client.drop(query, ids)
    if as_json:
        print_json({"dropped": dropped})
    else:
        print(f"{dropped} dropped")
    return 0


@pipelines.command("resume")
@click.argument("query", required=False)
@service_options
@json_option
def resume(query: str | None, manifest: str, directory: str, as_json: bool) -> int:
    """Let a stopped QUERY go on; without one, let somebody drive again."""
    with _client(target(manifest, directory, every=True)) as client:
        if query:
            client.resume(query)
        else:
            client.suspend(suspended=False)
    _said(f"{query or 'the pipeline'} goes on", as_json=as_json)
    return 0


@pipelines.command("adopt")
@query_argument
@click.option("--why", required=True, help="Why; it is kept with the decision, in the table's store.")
@service_options
@json_option
def adopt(query: str, why: str, manifest: str, directory: str, as_json: bool) -> int:
    """Have QUERY, whose rows go to a table, go on from where it stands here.

    For a table that was restored from a backup, whose columns have changed, or that a former pipeline of the same name
    has filled. What the table has or lacks by then stays so. A query that is stopped has to be resumed as well.
    """
    if not why.strip():
        raise click.UsageError("--why is empty: whoever looks at the table later wants to know")
    with _client(target(manifest, directory, every=True)) as client:
        client.adopt(query, why)
    _said(f"{query} goes on from here as soon as its driver opens the table", as_json=as_json)
    return 0


@pipelines.command("suspend")
@service_options
@json_option
def suspend(manifest: str, directory: str, as_json: bool) -> int:
    """Have nobody drive until `deathless pipelines resume`; rows of decided batches still reach their handlers."""
    with _client(target(manifest, directory, every=True)) as client:
        client.suspend(suspended=True)
    _said("nobody drives", as_json=as_json)
    return 0


@pipelines.command("switchover")
@service_options
@json_option
def switchover(manifest: str, directory: str, as_json: bool) -> int:
    """Have another driver go on, as soon as a warm one is there."""
    with _client(target(manifest, directory, every=True)) as client:
        drives = client.hand_over()
    _said(f"{drives} hands over" if drives else "nobody drives", as_json=as_json)
    return 0


def _said(text: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"done": text})
    else:
        print(text)


def _client(found: Target) -> PipelineClient:
    """Give a client, or say at once why there is nobody to talk to. Raises: PeerUnreachable."""
    from deathless.pipelines.client import PipelineClient
    from deathless.shell.operate.down import why_down

    if (down := asyncio.run(why_down(found))) is not None:
        raise down
    return PipelineClient.of(found)


def _refused(client: PipelineClient, query: str) -> list[RefusedView]:
    """Give all rows that are listed."""
    rows: list[RefusedView] = []
    while len(page := client.refused(query, rows[-1].id if rows else 0, PAGE)) == PAGE:
        rows += page
    return rows + page
