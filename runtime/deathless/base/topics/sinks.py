"""What a manifest says of sinks: readers of a topic that store its rows in a table; and their processes' settings.

    spec:
      sinks:
      - name: facts
        kind: columns
        topic: departures
        options: {store: postgresql, dsnFile: facts.dsn, table: facts, columns: {flight: flight, late: minutes_late}}

Each sink has a process of its own beside each replica; the one beside the primary is at work.

Guarantees: a laptop and a pod get the same settings from the same spec, but for folders. Does not: connect anything.
Imports base.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from deathless.base.config import SinkConfig
from deathless.base.manifest_fields import FilePath, Name, NonEmpty, Part, SecretRef, Text, told
from deathless.base.topics.settings import FOLDER, ByteQuantity, quantity_bytes

SINKS_MAX: Final = 16  # each is a process beside each replica
COLUMNS_MAX: Final = 256
_IDENTIFIER: Final = r"[A-Za-z_][A-Za-z0-9_$]{0,62}"


class ColumnsOptions(Part, frozen=True):
    """Where rows go, and how many at a time."""

    store: Annotated[Literal["clickhouse", "postgresql"], told("What keeps the table.")]
    table: Annotated[
        Annotated[
            str,
            Meta(
                pattern=rf"^({_IDENTIFIER}\.)?{_IDENTIFIER}$",
                max_length=127,
                description="the name of a table, or schema.table",
            ),
        ],
        told("The table that rows go into: its name, or schema.table."),
    ]
    columns: Annotated[
        dict[NonEmpty, NonEmpty],
        Meta(max_length=COLUMNS_MAX),
        told(
            "By column of the table: the topic's column that goes there, of the class of the rows, or _shard, "
            "_position, _key or _time. When absent: each column of the class goes into that of its own name. "
            "ClickHouse has _block besides; _block and _position go into columns of these names if none is named here."
        ),
    ] = msgspec.field(default_factory=dict)
    dsn: Annotated[
        Text,
        told(
            "Where the store is, without a password: of PostgreSQL a connection string of libpq, of ClickHouse a URL, "
            "http[s]://user@host:8123/?database=name."
        ),
    ] = ""
    dsn_file: Annotated[FilePath, told("File with the same, which may hold a password.")] = ""
    schema: Annotated[
        Annotated[
            str,
            Meta(
                pattern="^[a-z_][a-z0-9_]{0,62}$",
                max_length=63,
                description="the name of a schema: lower-case letters, digits and underscores",
            ),
        ],
        told("The schema, of ClickHouse the database, of the table deathless_sinks, which says how far each sink is."),
    ] = "deathless"
    create: Annotated[bool, told("Create the table if it is missing. false: the sink waits until it is there.")] = False
    block_rows: Annotated[
        int, Meta(ge=1, le=1_000_000), told("A block of so many rows is stored at once, in one transaction.")
    ] = 100_000
    block_seconds: Annotated[
        float,
        Meta(ge=0, le=3600),
        told("A block with fewer rows is stored once the sink has known the first of them for so many seconds."),
    ] = 5.0
    hold_bytes_max: Annotated[
        ByteQuantity,
        told(
            "The sink keeps rows that it has not stored from being deleted, until its shard has more of them than "
            "this. Then it lets go of them, and says so. 0: no limit."
        ),
    ] = "10Gi"


class Sink(Part, frozen=True):
    """A reader of a topic that stores its rows outside, each exactly once."""

    name: Annotated[Name, told("The name under which the store knows this sink. Sinks of a service differ in it.")]
    kind: Annotated[Literal["columns"], told("What it does: columns stores rows in a table.")]
    topic: Annotated[Name, told("The topic whose rows it stores, one of spec.topics.")]
    options: Annotated[ColumnsOptions, told("Where rows go, and how many at a time.")]
    on_refusal: Annotated[
        Literal["stop", "deadLetter"],
        told(
            "What becomes of a row that the store refuses for good. stop: the sink stops at it. deadLetter: the store "
            "keeps it with the reason, to be stored later by an operator, and the sink goes on; PostgreSQL alone."
        ),
    ] = "stop"
    secret_ref: Annotated[
        SecretRef | None,
        told(
            "Secret whose keys are the files that options name by relative paths, in a cluster. No effect on a laptop."
        ),
    ] = None


def sink_problems(sinks: Sequence[Sink], topics: Collection[str]) -> list[tuple[int, str, object, str, str]]:
    """Find what contradicts other parts of a spec.

    Args:
        sinks: in order.
        topics: names of the spec's topics.

    Returns: for each problem which sink, which field of it (its path with dots), its value, what is wrong, and what to
        do.
    """
    found: list[tuple[int, str, object, str, str]] = []
    seen: set[str] = set()
    for at, sink in enumerate(sinks):
        if sink.name in seen:
            found.append((at, "name", sink.name, "is also the name of another sink", "choose another name"))
        seen.add(sink.name)
        if sink.topic not in topics:
            found.append((at, "topic", sink.topic, "is no topic of spec.topics", "name one of those, or add it there"))
        if bool(sink.options.dsn) == bool(sink.options.dsn_file):
            found.append((at, "options", None, "needs dsn or dsnFile, one of them", "dsnFile may hold a password"))
    return found


def held_bytes(sinks: Sequence[Sink], shards: int) -> int:
    """Give what all sinks of a service may keep on its volume; one without a limit counts as nothing."""
    return shards * held_by((sink.topic, quantity_bytes(sink.options.hold_bytes_max)) for sink in sinks)


def held_by(limits: Iterable[tuple[str, int]]) -> int:
    """Give what a shard's sinks may keep: of each topic the most, since they keep the same rows.

    Args:
        limits: of each sink its topic, and its limit of bytes.
    """
    most: dict[str, int] = {}
    for topic, limit in limits:
        most[topic] = max(most.get(topic, 0), limit)
    return sum(most.values())


def sink_configs(sinks: Sequence[Sink], directory: str, folder: str, secrets: str = "") -> tuple[SinkConfig, ...]:
    """Give what the processes of sinks are started with.

    Args:
        sinks: in order.
        directory: of the shard, absolute.
        folder: what relative paths in options start from.
        secrets: has a folder for each sink with a Secret, which its paths start from. Empty: there is none.
    """
    return tuple(
        SinkConfig(
            name=sink.name,
            topic=sink.topic,
            topic_directory=f"{directory.rstrip('/')}/{FOLDER}/{sink.topic}",
            store=sink.options.store,
            table=sink.options.table,
            columns=sink.options.columns,
            dsn=sink.options.dsn,
            dsn_file=sink.options.dsn_file,
            schema=sink.options.schema,
            create=sink.options.create,
            block_rows=sink.options.block_rows,
            block_s=sink.options.block_seconds,
            hold_bytes_max=quantity_bytes(sink.options.hold_bytes_max),
            on_refusal=sink.on_refusal,
            folder=f"{secrets}/{sink.name}" if secrets and sink.secret_ref is not None else folder,
        )
        for sink in sinks
    )
