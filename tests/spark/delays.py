"""The pipeline of the tests: late departures become calls of the carriers' handler."""

from pyspark.sql import SparkSession

from deathless.spark import Query, query


def build(spark: SparkSession) -> list[Query]:
    """Two queries of one topic."""
    rows = spark.readStream.format("deathless").option("service", "airports").option("topic", "departures").load()
    late = rows.where("minutes_late > 15").selectExpr("_key AS key", "flight", "minutes_late AS minutes")
    every = rows.selectExpr("_key AS key", "flight")
    return [
        query("alarms", late).to_service("carriers", "late"),
        query("log", every).to_service("carriers", "seen", on_refusal="deadLetter"),
    ]
