"""Rows of a topic on their way out: published by handlers, read by programs, stored in tables.

Guarantees: a rate counts rows that can be read, or stand in the table, and each row's number is compared at the end:
unless each is there once, the figure is left out. Does not: measure the files of a topic by themselves (topics does).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from lab import clickhouse as lab_clickhouse
from lab import postgresql as lab_postgresql

from bench.cluster import POLL_S, Cluster, Program
from bench.figures import Figure, Goal, figure, median, percentile
from bench.groups.data.sources import MODULE, WAIT_S
from bench.setting import Setting
from deathless.base.config import ReplicaConfig, SinkConfig
from deathless.base.errors import InvalidArgument
from deathless.base.topics.settings import FOLDER, Topic, topic_configs
from deathless.shell.client.shard_client import Client
from deathless.topics import TopicReader

PUBLISHER: Final = Program("publisher", f"{MODULE}:publisher", "publisher")
TOPIC: Final = "rows"
BURST: Final = 100  # rows of one call
CALLS: Final = 64  # under way
BLOCK_ROWS: Final = 100_000


class Publisher(Cluster):
    """A replica of the service that publishes rows, with a sink beside it if one is given."""

    sink: SinkConfig | None = None

    def config(self, name: str) -> ReplicaConfig:
        """See Cluster."""
        drivers = topic_configs([Topic(name=TOPIC)], str(self.directory))
        sinks = () if self.sink is None else (msgspec.structs.replace(self.sink, topic_directory=self.topic),)
        return msgspec.structs.replace(super().config(name), drivers=drivers, sinks=sinks)

    @property
    def topic(self) -> str:
        """Where the topic's files are."""
        return f"{self.directory}/{FOLDER}/{TOPIC}"


@contextlib.asynccontextmanager
async def publishing(
    setting: Setting, folder: Path, kind: type[Publisher] = Publisher
) -> AsyncIterator[tuple[Publisher, Client]]:
    """The service, and a client."""
    made = setting.made(kind, folder, replicas=1, program=PUBLISHER)
    async with made as cluster, Client("publisher", [cluster.address]) as client:
        await client.ready()
        yield cluster, client


async def publish(client: Client, rows: int) -> None:
    """Have so many rows published, a few less if they are no multiple of what is under way."""

    async def some(worker: int) -> None:
        for _ in range(rows // BURST // CALLS):
            await client.call("publish", f"k{worker:02d}", count=BURST, timeout=WAIT_S)

    await asyncio.gather(*(some(worker) for worker in range(CALLS)))


def readable(cluster: Publisher) -> int:
    """How many rows can be read."""
    with contextlib.suppress(InvalidArgument):  # nobody has published yet
        return TopicReader(cluster.topic).bounds().next - 1
    return 0


async def until_readable(cluster: Publisher, rows: int) -> float:
    """Wait until so many can be; gives when."""
    async with asyncio.timeout(WAIT_S):
        while readable(cluster) < rows:  # noqa: ASYNC110  another process writes
            await asyncio.sleep(0.001)
    return time.perf_counter()


async def published(setting: Setting) -> list[Figure]:
    """Rows per second from the first call until the last can be read, and how soon a lone row can be."""
    rows, alone = setting.size(640_000, 12_800), setting.size(500, 20)
    rows -= rows % (BURST * CALLS)
    async with publishing(setting, setting.new_folder()) as (cluster, client):
        await client.call("publish", "alone", count=1, timeout=WAIT_S)
        await until_readable(cluster, 1)
        waits = []
        for number in range(2, alone + 2):
            await client.call("publish", "alone", count=1, timeout=WAIT_S)
            replied = time.perf_counter()
            waits.append((await until_readable(cluster, number) - replied) * 1000)
        began = time.perf_counter()
        await publish(client, rows)
        took = await until_readable(cluster, alone + 1 + rows) - began
        problem = "" if readable(cluster) == alone + 1 + rows else "more rows can be read than were published"
    return [
        figure(
            "topic_published_per_s", "rows published by handlers, until they can be read", None if problem else
            rows / took, "rows/s", samples=rows, goal=Goal("at least", 60_000),
            note=problem or f"{BURST} rows a call, {CALLS} calls under way, one replica",
        ),
        figure(
            "topic_readable_p50_ms", "from the reply to a call until its row can be read, p50",
            None if problem else median(waits), "ms", samples=len(waits), goal=Goal("at most", 10),
            note=f"p99 {percentile(waits, 99):.1f} ms; a reader that looks each millisecond",
        ),
    ]  # fmt: skip


class Table(NamedTuple):
    """Where a sink stores."""

    store: str
    dsn: str
    look: Callable[[], tuple[int, int]]  # how many rows there are, and the highest position; (0, 0): no table yet


async def stored(setting: Setting) -> list[Figure]:
    """A backlog of rows that a sink stores, in PostgreSQL and in ClickHouse."""
    rows = setting.size(2_560_000, 12_800)
    rows -= rows % (BURST * CALLS)
    folder = setting.new_folder()
    async with publishing(setting, folder) as (cluster, client):
        await publish(client, rows)
        await until_readable(cluster, rows)
    figures = []
    for name, goal, begin in (
        ("PostgreSQL", None, postgresql),
        ("ClickHouse", Goal("at least", 2_000_000), clickhouse),
    ):
        title = f"rows of a topic stored in {name}, blocks of {BLOCK_ROWS:,}"
        short = f"sink_{name.lower()}_per_s"
        try:
            with begin() as table:
                rate, problem = await _stored(setting, folder, table, rows)
        except (lab_postgresql.Missing, lab_clickhouse.Missing, ImportError) as missing:
            figures.append(figure(short, title, None, "rows/s", note=f"left out: {missing}"))
        else:
            note = problem or "one replica; counted from the first block that was seen on"
            figures.append(
                figure(short, title, None if problem else rate, "rows/s", samples=rows, goal=goal, note=note)
            )
    return figures


async def _stored(setting: Setting, folder: Path, table: Table, rows: int) -> tuple[float, str]:
    """Give rows per second, and what is wrong."""

    class Stores(Publisher):
        sink = SinkConfig(
            name=table.store, topic=TOPIC, topic_directory="", store=table.store, table="facts", dsn=table.dsn,
            create=True, columns=_COLUMNS[table.store], block_rows=BLOCK_ROWS, block_s=0.2,
        )  # fmt: skip

    async with publishing(setting, folder, Stores), asyncio.timeout(WAIT_S):
        look: Callable[[], Awaitable[tuple[int, int]]] = lambda: asyncio.to_thread(table.look)  # noqa: E731
        first, began = 0, time.perf_counter()
        while (found := await look())[0] < rows:
            if found[0] and not first:
                first, began = found[0], time.perf_counter()
            await asyncio.sleep(POLL_S)
        took = time.perf_counter() - began
    right = found == (rows, rows)
    return (rows - first) / took, "" if right else f"{found} rows and highest position, instead of {rows}"


_COLUMNS: Final = {
    "postgresql": {"number": "number", "text": "text", "part": "part", "at": "_position"},
    "clickhouse": {"number": "number", "text": "text", "part": "part", "at": "_position", "block": "_block"},
}


@contextlib.contextmanager
def postgresql() -> Iterator[Table]:
    """A server with default durability. Raises: Missing, ImportError."""
    import psycopg  # noqa: PLC0415 - of the group bench

    with lab_postgresql.Server() as server, psycopg.connect(server.dsn, autocommit=True) as connection:

        def look() -> tuple[int, int]:
            try:
                found: Any = connection.execute("SELECT count(*), max(at) FROM facts").fetchone()
            except psycopg.errors.UndefinedTable:
                return 0, 0
            return int(found[0]), int(found[1] or 0)

        yield Table("postgresql", server.dsn, look)


@contextlib.contextmanager
def clickhouse() -> Iterator[Table]:
    """The engine of today behind HTTP. Raises: Missing."""
    with lab_clickhouse.Server(engine=True) as server:

        def look() -> tuple[int, int]:
            try:
                count, highest = server.run("SELECT count(), max(at) FROM facts").split()
            except RuntimeError:  # no table yet
                return 0, 0
            return int(count), int(highest)

        yield Table("clickhouse", server.url, look)
