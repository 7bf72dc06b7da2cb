"""State of Spark that is handed over: whichever driver dies or wakes, the rows are those that Python computes.

One session plays all drivers: what tells them apart is their number, and the folder in which each keeps its checkpoint.
"""

from __future__ import annotations

import asyncio
import os
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as columns
from pyspark.sql.streaming.query import StreamingQuery
from tests.unit.deathless.spark.spark_lab import InMemory
from tests.unit.deathless.topics.topic_lab import emitted, of_epoch, sink_in

from deathless.base.errors import StateFolderMissing, StateMissing, StateRefused
from deathless.pipelines.ledger import Batch, DriverDeposed
from deathless.spark import query
from deathless.spark.options import SERVICES, offer_services
from deathless.spark.queries import Query, check
from deathless.spark.session import start
from deathless.spark.sink import ServiceSink
from deathless.spark.source import Driven

ROWS = 240
BATCH = "25"
BASE_S = 1_000_000  # event time of position 0
FAST_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
WAIT_S = 1800.0  # for one batch on a machine that has much else to do


class Death(Exception):
    """What a driver dies of here."""


class Ledger(InMemory):
    """The pipeline's rules; a driver dies or stands still before or behind a decision."""

    def __init__(self) -> None:
        super().__init__()
        self.dies_before: set[int] = set()  # decisions, by their count
        self.dies_behind: set[int] = set()
        self.freezes = 0
        self.frozen, self.thaw = threading.Event(), threading.Event()
        self.changed = threading.Condition()

    def commit(self, query: str, batch: Batch) -> bool:
        count = self.held.batches + 1
        if count == self.freezes and not self.frozen.is_set():
            self.frozen.set()
            self.thaw.wait(WAIT_S)
        if count in self.dies_before:
            self.dies_before.remove(count)
            raise Death
        decided = super().commit(query, batch)
        with self.changed:
            self.changed.notify_all()
        if count in self.dies_behind:
            self.dies_behind.remove(count)
            raise Death
        return decided


def row_of(position: int) -> tuple[str, int]:
    """Flight and event time of a position: some come again, and some are from long ago."""
    if position > 100 and position % 40 == 0:
        return f"old {position}", BASE_S - 5000 + position
    if position > 30 and position % 5 == 0:
        return row_of(position - 23)
    return f"LH {position}", BASE_S + position


async def publish(folder: Path, first: int, last: int) -> None:
    """Have the topic have these positions."""
    sink = sink_in(folder / "topics" / "topic")
    await sink.open(of_epoch(first), first)
    for position in range(first, last + 1):
        flight, time_s = row_of(position)
        one = emitted(position, row=[flight, position])
        await sink.deliver([msgspec.structs.replace(one, arguments={**one.arguments, "time_us": time_s * 1_000_000})])


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session: it starts once."""
    conf = {
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": FAST_START,
    }
    session = start("tests", conf, tmp_path_factory.mktemp("spark") / "home")
    session.dataSource.register(Driven)
    yield session
    session.stop()


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Path:
    """A service whose topic has the first half of the rows."""
    place = tmp_path / "airports"
    (place / "topics" / "topic").mkdir(parents=True)
    asyncio.run(publish(place, 1, ROWS // 2))
    offer_services({"airports": str(place)})
    # A driver says so before its Java starts; the one of these tests runs already.
    spark.sparkContext.environment[SERVICES] = os.environ[SERVICES]
    spark.dataSource.register(Driven)
    return place


def stream(spark: SparkSession) -> DataFrame:
    """Its rows as they come."""
    reader = spark.readStream.format("deathless").option("service", "airports").option("topic", "topic")
    return reader.option("maxRowsPerBatch", BATCH).load()


def per_minute(spark: SparkSession) -> Query:
    """Rows of each minute, once no more of it are waited for."""
    minutes = stream(spark).withWatermark("_time", "30 seconds").groupBy(columns.window("_time", "60 seconds"))
    counted = minutes.agg(columns.count("*").alias("rows"), columns.sum("minutes").alias("total"))
    return query("per_minute", counted.selectExpr("string(unix_seconds(window.start)) AS key", "rows", "total"))


def per_key(spark: SparkSession) -> Query:
    """Rows of each key so far, whenever there are more."""
    counted = stream(spark).groupBy("_key").count()
    return query("per_key", counted.selectExpr("_key AS key", "count AS rows"), mode="update")


def once(spark: SparkSession) -> Query:
    """Each flight once, however often it comes."""
    rows = stream(spark).where("flight LIKE 'LH%'").withWatermark("_time", "60 seconds")
    return query("once", rows.dropDuplicatesWithinWatermark(["flight"]).selectExpr("flight AS key"))


def pairs(spark: SparkSession) -> Query:
    """Each row with the one that is 21 positions behind it."""
    rows = stream(spark).selectExpr("minutes AS p", "timestamp_seconds(1000000 + minutes) AS at")
    left = rows.selectExpr("p + 21 AS wanted", "at AS left_at").withWatermark("left_at", "60 seconds")
    right = rows.selectExpr("p", "at").withWatermark("at", "60 seconds")
    joined = left.join(right, columns.expr("wanted = p AND at BETWEEN left_at AND left_at + INTERVAL 50 SECONDS"))
    return query("pairs", joined.selectExpr("string(p) AS key"))


def answer_per_minute(rows: list[Any]) -> None:
    """Minutes that are over, each once, without rows that came too late."""
    counts: Counter[int] = Counter()
    totals: Counter[int] = Counter()
    newest = 0
    for position in range(1, ROWS + 1):
        flight, time_s = row_of(position)
        if not flight.startswith("old"):
            counts[time_s // 60 * 60] += 1
            totals[time_s // 60 * 60] += position
            newest = max(newest, time_s)
    closed = [minute for minute in sorted(counts) if minute + 60 <= newest - 30]
    assert len(closed) > 1
    found = sorted((int(minute), values) for minute, values in rows)
    assert found == [(each, {"rows": counts[each], "total": totals[each]}) for each in closed]


def answer_per_key(rows: list[Any]) -> None:
    """Of each key ever larger counts, up to that of all rows."""
    found: dict[str, list[int]] = {}
    for key, values in rows:
        found.setdefault(key, []).append(values["rows"])
    assert all(counts == sorted(set(counts)) for counts in found.values()), (
        "each change once, and none of an older state"
    )
    wanted = Counter(f"key-{position % 3}" for position in range(1, ROWS + 1))
    assert {key: counts[-1] for key, counts in found.items()} == dict(wanted)


def answer_once(rows: list[Any]) -> None:
    """Each flight that ever came."""
    every = {row_of(position)[0] for position in range(1, ROWS + 1)}
    assert sorted(key for key, _ in rows) == sorted(each for each in every if not each.startswith("old"))


def answer_pairs(rows: list[Any]) -> None:
    """Each position that has one 21 before it."""
    assert sorted(int(key) for key, _ in rows) == list(range(22, ROWS + 1))


class Drivers:
    """Drivers of one query, one after the other."""

    def __init__(self, given: Query, ledger: Ledger, home: Path) -> None:
        [self.query] = check(given.to_service("carriers", "told"))
        self.ledger, self.home, self.number = ledger, home, 0

    def begin(self) -> tuple[ServiceSink, StreamingQuery]:
        """Have a driver of the next number go on."""
        self.number += 1
        sink = ServiceSink(self.query, self.ledger, self.number, self.home / self.query.name)
        assert sink.open() == ""
        # A session ends the run that it has of an id before it starts another one; drivers have sessions of their own.
        (sink.folder / "metadata").write_text(f'{{"id": "{uuid.uuid4()}"}}', encoding="utf-8")
        writer = self.query.frame.writeStream.outputMode(self.query.mode).foreachBatch(sink.on_batch)
        return sink, writer.option("checkpointLocation", str(sink.folder)).start()

    def end(self, sink: ServiceSink, running: StreamingQuery) -> Exception | None:
        """Wait until a driver has died; gives of what."""
        try:
            running.awaitTermination(WAIT_S)
        except Exception:  # noqa: BLE001  the sink has it as it was
            assert sink.error is not None, running.exception()
        sink.close()
        return sink.error

    def finish(self, running: StreamingQuery) -> None:
        """Have a driver take all rows that there are, and end it."""
        running.processAllAvailable()
        running.stop()


SHAPES: list[tuple[Callable[[SparkSession], Query], Callable[[list[Any]], None]]] = [
    (per_minute, answer_per_minute),
    (per_key, answer_per_key),
    (once, answer_once),
    (pairs, answer_pairs),
]


@pytest.mark.parametrize(("shape", "answer"), SHAPES, ids=[shape.__name__ for shape, _ in SHAPES])
def test_the_answer_is_that_of_python_whichever_driver_dies_or_wakes(
    spark: SparkSession, folder: Path, tmp_path: Path, shape: Any, answer: Any
) -> None:
    """Before a decision, behind one, or standing still in one while another driver decides it and more."""
    ledger = Ledger()
    drivers = Drivers(shape(spark), ledger, tmp_path / "spark")
    ledger.dies_before, ledger.dies_behind, ledger.freezes = {1, 4}, {2, 5}, 6
    for _ in range(4):
        assert isinstance(drivers.end(*drivers.begin()), Death)
    frozen = drivers.begin()
    asyncio.run(publish(folder, ROWS // 2 + 1, ROWS))
    assert ledger.frozen.wait(WAIT_S)
    other, running = drivers.begin()
    with ledger.changed:
        assert ledger.changed.wait_for(lambda: ledger.held.batches >= 7, WAIT_S)
    ledger.thaw.set()  # it goes on in the folder that it has, which is gone or nobody's
    assert isinstance(drivers.end(*frozen), DriverDeposed)
    drivers.finish(running)
    answer(ledger.rows())
    assert [each.name for each in (tmp_path / "spark" / drivers.query.name).iterdir() if each.name[0] == "6"] == [
        other.folder.name
    ]


def test_no_window_is_lost_or_doubled_at_any_decision(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    """Before each decision one driver dies, and behind each another one; also where a batch has no rows."""
    asyncio.run(publish(folder, ROWS // 2 + 1, ROWS))
    ledger = Ledger()
    drivers = Drivers(per_minute(spark), ledger, tmp_path / "spark")
    ledger.dies_before, ledger.dies_behind = set(range(1, ROWS)), set(range(1, ROWS))
    while True:
        sink, running = drivers.begin()
        try:
            drivers.finish(running)
            break
        except StreamingQueryException:
            assert isinstance(drivers.end(sink, running), Death)
    assert drivers.number == 2 * ledger.held.batches + 1
    answer_per_minute(ledger.rows())


def test_state_that_is_not_there_is_told_by_name(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    """A query never begins with no state where it had some, or none where it kept none."""
    drivers = Drivers(per_key(spark), Ledger(), tmp_path / "spark")
    sink, running = drivers.begin()
    drivers.finish(running)
    (tmp_path / "spark" / "per_key" / sink.folder.name).rename(tmp_path / "elsewhere")
    with pytest.raises(StateMissing, match="which the last decision names, is not there"):
        drivers.begin()


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        (lambda rows: rows.limit(3), "GlobalLimit"),
        (lambda rows: rows.groupBy("key").agg(columns.first("minutes")), "computed again"),
        (lambda rows: rows.where("rand() > 0.5").groupBy("key").count(), "computed again"),
    ],
)
def test_state_that_can_not_be_handed_over_is_refused(spark: SparkSession, folder: Path, shape: Any, told: str) -> None:
    """As real plans show it, each with its own words."""
    rows = stream(spark).selectExpr("_key AS key", "minutes")
    with pytest.raises(StateRefused, match=told):
        check(query("x", shape(rows), mode="update").to_service("carriers", "late"))


def test_other_stores_and_drivers_without_a_folder_are_refused(spark: SparkSession, folder: Path) -> None:
    """RocksDB names its files otherwise, and what it keeps was never handed over."""
    one = per_key(spark).to_service("carriers", "late")
    with pytest.raises(StateFolderMissing, match="share no folder"):
        check(one, has_state_folder=False)
    name = "spark.sql.streaming.stateStore.providerClass"
    before = spark.conf.get(name)
    spark.conf.set(name, "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider")
    try:
        with pytest.raises(StateRefused, match=r"providerClass is .*RocksDB"):
            check(one)
    finally:
        spark.conf.set(name, str(before))
