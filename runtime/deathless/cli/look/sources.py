"""`deathless sources ...`: how far rows from outside are taken in, what was refused, and what operators decide.

`list` and `show` read what the sources' processes wrote beside the log, also while the service is down; the others ask
the primaries of the shards, whose logs have what was refused, and give orders that are logged.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

import click

from deathless.base.errors import InputNotKept, InvalidArgument, StreamNotForgotten, StreamNotStopped
from deathless.base.listings import sources as listing
from deathless.base.listings.texts import show_time
from deathless.base.source_kinds import SOURCE_KINDS
from deathless.cli.confirming import confirmed
from deathless.cli.options import ListedGroup, json_option, service_options, target
from deathless.cli.output import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deathless.base.config import ReplicaConfig, SourceConfig
    from deathless.shell.operate.target import Target

stream_option = click.option(
    "--stream", metavar="N", type=click.IntRange(min=0), default=None, help="Only this stream, by its number."
)


@click.group(cls=ListedGroup)
def sources() -> None:
    """Sources: rows from outside that inputs of the service take.

    \b
    deathless sources list
    deathless sources refused flights
    deathless sources retry flights
    deathless sources replay flights
    """


@sources.command("list")
@service_options
@json_option
def list_them(manifest: str, directory: str, as_json: bool) -> int:
    """List the streams of all sources: how far each is, and what keeps it from going on."""
    found = target(manifest, directory, every=True, silent=True)
    told = [each for config in _configs(found) for source in config.sources for each in _streams(config, source)]
    if as_json:
        print_json({"sources": told})
    elif not told:
        print(listing.NO_SOURCES)
    else:
        print_table(listing.COLUMNS, listing.stream_rows(told))
    return 0


@sources.command("show")
@click.argument("name", metavar="SOURCE")
@service_options
@json_option
def show(name: str, manifest: str, directory: str, as_json: bool) -> int:
    """Show one source: its streams, and how far each shard of the service is with them."""
    from deathless.shell.link.source_status import read_status

    found = target(manifest, directory, every=True, silent=True)
    source = _source(found, name)
    told = [each for config in _configs(found) for each in _streams(config, source)]
    statuses = [(config.shard, read_status(config.directory, name)) for config in _configs(found)]
    listens = [
        {"shard": shard, "address": status.listens, "connections": status.connections}
        for shard, status in statuses
        if status is not None and status.listens
    ]
    if as_json:
        print_json({"source": name, "kind": source.kind, "input": source.input, "key": source.key,
                    "onRefusal": source.on_refusal, "listens": listens, "streams": told})  # fmt: skip
        return 0
    for label, value in (("source", name), ("kind", source.kind), ("input", source.input), ("key", source.key),
                         ("on refusal", source.on_refusal)):  # fmt: skip
        print(f"{label:<11} {value}")
    for each in listens:
        print(f"{'listens at':<11} {each['address']}: {each['connections']} connections")
    for each in told:
        print(f"\nstream {each['stream'] or '(none yet)'}: {each['state']}, as of {each['at']}")
        shards = each["shards"]
        assert isinstance(shards, list)
        if shards:
            columns = ("shard", "taken in", "waiting", "problem")
            print_table(columns, [(s["shard"], s["takenIn"], s["waiting"], s["problem"]) for s in shards])
        if each["problem"]:
            print(each["problem"])
    return 0


@sources.command("refused")
@click.argument("name", metavar="SOURCE")
@stream_option
@click.option("--from", "first", metavar="LSN", type=click.IntRange(min=0), default=0, help="Start at this LSN.")
@service_options
@json_option
def refused(name: str, stream: int | None, first: int, manifest: str, directory: str, as_json: bool) -> int:
    """List rows that were refused: those at which the source stands, dead letters, and rows that were passed over.

    Of a row at which the source stands, and of one that was passed over with `skip`, the reason alone is kept.
    """
    found = target(manifest, directory, every=True)
    _source(found, name)
    asked = [told for _, told in _asked(found, name, first, stream=stream)]
    rows = [each for told in asked for each in told.rows(stream)]
    if as_json:
        print_json({"source": name, "refused": rows, "more": any(told.more for told in asked)})
        return 0
    if rows:
        print_table(listing.REFUSED_COLUMNS, listing.refused_rows(rows))
    else:
        print(listing.NONE_REFUSED)
    for told in asked:
        if told.more:
            print(listing.more_refused(told))
    return 0


@sources.command("retry")
@click.argument("name", metavar="SOURCE")
@stream_option
@service_options
@json_option
def retry(name: str, stream: int | None, manifest: str, directory: str, as_json: bool) -> int:
    """Have the row at which a source stands tried again: the code, or the file, was mended."""
    return _go_on(target(manifest, directory, every=True), name, stream, listing.RETRY, as_json)


@sources.command("skip")
@click.argument("name", metavar="SOURCE")
@stream_option
@click.option("--at", metavar="PLACE", default="", help="Go on there: a file's name, or NAME:LINE; an offset in Kafka.")
@service_options
@json_option
def skip(name: str, stream: int | None, at: str, manifest: str, directory: str, as_json: bool) -> int:
    """Pass over the row at which a source stands; or, with --at, say where a source goes on that misses something.

    The row stays listed. With --at, what stands before that place and was not taken in is given up.

    \b
    deathless sources skip flights
    deathless sources skip flights --at 2026-11-29.jsonl
    deathless sources skip flights --stream 3 --at 4711
    """
    found = target(manifest, directory, every=True)
    if not at:
        return _go_on(found, name, stream, listing.SKIP, as_json)
    from deathless.sources.adopting import adopt
    from deathless.sources.host import make_reader

    source = _source(found, name)

    async def decide() -> int:
        reader = make_reader(source)
        try:
            return (await adopt(found.config, source, reader, stream or 0, at)).last_id
        finally:
            await reader.close()

    last = asyncio.run(decide())
    if as_json:
        print_json({"source": name, "stream": stream or 0, "at": at, "next": last + 1})
    else:
        print(f"source {name} goes on at {at}, whose row has number {last + 1} or a higher one")
    return 0


@sources.command("replay")
@click.argument("name", metavar="SOURCE")
@click.argument("lsns", metavar="[LSN]...", nargs=-1, type=click.IntRange(min=1))
@stream_option
@service_options
@json_option
def replay(name: str, lsns: tuple[int, ...], stream: int | None, manifest: str, directory: str, as_json: bool) -> int:
    """Run refused rows that are kept once more: those with these LSNs, or all, the oldest first.

    Each has its effect once, and is listed no more, or stays listed with the reason of now. It runs behind what was
    taken in since.

    \b
    deathless sources replay flights
    deathless sources replay flights 4711
    """
    found = target(manifest, directory, every=True)
    _source(found, name)
    _check_lsns(found, lsns)
    done = listing.Replayed()
    for part, each in _chosen(found, name, stream, lsns):
        ran = _order(part, listing.RUN, each.lsn)
        done.ran += ran.done
        if not ran.done:
            done.again(each.lsn, ran.code, ran.why)
            if not as_json:
                print(done.lines()[-1])
    if as_json:
        print_json(done.told(name))
    else:
        print(listing.replayed(name, done))
    return 0


@sources.command("discard")
@click.argument("name", metavar="SOURCE")
@click.argument("lsns", metavar="LSN...", nargs=-1, required=True, type=click.IntRange(min=1))
@service_options
@json_option
def discard(name: str, lsns: tuple[int, ...], manifest: str, directory: str, as_json: bool) -> int:
    """Let go of refused rows for ever: those with these LSNs."""
    found = target(manifest, directory, every=True)
    _source(found, name)
    _check_lsns(found, lsns)
    count = 0
    for part, each in _chosen(found, name, None, lsns):
        _order(part, listing.DROP, each.lsn)
        count += 1
    if as_json:
        print_json({"source": name, "discarded": count})
    else:
        print(listing.discarded(name, count))
    return 0


@sources.command("forget")
@click.argument("name", metavar="SOURCE")
@stream_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@service_options
@json_option
def forget(name: str, stream: int | None, yes: bool, manifest: str, directory: str, as_json: bool) -> int:
    """Forget how far streams were taken in whose source is gone for good; SOURCE need not be in the manifest any more.

    A stream that somebody has, or of which something is under way or kept, is not forgotten.

    \b
    deathless sources forget flights
    deathless sources forget flights --stream 3
    """
    found = target(manifest, directory, every=True)
    if any(each.name == name and not SOURCE_KINDS[each.kind].gate for each in found.config.sources):
        raise StreamNotForgotten(f"source {name} stands in the manifest, and is read")
    chosen = list(_known(found, name, stream))
    if not chosen:
        raise StreamNotForgotten(f"no stream of a source {name!r} is known")
    meaning = "\n".join(listing.meaning(name, [each for _, each in chosen]))
    if not (yes or confirmed("Forget?", "forgetting", as_json=as_json, show=lambda: print(meaning))):
        raise InvalidArgument("nothing was forgotten", remedy="add --yes")
    for part, each in chosen:
        _order(part, listing.FORGET, each.session)
        if not as_json:
            print(listing.forgotten(name, each))
    if as_json:
        rows = [{"shard": each.shard, "stream": each.stream, "takenIn": each.taken_in} for _, each in chosen]
        print_json({"source": name, "forgotten": rows})
    return 0


# ---- what they are about ------------------------------------------------------------------------------------------


def _configs(found: Target) -> tuple[ReplicaConfig, ...]:
    return found.shards or (found.config,)


def _source(found: Target, name: str) -> SourceConfig:
    for source in found.config.sources:
        if source.name == name:
            return source
    known = ", ".join(source.name for source in found.config.sources) or "it has none"
    raise InvalidArgument(f"{found.where}: there is no source {name!r}", remedy=f"its sources: {known}")


def _streams(config: ReplicaConfig, source: SourceConfig) -> Iterator[dict[str, object]]:
    """Give what is known of a source's streams that are read beside one shard; one line where there is none."""
    from deathless.shell.link.source_status import describe_streams

    for each in describe_streams(config.directory, config.shard, source):
        at_us = each["atUs"]
        assert isinstance(at_us, int)
        yield each | {"at": show_time(at_us) if at_us else ""}


def _asked(
    found: Target, name: str, first: int = 0, *, stream: int | None = None, above: int = 0
) -> Iterator[tuple[Target, listing.Streams]]:
    """Ask the primary of each shard for what its log has of a source, or of one stream of it.

    Primaries of before know neither `stream` nor `above`, and answer as if these were not there.
    """
    from deathless.cli.primary import ask_primary
    from deathless.shell.net.admin_call import fitted

    for config in _configs(found):
        part = dataclasses.replace(found, config=config, shards=())
        asked = {"source": name, "from": str(first), "above": str(above)}
        if stream is not None:
            asked["stream"] = str(stream)
        answer = asyncio.run(ask_primary(part, "streams", asked))
        yield part, listing.of_shard(fitted(answer, listing.Streams), config.shard)


def _known(found: Target, name: str, stream: int | None) -> Iterator[tuple[Target, listing.StreamOfShard]]:
    """Give the streams of a source that the shards know, or one of them: all, in as many answers as it takes."""
    for part, first in _asked(found, name, stream=stream):
        told = first.streams
        while told:
            yield from ((part, each) for each in told if stream in (None, each.stream))
            last = max(each.session for each in told)
            ((_, next_),) = _asked(part, name, stream=stream, above=last)
            told = [each for each in next_.streams if each.session > last]


def _check_lsns(found: Target, lsns: tuple[int, ...]) -> None:
    """Raises: InvalidArgument where an LSN may be that of several shards."""
    if lsns and len(_configs(found)) > 1:
        raise InvalidArgument("an LSN is one of a shard", remedy=f"add --shard 0 to {len(_configs(found)) - 1}")


def _chosen(
    found: Target, name: str, stream: int | None, lsns: tuple[int, ...]
) -> Iterator[tuple[Target, listing.Refused]]:
    """Give the refused rows that are to be seen to, as they are listed when their turn comes.

    Raises: InputNotKept for an LSN with which none is listed.
    """
    missing = set(lsns)
    for config in _configs(found):
        part = dataclasses.replace(found, config=config, shards=())
        first, more = min(lsns, default=0), True
        while more:
            ((_, told),) = _asked(part, name, first, stream=stream)
            for each in listing.chosen(told, stream, lsns):
                missing.discard(each.lsn)
                yield part, each
            first, more = max((each.lsn for each in told.refused), default=0) + 1, told.more
    if missing:
        raise InputNotKept(f"source {name}: no refused row is listed at lsn {', '.join(map(str, sorted(missing)))}")


def _order(part: Target, command: str, lsn: int) -> listing.Ran:
    from deathless.cli.primary import ask_primary
    from deathless.shell.net.admin_call import fitted

    answer = asyncio.run(ask_primary(part, "order", {"command": command, "invocation": str(lsn)}))
    return fitted(answer, listing.Ran)


def _go_on(found: Target, name: str, stream: int | None, command: str, as_json: bool) -> int:
    """Order that a source goes on with the rows at which it stands, or behind them."""
    from deathless.cli.primary import ask_primary

    _source(found, name)
    done: list[listing.Refused] = []
    for part, first in _asked(found, name, stream=stream):
        told, tried = first, set[int]()
        while chosen := told.untried(tried, stream):
            for each in chosen:
                arguments = {"command": command, "invocation": str(each.session)}
                if command == listing.SKIP:
                    arguments["operation"] = str(each.seq)
                asyncio.run(ask_primary(part, "order", arguments))
                tried.add(each.session)
            done += chosen
            ((_, told),) = _asked(part, name, stream=stream)  # there may be more of them than one answer has
    if not done:
        raise StreamNotStopped(f"source {name} stands at no row")
    if as_json:
        print_json(listing.gone_on_told(name, done, command))
        return 0
    for each in done:
        print(listing.gone_on(name, each, command))
    return 0
