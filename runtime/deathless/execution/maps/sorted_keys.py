"""Keys in ascending order, in which one is added, removed and found without looking at the others.

They lie in parts of at most 2 * PART_KEYS, one behind the other: a search looks at few of them, a change moves what
lies behind it in its own part alone.

Guarantees: the order of `bytes`; a key once. Does not: hold values. Imports nothing of ours.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from operator import itemgetter
from typing import Final

PART_KEYS: Final = 512
_last: Final = itemgetter(-1)


class SortedKeys:
    """The keys.

    Args:
        keys: in any order, each once.
    """

    __slots__ = ("_parts",)

    def __init__(self, keys: Iterable[bytes]) -> None:
        ordered = sorted(keys)
        self._parts = [
            ordered[at : at + PART_KEYS] for at in range(0, len(ordered), PART_KEYS)
        ]  # Invariant: none empty

    def add(self, key: bytes) -> None:
        """Add a key that is not there."""
        parts = self._parts
        if not parts:
            parts.append([key])
            return
        at = min(bisect_left(parts, key, key=_last), len(parts) - 1)
        part = parts[at]
        insort(part, key)
        if len(part) > 2 * PART_KEYS:
            parts.insert(at + 1, part[PART_KEYS:])
            del part[PART_KEYS:]

    def remove(self, key: bytes) -> None:
        """Remove a key that is there."""
        at = bisect_left(self._parts, key, key=_last)
        part = self._parts[at]
        place = bisect_left(part, key)
        assert part[place] == key, "it is there"
        del part[place]
        if not part:
            del self._parts[at]

    def after(self, key: bytes) -> bytes | None:
        """Give the first key above `key`; None: there is none."""
        at = bisect_right(self._parts, key, key=_last)
        if at == len(self._parts):
            return None
        part = self._parts[at]
        return part[bisect_right(part, key)]
