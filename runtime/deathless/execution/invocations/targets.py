"""How many other services turns may send to: each has a place in the outbox, and who sends to it, for ever (I10).

Decided when a turn ends, not while it runs: a turn that is run again for a checkpoint is not decided again, because by
then others may be known.

Guarantees: a function of the outbox and of what was sent since. Does not: refuse replies, or what we send to ourselves.
Imports codec and base.
"""

from __future__ import annotations

from deathless.base.errors import TooLarge
from deathless.codec.peer_messages import SELF, Known, Target
from deathless.execution.turn.turn import Asked


class Targets:
    """Who is sent to.

    Args:
        most: others at most.
    """

    __slots__ = ("_fresh", "_most", "known")

    def __init__(self, most: int) -> None:
        self.known: Known | None = None  # None: there is no outbox, and no maximum
        self._most = most
        self._fresh: set[Target] = set()  # others that were sent to and that the outbox does not know yet

    def admit(self, asked: Asked) -> None:
        """Refuse a turn that would send to one more than may be.

        Raises: TooLarge naming that one; nothing of the turn may have been kept.
        """
        known = self.known
        if known is None:
            return
        targets = {target for target, _ in asked.messages if not known.knows(target)}
        if not targets:
            return
        further = sorted(targets - self._fresh - {SELF})
        room = max(0, self._most - known.others - len(self._fresh))
        if len(further) > room:
            name = further[room].service
            raise TooLarge(f"sent to {name!r}, besides {self._most} other services (limits.targets_max)")

    def note(self, target: Target) -> None:
        """A message goes to it."""
        if self.known is not None and target != SELF and not self.known.knows(target):
            self._fresh.add(target)

    def taken(self) -> None:
        """What was sent is in the outbox now, or forgotten."""
        self._fresh.clear()
