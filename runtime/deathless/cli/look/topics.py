"""`deathless topics ...`: what a service publishes, read from files alone, where the service need not run; or with
--url over HTTP, from where the files can't be seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from msgspec import to_builtins

from deathless.base.errors import InvalidArgument
from deathless.base.listings.texts import show_bytes, show_time
from deathless.cli.http_options import Site, http_options
from deathless.cli.options import ListedGroup, json_option, named_shard, service_options, shard_of_it, target
from deathless.cli.output import print_json, print_json_line, print_table

if TYPE_CHECKING:
    import pyarrow as pa

    from deathless.base.config import ReplicaConfig
    from deathless.base.topics.state import TopicState
    from deathless.shell.operate.target import Target
    from deathless.topics import RemoteTopic, RowSource, TopicReader
    from deathless.topics.keeping import NamedHold

ROWS_AT_ONCE: Final = 1000  # of a table
CELL_MAX: Final = 60  # characters

_SHOWN: Final = {
    "topic": "topic", "shard": "shard", "source": "source", "sources": "sources", "columns": "columns",
    "first": "first", "next": "next", "floor": "floor", "floorReason": "floor because", "timeUs": "newest row",
    "files": "files", "bytes": "bytes", "holds": "holds",
}  # fmt: skip
"""What `show` prints of what it tells, in this order, and under which label."""

source_option = click.option(
    "--source", metavar="ID.INCARNATION", default="", help="Whose rows, where the topic holds those of several."
)


@click.group(cls=ListedGroup)
def topics() -> None:
    """Rows that a service publishes.

    \b
    deathless topics list
    deathless topics read departures --from 1000 --limit 20
    deathless topics read departures --follow --json
    deathless topics read departures --url http://127.0.0.1:8080
    """


@topics.command("list")
@http_options
@service_options
@json_option
def list_them(site: Site, manifest: str, directory: str, as_json: bool) -> int:
    """List the topics of all shards, and which rows they hold."""
    if site.urls:
        told = _served(site)
    else:
        found = target(manifest, directory, every=True, silent=True)
        told = [each for config in found.shards or (found.config,) for each in _topics_of(config)]
    if as_json:
        print_json({"topics": told})
    elif not told:
        print("no topic has rows")
    else:
        columns = ("topic", "shard", "source", "floor", "first", "next", "files", "bytes", "newest row", "holds")
        rows = [
            (*(each[name] for name in columns[:2]), str(each["source"])[:8] + "." + str(each["source"]).rsplit(".")[-1],
             *(each[name] for name in columns[3:7]), show_bytes(_number(each["bytes"])),
             show_time(_number(each["timeUs"])), each.get("holds", ""))
            for each in told
        ]  # fmt: skip
        print_table(columns, rows)
    return 0


@topics.command("show")
@click.argument("name", metavar="TOPIC")
@source_option
@http_options
@service_options
@json_option
def show(name: str, source: str, site: Site, manifest: str, directory: str, as_json: bool) -> int:
    """Show a topic's columns, its rows, and what keeps them."""
    if site.urls:
        told = _as_told(_remote(site, name, source).state())
    else:
        found = target(manifest, directory, silent=True)
        reader = _reader(found, name, source)
        floor = reader.floor()
        told = _described(found.config, name, reader) | {
            "columns": reader.extent().schema,
            "floorReason": floor.why if floor.position > 1 else "",
            "sources": [each.folder for each in reader.sources()],
        }
    if as_json:
        print_json(told)
        return 0
    sources = told.get("sources", ())
    assert isinstance(sources, list | tuple)
    shown = told | {
        "bytes": show_bytes(_number(told["bytes"])),
        "timeUs": show_time(_number(told["timeUs"])),
        "sources": ", ".join(sources),
    }
    for name_of, label in _SHOWN.items():
        if shown.get(name_of, "") != "":
            print(f"{label:<13} {shown[name_of]}")
    return 0


@topics.command("read")
@click.argument("name", metavar="TOPIC")
@click.option(
    "--from", "first", metavar="N", type=click.IntRange(min=1), help="The first position; else the oldest row."
)
@click.option("--to", "end", metavar="N", type=click.IntRange(min=1), help="The position to stop before.")
@click.option("--limit", metavar="N", type=click.IntRange(min=0), help="How many rows at most.")
@click.option("--follow", is_flag=True, help="Wait for more rows at the end.")
@click.option("--column", "columns", metavar="NAME", multiple=True, help="Only this column; may be repeated.")
@source_option
@http_options
@service_options
@json_option
def read(  # noqa: PLR0913, PLR0917  options of a command
    name: str,
    first: int | None,
    end: int | None,
    limit: int | None,
    follow: bool,
    columns: tuple[str, ...],
    source: str,
    site: Site,
    manifest: str,
    directory: str,
    as_json: bool,
) -> int:
    """Print rows: exactly those that were asked for, or an error.

    With --json each row is a line.
    """
    if follow and end is not None:
        raise click.UsageError("--follow has no end; leave --to away")
    reader: RowSource
    if site.urls:
        reader = _remote(site, name, source)
    else:
        reader = _reader(target(manifest, directory, silent=True), name, source)
    bounds = reader.bounds()
    start, names = first or bounds.first, columns or None
    batches = reader.follow(start, names) if follow else reader.read(start, end or bounds.next, names)
    if as_json:
        for row in _rows(batches, limit):
            print_json_line(row)
        return 0
    seen: list[dict[str, object]] = []
    shown = False
    for row in _rows(batches, limit):
        seen.append(row)
        if follow or len(seen) == ROWS_AT_ONCE:
            _print_rows(seen)
            shown, seen = True, []
    if seen:
        _print_rows(seen)
    elif not shown:
        print("no rows")
    return 0


@topics.command("holds")
@click.argument("name", metavar="TOPIC")
@source_option
@service_options
@json_option
def holds(name: str, source: str, manifest: str, directory: str, as_json: bool) -> int:
    """List the holds of a topic: readers that keep its rows from a position on."""
    found = target(manifest, directory, silent=True)
    reader = _reader(found, name, source)
    told = [_told(each) for each in reader.holds()]
    if as_json:
        print_json({"holds": told, **shard_of_it(found)})
    elif not told:
        print("no hold keeps rows")
    else:
        rows = [(h["name"], h.get("position", "unreadable: keeps all"), h.get("owner"), h.get("since")) for h in told]
        print_table(("hold", "position", "owner", "since"), rows)
    return 0


@topics.command("drop-hold")
@click.argument("name", metavar="TOPIC")
@click.argument("hold", metavar="HOLD")
@source_option
@service_options
@json_option
def drop_hold(name: str, hold: str, source: str, manifest: str, directory: str, as_json: bool) -> int:
    """Drop a hold whose reader needs the rows no longer; they go with the writer's next clean-up."""
    found = target(manifest, directory, silent=True)
    if not _reader(found, name, source).drop_hold(hold):
        raise InvalidArgument(f"topic {name} has no hold {hold!r}", remedy=f"see `deathless topics holds {name}`")
    if as_json:
        print_json({"dropped": hold, **shard_of_it(found)})
    else:
        print(f"hold {hold} is dropped")
    return 0


@topics.command("skip")
@click.argument("name", metavar="TOPIC")
@click.option("--to", "position", metavar="N", required=True, type=click.IntRange(min=2), help="Where rows go on.")
@source_option
@service_options
@json_option
def skip(name: str, position: int, source: str, manifest: str, directory: str, as_json: bool) -> int:
    """Give up the rows below a position for ever, so that a topic goes on whose files were lost (DL3065)."""
    found = target(manifest, directory, silent=True)
    floor = _reader(found, name, source).skip(position)
    if as_json:
        print_json({"floor": floor.position, **shard_of_it(found)})
    else:
        print(f"rows of {name} below position {floor.position} are given up")
    return 0


def _reader(found: Target, name: str, source: str) -> TopicReader:
    """Give the reader of one topic. Raises: InvalidArgument when there is none of this name."""
    from deathless.topics import TopicReader
    from deathless.topics.source import parse_source, topic_directory

    chosen = parse_source(source)
    if source and chosen is None:
        raise InvalidArgument(f"{source!r} is no source", remedy=f"see `deathless topics show {name}`")
    reader = TopicReader(topic_directory(found.config.directory, name), chosen)
    if "/" in name or not reader.sources():
        raise InvalidArgument(
            f"{found.where}: there is no topic {name!r} with rows", remedy="see `deathless topics list`"
        )
    return reader


def _remote(site: Site, name: str, source: str) -> RemoteTopic:
    """Give the reader of one topic over HTTP. Raises: InvalidArgument for a source that is none; InvalidConfig."""
    from deathless.topics import RemoteTopic
    from deathless.topics.source import parse_source

    if source and parse_source(source) is None:
        raise InvalidArgument(f"{source!r} is no source", remedy=f"see `deathless topics show {name}`")
    return RemoteTopic(
        site.urls,
        name,
        named_shard() or 0,
        source,
        token_file=site.token_file,
        ca_file=site.ca_file,
        certificate_file=site.certificate_file,
        key_file=site.key_file,
    )


def _served(site: Site) -> list[dict[str, object]]:
    """Give the topics that a service tells of over HTTP, those with rows. Raises: InvalidConfig; PeerUnreachable."""
    from deathless.topics.http_port import HttpPort
    from deathless.topics.remote import list_topics

    shard = named_shard()
    port = HttpPort(
        site.urls,
        token_file=site.token_file,
        ca_file=site.ca_file,
        certificate_file=site.certificate_file,
        key_file=site.key_file,
    )
    found = list_topics(port)
    return [_as_told(each) for each in found if each.source and shard in {None, each.shard}]


def _as_told(state: TopicState) -> dict[str, object]:
    """Give what a service tells of a topic, by the names of --json."""
    told = to_builtins(state)
    assert isinstance(told, dict)
    return told


def _topics_of(config: ReplicaConfig) -> Iterator[dict[str, object]]:
    from deathless.topics import TopicReader
    from deathless.topics.source import TOPICS

    folder = Path(config.directory) / TOPICS
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if path.is_dir():
            for source in TopicReader(path).sources():
                yield _described(config, path.name, TopicReader(path, source))


def _described(config: ReplicaConfig, name: str, reader: TopicReader) -> dict[str, object]:
    bounds, extent = reader.bounds(), reader.extent()
    return {
        "topic": name,
        "shard": config.shard,
        "source": reader.source().folder,
        "floor": bounds.floor,
        "first": bounds.first,
        "next": bounds.next,
        "files": extent.files,
        "bytes": extent.size_bytes,
        "timeUs": extent.time_us,
        "holds": len(reader.holds()),
    }


def _told(named: NamedHold) -> dict[str, object]:
    hold = named.hold
    told: dict[str, object] = {"name": named.name, "readable": hold is not None}
    return told if hold is None else told | {"position": hold.position, "owner": hold.owner, "since": hold.since}


def _rows(batches: Iterable[pa.RecordBatch], limit: int | None) -> Iterator[dict[str, object]]:
    left = limit
    if left == 0:
        return
    for batch in batches:
        for row in batch.to_pylist(maps_as_pydicts="strict"):
            yield row
            if left is not None:
                left -= 1
                if left <= 0:
                    return


def _print_rows(rows: list[dict[str, object]]) -> None:
    print_table([*rows[0]], [[_cell(value) for value in row.values()] for row in rows])


def _cell(value: object) -> object:
    from datetime import datetime

    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")
    text = str(value)
    return value if value is None or len(text) <= CELL_MAX else f"{text[: CELL_MAX - 1]}…"


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value
