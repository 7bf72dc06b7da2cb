"""What a pipeline keeps of the topics that it reads: rows behind the start of the batch that is computed.

A driver that takes over begins where the last decided batch ends, so nothing above may be deleted before. Spark's own
word that rows are taken is no measure: it is not given where a driver dies, and comes from warm-up runs as well. So the
driver keeps the rows itself, before anything of a batch is staged, as the offsets of the batch say.

Guarantees: a hold stands at or below the position where the query stands. Does not: keep rows of sources that are none
of ours, or of topics that were named by a folder. Imports topics.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from deathless.spark.options import known_services, read_options


def are_kept(offsets: str) -> bool:
    """Say whether all sources are topics of services that were named, whose rows are kept."""
    found = list(_places(offsets))
    return bool(found) and all(offset is not None and offset["service"] in known_services() for offset in found)


def _places(offsets: str) -> Iterator[dict[str, Any] | None]:
    """Yield where each source is; None: it is no topic of a service that was named."""
    for line in offsets.splitlines()[2:]:
        offset: Any = msgspec.json.decode(line) if line != "-" else None
        yield offset if isinstance(offset, dict) and offset.get("service") and "topic" in offset else None


class Holds:
    """Keeps rows for one pipeline, under its name."""

    def __init__(self, pipeline: str) -> None:
        self._name = pipeline

    def keep(self, query: str, start: str, end: str) -> None:
        """Keep what a batch of a query begins with: where it starts, or where it ends if it is the first one.

        Args:
            query: its name.
            start: text of the offsets behind which it begins; empty: it is the first one.
            end: text of its offsets.

        Raises: TopicRowsDropped, OSError.
        """
        for offset in _places(start or end):
            if offset is not None:
                self._keep(query, offset["service"], offset["topic"], offset["shards"])

    def _keep(self, query: str, service: str, topic: str, shards: dict[str, list[Any]]) -> None:
        if service not in known_services():
            return
        settings = read_options({"topic": topic, "service": service})
        for shard, (source, position) in shards.items():
            reader = settings.reader(int(shard), source)
            reader.hold(f"{self._name}.{query}", position, owner=f"pipeline {self._name}")
