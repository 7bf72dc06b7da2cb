"""`deathless sinks ...`: how far rows of topics are stored, and what operators decide about that.

`list` and `show` read what the sinks' processes wrote beside the log, also while the service is down; `show`, `skip`
and `adopt` speak with the store, where decisions are kept beside the tip.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import click

from deathless.base.errors import InvalidArgument, SinkRowRefused, SinkTipMismatch, SinkUnavailable
from deathless.base.listings import sinks as listing
from deathless.base.listings.texts import show_bytes, show_time
from deathless.cli.options import ListedGroup, json_option, service_options, shard_of_it, target
from deathless.cli.output import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deathless.base.config import ReplicaConfig, SinkConfig
    from deathless.shell.link.sink_status import SinkStatus
    from deathless.shell.operate.target import Target
    from deathless.sinks.port import Decision, KeepsRefused, Key, Tip
    from deathless.topics import TopicSource

_SHOWN: Final = {
    "sink": "sink", "shard": "shard", "topic": "topic", "store": "store", "table": "table", "state": "state",
    "replica": "beside", "position": "position", "next": "topic's next", "lagRows": "lag in rows",
    "lagSeconds": "lag in s", "heldBytes": "bytes held", "hold": "hold", "tip": "tip in store",
    "problem": "problem", "at": "as of",
}  # fmt: skip
"""What `show` prints of what it tells, in this order, and under which label."""

reason_option = click.option("--reason", metavar="TEXT", default="", help="Why, for the record that is kept.")


@click.group(cls=ListedGroup)
def sinks() -> None:
    """Sinks: rows of topics that are stored in tables.

    \b
    deathless sinks list
    deathless sinks show facts
    deathless sinks skip facts --position 4711
    deathless sinks retry facts
    """


@sinks.command("list")
@service_options
@json_option
def list_them(manifest: str, directory: str, as_json: bool) -> int:
    """List the sinks of all shards: how far each is, and what keeps it from storing."""
    found = target(manifest, directory, every=True, silent=True)
    told = [_described(config, sink) for config in found.shards or (found.config,) for sink in config.sinks]
    if as_json:
        print_json({"sinks": told})
    elif not told:
        print(listing.NO_SINKS)
    else:
        print_table(listing.COLUMNS, listing.sink_rows(told))
    return 0


@sinks.command("show")
@click.argument("name", metavar="SINK")
@service_options
@json_option
def show(name: str, manifest: str, directory: str, as_json: bool) -> int:
    """Show one sink, its tip as the store has it, and what operators decided."""
    found = target(manifest, directory, silent=True)
    sink = _sink(found, name)
    told = _described(found.config, sink)
    decisions: Sequence[Decision] = ()
    source = _source(found.config, sink, needed=False)
    if source is not None:
        try:
            tip, decisions = asyncio.run(_look(sink, _key(found.config, sink, source)))
            told["tip"] = tip.next_position if tip is not None else 0
        except SinkUnavailable as error:
            told["tip"] = f"not known: {error.message}"
    told["decisions"] = [
        {"at": each.at, "what": each.what, "from": each.first, "to": each.next, "reason": each.text}
        for each in decisions
    ]
    if as_json:
        print_json(told)
        return 0
    shown = told | {"heldBytes": show_bytes(_number(told["heldBytes"])), "at": _moment(told["atUs"])}
    for name_of, label in _SHOWN.items():
        if shown.get(name_of, "") != "":
            print(f"{label:<13} {shown[name_of]}")
    for each in decisions:
        given_up = f" positions {each.first} to {each.next - 1}" if each.next > each.first else ""
        print(f"{'decided':<13} {each.at} {each.what}{given_up} {each.text}".rstrip())
    return 0


@sinks.command("skip")
@click.argument("name", metavar="SINK")
@click.option("--position", metavar="N", type=click.IntRange(min=1), help="Give up this one row, at which it waits.")
@click.option("--to", "end", metavar="N", type=click.IntRange(min=2), help="Give up all rows below this position.")
@reason_option
@service_options
@json_option
def skip(
    name: str, position: int | None, end: int | None, reason: str, manifest: str, directory: str, as_json: bool
) -> int:
    """Give up rows that a sink has not stored: one that the store refuses, or those that are gone.

    The store keeps that this was decided. The sink goes on behind them by itself.
    """
    if (position is None) == (end is None):
        raise click.UsageError("give --position or --to, one of them")
    found = target(manifest, directory, silent=True)
    sink = _sink(found, name)
    source = _source(found.config, sink)
    assert source is not None
    key = _key(found.config, sink, source)
    first, behind = asyncio.run(_skip(sink, key, source, position, end, reason))
    if as_json:
        print_json({"sink": name, "from": first, "to": behind, **shard_of_it(found)})
    else:
        print(f"sink {name} gives up positions {first} to {behind - 1}, and goes on at {behind}")
    return 0


positions_argument = click.argument("positions", metavar="[POSITION]...", nargs=-1, type=click.IntRange(min=1))


@sinks.command("refused")
@click.argument("name", metavar="SINK")
@service_options
@json_option
def refused(name: str, manifest: str, directory: str, as_json: bool) -> int:
    """List the rows that the store has refused and keeps (`onRefusal: deadLetter`), with the reasons."""
    store, key, _ = _keeping(name, manifest, directory)
    rows = asyncio.run(store.refused(key))
    if as_json:
        print_json({"sink": name, "refused": rows})
    elif rows:
        print_table(listing.REFUSED_COLUMNS, listing.refused_rows(rows))
    else:
        print(listing.NONE_REFUSED)
    return 0


@sinks.command("retry")
@click.argument("name", metavar="SINK")
@positions_argument
@reason_option
@service_options
@json_option
def retry(name: str, positions: tuple[int, ...], reason: str, manifest: str, directory: str, as_json: bool) -> int:
    """Store refused rows that are kept: those of these positions, or all; the table was mended.

    Each is stored once, and kept no more; or it stays, if it is refused again.
    """
    store, key, found = _keeping(name, manifest, directory)

    async def work() -> tuple[list[int], dict[int, str]]:
        stored, again = list[int](), dict[int, str]()
        for at in positions or [each.position for each in await store.refused(key)]:
            try:
                await store.retry(key, at, reason)
                stored.append(at)
            except SinkRowRefused as error:
                again[at] = error.message
        return stored, again

    stored, again = asyncio.run(work())
    if as_json:
        whys = list(again.values())  # in the same order
        print_json({"sink": name, "stored": stored, "refusedAgain": list(again), "why": whys, **shard_of_it(found)})
        return 0
    for text in again.values():
        print(text)
    print(f"sink {name}: {len(stored)} stored, {len(again)} refused again")
    return 0


@sinks.command("discard")
@click.argument("name", metavar="SINK")
@positions_argument
@reason_option
@service_options
@json_option
def discard(name: str, positions: tuple[int, ...], reason: str, manifest: str, directory: str, as_json: bool) -> int:
    """Let go of refused rows that are kept, for ever: those of these positions."""
    if not positions:
        raise click.UsageError("name the rows: their positions are those that `deathless sinks refused` shows")
    store, key, found = _keeping(name, manifest, directory)

    async def work() -> None:
        for at in positions:
            await store.discard(key, at, reason)

    asyncio.run(work())
    if as_json:
        print_json({"sink": name, "discarded": list(positions), **shard_of_it(found)})
    else:
        print(f"sink {name}: {len(positions)} discarded")
    return 0


@sinks.command("adopt")
@click.argument("name", metavar="SINK")
@reason_option
@service_options
@json_option
def adopt(name: str, reason: str, manifest: str, directory: str, as_json: bool) -> int:
    """Accept the store as it stands: restored, with other columns, or left by another service.

    Other services that wrote under this sink's name are refused from now on. Of a service that was restored, the rows
    that it publishes since then are stored from the first one on.
    """
    found = target(manifest, directory, silent=True)
    sink = _sink(found, name)
    source = _source(found.config, sink)
    assert source is not None
    tip = asyncio.run(_adopt(sink, _key(found.config, sink, source), source, reason))
    if as_json:
        print_json({"sink": name, "position": tip.next_position, "incarnation": tip.incarnation, **shard_of_it(found)})
    else:
        where = f"at position {tip.next_position}" if tip.next_position else "with the first row that is kept"
        print(f"sink {name} goes on {where}")
    return 0


# ---- what they are about ------------------------------------------------------------------------------------------


def _sink(found: Target, name: str) -> SinkConfig:
    for sink in found.config.sinks:
        if sink.name == name:
            return sink
    known = ", ".join(sink.name for sink in found.config.sinks) or "it has none"
    raise InvalidArgument(f"{found.where}: there is no sink {name!r}", remedy=f"its sinks: {known}")


def _status(config: ReplicaConfig, name: str) -> SinkStatus | None:
    from deathless.shell.link.sink_status import read_status

    return read_status(config.directory, name)


def _source(config: ReplicaConfig, sink: SinkConfig, *, needed: bool = True) -> TopicSource | None:
    """Give whose rows a sink stores. Raises: InvalidArgument when nothing was published yet, and it is needed."""
    from deathless.sinks.rows import source_of
    from deathless.topics import TopicReader
    from deathless.topics.source import parse_source

    status = _status(config, sink.name)
    known = parse_source(status.source) if status is not None else None
    if known is not None:
        return source_of(sink.topic_directory, known.service_id) or known
    reader = TopicReader(sink.topic_directory)
    if not needed and not reader.sources():
        return None
    return reader.source()


def _key(config: ReplicaConfig, sink: SinkConfig, source: TopicSource) -> Key:
    from deathless.sinks.port import Key

    return Key(sink.name, config.service, config.shard, source.service_id)


def _keeping(name: str, manifest: str, directory: str) -> tuple[KeepsRefused, Key, Target]:
    """Give a sink's store, which keeps rows that it refuses. Raises: InvalidArgument where it does not."""
    from deathless.sinks.port import KeepsRefused
    from deathless.sinks.stores import make_store

    found = target(manifest, directory, silent=True)
    sink = _sink(found, name)
    source = _source(found.config, sink)
    assert source is not None
    store = make_store(sink)
    if not isinstance(store, KeepsRefused):
        raise InvalidArgument(f"sink {name}: {sink.store} keeps no rows that it refuses")
    return store, _key(found.config, sink, source), found


async def _look(sink: SinkConfig, key: Key) -> tuple[Tip | None, Sequence[Decision]]:
    from deathless.sinks.stores import make_store

    store = make_store(sink)
    return await store.tip(key), await store.decisions(key)


async def _skip(
    sink: SinkConfig, key: Key, source: TopicSource, position: int | None, end: int | None, reason: str
) -> tuple[int, int]:
    """Give up rows; gives the positions from where and up to where. Raises: SinkTipMismatch, SinkUnavailable."""
    from deathless.sinks.machine import begin_at
    from deathless.sinks.rows import TopicRows
    from deathless.sinks.stores import make_store

    store = make_store(sink)
    tip = await store.tip(key)
    if tip is None:
        raise SinkTipMismatch(
            f"the store knows nothing of sink {sink.name}", remedy="it begins by itself once rows are published"
        )
    look = TopicRows(sink.topic_directory, source, sink.name).look(tip.next_position)
    stands = tip.next_position or begin_at(look, tip)
    behind = end if end is not None else (position or 0) + 1
    if (position is not None and position != stands) or behind <= stands:
        raise SinkTipMismatch(
            f"sink {sink.name} stands at position {stands}", remedy=f"see `deathless sinks show {sink.name}`"
        )
    if behind > look.next:
        raise InvalidArgument(f"the topic's rows end at position {look.next}", remedy="give up no more than there are")
    await store.skip(key, tip.next_position, behind, reason)
    return stands, behind


async def _adopt(sink: SinkConfig, key: Key, source: TopicSource, reason: str) -> Tip:
    from deathless.sinks.stores import make_store

    return await make_store(sink).adopt(key, source.incarnation, reason)


def _described(config: ReplicaConfig, sink: SinkConfig) -> dict[str, object]:
    from deathless.shell.link.sink_status import describe_sink

    return describe_sink(config.directory, config.shard, sink)


def _moment(at_us: object) -> str:
    return show_time(_number(at_us)) if at_us else ""


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value
