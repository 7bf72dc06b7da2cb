"""A child process of a supervisor, and when to start it again.

Guarantees: one that fails is started again after a pause that doubles up to RESTART_MAX_S, for ever. Does not: start or
wait for anything; whoever owns it does.
"""

from __future__ import annotations

import subprocess

from deathless.base.backoff import next_pause

RESTART_MIN_S, RESTART_MAX_S = 0.05, 5.0  # between two starts of one that fails
STABLE_S = 10.0  # one that ran so long starts again without waiting
AT_ONCE_S = 1.0  # the same for one that ended in order: nothing spins, whatever it does


class Child:
    """A child process with its restarts."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process: subprocess.Popen[bytes] | None = None
        self.stopped = False  # by a signal
        self.started_at = 0.0
        self.delay_s = 0.0
        self.start_at: float | None = 0.0  # when to start it next; None: not at all

    @property
    def pid(self) -> int:
        """Process id; 0: none runs."""
        return self.process.pid if self.process is not None else 0

    def due(self, now: float) -> bool:
        """Is it time to start it?"""
        return self.process is None and self.start_at is not None and now >= self.start_at

    def not_started(self, now: float) -> None:
        """Plan the next try to start it: this one failed, for want of a descriptor or of memory, say."""
        self.started_at = now
        self.ended(now, at_once=False)

    def ended(self, now: float, *, at_once: bool) -> None:
        """Plan the next start: with doubling delay, but at once after a long run, or an expected end of a fair one."""
        self.process = None
        self.stopped = False
        if now - self.started_at >= (AT_ONCE_S if at_once else STABLE_S):
            self.delay_s = 0.0
        else:
            self.delay_s = next_pause(self.delay_s, first_s=RESTART_MIN_S, most_s=RESTART_MAX_S)
        self.start_at = now + self.delay_s
