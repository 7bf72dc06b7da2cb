"""Clocks of one host: a steady one, one that counts sleep too, and one that a person or a time daemon can set.

Why: no clock is part of the safety argument (I2), so the simulation makes every clock jump. Virtual time is what a
steady clock shows. A machine sleeps within a moment of virtual time, so that nights cost no events: its other clocks
leap.

Guarantees: the steady clock follows virtual time; the boot's clock is that with sleep; the wall clock is virtual time
plus an offset that ``jump`` moves, forward or back. May import scheduler and core.
"""

from __future__ import annotations

from typing import Final

from deathless.core.tables.logical_time import Anchor
from deathless.simulation.world.scheduler import Scheduler

EPOCH_US: Final = 1_700_000_000_000_000
"""Wall time at virtual time 0, microseconds since 1970-01-01 UTC."""


class SimClock:
    """The clocks of one host."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._offset_us = EPOCH_US  # wall minus virtual time; any integer
        self._slept_us = 0
        self._booted_us = 0  # virtual time
        self._anchor: Anchor | None = None  # of the machine's memory: gone with its boot

    def now(self) -> float:
        """The steady clock in seconds."""
        return self.steady_us() / 1e6

    def steady_us(self) -> int:
        """Microseconds since some start; never goes back."""
        return self._scheduler.now_us

    def boot_us(self) -> int:
        """Microseconds since the boot, sleep included."""
        return self._scheduler.now_us - self._booted_us + self._slept_us

    def wall_us(self) -> int:
        """Microseconds since 1970-01-01 UTC, at least 0; may go back."""
        return max(0, self._scheduler.now_us + self._offset_us)

    @property
    def true_us(self) -> int:
        """What a right wall clock would show."""
        return EPOCH_US + self._scheduler.now_us + self._slept_us

    def jump(self, by_us: int) -> None:
        """Set the wall clock forward, or back when negative."""
        self._offset_us += by_us

    def sleep(self, us: int) -> None:
        """The machine sleeps for so long, in no virtual time."""
        self._slept_us += us
        self._offset_us += us

    def boot(self) -> None:
        """The machine starts anew: what it remembered of its last boot is gone."""
        self._booted_us = self._scheduler.now_us + self._slept_us
        self._anchor = None

    def anchor(self) -> Anchor | None:
        """What was noted last on this boot; None: nothing."""
        return self._anchor

    def note_anchor(self, anchor: Anchor) -> None:
        """Note it for the processes to come."""
        self._anchor = anchor
