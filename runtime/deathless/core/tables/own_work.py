"""What a service sends to itself: from the outbox of SELF into the primary's next frame, as a run of SELF_SESSION.

    a turn sends -> outbox of SELF -> take() -> run in the next frame, which trims the outbox (no network, no TRIM)

The run needs no proof of the frame before: it stands behind that frame in the same log, and nothing of it leaves before
both are confirmed (I1). What waits is whatever stands in the outbox when a frame is formed, so there is nothing to keep
here, and nothing to hand over: a successor finds the same (I2).

Fairness: clients' messages go first, and leave half a frame to us; when one large message of theirs left no room at
all, the next frame begins with ours (I10).

Parking: a message that ended its process too often goes into the frame as a PARKED record, unrun (I11).

Guarantees: at most the frame's maximums, but for one large message. Does not: run anything. Imports core, codec, base.
"""

from __future__ import annotations

from collections.abc import Sequence

from deathless.base.ids import SYSTEM_SESSION
from deathless.base.limits import Limits
from deathless.codec.frames import Run
from deathless.codec.messages import encode_parked
from deathless.codec.peer_messages import SELF, SELF_SESSION
from deathless.core.tables.outbox import Outbox


class OwnWork:
    """The run of our own messages in the next frame.

    Args:
        outbox: the shard's; at rest whenever a frame is formed.
        deaths: (session, seq) -> deaths in that message.
    """

    def __init__(self, *, outbox: Outbox, limits: Limits, deaths: dict[tuple[int, int], int]) -> None:
        self._outbox = outbox
        self._limits = limits
        self._deaths = deaths
        self.passed_over = False  # the last frame had no room for one; the next begins with ours

    @property
    def waiting(self) -> bool:
        """Is there a message for a frame?"""
        return self._outbox.keeps(SELF)

    def take(self, count_max: int, bytes_max: int, *, alone: bool) -> list[tuple[Run, Sequence[bytes]]]:
        """Give what the next frame holds of ours.

        Args:
            count_max: messages that it has room for.
            bytes_max: bytes that it has room for.
            alone: nothing else is in it, so that one message fits however large it is.
        """
        if not self.waiting:
            self.passed_over = False
            return []
        first = self._outbox.first_position(SELF)
        found = self._outbox.messages_from(SELF, first, max(1, bytes_max))
        if len(found[0]) > bytes_max and not alone:
            self.passed_over = True
            return []
        self.passed_over = False
        return self._runs(first, found[: max(1, count_max)])

    def _runs(self, first: int, messages: Sequence[bytes]) -> list[tuple[Run, Sequence[bytes]]]:
        """One run, cut where a message is to be parked."""
        runs: list[tuple[Run, Sequence[bytes]]] = []
        at = 0
        for index, message in enumerate(messages):
            if not self._parks(first + index):
                continue
            if index > at:
                runs.append((Run(SELF_SESSION, first + at, 0, index - at), messages[at:index]))
            parked = encode_parked(SELF_SESSION, first + index, message)
            runs.append((Run(SYSTEM_SESSION, 0, 0, 1), (parked,)))
            at = index + 1
        if at < len(messages):
            runs.append((Run(SELF_SESSION, first + at, 0, len(messages) - at), messages[at:]))
        return runs

    def _parks(self, seq: int) -> bool:
        if not self._deaths:
            return False
        return self._deaths.get((SELF_SESSION, seq), 0) >= self._limits.deaths_before_parking
