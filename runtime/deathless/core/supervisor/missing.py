"""Is what a worker did not find of the log lost, or only not to be seen for now?

A worker ends with LogTruncated when a file, or a part of one, is not where it must be. A new worker may find it: on
network storage a name looked up too early is believed absent for a while, and a successor may have collected in between
two looks. So workers are started again, until the same is missing for longer than any of that lasts:

    ended(reading)      -> since ... -> ended(reading) beyond the bound: lost
        '-- cleared by a worker that follows: it has read the log to its end
    ended(taking over)  -> since ... -> ended(taking over) beyond the bound: lost
        '-- cleared by a takeover that succeeds, and by a worker that follows while another replica leads

The two are kept apart: a replica that can read the log, but lacks what another replica knows confirmed, recovers and
follows between any two attempts to take over; that says nothing of what the attempt misses.

Guarantees: what stays missing is lost after the bound, whatever happens in between; an attempt within the bound never
is. Does not: restart anything, read a clock. Imports nothing of ours.
"""

from __future__ import annotations

import enum
from typing import Final

MISSING_S: Final = 1.0  # on a file system of this machine
STALE_S: Final = 150.0  # network file systems believe for at most about a minute or two that a name is absent


class Phase(enum.Enum):
    """What the worker was about."""

    READING = "reading"
    TAKING_OVER = "taking-over"


class Missing:
    """Since when workers of one replica end because the log lacks what must be there."""

    def __init__(self) -> None:
        self._since: dict[Phase, float] = {}  # monotonic seconds

    def ended(self, role: str, now: float, *, local: bool) -> bool:
        """A worker ended for that reason. True: what it missed is lost, a new one would meet the same.

        Args:
            role: the worker's last.
            now: monotonic seconds.
            local: the log lies on a file system of this machine.
        """
        phase = Phase.TAKING_OVER if role == Phase.TAKING_OVER.value else Phase.READING
        return now - self._since.setdefault(phase, now) > (MISSING_S if local else STALE_S)

    def role_said(self, role: str, *, led: bool) -> None:
        """A worker says its role; `led`: another replica is primary, and was heard of just now."""
        if role in ("standby", "checkpointer"):
            self._since.pop(Phase.READING, None)
        if role == "primary" or (led and role in ("standby", "checkpointer")):
            self._since.clear()
