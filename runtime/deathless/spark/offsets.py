"""Where a stream is, and how what comes next is cut into batches and partitions.

An offset says for each shard whose rows they are (service id and incarnation) and the position of the next row, so that
a service that was restored is not taken for the one before.

Guarantees: the partitions of a range are a function of the range alone, however often it is read. Imports options.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from deathless.base.errors import PeerReplaced
from deathless.spark.options import Settings

RANGE_ROWS: Final = 1 << 20  # positions of a partition

Places = dict[str, list[Any]]
"""For each shard, by its number as text: [source, position of the next row]."""

Offset = dict[str, Any]
"""`topic`, `service` (empty where a folder was given) and `shards`, which are places."""


class Span(NamedTuple):
    """Positions of one shard: `start` to `end`, without it."""

    shard: int
    source: str
    start: int
    end: int


def _offset(settings: Settings, shards: Places) -> Offset:
    return {"topic": settings.topic, "service": settings.service, "shards": shards}


def now(settings: Settings, *, newest: bool) -> Offset:
    """Give where the shards begin or end now; a shard without rows is left out."""
    found: Places = {}
    for shard in range(settings.shards):
        if settings.published(shard):
            reader = settings.reader(shard)
            bounds = reader.bounds()
            found[str(shard)] = [reader.source().folder, bounds.next if newest else bounds.first]
    return _offset(settings, found)


def spans(start: Offset, end: Offset) -> list[Span]:
    """Cut what lies between two offsets, at multiples of RANGE_ROWS.

    Raises: PeerReplaced when rows of another source stand there now.
    """
    found = []
    for shard, (source, behind) in sorted(end["shards"].items(), key=lambda each: int(each[0])):
        at = _at(start["shards"], shard, source)
        while at < behind:
            until = min(behind, (at // RANGE_ROWS + 1) * RANGE_ROWS)
            found.append(Span(int(shard), source, at, until))
            at = until
    return found


def cut(start: Offset, until: Offset, max_rows: int) -> Offset:
    """Give the offset at which a batch ends: at most `max_rows` behind its start, and at most at `until`.

    Each shard gets the same share; what one has no use for, the others get.
    """
    places = until["shards"]
    at = {shard: _at(start["shards"], shard, source) for shard, (source, _) in places.items()}
    taken = share({shard: max(0, behind - at[shard]) for shard, (_, behind) in places.items()}, max_rows)
    shards = {shard: [source, at[shard] + taken[shard]] for shard, (source, _) in places.items()}
    return {**until, "shards": {**start["shards"], **shards}}


def _at(start: Places, shard: str, source: str) -> int:
    was, at = start.get(shard, (source, 1))
    if was != source:
        raise PeerReplaced(
            f"rows of shard {shard} are those of {source} now, and the query has taken rows of {was}: the service was "
            "restored or created anew",
            remedy="begin a query of another name, whose positions are those of the new one",
        )
    return int(at)


def share(wanted: Mapping[str, int], most: int) -> dict[str, int]:
    """Divide `most` among those that want some, none more than it wants; at least one each while there is any."""
    taken: dict[str, int] = dict.fromkeys(wanted, 0)
    for rank, shard in enumerate(sorted(wanted, key=lambda each: (wanted[each], each))):
        taken[shard] = min(wanted[shard], (most - sum(taken.values())) // (len(wanted) - rank))
    return taken
