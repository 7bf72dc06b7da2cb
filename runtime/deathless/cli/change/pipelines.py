"""`deathless pipelines ...`: who drives a pipeline, how its queries stand, and rows that were refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click
import msgspec

from deathless.base.errors import InvalidArgument
from deathless.base.listings import pipelines as listing
from deathless.base.pipelines.conf import BY_FILE, NO_SECRETS, holds_secret
from deathless.cli.options import ListedGroup, json_option, service_options, target
from deathless.cli.output import print_json, print_json_line, print_table

if TYPE_CHECKING:
    from deathless.pipelines.client import PipelineClient
    from deathless.pipelines.service import RefusedView
    from deathless.shell.operate.target import Target

F = TypeVar("F", bound=Callable[..., object])
S = TypeVar("S", bound=msgspec.Struct)
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

    for name in configuration(read_conf(conf)):
        if holds_secret(name):
            raise InvalidArgument(f"--conf {name} {NO_SECRETS}", remedy=BY_FILE)
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
        if query:
            _check(client, query)
        drivers = client.drivers()
        views = {name: client.show(name) for name in ([query] if query else drivers.queries)}
    if as_json:
        print_json({"drivers": drivers, "queries": views})
        return 0
    if query:
        print("\n".join(listing.query_lines(_shown(views[query], listing.Query))))
        return 0
    print("\n".join(listing.driver_lines(_shown(drivers, listing.Drivers))))
    if views:
        shown = {name: _shown(view, listing.Query) for name, view in views.items()}
        print_table(listing.COLUMNS, listing.query_rows(shown))
    return 0


@pipelines.command("refused")
@query_argument
@service_options
@json_option
def refused(query: str, manifest: str, directory: str, as_json: bool) -> int:
    """List rows that their handlers refused."""
    with _client(target(manifest, directory, every=True)) as client:
        _check(client, query)
        rows = _refused(client, query)
    if as_json:
        print_json({"refused": rows})
    elif not rows:
        print(listing.NONE_REFUSED)
    else:
        shown = listing.refused_rows(_shown(each, listing.RefusedRow) for each in rows)
        print_table(listing.REFUSED_COLUMNS, shown)
    return 0


@pipelines.command("retry")
@query_argument
@ids_argument
@service_options
@json_option
def retry(query: str, ids: tuple[int, ...], manifest: str, directory: str, as_json: bool) -> int:
    """Send refused rows once more: those with these IDs, or all that are listed."""
    with _client(target(manifest, directory, every=True)) as client:
        _check(client, query)
        chosen = list(ids) or [each.id for each in _refused(client, query)]
        again = [each for part in listing.parts_of(chosen) for each in client.retry(query, part)]
    if as_json:
        print_json({"sent": len(chosen), "refusedAgain": again})
    else:
        print(listing.retried(len(chosen), len(again)))
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
        _check(client, query)
        dropped = client.drop(query, ids)
    if as_json:
        print_json({"dropped": dropped})
    else:
        print(listing.dropped(dropped))
    return 0


@pipelines.command("resume")
@click.argument("query", required=False)
@service_options
@json_option
def resume(query: str | None, manifest: str, directory: str, as_json: bool) -> int:
    """Let a stopped QUERY go on; without one, let somebody drive again."""
    with _client(target(manifest, directory, every=True)) as client:
        if query:
            _check(client, query)
            client.resume(query)
        else:
            client.suspend(suspended=False)
    _said(listing.resumed(query or ""), as_json=as_json)
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
        _check(client, query)
        client.adopt(query, why)
    _said(listing.adopted(query), as_json=as_json)
    return 0


@pipelines.command("suspend")
@service_options
@json_option
def suspend(manifest: str, directory: str, as_json: bool) -> int:
    """Have nobody drive until `deathless pipelines resume`; rows of decided batches still reach their handlers."""
    with _client(target(manifest, directory, every=True)) as client:
        client.suspend(suspended=True)
    _said(listing.SUSPENDED, as_json=as_json)
    return 0


@pipelines.command("switchover")
@service_options
@json_option
def switchover(manifest: str, directory: str, as_json: bool) -> int:
    """Have another driver go on, as soon as a warm one is there."""
    with _client(target(manifest, directory, every=True)) as client:
        drives = client.hand_over()
    _said(listing.handed_over(drives), as_json=as_json)
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


def _check(client: PipelineClient, query: str) -> None:
    """Raises: InvalidArgument for a query that no driver ever had."""
    queries = client.drivers().queries
    if query not in queries and (query == listing.DRIVERS or not client.show(query).number):
        raise listing.unknown(client.name, query, queries)


def _refused(client: PipelineClient, query: str) -> list[RefusedView]:
    """Give all rows that are listed."""
    rows: list[RefusedView] = []
    while page := client.refused(query, rows[-1].id if rows else 0, listing.PAGE):
        rows += page
    return rows


def _shown(view: object, kind: type[S]) -> S:
    """Give what is shown of a view."""
    return msgspec.convert(view, kind, from_attributes=True)
