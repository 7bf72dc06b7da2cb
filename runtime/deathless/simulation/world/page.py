"""What a simulated worker shows its supervisor beside what it says: twin of `shell/link/status_page.py`.

Guarantees: it outlives its worker, and a power cut ends it. Does not: decide anything. May import engine and below.
"""

from __future__ import annotations

from typing import Final

from deathless.codec.witness import Point
from deathless.execution.turn.running import PAGE_BYTES, Cells, Running, read_running

SLOW_CALL_US: Final = 250_000  # a call that took less is no news
SLOW_KEPT_US: Final = 60_000_000  # one that took longer is told for so long


class Page:
    """What a worker shows its supervisor, also after its death (I11)."""

    def __init__(self, before: Page | None = None) -> None:
        # The witness; a power cut ends it.
        self.confirmed: Point | None = before.confirmed if before is not None else None
        self._buffer = bytearray(PAGE_BYTES)
        self.running = Cells(self._buffer)
        self.ticks = 0  # one more each time the worker's loop comes round
        self.syncs = 0  # odd while one is under way
        self.upstream_us = 0  # when the primary was last heard; 0: never
        self.lsn = 0
        self.full = self.outbox_full = False
        self.unproved_s = 0.0
        self.lock_answers_s = 0.0
        self.slow_ms = 0  # what the slowest sync of late took; 0: none took long
        self._slow_until_us = 0

    def read_running(self) -> Running | None:
        """The message that is, or was at its death, being run."""
        return read_running(bytes(self._buffer))

    def clear(self) -> None:
        """Forget the message that stands here: it was taken note of."""
        self.running = Cells(self._buffer)

    def note_call(self, began_us: int, now_us: int) -> None:
        """A call of the storage came back: keep how long the slowest of late took."""
        took_us = now_us - began_us
        if now_us > self._slow_until_us:
            self.slow_ms = 0
        if took_us >= SLOW_CALL_US and took_us >= self.slow_ms * 1000:
            self.slow_ms, self._slow_until_us = took_us // 1000, now_us + SLOW_KEPT_US
