"""What the writers and readers of a checkpoint's sections share: their types, and how columns are cut.

Why here: `checkpoint` writes the file and `messaging_sections` the payloads of services that use messaging.
Guarantees: pure. Does not: check sums, name offsets (`checkpoint` does). Imports nothing of ours.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Final

GROUP_BYTES: Final = 1 << 20  # of the items of one section; for STATE part of the format


class Section(enum.IntEnum):
    """Type of a section; each of them is written and read, and others are passed over or, when critical, refused.

    16 to 23 belong to messaging and stand only in files of services that use it; 24 and 25 in files whose state was
    written ahead.
    """

    HEAD = 1
    STATE = 2
    SESSIONS = 3
    REPLIES = 4
    KEYS = 5
    PARKED = 6
    INVOCATIONS = 16
    OUTBOX = 17
    PEERS = 19
    RESULTS = 20
    UNKNOWN = 21
    UNDELIVERED = 22
    HISTORIES = 23  # not critical: a reader that does not know them compares no histories
    GONE = 24  # keys of STATE that are no more
    CHANGED = 25  # entries that are new, or other ones than in STATE
    STREAMS = 26  # this and the next: codec.streams.sections, in files of services that have streams
    REFUSED = 27
    END = 255


def spans(sizes: Sequence[int], bytes_max: int) -> Iterator[tuple[int, int]]:
    """Cut items of these sizes into [start, stop) of as many as fit in `bytes_max`, at least one each."""
    ends = list(accumulate(sizes))
    start = base = 0
    while start < len(ends):
        stop = max(start + 1, bisect_right(ends, base + bytes_max, start))
        yield start, stop
        base = ends[stop - 1]
        start = stop


def split(payload: bytes, at: int, sizes: Sequence[int]) -> list[bytes]:
    """Cut the blobs that begin at `at` of the payload and end with it.

    Raises: ValueError when they end elsewhere.
    """
    ends = list(accumulate(sizes, initial=at))
    if ends[-1] != len(payload):
        raise ValueError("lengths and payload disagree")
    return [payload[start:stop] for start, stop in pairwise(ends)]
