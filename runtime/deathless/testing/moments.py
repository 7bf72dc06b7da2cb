"""The points at which a process can be killed, by name and counted, and the kills that a test has ordered.

    turn       handlers of a frame have run; nothing of it is in the log
    written    the frame is in the log, not synced
    synced     it is durable; nobody was told: between the turn and its confirmation
    reply      a reply is confirmed and about to leave for its caller
    replied    it has left
    send       messages are confirmed and about to leave for another service
    sent       they have left
    activity   an activity is about to begin
    outcome    its function has run, and its outcome is not in the log
    checkpoint a file of a checkpoint is about to change, or has just changed
    lock       likewise of the lock, or of a successor's way into the log

Every point has one of these names, and a number among all points of its environment. What a point interrupts is the
same in every run of the same test, so a number names it.

Guarantees: a point that is reached twice has two numbers. Does not: kill (raising `Killed` does). Imports base.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, get_args

from deathless.base.errors import InvalidArgument
from deathless.testing.loop import Killed

Moment = Literal[
    "turn", "written", "synced", "reply", "replied", "send", "sent", "activity", "outcome", "checkpoint", "lock"
]
MOMENTS: Final[tuple[Moment, ...]] = get_args(Moment)


class Point(NamedTuple):
    """A point that a process came to."""

    number: int  # from 1, in its environment
    service: str
    moment: Moment
    what: str  # for people: the file, the receiver, the activity

    def __str__(self) -> str:
        return f"point {self.number}: {self.service}, {self.moment}{f' ({self.what})' if self.what else ''}"


class Points:
    """Of one environment.

    Args:
        kill_at: number of the point that kills; 0: none does.
    """

    def __init__(self, kill_at: int = 0) -> None:
        self.count = 0
        self.counting = False  # False: the environment is not ready yet, or is over
        self.killed: list[Point] = []
        self._kill_at = kill_at
        self._ordered: dict[tuple[str, Moment], int] = {}  # how many more are passed; the last one kills

    def order(self, service: str, moment: Moment, number: int) -> None:
        """Have a service killed at the `number`-th point of this name from now on. Raises: InvalidArgument."""
        if moment not in MOMENTS:
            raise InvalidArgument(f"at={moment!r} is no point of a process", remedy=f"one of {', '.join(MOMENTS)}")
        if number < 1:
            raise InvalidArgument(f"number={number} must be at least 1")
        self._ordered[service, moment] = number

    def reached(self, service: str, moment: Moment, what: str = "", *, named: bool = True) -> None:
        """A process came to a point.

        Args:
            service: see Point, as the next two.
            moment: likewise.
            what: likewise.
            named: a test that names this moment means such a point; False: it has a number only.

        Raises: Killed.
        """
        if not self.counting:
            return
        self.count += 1
        if self.count == self._kill_at:
            self._kill(service, moment, what)
        left = self._ordered.get((service, moment)) if named else None
        if left == 1:
            del self._ordered[service, moment]
            self._kill(service, moment, what)
        if left is not None:
            self._ordered[service, moment] = left - 1

    def _kill(self, service: str, moment: Moment, what: str) -> None:
        self.killed.append(Point(self.count, service, moment, what))
        raise Killed

    @property
    def outstanding(self) -> list[tuple[str, Moment, int]]:
        """Kills that were ordered and have not come: (service, moment, how many points are missing)."""
        return [(service, moment, left) for (service, moment), left in self._ordered.items()]
