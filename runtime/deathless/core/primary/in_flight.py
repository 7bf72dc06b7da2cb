"""Frames that ran and are durable, but not confirmed: a primary's queue between sync and proof.

Guarantees: frames leave in the order they came, behind each other without a gap, and only up to the lsn that a proof
covers (I1). Their bytes are counted as a successor will copy them, so that a proof without an answer can't leave more
than a spare holds (I8, I10).
Does not: prove, release. Imports core events and codec.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from deathless.codec.frames import padded
from deathless.core.events import FrameSynced


class InFlight:
    """The unconfirmed frames, oldest first. Invariant: nothing of them has left this process.

    Args:
        lsn: everything up to here is confirmed.
    """

    def __init__(self, lsn: int) -> None:
        self.confirmed_lsn = lsn  # Invariant: <= synced_lsn
        self.synced_lsn = lsn
        self.bytes = 0  # Invariant: of all frames, in whole blocks, as a successor copies them
        self._frames: deque[FrameSynced] = deque()

    def __bool__(self) -> bool:
        """Is any frame unconfirmed?"""
        return bool(self._frames)

    def append(self, event: FrameSynced) -> None:
        """Take a frame in that was just synced. It holds at least one message: a frame is told by its lsns."""
        frame = event.frame
        assert frame.first_lsn == self.synced_lsn + 1, f"frame at {frame.first_lsn} behind {self.synced_lsn}"
        assert frame.count > 0, f"frame at {frame.first_lsn} without messages"
        self.synced_lsn = frame.last_lsn
        self.bytes += padded(len(event.raw))
        self._frames.append(event)

    def passed(self, event: FrameSynced) -> None:
        """Take a frame in that was synced and proved before anything else came: nothing is in flight behind it."""
        frame = event.frame
        assert not self._frames, "what came first is confirmed first"
        assert frame.first_lsn == self.synced_lsn + 1, f"frame at {frame.first_lsn} behind {self.synced_lsn}"
        self.confirmed_lsn = self.synced_lsn = frame.last_lsn

    def confirm(self, lsn: int) -> Iterator[FrameSynced]:
        """Give the frames up to `lsn`, each confirmed as it is given."""
        assert self.confirmed_lsn <= lsn <= self.synced_lsn
        while self._frames and self._frames[0].frame.last_lsn <= lsn:
            event = self._frames.popleft()
            self.bytes -= padded(len(event.raw))
            self.confirmed_lsn = event.frame.last_lsn
            yield event

    def check_invariants(self) -> None:
        """Raise AssertionError when the frames don't lie between the two lsns."""
        at = self.confirmed_lsn
        for event in self._frames:
            assert event.frame.first_lsn == at + 1
            at = event.frame.last_lsn
        assert at == self.synced_lsn
        assert self.bytes == sum(padded(len(event.raw)) for event in self._frames)
