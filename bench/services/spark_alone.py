"""Spark without a pipeline: a plain query with its own checkpoint in files, and scans of a topic.

python spark_alone.py files FOLDER ROWS              one file after the other, each with one row
python spark_alone.py scan FOLDER TOPIC TIMES        all rows of a topic, thrown away

Prints one line of JSON (`Files`, `Scans`) at the end.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WAIT_S: Final = 240.0
TRIGGER_MS: Final = 100


class Files(msgspec.Struct):
    """What a plain query needed."""

    row_ms: list[float]  # of each row: from its file to the row in the driver's memory
    batch_ms: list[float]  # of batches with a row, as Spark tells


class Scans(msgspec.Struct):
    """What scans of a topic needed."""

    rows: int  # counted
    took_s: list[float]


def _session() -> SparkSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415  who reads what this prints has no Spark

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.log.level", "ERROR")
    return builder.config("spark.sql.streaming.numRecentProgressUpdates", "10000").getOrCreate()


def files(folder: Path, wanted: int) -> Files:
    """Have a query of Spark's own source of files take one row after the other, at any moment between two batches."""
    spark, seen = _session(), threading.Semaphore(0)
    source, hidden = folder / "rows", folder / "hidden"
    source.mkdir()
    hidden.mkdir()

    def take(frame: DataFrame, _batch: int) -> None:
        for _ in frame.collect():
            seen.release()

    rows = spark.readStream.schema("number long").json(str(source))
    writer = rows.writeStream.foreachBatch(take).option("checkpointLocation", str(folder / "checkpoint"))
    running = writer.trigger(processingTime=f"{TRIGGER_MS} milliseconds").start()
    took: list[float] = []
    for number in range(wanted + 1):
        time.sleep(random.random() * TRIGGER_MS / 1000)
        path = hidden / f"{number}.json"
        path.write_text(f'{{"number": {number}}}\n', encoding="utf-8")
        began = time.perf_counter()
        os.replace(path, source / path.name)
        if not seen.acquire(timeout=WAIT_S):
            raise TimeoutError(f"no row within {WAIT_S:g} s: {running.exception()}")
        took.append((time.perf_counter() - began) * 1000)
    running.processAllAvailable()  # so the last batch is told of, too
    told = [each["durationMs"]["triggerExecution"] for each in running.recentProgress if each["numInputRows"]]
    running.stop()
    return Files(took[1:], [float(each) for each in told[1:]])  # the first one loads all that is ever needed


def scan(folder: str, topic: str, times: int) -> Scans:
    """Count the rows of a topic, then read all columns of all of them again and again."""
    from deathless.spark import Deathless  # noqa: PLC0415  as above

    spark = _session()
    spark.dataSource.register(Deathless)
    rows = spark.read.format("deathless").option("folder", folder).option("topic", topic).load()
    count = rows.count()
    took = []
    for _ in range(times):
        began = time.perf_counter()
        rows.write.format("noop").mode("overwrite").save()
        took.append(time.perf_counter() - began)
    return Scans(count, took)


def main(given: list[str]) -> None:
    """See the module's docstring."""
    kind, folder, *rest = given
    found = files(Path(folder), int(rest[0])) if kind == "files" else scan(folder, rest[0], int(rest[1]))
    print(msgspec.json.encode(found).decode(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
