"""The pipeline of the tests: late departures become calls of the carriers' handler, and all go into a table.

Spark counts them as well, in state of its own, and tells each carrier of each count.

FACTS_DSN says where the table is; without it there is none.
"""

import os

from pyspark.sql import SparkSession

from deathless.spark import Query, query


def build(spark: SparkSession) -> list[Query]:
    """Queries of one topic."""
    rows = spark.readStream.format("deathless").option("service", "airports").option("topic", "departures").load()
    late = rows.where("minutes_late > 15").selectExpr("_key AS key", "flight", "minutes_late AS minutes")
    every = rows.selectExpr("_key AS key", "flight")
    counts = rows.groupBy("_key").count().selectExpr("_key AS key", "count AS flights")
    queries = [
        query("alarms", late).to_service("carriers", "late"),
        query("log", every).to_service("carriers", "seen", on_refusal="deadLetter"),
        query("counts", counts, mode="update").to_service("carriers", "counted"),
    ]
    if dsn := os.environ.get("FACTS_DSN"):
        facts = rows.selectExpr("_key AS carrier", "flight", "minutes_late AS minutes", "_time AS at")
        queries.append(query("facts", facts).to_table("facts", dsn=dsn, create=True))
    return queries
