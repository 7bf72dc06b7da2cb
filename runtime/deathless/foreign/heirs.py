"""To which replica a primary hands over whose program ended: to one whose program is there, and has run what is logged.

Why: the program would begin again from its checkpoint, which takes as long as its state is large; the others run all
the time. A message that ends a program ends it on all replicas, one soon after the other, so there is nobody to hand
over to; and a program that keeps ending by itself is left where it is (`starts`).

Guarantees: a replica is named only while what is told of its program is news, at most once in AGAIN_S. Does not: read
files or a clock; times are monotonic seconds. What a status says of its time is compared with itself alone, since
another machine's clock wrote it. Imports the record of a status.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from deathless.shell.link.application_status import ApplicationStatus

FRESH_S: Final = 3.0
"""A status that did not change for so long is of a process that is gone, or stands still."""
AGAIN_S: Final = 10.0
FOLLOWING: Final = "following"


class Heirs:
    """The programs of the other replicas, as they were told.

    Args:
        replica: ours.
    """

    def __init__(self, replica: str) -> None:
        self._replica = replica
        self._told: dict[str, ApplicationStatus] = {}
        self._changed_at: dict[str, float] = {}  # when a status was last another one; none: it was seen once
        self._asked_at: float | None = None

    def saw(self, statuses: Iterable[ApplicationStatus], now: float) -> None:
        """This is told beside the replicas."""
        for each in statuses:
            before = self._told.get(each.replica)
            if before is not None and before.at_us != each.at_us:
                self._changed_at[each.replica] = now
            self._told[each.replica] = each

    def choose(self, now: float) -> str:
        """Give the replica to hand over to, which is done then; empty: there is none, or it is too soon."""
        if self._asked_at is not None and now - self._asked_at < AGAIN_S:
            return ""
        there = [
            self._told[replica]
            for replica, at in self._changed_at.items()
            if replica != self._replica and now - at <= FRESH_S and self._told[replica].state == FOLLOWING
        ]
        if not there:
            return ""
        self._asked_at = now
        return max(there, key=lambda each: (each.position, each.replica)).replica
