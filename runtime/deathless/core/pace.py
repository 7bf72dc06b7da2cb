"""How many messages of peers a frame may hold, so that two services work at the same time and not in turns.

Calls between services that are outstanding together travel together: all their replies come in one packet, are run in
one frame, and all that their turns ask for leaves when that is confirmed. With one frame for all of them the caller
rests while the other service works, and the reverse. So a frame holds of peers' messages what takes about RUN_S, as
the last frames went; the rest is run while the other service works on the first part.

Guarantees: a peer's run always finds room, and nobody waits longer than some RUN_S for who came before him in one
frame of peers' messages, if turns are alike. It decides about speed alone: any answer is safe. Does not: know clocks
(it is told how long a frame took), bound what clients send (they don't work while we do). Imports nothing of ours.
"""

from __future__ import annotations

from typing import Final

RUN_S: Final = 0.005
"""About what a frame with peers' messages may take, its sync included."""

COUNT_MIN: Final = 128
"""So many messages go into one however long they take: below, frames cost more than their messages."""

WEIGHT: Final = 0.25
"""Of the newest frame in what is expected of the next."""


class Pace:
    """What a message costs, from what frames took.

    Args:
        count_max: messages of a frame, however quick they are.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._message_s = 0.0  # expected of one message; 0: nothing is known, or they take no time
        self.count = count_max  # messages of peers that the next frame may hold

    def frame_took(self, count: int, seconds: float) -> None:
        """Learn from a frame of `count` messages; small ones tell of syncs alone."""
        if count < COUNT_MIN:
            return
        self._message_s += WEIGHT * (seconds / count - self._message_s) if self._message_s else seconds / count
        most = int(RUN_S / self._message_s) if self._message_s > 0.0 else self._count_max
        self.count = min(max(most, COUNT_MIN), self._count_max)
