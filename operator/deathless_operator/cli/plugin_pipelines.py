"""`kubectl deathless pipelines ...`: who drives a SparkPipeline, how its queries stand, and rows that were refused.

A pipeline's service is called as the pipeline is, and is asked through its front door as any service is: its handlers
and queries are those of `deathless.pipelines.service`.

Guarantees: an order goes out under one idempotency key; the name of a query that no driver ever had reaches no handler.
Does not: start drivers, which the operator does.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, TypeVar

import click

from deathless.base.errors import UnknownService
from deathless.base.listings import pipelines as listing
from deathless_operator.cli import plugin_view as view
from deathless_operator.cli.plugin_cluster import Cluster, FrontDoor, entered, fitted
from deathless_operator.cli.plugin_options import answer_option, common, json_option, on_cluster, pipeline_argument
from deathless_operator.cluster.kinds import PIPELINE

T = TypeVar("T")
AGAIN: Final = "look with `kubectl deathless pipelines show`, and repeat the command if it was not done"
query_argument = click.argument("query")
ids_argument = click.argument("ids", nargs=-1, metavar="[ID]...", type=click.IntRange(min=1))


@click.group()
def pipelines() -> None:
    """Pipelines of Spark: drivers, queries, and rows that handlers refused.

    \b
    kubectl deathless pipelines show delays
    kubectl deathless pipelines refused delays alarms
    kubectl deathless pipelines switchover delays
    """  # noqa: D301 - click's mark for a paragraph that keeps its lines


class Door:
    """A pipeline's service.

    Args:
        door: of the service.
        pipeline: its name.
    """

    def __init__(self, door: FrontDoor, pipeline: str) -> None:
        self._door = door
        self._pipeline = pipeline

    async def ask(self, name: str, key: str, **arguments: object) -> object:
        """Ask a query of the service."""
        return await self._door.query(name, key, arguments)

    async def order(self, handler: str, key: str, **arguments: object) -> object:
        """Call a handler of the service."""
        return await self._door.call(handler, key, arguments, secrets.token_hex(16), AGAIN)

    async def check(self, query: str) -> None:
        """Raises: InvalidArgument for a query that no driver ever had."""
        drivers = fitted(await self.ask("show_drivers", listing.DRIVERS), listing.Drivers)
        if query in drivers.queries:
            return
        if query != listing.DRIVERS and fitted(await self.ask("show", query), listing.Query).number:
            return
        raise listing.unknown(self._pipeline, query, drivers.queries)

    async def refused(self, query: str) -> list[dict[str, object]]:
        """Give all refused rows that are listed."""
        rows: list[dict[str, object]] = []
        above = 0
        while True:
            told = await self.ask("show_refused", query, above=above, most=listing.PAGE)
            page = fitted(told, list[dict[str, object]])
            if not page:
                return rows
            rows += page
            above = fitted(page[-1], listing.RefusedRow).id


@contextlib.asynccontextmanager
async def _entered(cluster: Cluster, pipeline: str, timeout_s: float) -> AsyncIterator[Door]:
    """Open a pipeline's service. Raises: UnknownService where there is none; as `plugin_cluster.entered`."""
    if await cluster.api.find(PIPELINE, cluster.namespace, pipeline) is None:
        told = f"there is no SparkPipeline {pipeline} in namespace {cluster.namespace}"
        raise UnknownService(told, remedy="name another one, or another namespace with -n")
    async with entered(cluster, pipeline, timeout_s) as door:
        yield Door(door, pipeline)


def _with(
    pipeline: str,
    query: str | None,
    work: Callable[[Door], Awaitable[T]],
    namespace: str,
    kubeconfig: str,
    timeout: float,
) -> T:
    """Do something with a pipeline's service, about a query that it has where one is named."""

    async def inside(cluster: Cluster) -> T:
        async with _entered(cluster, pipeline, timeout) as door:
            if query is not None:
                await door.check(query)
            return await work(door)

    found: T = on_cluster(namespace, kubeconfig, inside)
    return found


def _said(text: str, *, as_json: bool) -> int:
    if as_json:
        view.emit({"done": text})
    else:
        view.console().print(text, markup=False)
    return 0


@pipelines.command("show")
@pipeline_argument
@click.argument("query", required=False)
@common
@json_option
@answer_option
def show(pipeline: str, query: str | None, namespace: str, kubeconfig: str, as_json: bool, timeout: float) -> int:
    """Show who drives and how the queries stand, or one QUERY in detail."""

    async def work(door: Door) -> tuple[object, dict[str, object]]:
        drivers = await door.ask("show_drivers", listing.DRIVERS)
        queries = [query] if query else fitted(drivers, listing.Drivers).queries
        return drivers, {each: await door.ask("show", each) for each in queries}

    drivers, views = _with(pipeline, query, work, namespace, kubeconfig, timeout)
    if as_json:
        view.emit({"drivers": drivers, "queries": views})
        return 0
    shown = {name: fitted(each, listing.Query) for name, each in views.items()}
    lines = listing.query_lines(shown[query]) if query else listing.driver_lines(fitted(drivers, listing.Drivers))
    for line in lines:
        view.console().print(line, markup=False)
    if shown and not query:
        view.console().print(view.table(listing.COLUMNS, listing.query_rows(shown)))
    return 0


@pipelines.command("refused")
@pipeline_argument
@query_argument
@common
@json_option
@answer_option
def refused(pipeline: str, query: str, namespace: str, kubeconfig: str, as_json: bool, timeout: float) -> int:
    """List rows that their handlers refused."""
    rows = _with(pipeline, query, lambda door: door.refused(query), namespace, kubeconfig, timeout)
    if as_json:
        view.emit({"refused": rows})
    elif not rows:
        view.console().print(listing.NONE_REFUSED)
    else:
        shown = listing.refused_rows(fitted(rows, list[listing.RefusedRow]))
        view.console().print(view.table(listing.REFUSED_COLUMNS, shown))
    return 0


@pipelines.command("retry")
@pipeline_argument
@query_argument
@ids_argument
@common
@json_option
@answer_option
def retry(
    pipeline: str, query: str, ids: tuple[int, ...], namespace: str, kubeconfig: str, as_json: bool, timeout: float
) -> int:
    """Send refused rows once more: those with these IDs, or all that are listed.

    A row that was taken is not listed any more, so the command may be repeated.
    """

    async def work(door: Door) -> tuple[int, list[int]]:
        chosen = list(ids)
        if not chosen:
            chosen = [each.id for each in fitted(await door.refused(query), list[listing.RefusedRow])]
        again: list[int] = []
        for part in listing.parts_of(chosen):
            again += fitted(await door.order("send_again", query, ids=part), list[int])
        return len(chosen), again

    sent, again = _with(pipeline, query, work, namespace, kubeconfig, timeout)
    if as_json:
        view.emit({"sent": sent, "refusedAgain": again})
    else:
        view.console().print(listing.retried(sent, len(again)))
    return 0


@pipelines.command("drop")
@pipeline_argument
@query_argument
@ids_argument
@common
@json_option
@answer_option
def drop(
    pipeline: str, query: str, ids: tuple[int, ...], namespace: str, kubeconfig: str, as_json: bool, timeout: float
) -> int:
    """Let go of refused rows for ever: those with these IDs."""
    if not ids:
        raise click.UsageError("name the rows: their IDs are those that `kubectl deathless pipelines refused` shows")

    async def work(door: Door) -> int:
        return fitted(await door.order("drop_refused", query, ids=list(ids)), int)

    dropped = _with(pipeline, query, work, namespace, kubeconfig, timeout)
    if as_json:
        view.emit({"dropped": dropped})
    else:
        view.console().print(listing.dropped(dropped))
    return 0


@pipelines.command("resume")
@pipeline_argument
@click.argument("query", required=False)
@common
@json_option
@answer_option
def resume(pipeline: str, query: str | None, namespace: str, kubeconfig: str, as_json: bool, timeout: float) -> int:
    """Let a stopped QUERY go on; without one, let somebody drive again."""

    async def work(door: Door) -> object:
        if query:
            return await door.order("resume", query)
        return await door.order("suspend", listing.DRIVERS, suspended=False)

    _with(pipeline, query, work, namespace, kubeconfig, timeout)
    return _said(listing.resumed(query or ""), as_json=as_json)


@pipelines.command("suspend")
@pipeline_argument
@common
@json_option
@answer_option
def suspend(pipeline: str, namespace: str, kubeconfig: str, as_json: bool, timeout: float) -> int:
    """Have nobody drive until `pipelines resume`; rows of decided batches still reach their handlers."""

    async def work(door: Door) -> Any:
        return await door.order("suspend", listing.DRIVERS, suspended=True)

    _with(pipeline, None, work, namespace, kubeconfig, timeout)
    return _said(listing.SUSPENDED, as_json=as_json)


@pipelines.command("switchover")
@pipeline_argument
@common
@json_option
@answer_option
def switchover(pipeline: str, namespace: str, kubeconfig: str, as_json: bool, timeout: float) -> int:
    """Have another driver go on, as soon as a warm one is there."""

    async def work(door: Door) -> str:
        return fitted(await door.order("hand_over", listing.DRIVERS), str)

    return _said(listing.handed_over(_with(pipeline, None, work, namespace, kubeconfig, timeout)), as_json=as_json)


@pipelines.command("adopt")
@pipeline_argument
@query_argument
@click.option("--why", required=True, help="Why; it is kept with the decision, in the table's store.")
@common
@json_option
@answer_option
def adopt(pipeline: str, query: str, why: str, namespace: str, kubeconfig: str, as_json: bool, timeout: float) -> int:
    """Have QUERY, whose rows go to a table, go on from where it stands here.

    For a table that was restored from a backup, whose columns have changed, or that a former pipeline of the same name
    has filled. What the table has or lacks by then stays so. A query that is stopped has to be resumed as well.
    """
    if not why.strip():
        raise click.UsageError("--why is empty: whoever looks at the table later wants to know")
    _with(pipeline, query, lambda door: door.order("adopt", query, why=why), namespace, kubeconfig, timeout)
    return _said(listing.adopted(query), as_json=as_json)
