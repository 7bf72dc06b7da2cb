"""A file-backed page that a worker writes and its supervisor reads, also after the worker's death (I11).

Cells of u64 in the machine's byte order; the first three are `execution.running`'s:

    0 to 2   the message being run
    3        ticks: one more each time the worker's loop comes round
    4        syncs: odd while one is under way
    5        when the primary was last heard, nanoseconds of the monotonic clock; 0: never
    6        lsn applied
    7        1 while the log has no room

Guarantees: the supervisor never waits for the worker. Does not: survive a power cut, and need not.
"""

from __future__ import annotations

import mmap
import os
from typing import Final

from deathless.execution.running import Cells, Running, read_running

CELLS: Final = 16
PAGE_BYTES: Final = 8 * CELLS
TICKS, SYNCS, UPSTREAM, LSN, FULL = 3, 4, 5, 6, 7


class Page:
    """The page at `path`, created when missing; `fresh` clears what a former worker left."""

    def __init__(self, path: str, *, fresh: bool = False) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(descriptor).st_size < PAGE_BYTES:
                os.ftruncate(descriptor, PAGE_BYTES)
                fresh = True
            self._map = mmap.mmap(descriptor, PAGE_BYTES)
        finally:
            os.close(descriptor)
        self.cells = memoryview(self._map).cast("Q")
        self.running = Cells(memoryview(self._map)) if fresh else None
        if fresh:
            for cell in range(TICKS, CELLS):
                self.cells[cell] = 0

    def read_running(self) -> Running | None:
        """The message that is, or was at its death, being run."""
        return read_running(bytes(self._map[:24]))
