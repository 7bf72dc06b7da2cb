"""How many messages a frame may hold, from what frames took: of peers, and in all.

Peers: calls between services that are outstanding together travel together: all their replies come in one packet, are
run in one frame, and all that their turns ask for leaves when that is confirmed. With one frame for all of them the
caller rests while the other service works, and the reverse. So a frame holds of peers' messages what takes about
PEERS_S, as the last frames went; the rest is run while the other service works on the first part.

All: what turns ask for leaves with their frame, be it replies or messages to others, and nothing else is heard
meanwhile. Turns that take milliseconds each (a thousand forks, say) would keep who gets them idle, and everybody else
waiting, for as long as all that is pending takes. So a frame holds what runs in about RUN_S. Its sync does not count: a
slow disk wants larger frames, not smaller ones. Records whose turns (timers, outcomes) no frame leaves out are no
reason for smaller ones: they would shrink what clients get of the next, and gain nothing.

Guarantees: a run always finds room, and nobody waits longer than some RUN_S for who came before him in one frame, if
turns are alike. It decides about speed alone: any answer is safe. Does not: know clocks (it is told how long a frame
took). Imports nothing of ours.
"""

from __future__ import annotations

from typing import Final

PEERS_S: Final = 0.005
"""About what a frame with peers' messages may take, its sync included."""

PEERS_COUNT_MIN: Final = 128
"""So many messages of peers go into one however long they take: below, frames cost more than their messages."""

RUN_S: Final = 0.01
"""About what running the messages of a frame may take; what a frame costs besides is a twentieth of it."""

LONG_S: Final = RUN_S / 4
"""After a frame that ran so long nothing is lost by reading all sockets before the next one."""

FRAME_S: Final = 0.00015
"""About what running a frame costs besides its messages; of a lone call it is nearly all."""

WEIGHT: Final = 0.25
"""Of the newest frame in what is expected of the next."""


class Pace:
    """What running a message costs.

    Args:
        count_max: messages of a frame, however quick they are.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._message_s = 0.0  # expected of one message; 0: nothing is known, or they take no time
        self.count = count_max  # messages that the next frame may hold

    def frame_ran(self, count: int, seconds: float, *, alone: bool = True) -> None:
        """Learn from a frame that ran so long.

        Args:
            count: its messages that a frame may leave out; 0: it says nothing.
            seconds: what all of it took.
            alone: there were no turns in it besides; else each took so long at most, which may be news nevertheless.
        """
        if not count:
            return
        message_s = max(0.0, seconds - FRAME_S) / count
        if not alone and message_s >= self._message_s:
            return
        self._message_s = _mean(self._message_s, message_s)
        self.count = _within(RUN_S, self._message_s, 1, self._count_max)


class PeersPace:
    """What a message of a peer costs, the frame's sync included.

    Args:
        count_max: messages of a frame, however quick they are.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._message_s = 0.0  # expected of one message; 0: nothing is known, or they take no time
        self.count = count_max  # messages of peers that the next frame may hold

    def frame_took(self, count: int, seconds: float) -> None:
        """Learn from a frame of `count` messages; small ones tell of syncs alone."""
        if count < PEERS_COUNT_MIN:
            return
        self._message_s = _mean(self._message_s, seconds / count)
        self.count = _within(PEERS_S, self._message_s, PEERS_COUNT_MIN, self._count_max)


def _mean(expected_s: float, newest_s: float) -> float:
    return expected_s + WEIGHT * (newest_s - expected_s) if expected_s else newest_s


def _within(seconds: float, message_s: float, count_min: int, count_max: int) -> int:
    if message_s * count_max <= seconds:  # also of a mean that has sunk so far that dividing by it gives infinity
        return count_max
    return min(max(int(seconds / message_s), count_min), count_max)
