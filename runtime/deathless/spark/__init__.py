"""Spark beside services: topics as a source, and queries that write to services exactly once.

    spark.dataSource.register(Deathless)
    rows = spark.readStream.format("deathless").option("topic", "departures").option("folder", "data/airports").load()

Needs `pip install deathless[spark]` and Java 17; nothing here is imported before it is named.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deathless.spark.queries import Query as Query
    from deathless.spark.queries import query as query
    from deathless.spark.source import Deathless as Deathless

_HOMES = {
    "Deathless": "deathless.spark.source",
    "Query": "deathless.spark.queries",
    "query": "deathless.spark.queries",
}


__all__ = ["Deathless", "Query", "query"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
