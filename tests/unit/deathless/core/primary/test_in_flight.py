"""Frames between sync and proof: in order, without gaps, counted."""

from __future__ import annotations

import pytest

from deathless.base.ids import ChainHash, Epoch, Incarnation, Lsn
from deathless.base.times import Times
from deathless.codec.frames import BLOCK, Frame
from deathless.core.events import FrameSynced
from deathless.core.primary.in_flight import InFlight


def synced(first_lsn: int, count: int) -> FrameSynced:
    """A frame that takes as many blocks as it has messages, the last one in part."""
    chain = ChainHash(bytes(16))
    frame = Frame(3, Epoch(1), Lsn(first_lsn), Lsn(0), count, Incarnation(1), chain, chain, 0, b"")
    return FrameSynced(frame, bytes(max(0, count * BLOCK - 1)), 0, 0, (), (), Times())


def test_frames_leave_in_order_up_to_what_a_proof_covers() -> None:
    frames = InFlight(10)
    assert not frames
    for first, count in ((11, 2), (13, 1), (14, 3)):
        frames.append(synced(first, count))
        frames.check_invariants()
    assert (frames.confirmed_lsn, frames.synced_lsn, frames.bytes) == (10, 16, 6 * BLOCK)
    assert [event.frame.first_lsn for event in frames.confirm(13)] == [11, 13]
    frames.check_invariants()
    assert (frames.confirmed_lsn, frames.bytes) == (13, 3 * BLOCK)
    assert list(frames.confirm(15)) == []  # no frame is confirmed in part
    assert [event.frame.first_lsn for event in frames.confirm(16)] == [14]
    assert not frames


@pytest.mark.parametrize(("first_lsn", "count"), [(12, 1), (10, 1), (11, 0)])
def test_frame_that_leaves_a_gap_or_has_no_lsn_of_its_own_is_our_bug(first_lsn: int, count: int) -> None:
    frames = InFlight(10)
    with pytest.raises(AssertionError, match="frame at"):
        frames.append(synced(first_lsn, count))


@pytest.mark.parametrize("lsn", [9, 12])
def test_proof_covers_nothing_outside_of_what_was_synced(lsn: int) -> None:
    frames = InFlight(10)
    frames.append(synced(11, 1))
    with pytest.raises(AssertionError):
        list(frames.confirm(lsn))
