"""Records that a primary logs on its own account, and what follows once they are confirmed (I1).

    add(record, then) -> take() into a frame -> synced -> confirmed: then() gives effects
                           ^----no room for it----'

TRIM, PEER, ADOPT, ORDER, OUTCOME and ATTEMPT go this way. A frame that found no room is not the end of them: they wait
for the next one, because nobody outside would send them again (I8).

Guarantees: in the order in which they were added; `then` is called once, never before a proof covers the record's
frame. Does not: bound them (each owner does), know what they mean. Imports codec and base.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from deathless.base.ids import SYSTEM_SESSION
from deathless.codec.frames import Run
from deathless.core.effects import Effect


class OwnRecord(NamedTuple):
    """One record, and what follows from its confirmation; None: nothing."""

    message: bytes
    then: Callable[[], Sequence[Effect]] | None


class OwnRecords:
    """The records of one primary that are not confirmed."""

    def __init__(self) -> None:
        self._waiting: deque[OwnRecord] = deque()
        self._running: list[OwnRecord] = []  # of the frame on its way to the log
        self._synced: deque[tuple[int, list[OwnRecord]]] = deque()  # (last lsn of their frame, records). Ascending

    @property
    def waiting(self) -> bool:
        """Is there a record for a frame?"""
        return bool(self._waiting)

    @property
    def unconfirmed(self) -> bool:
        """Does anything follow from a record once its frame is confirmed?"""
        return bool(self._synced or self._running)

    def add(self, message: bytes, then: Callable[[], Sequence[Effect]] | None = None) -> None:
        """Have a record logged; `then` gives what is to be done once it is confirmed."""
        self._waiting.append(OwnRecord(message, then))

    def take(self, count_max: int, bytes_max: int) -> list[tuple[Run, Sequence[bytes]]]:
        """Give what the next frame holds, at least one if there is any."""
        assert not self._running, "one frame is written at a time"
        runs: list[tuple[Run, Sequence[bytes]]] = []
        size = 0
        while self._waiting:
            message = self._waiting[0].message
            if runs and (len(runs) >= count_max or size + len(message) > bytes_max):
                break
            self._running.append(self._waiting.popleft())
            size += len(message)
            runs.append((Run(SYSTEM_SESSION, 0, 0, 1), (message,)))
        return runs

    def frame_refused(self) -> None:
        """There was no room for the frame: its records wait again, in front."""
        self._waiting.extendleft(reversed(self._running))
        self._running = []

    def frame_synced(self, last_lsn: int) -> None:
        """The frame is durable."""
        if any(record.then is not None for record in self._running):
            self._synced.append((last_lsn, self._running))
        self._running = []

    def frame_confirmed(self, last_lsn: int) -> list[Effect]:
        """Give what follows from the records of frames up to `last_lsn`."""
        effects: list[Effect] = []
        while self._synced and self._synced[0][0] <= last_lsn:
            for record in self._synced.popleft()[1]:
                if record.then is not None:
                    effects.extend(record.then())
        return effects
