"""The pipeline between the services of `ticks`, and the same rows through Spark alone, with its own checkpoint.

python tick_queries.py TOPIC_FOLDER CHECKPOINT ROWS     prints a row's milliseconds, one in each line
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from deathless.spark import Deathless, Query, query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TIMED = "timed"  # the key of rows that are timed one by one


def build(spark: SparkSession) -> list[Query]:
    """Give the queries: timed rows have handlers of their own."""
    rows = spark.readStream.format("deathless").option("service", "source").option("topic", "ticks").load()
    timed = rows.where(f"_key = '{TIMED}'").selectExpr("_key AS key", "number", "unix_micros(_time) AS published_us")
    many = rows.where(f"_key <> '{TIMED}'").selectExpr("_key AS key", "number")
    return [query("timed", timed).to_service("receiver", "arrive"), query("many", many).to_service("receiver", "count")]


def alone(folder: str, checkpoint: str, wanted: int) -> None:
    """Read the rows with Spark's own checkpoint in files, and print how old each is when it is there."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  a pipeline's driver has one already

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(Deathless)
    seen = 0

    def look(frame: DataFrame, _batch: int) -> None:
        nonlocal seen
        found = frame.collect()
        now_us = time.time_ns() // 1000
        for row in found:
            print((now_us - row.published_us) / 1000, flush=True)
        seen += len(found)

    stream = spark.readStream.format("deathless").option("folder", folder).option("topic", "ticks")
    rows = stream.option("startingPositions", "latest").load()
    timed = rows.where(f"_key = '{TIMED}'").selectExpr("unix_micros(_time) AS published_us")
    writer = timed.writeStream.foreachBatch(look).option("checkpointLocation", checkpoint)
    running = writer.trigger(processingTime="100 milliseconds").start()
    print("ready", flush=True)
    while seen < wanted and running.isActive:
        time.sleep(0.1)
    running.stop()


if __name__ == "__main__":
    alone(sys.argv[1], sys.argv[2], int(sys.argv[3]))
