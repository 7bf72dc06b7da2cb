"""When a process that a supervisor keeps running is started again.

Guarantees: one that fails is started again after a pause that doubles up to RESTART_MAX_S, for ever. Does not: start or
end a process, or read a clock.
"""

from __future__ import annotations

from typing import Final

from deathless.base.backoff import next_pause

RESTART_MIN_S: Final = 0.05
"""Between the first two starts of one that fails."""
RESTART_MAX_S: Final = 5.0
STABLE_S: Final = 10.0
"""One that ran so long starts again without waiting."""
AT_ONCE_S: Final = 1.0
"""The same for one that ended in order: nothing spins, whatever it does."""


class Restarts:
    """The starts of one process; times are monotonic seconds."""

    def __init__(self) -> None:
        self.runs = False
        self.suspended = False  # it runs, but stands still by a signal
        self.started_at = 0.0
        self.delay_s = 0.0
        self.start_at: float | None = 0.0  # when to start it next; None: not at all

    def due(self, now: float) -> bool:
        """Is it time to start it?"""
        return not self.runs and self.start_at is not None and now >= self.start_at

    def started(self, now: float) -> None:
        """It runs from now on."""
        self.runs = True
        self.started_at = now
        self.start_at = None

    def not_started(self, now: float) -> None:
        """Plan the next try to start it: this one failed, for want of a descriptor or of memory, say."""
        self.started_at = now
        self.ended(now, at_once=False)

    def ended(self, now: float, *, at_once: bool) -> None:
        """Plan the next start: with doubling delay, but at once after a long run, or an expected end of a fair one."""
        self.runs = False
        self.suspended = False
        if now - self.started_at >= (AT_ONCE_S if at_once else STABLE_S):
            self.delay_s = 0.0
        else:
            self.delay_s = next_pause(self.delay_s, first_s=RESTART_MIN_S, most_s=RESTART_MAX_S)
        self.start_at = now + self.delay_s
