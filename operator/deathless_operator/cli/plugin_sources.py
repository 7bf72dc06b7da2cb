"""`kubectl deathless sources ...` and `sinks ...`: how far they are, and what becomes of rows that were refused.

Both ask the service's pages for operators (`plugin_operators`), which show what `deathless sources` and `deathless
sinks` show on a laptop. What has to read the source or to speak with the store is done in a pod, which reaches them;
--help says how.

Guarantees: an order goes out once for each row at which a stream stands, or that is run again. Does not: reach a
source or a store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any
from urllib.parse import quote

import click
import msgspec

from deathless.base.errors import InputNotKept, InvalidArgument, StreamNotForgotten, StreamNotStopped
from deathless.base.listings import sinks as sinks_listing
from deathless.base.listings import sources as listing
from deathless.base.listings.texts import show_time
from deathless.base.source_kinds import SOURCE_KINDS
from deathless_operator.cli import plugin_view as view
from deathless_operator.cli.plugin_cluster import Cluster, fitted
from deathless_operator.cli.plugin_operators import Pages, about, opened
from deathless_operator.cli.plugin_options import (
    answer_option,
    common,
    json_option,
    on_cluster,
    service_argument,
    shard_option,
    source_argument,
)

stream_option = click.option(
    "--stream", metavar="N", type=click.IntRange(min=0), default=None, help="Only this stream, by its number."
)


class _Done(msgspec.Struct):
    done: str = ""
    code: str = ""  # with which a row was refused again
    why: str = ""


class _Listed(msgspec.Struct, rename={"first": "from"}):
    sources: list[dict[str, object]] = []
    sinks: list[dict[str, object]] = []
    shard: int = 0  # whose list it is, where it is that of one
    more: bool = False
    first: int = 0  # so many streams were shown before


@click.group()
def sources() -> None:
    """Sources: rows from outside that inputs of a service take.

    \b
    kubectl deathless sources list airports
    kubectl deathless sources refused airports flights
    kubectl deathless sources retry airports flights
    kubectl deathless sources replay airports flights

    Where a source goes on that misses something is decided in a pod, which reads the source:

    \b
    kubectl exec airports-0 -c replica -- deathless sources skip flights --at PLACE -f /etc/deathless/replica.json
    """  # noqa: D301 - click's mark for a paragraph that keeps its lines


@click.group()
def sinks() -> None:
    """Sinks: rows of topics that are stored in tables.

    \b
    kubectl deathless sinks list airports

    What speaks with the store is done in a pod, which reaches it:

    \b
    kubectl exec airports-0 -c replica -- deathless sinks show facts -f /etc/deathless/replica.json
    kubectl exec airports-0 -c replica -- deathless sinks skip facts --position 4711 -f /etc/deathless/replica.json
    kubectl exec airports-0 -c replica -- deathless sinks adopt facts -f /etc/deathless/replica.json
    """  # noqa: D301 - click's mark for a paragraph that keeps its lines


def _page(service: str, page: str, namespace: str, kubeconfig: str, timeout: float) -> _Listed:
    async def work(cluster: Cluster) -> object:
        async with opened(cluster, service, timeout) as pages:
            return await pages.ask(page)

    return fitted(on_cluster(namespace, kubeconfig, work), _Listed)


def _dated(entries: Iterable[dict[str, object]], shard: int) -> list[dict[str, object]]:
    """Give entries with their shard, and with the time as `deathless` has it."""
    return [{"shard": shard, **each, "at": show_time(fitted(each.get("atUs", 0), int))} for each in entries]


@sources.command("list")
@service_argument
@shard_option
@common
@json_option
@answer_option
def list_sources(
    service: str, shard: int | None, namespace: str, kubeconfig: str, as_json: bool, timeout: float
) -> int:
    """List the streams of all sources: how far each is, and what keeps it from going on."""

    async def work(cluster: Cluster) -> list[dict[str, object]]:
        async with opened(cluster, service, timeout) as pages:
            return [each async for each in _streams(pages, shard)]

    told: list[dict[str, object]] = on_cluster(namespace, kubeconfig, work)
    if as_json:
        view.emit({"sources": told})
    elif not told:
        view.console().print(listing.NO_SOURCES)
    else:
        view.console().print(view.table(listing.COLUMNS, listing.stream_rows(told)))
    return 0


async def _streams(pages: Pages, shard: int | None) -> AsyncIterator[dict[str, object]]:
    """Give the streams of all sources, or of those that are read beside one shard, in as many answers as it takes."""
    found = fitted(await pages.ask(about("sources", shard=shard)), _Listed)
    if not found.more:
        for each in _dated(found.sources, found.shard):
            yield each
        return
    for asked in range(pages.shards) if shard is None else [shard]:
        first = 0
        while True:
            page = about("sources", **{"from": first or None}, shard=asked if pages.shards > 1 else None)
            try:
                found = fitted(await pages.ask(page), _Listed)
            except InvalidArgument:
                if not first:
                    raise
                found = _Listed()  # its release has no such parameter
            if found.first != first:
                view.tell(f"shard {asked} has more than {first} streams, and its release shows no others: see them "
                          "with `deathless sources list` in one of its pods")  # fmt: skip
                break
            for each in _dated(found.sources, asked):
                yield each
            first += len(found.sources)
            if not found.more:
                break


@sinks.command("list")
@service_argument
@shard_option
@common
@json_option
@answer_option
def list_sinks(service: str, shard: int | None, namespace: str, kubeconfig: str, as_json: bool, timeout: float) -> int:
    """List the sinks of all shards: how far each is, and what keeps it from storing."""
    found = _page(service, about("sinks", shard=shard), namespace, kubeconfig, timeout)
    told = _dated(found.sinks, found.shard)
    if as_json:
        view.emit({"sinks": told})
    elif not told:
        view.console().print(sinks_listing.NO_SINKS)
    else:
        view.console().print(view.table(sinks_listing.COLUMNS, sinks_listing.sink_rows(told)))
    return 0


@sources.command("refused")
@service_argument
@source_argument
@stream_option
@click.option(
    "--from",
    "first",
    metavar="LSN",
    type=click.IntRange(min=0),
    default=0,
    help="Start at this LSN, of --shard if the service has several.",
)
@shard_option
@common
@json_option
@answer_option
def refused(
    service: str,
    source: str,
    stream: int | None,
    first: int,
    shard: int | None,
    namespace: str,
    kubeconfig: str,
    as_json: bool,
    timeout: float,
) -> int:
    """List rows that were refused: those at which SOURCE stands, dead letters, and rows that were passed over.

    Of a row at which the source stands, and of one that was passed over with `skip`, the reason alone is kept.
    """

    async def work(cluster: Cluster) -> list[listing.Streams]:
        await _check_source(cluster, service, source)
        async with opened(cluster, service, timeout) as pages:
            if first and shard is None and pages.shards > 1:
                raise InvalidArgument("--from is an LSN of one shard", remedy=f"add --shard 0 to {pages.shards - 1}")
            return [told async for _, told in _asked(pages, source, shard, first, stream=stream)]

    asked = on_cluster(namespace, kubeconfig, work)
    rows = [each for told in asked for each in told.rows(stream)]
    if as_json:
        view.emit({"source": source, "refused": rows, "more": any(told.more for told in asked)})
        return 0
    if rows:
        view.console().print(view.table(listing.REFUSED_COLUMNS, listing.refused_rows(rows)))
    else:
        view.console().print(listing.NONE_REFUSED)
    for told in asked:
        if told.more:
            view.console().print(listing.more_refused(told), markup=False)
    return 0


async def _check_source(cluster: Cluster, service: str, source: str) -> None:
    """Raises: UnknownService; InvalidArgument where the service's manifest is known and has no such source."""
    spec = (await cluster.service(service)).spec
    if spec is None or any(each.name == source for each in spec.sources):
        return
    known = ", ".join(each.name for each in spec.sources) or "it has none"
    raise InvalidArgument(f"service {service}: there is no source {source!r}", remedy=f"its sources: {known}")


async def _asked(
    pages: Pages, source: str, shard: int | None, first: int = 0, *, stream: int | None = None, above: int = 0
) -> AsyncIterator[tuple[int, listing.Streams]]:
    """Ask each shard, or one, for what its log has of a source; gives which one as well.

    Args:
        pages: of the service.
        source: its name.
        shard: None: each.
        first: refused rows are those from this LSN on.
        stream: of this one alone; None: of all. A release before this one tells of all, as far as an answer has room.
        above: streams are those whose sessions are above this one.
    """
    page = f"sources/{quote(source, safe='')}/refused"
    for each in range(pages.shards) if shard is None else [shard]:
        which = each if pages.shards > 1 or shard is not None else None
        asked: dict[str, Any] = {"from": first or None, "above": above or None, "shard": which}
        try:
            told = await pages.ask(about(page, **asked, stream=stream))
        except InvalidArgument:
            if stream is None:
                raise
            told = await pages.ask(about(page, **asked))
        yield each, listing.of_shard(fitted(told, listing.Streams), each)


@sources.command("retry")
@service_argument
@source_argument
@stream_option
@shard_option
@common
@json_option
@answer_option
def retry(
    service: str,
    source: str,
    stream: int | None,
    shard: int | None,
    namespace: str,
    kubeconfig: str,
    as_json: bool,
    timeout: float,
) -> int:
    """Have the row at which SOURCE stands tried again: the code, or what is read, was mended."""
    done = _go_on(service, source, stream, shard, listing.RETRY, namespace, kubeconfig, timeout)
    return _print_done(source, done, listing.RETRY, as_json=as_json)


@sources.command("skip")
@service_argument
@source_argument
@stream_option
@shard_option
@common
@json_option
@answer_option
def skip(
    service: str,
    source: str,
    stream: int | None,
    shard: int | None,
    namespace: str,
    kubeconfig: str,
    as_json: bool,
    timeout: float,
) -> int:
    """Pass over the row at which SOURCE stands; the row stays listed.

    Where a source goes on that misses something (`--at` of `deathless sources skip`) is decided in a pod, which reads
    the source:

    \b
    kubectl exec airports-0 -c replica -- deathless sources skip flights --at PLACE -f /etc/deathless/replica.json
    """  # noqa: D301 - click's mark for a paragraph that keeps its lines
    done = _go_on(service, source, stream, shard, listing.SKIP, namespace, kubeconfig, timeout)
    return _print_done(source, done, listing.SKIP, as_json=as_json)


lsns_argument = click.argument("lsns", metavar="[LSN]...", nargs=-1, type=click.IntRange(min=1))


@sources.command("replay")
@service_argument
@source_argument
@lsns_argument
@stream_option
@shard_option
@common
@json_option
@answer_option
def replay(
    service: str,
    source: str,
    lsns: tuple[int, ...],
    stream: int | None,
    shard: int | None,
    namespace: str,
    kubeconfig: str,
    as_json: bool,
    timeout: float,
) -> int:
    """Run refused rows that are kept once more: those with these LSNs, or all, the oldest first.

    Each has its effect once, and is listed no more, or stays listed with the reason of now. It runs behind what was
    taken in since.
    """
    ran = _see_to(service, source, lsns, stream, shard, "replay", namespace, kubeconfig, timeout)
    told = listing.Replayed()
    for lsn, done in ran:
        if done.done == "refused again":
            told.again(lsn, done.code, done.why)
        else:
            told.ran += 1
    if as_json:
        view.emit(told.told(source))
    else:
        for line in (*told.lines(), listing.replayed(source, told)):
            view.console().print(line, markup=False)
    return 0


@sources.command("discard")
@service_argument
@source_argument
@lsns_argument
@shard_option
@common
@json_option
@answer_option
def discard(
    service: str,
    source: str,
    lsns: tuple[int, ...],
    shard: int | None,
    namespace: str,
    kubeconfig: str,
    as_json: bool,
    timeout: float,
) -> int:
    """Let go of refused rows for ever: those with these LSNs."""
    if not lsns:
        raise click.UsageError("name the rows: their LSNs are those that `kubectl deathless sources refused` shows")
    count = len(_see_to(service, source, lsns, None, shard, "discard", namespace, kubeconfig, timeout))
    if as_json:
        view.emit({"source": source, "discarded": count})
    else:
        view.console().print(listing.discarded(source, count), markup=False)
    return 0


def _see_to(
    service: str,
    source: str,
    lsns: tuple[int, ...],
    stream: int | None,
    shard: int | None,
    what: str,
    namespace: str,
    kubeconfig: str,
    timeout: float,
) -> list[tuple[int, _Done]]:
    """Order that refused rows are run again, or discarded; gives the lsn of each, and what became of it.

    Raises: InputNotKept for an lsn with which none is listed; what the service refuses with.
    """

    async def work(cluster: Cluster) -> list[tuple[int, _Done]]:
        await _check_source(cluster, service, source)
        done: list[tuple[int, _Done]] = []
        async with opened(cluster, service, timeout) as pages:
            if lsns and shard is None and pages.shards > 1:
                raise InvalidArgument("an LSN is one of a shard", remedy=f"add --shard 0 to {pages.shards - 1}")
            for asked in range(pages.shards) if shard is None else [shard]:
                async for each in _chosen(pages, source, asked, stream, lsns):
                    name = f"{asked}-{each.lsn}" if pages.shards > 1 else str(each.lsn)
                    answer = await pages.ask(f"refused/{name}/{what}", {})
                    done.append((each.lsn, fitted(answer, _Done)))
        missing = sorted(set(lsns) - {lsn for lsn, _ in done})
        if missing:
            raise InputNotKept(f"source {source}: no refused row is listed at lsn {', '.join(map(str, missing))}")
        return done

    found: list[tuple[int, _Done]] = on_cluster(namespace, kubeconfig, work)
    return found


async def _chosen(
    pages: Pages, source: str, shard: int, stream: int | None, lsns: tuple[int, ...]
) -> AsyncIterator[listing.Refused]:
    """Give the refused rows of a shard that are to be seen to, as they are listed when their turn comes."""
    first, more = min(lsns, default=0), True
    while more:
        [(_, told)] = [
            each async for each in _asked(pages, source, shard if pages.shards > 1 else None, first, stream=stream)
        ]
        for each in listing.chosen(told, stream, lsns):
            yield each
        first, more = max((each.lsn for each in told.refused), default=0) + 1, told.more


@sources.command("forget")
@service_argument
@source_argument
@stream_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@shard_option
@common
@json_option
@answer_option
def forget(
    service: str,
    source: str,
    stream: int | None,
    yes: bool,
    shard: int | None,
    namespace: str,
    kubeconfig: str,
    as_json: bool,
    timeout: float,
) -> int:
    """Forget how far streams were taken in whose source is gone for good; SOURCE need not be in the manifest any more.

    A stream that somebody has, or of which something is under way or kept, is not forgotten.
    """

    async def work(cluster: Cluster) -> list[listing.StreamOfShard]:
        spec = (await cluster.service(service)).spec
        if spec is not None and any(e.name == source and not SOURCE_KINDS[e.kind].gate for e in spec.sources):
            raise StreamNotForgotten(f"source {source} stands in the manifest, and is read")
        async with opened(cluster, service, timeout) as pages:
            known = [found async for found in _known(pages, source, shard, stream)]
            chosen = [(at, each) for at, each in known if stream in (None, each.stream)]
            if not chosen:
                raise StreamNotForgotten(f"no stream of a source {source!r} is known")
            meaning = "\n".join(listing.meaning(source, [each for _, each in chosen]))
            if not (yes or view.confirmed("Forget?", as_json=as_json, about=meaning)):
                raise InvalidArgument("nothing was forgotten", remedy="add --yes")
            for at, each in chosen:
                session = f"{at}-{each.session}" if pages.shards > 1 else str(each.session)
                await pages.ask(f"streams/{session}/forget", {})
            return [each for _, each in chosen]

    done: list[listing.StreamOfShard] = on_cluster(namespace, kubeconfig, work)
    if as_json:
        rows = [{"shard": each.shard, "stream": each.stream, "takenIn": each.taken_in} for each in done]
        view.emit({"source": source, "forgotten": rows})
        return 0
    for each in done:
        view.console().print(listing.forgotten(source, each), markup=False)
    return 0


async def _known(
    pages: Pages, source: str, shard: int | None, stream: int | None
) -> AsyncIterator[tuple[int, listing.StreamOfShard]]:
    """Give the streams of a source that the shards know, and which one does: all, in as many answers as it takes."""
    async for asked, first in _asked(pages, source, shard, stream=stream):
        told = first.streams
        for each in told:
            yield asked, each
        while len(told) >= listing.STREAMS_SHOWN_MAX:
            above = max(each.session for each in told)
            only = asked if pages.shards > 1 else shard
            [(_, next_)] = [found async for found in _asked(pages, source, only, stream=stream, above=above)]
            told = [each for each in next_.streams if each.session > above]
            for each in told:
                yield asked, each


def _go_on(
    service: str,
    source: str,
    stream: int | None,
    shard: int | None,
    order: str,
    namespace: str,
    kubeconfig: str,
    timeout: float,
) -> list[listing.Refused]:
    """Order that a source goes on with the rows at which it stands, or behind them; gives those rows.

    Raises: StreamNotStopped where it stands at none; what the service refuses with.
    """

    async def work(cluster: Cluster) -> list[listing.Refused]:
        await _check_source(cluster, service, source)
        done: list[listing.Refused] = []
        async with opened(cluster, service, timeout) as pages:
            async for asked, first in _asked(pages, source, shard, stream=stream):
                told, tried = first, set[int]()
                while chosen := told.untried(tried, stream):
                    for each in chosen:
                        session = f"{asked}-{each.session}" if pages.shards > 1 else str(each.session)
                        what = "retry" if order == listing.RETRY else f"{each.seq}/skip"
                        await pages.ask(f"streams/{session}/{what}", {})
                        tried.add(each.session)
                    done += chosen
                    # There may be more of them than one answer has.
                    only = asked if pages.shards > 1 else shard
                    [(_, told)] = [found async for found in _asked(pages, source, only, stream=stream)]
        if not done:
            raise StreamNotStopped(f"source {source} stands at no row")
        return done

    found: list[listing.Refused] = on_cluster(namespace, kubeconfig, work)
    return found


def _print_done(source: str, done: list[listing.Refused], order: str, *, as_json: bool) -> int:
    if as_json:
        view.emit(listing.gone_on_told(source, done, order))
        return 0
    for each in done:
        view.console().print(listing.gone_on(source, each, order), markup=False)
    return 0
