"""Topics as Spark reads them: exactly, in batches, from any place on, or with an error."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.unit.deathless.topics.topic_lab import FOLDER, reader_in, written

from deathless.pipelines.position import position_of
from deathless.spark import Deathless, query
from deathless.spark.queries import check
from deathless.spark.session import start
from deathless.spark.source import Driven, Recent


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session: it starts once."""
    session = start("tests", {}, tmp_path_factory.mktemp("spark") / "home")
    session.dataSource.register(Deathless)
    yield session
    session.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A service with a topic of 100 rows, written by two epochs."""
    (tmp_path / "topics" / "topic").mkdir(parents=True)
    asyncio.run(written(tmp_path / "topics" / "topic", 1, 60))
    asyncio.run(written(tmp_path / "topics" / "topic", 50, 100, epoch=2))
    return tmp_path


def stream(spark: SparkSession, folder: Path, **options: str) -> DataFrame:
    """Rows of the topic as they come."""
    reader = spark.readStream.format("deathless").option("topic", "topic").option("folder", str(folder))
    return reader.options(**options).load()


def run(frame: DataFrame, checkpoint: Path) -> list[list[int]]:
    """Run a stream to its end; gives the positions of each batch."""
    found: list[list[int]] = []

    def keep(batch: DataFrame, _number: int) -> None:
        found.append(batch.toArrow().column("_position").to_pylist())

    writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    return [batch for batch in found if batch]


def test_a_table_has_each_row_once(spark: SparkSession, folder: Path) -> None:
    """With the columns of the topic behind our own, whichever epoch wrote them."""
    table = spark.read.format("deathless").option("topic", "topic").option("folder", str(folder)).load()
    assert table.columns == ["_shard", "_position", "_key", "_time", "flight", "minutes"]
    rows = table.orderBy("_position").collect()
    assert [row["_position"] for row in rows] == list(range(1, 101))
    assert rows[2].asDict() | {"_time": None} == {
        "_shard": 0, "_position": 3, "_key": "key-0", "_time": None, "flight": "LH 3", "minutes": 21,
    }  # fmt: skip
    assert [row["minutes"] for row in rows[4:6]] == [None, 42]


def test_a_stream_has_each_row_once_over_restarts(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    """In batches that are no larger than they may be; rows that come later are in a later run."""
    batches = run(stream(spark, folder, maxRowsPerBatch="30", hold="report"), tmp_path / "checkpoint")
    assert [(batch[0], batch[-1]) for batch in batches] == [(1, 30), (31, 60), (61, 90), (91, 100)]
    asyncio.run(written(folder / "topics" / "topic", 101, 120, epoch=3))
    batches = run(stream(spark, folder, maxRowsPerBatch="30", hold="report"), tmp_path / "checkpoint")
    assert batches == [list(range(101, 121))]
    assert [each.hold.position for each in reader_in(folder / "topics" / "topic").holds() if each.hold] == [101]
    last = (tmp_path / "checkpoint" / "offsets" / "4").read_text(encoding="utf-8")
    assert f'"0":["{FOLDER}",121]' in position_of(last)


def test_a_stream_may_begin_with_what_comes(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    """`latest` leaves out what is there."""
    assert run(stream(spark, folder, startingPositions="latest"), tmp_path / "checkpoint") == []
    asyncio.run(written(folder / "topics" / "topic", 101, 103, epoch=3))
    assert run(stream(spark, folder, startingPositions="latest"), tmp_path / "checkpoint") == [[101, 102, 103]]


def test_rows_that_are_gone_are_an_error(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    """The stream ends by name, and no later row is given in their place."""
    run(stream(spark, folder), tmp_path / "checkpoint")
    asyncio.run(written(folder / "topics" / "topic", 101, 110, epoch=3))
    reader_in(folder / "topics" / "topic").skip(105)
    for path in (folder / "topics" / "topic" / FOLDER).glob("*-3-*.rows"):
        path.unlink()
    with pytest.raises(Exception, match="position 101 is below the floor"):
        run(stream(spark, folder), tmp_path / "checkpoint")


def test_a_service_that_was_created_anew_is_told_from_the_one_before(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    """Its positions are others."""
    run(stream(spark, folder), tmp_path / "checkpoint")
    (folder / "topics" / "topic" / FOLDER).rename(folder / "topics" / "topic" / f"{FOLDER[:-1]}9")
    with pytest.raises(Exception, match="restored or created anew"):
        run(stream(spark, folder), tmp_path / "checkpoint")


def test_a_warm_up_takes_few_rows_and_moves_no_hold(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    """However many there are."""
    asyncio.run(written(folder / "topics" / "topic", 101, 2000, epoch=3, step=100))
    spark.dataSource.register(Recent)
    try:
        batches = run(stream(spark, folder, hold="report"), tmp_path / "checkpoint")
    finally:
        spark.dataSource.register(Deathless)
    assert (batches[0][0], batches[-1][-1], max(map(len, batches))) == (501, 2000, 100)
    assert reader_in(folder / "topics" / "topic").holds() == []


def test_the_first_batch_of_a_driver_is_empty(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    """Its offsets say where the query begins; a run that goes on has no such batch."""
    spark.dataSource.register(Driven)
    rows: list[int] = []
    try:
        for end in (100, 120):
            running = stream(spark, folder).writeStream.foreachBatch(lambda batch, _: rows.append(batch.count()))
            started = running.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
            started.processAllAvailable()
            started.stop()
            assert sum(rows) == end
            asyncio.run(written(folder / "topics" / "topic", end + 1, end + 20, epoch=end))
    finally:
        spark.dataSource.register(Deathless)
    texts = [(tmp_path / "checkpoint" / "offsets" / str(batch)).read_text(encoding="utf-8") for batch in range(3)]
    assert [f'"0":["{FOLDER}",{end}]' in position_of(text) for end, text in zip((1, 101, 121), texts, strict=True)] == [
        True, True, True,
    ]  # fmt: skip


def test_a_topic_without_rows_is_told_so(spark: SparkSession, tmp_path: Path) -> None:
    """Its columns are not known yet; a mistake in an option is told as well."""
    with pytest.raises(Exception, match="has no rows yet"):
        stream(spark, tmp_path)
    with pytest.raises(Exception, match="no option 'columnz'"):
        stream(spark, tmp_path, columnz="a")


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        (lambda rows: rows.groupBy("key").count(), True),
        (lambda rows: rows.dropDuplicates(["key"]), True),
        (lambda rows: rows.alias("a").join(rows.alias("b"), "key"), True),
        (
            lambda rows: rows.where("minutes > 1").join(rows.sparkSession.createDataFrame([("a",)], ["key"]), "key"),
            False,
        ),
    ],
)
def test_queries_with_state_of_spark_are_known(spark: SparkSession, folder: Path, shape: Any, told: bool) -> None:
    """As real plans show it; a join with a table keeps none."""
    rows = stream(spark, folder).selectExpr("_key AS key", "minutes")
    [one] = check(query("x", shape(rows)).to_service("carriers", "late"))
    assert one.stateful == told
