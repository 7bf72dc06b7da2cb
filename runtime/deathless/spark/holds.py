"""What a pipeline keeps of the topics that it reads: rows behind the start of the batch that is computed.

A driver that takes over begins where the last decided batch ends, so nothing above may be deleted before. Spark's own
word that rows are taken is no measure: it is not given where a driver dies, and comes from warm-up runs as well. So the
driver keeps the rows itself, before anything of a batch is staged, as the offsets of the batch say.

A hold costs a sync, or a request, before its batch is computed, and one that is lower than it could be keeps a few rows
longer. So it moves up once in AGAIN_S.

Guarantees: a hold stands at or below the position where the query stands. Does not: keep rows of sources that are none
of ours, or of topics that were named by a folder. Imports topics.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from deathless.spark.options import known_services, read_options

AGAIN_S: Final = 1.0


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
    """Keeps rows for one pipeline, under its name.

    Args:
        pipeline: the name.
        clock: gives seconds, monotonic.
    """

    def __init__(self, pipeline: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = pipeline
        self._clock = clock
        self._held: dict[tuple[str, str, str, str, str], float] = {}  # when each hold was moved last

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
            which = (query, service, topic, shard, source)
            if self._clock() < self._held.get(which, float("-inf")) + AGAIN_S:
                continue
            reader = settings.reader(int(shard), source)
            reader.hold(f"{self._name}.{query}", position, owner=f"pipeline {self._name}")
            self._held[which] = self._clock()
