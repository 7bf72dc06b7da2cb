"""What the pipeline computes: departures that are more than 15 minutes late become calls of their carriers.

deathless up delays.yaml
"""

from pyspark.sql import SparkSession

from deathless.spark import Query, query


def build(spark: SparkSession) -> list[Query]:
    """Give the queries of the pipeline."""
    rows = spark.readStream.format("deathless").option("service", "airports").option("topic", "departures").load()
    late = rows.where("minutes_late > 15").selectExpr("substring(flight, 1, 2) AS key", "minutes_late AS minutes")
    return [query("alarms", late).to_service("carriers", "late")]
