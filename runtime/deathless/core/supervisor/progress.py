"""Tells from a worker's page whether it gets on, without asking it.

    what stands still                              for longer than   verdict
    one call of the file system                    log_call_max_s,   STUCK: its log hangs; killing would not help it
                                                   or what the storage does for everybody (`Detector.call_max_s`)
    one message                                    turn_max_s        OVERDUE: the supervisor ends the worker
    everything, with no call or message under way  turn_max_s        OVERDUE
    everything, but we stood still ourselves                         FINE, and all clocks begin again

Why the last line: a replica that was frozen whole wakes up with old times on its clocks, which say nothing about its
worker.

Guarantees: a message that runs, or a loop that comes round, is progress, however slow the whole is. Does not: clocks,
processes, the page's form.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards

ASLEEP_S: Final = 1.0  # not having looked for so long, we stood still ourselves


class Verdict(enum.Enum):
    """How a worker gets on."""

    FINE = "fine"
    STUCK = "stuck"
    OVERDUE = "overdue"


class Signs(NamedTuple):
    """Those of what the page shows that tell whether the worker gets on."""

    running: tuple[int, int] | None  # session and seq of the message that is being run; None: none is
    ticks: int
    calls: int  # odd while one is under way


class Progress:
    """Watches one worker.

    Args:
        turn_max_s, log_call_max_s: see `base.limits`.
    """

    def __init__(self, *, turn_max_s: float, log_call_max_s: float, safeguards: Safeguards = ALL_SAFEGUARDS) -> None:
        self._safeguards = safeguards
        self._turn_max_s = turn_max_s
        self._log_call_max_s = log_call_max_s
        self._seen: Signs | None = None
        self._running_since = 0.0
        self._calls_since = 0.0
        self._any_since = 0.0
        self._looked_at = 0.0

    def begin(self) -> None:
        """Another worker runs from now on."""
        self._seen = None

    def look(self, signs: Signs, now: float, call_max_s: float = 0.0) -> Verdict:
        """Take in what the page shows.

        Args:
            signs: what it shows.
            now: monotonic seconds.
            call_max_s: what a call of the file system may take just now, where that is more than `log_call_max_s`.
        """
        call_max_s = max(call_max_s, self._log_call_max_s)
        seen = self._seen
        asleep = now - self._looked_at > ASLEEP_S and self._safeguards.forgive_sleep
        self._seen, self._looked_at = signs, now
        if seen is None or asleep:
            self._running_since = self._calls_since = self._any_since = now
            return Verdict.FINE
        if signs != seen:
            self._any_since = now
        if signs.running != seen.running:
            self._running_since = now
        if signs.calls != seen.calls:
            self._calls_since = now
        if signs.running is not None and now - self._running_since > self._turn_max_s:
            return Verdict.OVERDUE
        if signs.calls % 2:
            return Verdict.STUCK if now - self._calls_since > call_max_s else Verdict.FINE
        still = now - self._any_since > self._turn_max_s and self._safeguards.end_still_workers
        return Verdict.OVERDUE if still else Verdict.FINE
