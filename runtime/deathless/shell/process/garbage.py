"""When a worker collects garbage: the young often, everything only when it holds much more than it did.

A full collection looks at every object that could be in a cycle and stops the world for that long. States are bytes and
cost it nothing; handlers that wait are objects, and there may be a hundred thousand. Where memory does not grow there
is nothing to find among the old, so time alone is no reason to look.

Guarantees: no collection inside a turn, since Python's own is off. Does not: bound memory (limits do). Imports nothing
of ours.
"""

from __future__ import annotations

import gc
import sys
from typing import Final

YOUNG_TICKS: Final = 20  # between two collections of what is young
GROWTH: Final = 1.5  # everything is looked at when so many times what was left the last time is held
GROWTH_MIN: Final = 500_000  # blocks of memory beyond, at least


class Garbage:
    """Takes collection over from Python, for a process that has loaded what it keeps."""

    def __init__(self) -> None:
        gc.collect()
        gc.freeze()
        gc.disable()
        self._ticks = 0
        self._due = _due()

    def tick(self) -> None:
        """To be called many times a second, with no turn under way."""
        self._ticks += 1
        if self._ticks % YOUNG_TICKS:
            return
        if sys.getallocatedblocks() < self._due:
            gc.collect(1)
        else:
            gc.collect()
            self._due = _due()


def _due() -> int:
    held = sys.getallocatedblocks()
    return max(round(held * GROWTH), held + GROWTH_MIN)
