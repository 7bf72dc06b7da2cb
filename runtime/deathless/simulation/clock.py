"""Clocks of one host: a steady one, and one that a person or a time daemon can set.

Why: no clock is part of the safety argument (I2), so the simulation makes every clock jump. Guarantees: the steady
clock follows virtual time; the wall clock is that plus an offset that ``jump`` moves, forward or back. May import
scheduler.
"""

from __future__ import annotations

from typing import Final

from deathless.simulation.scheduler import Scheduler

EPOCH_US: Final = 1_700_000_000_000_000
"""Wall time at virtual time 0, microseconds since 1970-01-01 UTC."""


class SimClock:
    """The clocks of one host."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._offset_us = EPOCH_US  # wall minus steady time; any integer

    def steady_us(self) -> int:
        """Microseconds since some start; never goes back."""
        return self._scheduler.now_us

    def wall_us(self) -> int:
        """Microseconds since 1970-01-01 UTC, at least 0; may go back."""
        return max(0, self._scheduler.now_us + self._offset_us)

    def jump(self, by_us: int) -> None:
        """Set the wall clock forward, or back when negative."""
        self._offset_us += by_us
