"""Logical time of a shard, as its primary moves it: by records in the log, after the wall clock (design section 5).

It never goes back and jumps forward by a bounded step. Where the wall clock stands behind it (here, or the one of a
predecessor was ahead), it stands still until the clock is there; but while a timer or deadline waits for it, it goes on
half as fast as the steady clock, or that would wait for as long as the clocks differ.

Guarantees: nothing of the safety argument rests on it (I2). Does not: write records, know what waits. Imports base.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from deathless.base.limits import Limits
from deathless.base.safeguards import Safeguards

LOOK_AGAIN_S: Final = 0.001  # at the earliest, when it was not due just now


class LogicalTime:
    """Logical time at one primary.

    Args:
        time_us: behind the last message, microseconds.
        now: monotonic seconds.
        due_us: gives the logical time at which a time record has something to do; 0: never.
    """

    def __init__(
        self, *, limits: Limits, safeguards: Safeguards, time_us: int, now: float, due_us: Callable[[], int]
    ) -> None:
        self.us = time_us  # behind the last frame that ran. Invariant: never goes back
        self._moved_at = now
        self._due_us = due_us
        self._step_us = limits.clock_step_us
        self._jump_us = limits.time_jump_max_s * 1_000_000
        self._bounded = safeguards.bound_time_jumps

    def moved(self, time_us: int, now: float) -> None:
        """A frame ran."""
        if time_us > self.us:
            self.us, self._moved_at = time_us, now

    def clock_us(self, now: float, wall_us: int) -> int:
        """Give what logical time follows: the wall clock, or what goes on in its place."""
        if wall_us >= self.us or not self._due_us():
            return wall_us
        return self.us + int((now - self._moved_at) * 500_000)

    def next_us(self, clock_us: int) -> int:
        """Give the time of a record that is written now."""
        if self.us and self._bounded:
            clock_us = min(clock_us, self.us + self._jump_us)
        return max(clock_us, self.us)

    def due(self, clock_us: int) -> bool:
        """Has a time record something to do?"""
        due_us = self._due_us()
        return bool(due_us) and max(self.us, clock_us) >= due_us

    def stale(self, next_us: int) -> bool:
        """Has time moved so far that a frame shall say so?"""
        return next_us >= self.us + self._step_us

    def due_at(self, now: float, clock_us: int) -> float | None:
        """Give when to look again whether it is due, monotonic seconds, as the clocks stand; None: never."""
        due_us = self._due_us()
        return now + max(LOOK_AGAIN_S, (due_us - clock_us) / 1e6) if due_us else None
