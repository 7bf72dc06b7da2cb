"""`deathless sources ...`: how far rows from outside are taken in, what was refused, and what operators decide.

`list` and `show` read what the sources' processes wrote beside the log, also while the service is down; the others ask
the primaries of the shards, whose logs have what was refused, and give orders that are logged.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

import click
import msgspec

from deathless.base.errors import InvalidArgument, StreamNotStopped
from deathless.cli.options import ListedGroup, json_option, service_options, target
from deathless.cli.output import print_json, print_table, show_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deathless.base.config import ReplicaConfig, SourceConfig
    from deathless.shell.link.source_status import SourceStatus
    from deathless.shell.operate.target import Target

PROBLEM_MAX = 100  # characters in a table
WHY_MAX = 80

stream_option = click.option(
    "--stream", metavar="N", type=click.IntRange(min=0), default=None, help="Only this stream, by its number."
)


class Refused(msgspec.Struct, rename="camel"):
    """A refused input; fields as `shell.worker.streams` gives them."""

    lsn: int
    stream: int
    session: int
    seq: int
    id: int
    at_us: int
    code: str
    why: str
    key: str
    row: str
    stands: bool


class StreamOfShard(msgspec.Struct, rename="camel"):
    """A stream as one shard's log has it."""

    stream: int
    session: int
    taken_in: int
    on_refusal: str
    refused: int
    stands: bool


class _Told(msgspec.Struct):
    streams: list[StreamOfShard]
    refused: list[Refused]
    standing: list[Refused]
    count: int
    more: bool


@click.group(cls=ListedGroup)
def sources() -> None:
    """Sources: rows from outside that inputs of the service take.

    \b
    deathless sources list
    deathless sources refused flights
    deathless sources retry flights
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
        print("the service has no sources")
    else:
        rows = [
            (each["source"], each["stream"], each["input"], each["state"], each["takenIn"], each["behind"],
             str(each["problem"])[:PROBLEM_MAX])
            for each in told
        ]  # fmt: skip
        print_table(("source", "stream", "input", "state", "taken in", "behind", "problem"), rows)
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
    if as_json:
        print_json({"source": name, "kind": source.kind, "input": source.input, "key": source.key,
                    "onRefusal": source.on_refusal, "streams": told})  # fmt: skip
        return 0
    for label, value in (("source", name), ("kind", source.kind), ("input", source.input), ("key", source.key),
                         ("on refusal", source.on_refusal)):  # fmt: skip
        print(f"{label:<11} {value}")
    for config in _configs(found):
        status = read_status(config.directory, name)
        if status is not None and status.listens:
            print(f"{'listens at':<11} {status.listens}: {status.connections} connections")
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
    rows = [
        (part.config.shard, each)
        for part, told in _asked(found, name, first)
        for each in (*told.standing, *told.refused)
        if stream in (None, each.stream)
    ]
    if as_json:
        print_json({"source": name, "refused": [{"shard": at, **msgspec.to_builtins(each)} for at, each in rows]})
    elif not rows:
        print("no row was refused")
    else:
        columns = ("shard", "lsn", "stream", "row", "stands", "refused at", "why", "what it was")
        print_table(
            columns,
            [
                (at, each.lsn, each.stream, each.id if each.id >= 0 else "late", "yes" if each.stands else "",
                 show_time(each.at_us), f"{each.code} {each.why}"[:WHY_MAX], each.row[:WHY_MAX])
                for at, each in rows
            ],
        )  # fmt: skip
    return 0


@sources.command("retry")
@click.argument("name", metavar="SOURCE")
@stream_option
@service_options
@json_option
def retry(name: str, stream: int | None, manifest: str, directory: str, as_json: bool) -> int:
    """Have the row at which a source stands tried again: the code, or the file, was mended."""
    return _go_on(target(manifest, directory, every=True), name, stream, "retry-input", as_json)


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
        return _go_on(found, name, stream, "skip-input", as_json)
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
    from deathless.shell.link.source_status import read_status

    status = read_status(config.directory, source.name)
    base: dict[str, object] = {"source": source.name, "input": source.input, "shard": config.shard}
    if status is None or not status.streams:
        if config.shard == 0:
            yield base | {
                "stream": "", "state": status.state if status is not None else "never ran", "takenIn": "", "behind": "",
                "shards": [], "code": status.code if status is not None else "",
                "problem": status.problem if status is not None else "", "at": _moment(status),
            }  # fmt: skip
        return
    for each in status.streams:
        yield base | {
            "stream": str(each.stream),
            "name": each.name,
            "state": "stopped" if each.code else each.state if status.state == "reading" else status.state,
            "takenIn": each.taken_in,
            "behind": each.behind if each.end else "",
            "shards": [
                {"shard": s.shard, "takenIn": s.taken_in, "waiting": s.waiting, "problem": s.problem}
                for s in each.shards
            ],
            "code": each.code,
            "problem": each.problem or status.problem,
            "at": _moment(status),
        }


def _moment(status: SourceStatus | None) -> str:
    return show_time(status.at_us) if status is not None else ""


def _asked(found: Target, name: str, first: int = 0) -> Iterator[tuple[Target, _Told]]:
    """Ask the primary of each shard for what its log has of a source."""
    from deathless.cli.primary import ask_primary
    from deathless.shell.net.admin_call import fitted

    for config in _configs(found):
        part = dataclasses.replace(found, config=config, shards=())
        answer = asyncio.run(ask_primary(part, "streams", {"source": name, "from": str(first)}))
        yield part, fitted(answer, _Told)


def _go_on(found: Target, name: str, stream: int | None, command: str, as_json: bool) -> int:
    """Order that a source goes on with the rows at which it stands, or behind them."""
    from deathless.cli.primary import ask_primary

    _source(found, name)
    done: list[dict[str, object]] = []
    for part, told in _asked(found, name):
        for each in told.standing:
            if stream not in (None, each.stream):
                continue
            arguments = {"command": command, "invocation": str(each.session)}
            if command == "skip-input":
                arguments["operation"] = str(each.seq)
            asyncio.run(ask_primary(part, "order", arguments))
            done.append({"shard": part.config.shard, "stream": each.stream, "row": each.id})
    if not done:
        raise StreamNotStopped(f"source {name} stands at no row")
    if as_json:
        print_json({"source": name, "done": command.removesuffix("-input"), "rows": done})
        return 0
    what = "is tried again" if command == "retry-input" else "is passed over"
    for row in done:
        which = f"row {row['row']}" if row["row"] != -1 else "a row that had waited"
        print(f"source {name}, stream {row['stream']}, shard {row['shard']}: {which} {what}")
    return 0
