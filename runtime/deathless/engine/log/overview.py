"""What stands in the log's folder, for tools, and for the check that the lock store is not older than the log.

Why it exists: `deathless log ls/show/verify` must show files as they are, on or off the chain, sound or not; and at
each start and takeover an OPENING frame above the lock's `head` says that the store was restored from a backup
(design 0003, "Takeover"): its epochs may be given twice, so the start is refused until an operator adopts the log.

Guarantees: reads only; a bad frame ends the view of its file and is named, it stops nothing. Does not: follow cuts
(log_reader does), and does not prove absence: a listing is a hint here as everywhere, though the names between
`above` and `probe_through` are looked up one by one. May import codec and base.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from deathless.base.errors import CorruptFrame, DataCorrupt
from deathless.codec.frames import BLOCK, Cut, Frame, FrameKind, Opening, RollTo, segment_name
from deathless.codec.untrusted import read_msgpack
from deathless.engine.log.route import decode_cut, listed_segments
from deathless.engine.log.segment_scan import Chain, Scanned, SegmentScan
from deathless.engine.ports import FileSystem


class SegmentInfo(NamedTuple):
    """One file of the log folder as it stands."""

    epoch: int
    roll: int
    name: str
    size: int  # of the file with the space put aside, bytes
    used: int  # up to the end of the last valid frame, bytes
    frames: int
    messages: int
    first_lsn: int  # of the first message; 0: none
    last_lsn: int  # of the last message; 0: none
    confirmed_lsn: int  # highest in a header
    cut: Cut | None  # of an epoch's first file
    opening: Opening | None
    rolled_to: int | None  # the file that goes on
    problem: str | None  # why the view ends before the file's end


def frames_of(fs: FileSystem, epoch: int, roll: int, *, chunk_bytes: int = 1 << 20) -> Iterator[Scanned]:
    """Give the valid frames of one file, in order, wherever cuts lead.

    Raises: FileNotFoundError; CorruptFrame where a valid frame stands behind a bad one, or the chain breaks;
        NewerFormat.
    """
    scan = SegmentScan(fs, epoch, roll, chunk_bytes=chunk_bytes)
    try:
        offset = index = 0
        chain: Chain | None = None
        lsn = 1
        incarnation: int | None = None
        while True:
            found = scan.frame_or_reread(offset, index)
            if found is None:
                found = scan.judge_end(offset, index, lsn, incarnation)
                if found is None:
                    return
            frame = found.frame
            chain = chain or Chain(frame.first_lsn - 1, frame.prev_chain)
            chain.take(found, scan.path)
            yield found
            offset, index, lsn, incarnation = found.end, index + 1, chain.lsn + 1, frame.incarnation
    finally:
        scan.close()


def describe(fs: FileSystem) -> Iterator[SegmentInfo]:
    """Describe every segment that a listing shows, ascending; files removed meanwhile are left out."""
    for epoch, roll in listed_segments(fs):
        try:
            yield describe_segment(fs, epoch, roll)
        except FileNotFoundError:
            continue


def describe_segment(fs: FileSystem, epoch: int, roll: int) -> SegmentInfo:
    """Describe one file.

    Raises: FileNotFoundError, OSError.
    """
    handle = fs.open(f"log/{segment_name(epoch, roll)}")
    try:
        size = fs.size(handle)
    finally:
        fs.close(handle)
    used = frames = messages = first = last = confirmed = 0
    cut: Cut | None = None
    opening: Opening | None = None
    rolled_to: int | None = None
    problem: str | None = None
    try:
        for found in frames_of(fs, epoch, roll):
            frame = found.frame
            used, frames, messages = found.end, frames + 1, messages + frame.count
            confirmed = max(confirmed, frame.confirmed_lsn)
            if frame.kind == FrameKind.DATA:
                first, last = first or frame.first_lsn, frame.last_lsn
            elif frame.kind == FrameKind.CUT:
                cut = decode_cut(frame, segment_name(epoch, roll))
            elif frame.kind == FrameKind.OPENING:
                opening = _opening(frame)
            elif frame.kind == FrameKind.ROLL:
                rolled_to = read_msgpack(frame.payload, RollTo).roll
    except (DataCorrupt, msgspec.MsgspecError) as error:
        problem = str(error)
    return SegmentInfo(
        epoch,
        roll,
        segment_name(epoch, roll),
        size,
        used,
        frames,
        messages,
        first,
        last,
        confirmed,
        cut,
        opening,
        rolled_to,
        problem,
    )


def opening_of(fs: FileSystem, epoch: int) -> Opening | None:
    """Give the opening frame of an epoch; None when it has none, or no file.

    Raises: CorruptFrame when the frame can't be read; OSError.
    """
    try:
        scan = SegmentScan(fs, epoch, 0, chunk_bytes=16 * BLOCK)
    except FileNotFoundError:
        return None
    try:
        offset = index = 0
        # Cut and copies come before it; messages of the epoch's own only after it.
        while (found := scan.frame_or_reread(offset, index)) is not None:
            if found.frame.kind == FrameKind.OPENING:
                return _opening(found.frame)
            offset, index = found.end, index + 1
        return None
    finally:
        scan.close()


def newest_opening(fs: FileSystem, above: int = 0, probe_through: int = 0) -> tuple[int, Opening] | None:
    """Give the highest epoch with an opening frame, and that frame. None: no epoch above `above` has one.

    Args:
        fs: the shared directory.
        above: only epochs above it are looked at; a start gives the lock's head - 1 and gets the head's own as well.
        probe_through: names up to this epoch are looked up one by one, whatever the listing shows.

    Raises: CorruptFrame, NewerFormat, OSError.
    """
    epochs = {epoch for epoch, roll in listed_segments(fs) if roll == 0 and epoch > above}
    epochs.update(range(above + 1, probe_through + 1))
    for epoch in sorted(epochs, reverse=True):
        opening = opening_of(fs, epoch)
        if opening is not None:
            return epoch, opening
    return None


def _opening(frame: Frame) -> Opening:
    try:
        return read_msgpack(frame.payload, Opening)
    except msgspec.MsgspecError as error:
        raise CorruptFrame(f"opening frame of epoch {frame.epoch} can't be read: {error}") from error
