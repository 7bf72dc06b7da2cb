"""How often the worker of this replica died in a message (I11): what its supervisor counts and tells the others.

Guarantees: at most DEATHS_MAX messages are remembered; the one met first goes first. Does not: decide what is parked.
"""

from __future__ import annotations

from typing import Final

DEATHS_MAX: Final = 64


class MessageDeaths:
    """Deaths of one replica's workers, by the message in which they died."""

    def __init__(self) -> None:
        self._deaths: dict[tuple[int, int], int] = {}

    def met(self, session: int, seq: int) -> None:
        """Count a death in message `seq` of `session`."""
        key = (session, seq)
        self._deaths[key] = self._deaths.get(key, 0) + 1
        while len(self._deaths) > DEATHS_MAX:
            self._deaths.pop(next(iter(self._deaths)))

    @property
    def counts(self) -> list[tuple[int, int, int]]:
        """(session, seq, deaths), as a report tells them."""
        return [(session, seq, count) for (session, seq), count in self._deaths.items()]
