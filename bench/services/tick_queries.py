"""The pipeline between the services of `ticks`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deathless.spark import Query, query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMED = "timed"  # the key of rows that are timed one by one


def build(spark: SparkSession) -> list[Query]:
    """Give the queries: timed rows have handlers of their own."""
    rows = spark.readStream.format("deathless").option("service", "source").option("topic", "ticks").load()
    timed = rows.where(f"_key = '{TIMED}'").selectExpr("_key AS key", "number", "unix_micros(_time) AS published_us")
    many = rows.where(f"_key <> '{TIMED}'").selectExpr("_key AS key", "number")
    return [query("timed", timed).to_service("receiver", "arrive"), query("many", many).to_service("receiver", "count")]
