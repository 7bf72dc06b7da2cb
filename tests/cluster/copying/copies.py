"""The pipeline of the cluster tests: each row of the ledger's topic goes back to the ledger."""

from pyspark.sql import SparkSession

from deathless.spark import Query, query


def build(spark: SparkSession) -> list[Query]:
    """One query."""
    rows = spark.readStream.format("deathless").option("service", "ledger").option("topic", "noted").load()
    return [query("copies", rows.selectExpr("_key AS key", "tag")).to_service("ledger", "copied")]
