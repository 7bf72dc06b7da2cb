"""When a process beside a replica counts as frozen: it reads nothing of what it is told, for longer than it may.

Why it exists: such a process keeps its place while it stands still (a stopped process, a loop that does not end), so
nobody else does its work: rows of a source wait, a sink stores nothing, an application answers nobody. What it is told
each second says nothing new, but it has to be read.

Guarantees: time counts only while something waits to be read and nothing is, and at most LOOK_MAX_S for each look, so
that a supervisor that stood still itself blames nobody. One that has not read anything yet, because it starts, has
START_S. Does not: measure, or end anything. Imports nothing of ours.
"""

from __future__ import annotations

from typing import Final

STILL_S: Final = 20.0
START_S: Final = 120.0
LOOK_MAX_S: Final = 2.0


class SideWatch:
    """Looks at one process, from its start on."""

    __slots__ = ("_begun", "_counted_s", "_last", "_read")

    def __init__(self) -> None:
        self._last: float | None = None  # when it was looked at
        self._read = 0  # sent less unread then
        self._begun = False  # it has read all once
        self._counted_s = 0.0  # since it has read anything, while something waited

    def is_frozen(self, now: float, sent: int, unread: int) -> bool:
        """Take a look.

        Args:
            now: monotonic seconds.
            sent: bytes that it was told in all.
            unread: what the kernel keeps of them until they are read, which is more than their bytes.
        """
        last, self._last = self._last, now
        read = sent - unread
        moved, self._read = read > self._read, read
        self._begun = self._begun or (bool(sent) and not unread)
        if moved or not unread or last is None:
            self._counted_s = 0.0
        else:
            self._counted_s += min(now - last, LOOK_MAX_S)
        return self._counted_s >= (STILL_S if self._begun else START_S)
