"""The pipeline: departures become calls of carriers' handlers, and rows of a table."""

from __future__ import annotations

from pyspark.sql import SparkSession

from deathless.spark import Query, query


def build(spark: SparkSession) -> list[Query]:
    """Give the queries."""
    rows = spark.readStream.format("deathless").option("service", "airports").option("topic", "departures").load()
    late = rows.where("minutes > 15").selectExpr("carrier AS key")
    every = rows.selectExpr("carrier AS key", "origin", "minutes")
    facts = rows.selectExpr("_position AS position", "carrier", "origin", "flight", "minutes")
    return [
        query("alarms", late).to_service("carriers", "late"),
        query("per-carrier", every).to_service("carriers", "departed"),
        query("facts", facts).to_table("facts", dsn_file="database.dsn", create=True),
    ]
