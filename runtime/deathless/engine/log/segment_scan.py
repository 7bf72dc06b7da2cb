"""One pass over one segment file: frame after frame, judged where asked.

Why it exists: what stands at the end of a file can be space not yet used, a frame being written, a frame torn by a
power cut, or a confirmed frame that rotted. Only the last is an error. This module is the one that tells them apart
(design 0003, "The end of the log"), by what follows and, once the writer can write no more, by the bytes themselves:

    bytes at the place      read again   a later valid frame      verdict
    zeros or file's end     no           none                     end
    torn, by its sectors    yes          none                     end
    changed, by its         yes          none                     end to a reader of a log that is being written;
    sectors                                                       CorruptFrame to one that has sealed it
    any                     yes          same epoch, same         CorruptFrame: the writer synced the frame before
                                         incarnation, higher      it wrote the next, so this one was whole
                                         index, lsn not below

A later frame is looked for on 4 KiB boundaries only, since frames begin nowhere else. Before the verdict the bad
place is read once more through a fresh descriptor: a live writer may have finished it meanwhile. How sectors tell torn
from changed: `codec.frame_remains`.

Guarantees: a frame given passed its CRC and belongs to the file's epoch; one taken by `Chain` continues the frame
before it by lsn and chain hash. Does not: follow the log from file to file (log_reader), decide what is
confirmed, or write. May import codec and base.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from deathless.base.errors import CorruptFrame
from deathless.base.ids import ChainHash, Lsn
from deathless.codec.frame_remains import Remains, judge_remains
from deathless.codec.frames import (
    BLOCK,
    HEADER_BYTES,
    MAGIC,
    Frame,
    FrameKind,
    chain_after,
    decode_frame,
    frame_length,
    padded,
    segment_name,
)
from deathless.engine.ports import FileSystem, Handle
from deathless.engine.safeguards import ALL_SAFEGUARDS, Safeguards

CHUNK_BYTES: Final = 1 << 20
LOG_FOLDER: Final = "log"


def segment_path(epoch: int, roll: int) -> str:
    """Path of a segment in the shared directory."""
    return f"{LOG_FOLDER}/{segment_name(epoch, roll)}"


class Scanned(NamedTuple):
    """A frame and where it stands."""

    frame: Frame
    raw: bytes  # header and payload, without padding
    offset: int  # of the frame in its file, bytes
    end: int  # of its padding: where the next frame begins


class Chain:
    """The running end of the log while frames are read: what the next frame must continue.

    Invariant: `lsn` and `chain` are those behind the last DATA frame taken.
    """

    def __init__(self, lsn: int, chain: bytes) -> None:
        self.lsn = Lsn(lsn)
        self.chain = ChainHash(chain)

    def take(self, found: Scanned, path: str) -> None:
        """Go on behind a frame.

        Raises: CorruptFrame when the frame does not continue the chain.
        """
        frame = found.frame
        if frame.first_lsn != self.lsn + 1 or frame.prev_chain != self.chain:
            raise CorruptFrame(
                f"{path} offset {found.offset}: frame at lsn {frame.first_lsn} does not continue the log's end at lsn "
                f"{self.lsn}"
            )
        if frame.kind != FrameKind.DATA:
            if frame.chain != frame.prev_chain or frame.count != 0:
                raise CorruptFrame(f"{path} offset {found.offset}: a frame without messages moves the chain")
            return
        if frame.count == 0 or chain_after(frame.prev_chain, frame.first_lsn, frame.payload) != frame.chain:
            raise CorruptFrame(
                f"{path} offset {found.offset}: chain hash of the frame at lsn {frame.first_lsn} is wrong"
            )
        self.lsn = frame.last_lsn
        self.chain = frame.chain


class SegmentScan:
    """Reads one file through one descriptor, opened when made; close it.

    Args:
        fs: the shared directory.
        epoch: of the file.
        roll: of the file.
        limit: bytes of the file that count (a cut's length); None: all.
        safeguards: all on, but in tests.
        chunk_bytes: read at a time, a multiple of BLOCK.

    Raises: FileNotFoundError: the caller knows what a missing file means.
    """

    def __init__(
        self,
        fs: FileSystem,
        epoch: int,
        roll: int,
        limit: int | None = None,
        safeguards: Safeguards = ALL_SAFEGUARDS,
        *,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self.path = segment_path(epoch, roll)
        self._fs = fs
        self._epoch = epoch
        self._safeguards = safeguards
        self._handle: Handle | None = fs.open(self.path)
        self._window = b""
        self._window_at = 0
        size = fs.size(self._handle)
        self.end = size if limit is None else min(size, limit)
        self._limit = limit
        self._chunk_bytes = chunk_bytes

    def close(self) -> None:
        """Close the descriptor; harmless twice."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            self._fs.close(handle)

    def reopen(self) -> None:
        """Go on through a fresh descriptor: forget what was read and how long the file was."""
        self.close()
        self._handle = self._fs.open(self.path)
        self._window = b""
        size = self._fs.size(self._handle)
        self.end = size if self._limit is None else min(size, self._limit)

    def frame_at(self, offset: int, index: int | None) -> Scanned | None:
        """Give the whole valid frame of this file's epoch at `offset`, or None.

        Args:
            offset: bytes, a multiple of BLOCK.
            index: that it must have; None: any. Another one is no frame of this place.

        Raises: NewerFormat.
        """
        data, at = self._bytes_at(offset)
        frame = decode_frame(data, at)
        if frame is None or (self._safeguards.epoch_in_frame and frame.epoch != self._epoch):
            return None
        if index is not None and frame.index != index:
            return None
        raw_end = at + HEADER_BYTES + len(frame.payload)
        return Scanned(frame, data[at:raw_end], offset, offset + padded(raw_end - at))

    def frame_or_reread(self, offset: int, index: int | None) -> Scanned | None:
        """As `frame_at`; a bad frame, unless the place is empty, is read again through a fresh descriptor."""
        found = self.frame_at(offset, index)
        if found is None and self._safeguards.reread_bad_frame and not self.empty_at(offset):
            self.reopen()
            found = self.frame_at(offset, index)
        return found

    def empty_at(self, offset: int) -> bool:
        """Is the block at `offset` all zeros, or beyond the end?"""
        data, at = self._bytes_at(offset)
        return not data[at : at + BLOCK].strip(b"\0")

    def judge_end(self, offset: int, index: int, lsn: int, incarnation: int | None) -> Scanned | None:
        """Say whether the log may end at `offset`, where no valid frame stands.

        Args:
            offset: where the next frame would begin.
            index: that it would have.
            lsn: its first lsn.
            incarnation: of the frames before, None when there are none.

        Returns: None: it ends there. A frame: a live writer has finished it meanwhile.
        Raises: CorruptFrame naming file, offset and lsn when a later valid frame stands in the file.
        """
        if not self._safeguards.look_beyond_bad_frame:
            return None
        later = self._later_frame(offset + BLOCK, index, lsn, incarnation)
        if later is None:
            return None
        self.reopen()
        found = self.frame_at(offset, index)
        if found is not None:
            return found
        raise CorruptFrame(
            f"{self.path} offset {offset}: the frame at lsn {lsn} is not what was written, and a valid one follows "
            f"at offset {later.offset} (lsn {later.frame.first_lsn})"
        )

    def changed_at(self, offset: int) -> bool:
        """Do the bytes at `offset`, where no valid frame stands, show that one was written there whole?

        Only what nobody writes to any more can be judged: a frame that is being written looks like anything.
        """
        if not self._safeguards.judge_tail_by_bytes:
            return False
        data, at = self._bytes_at(offset)
        return judge_remains(data, at) is Remains.CHANGED

    def _later_frame(self, offset: int, index: int, lsn: int, incarnation: int | None) -> Scanned | None:
        """Give the first valid frame at or behind `offset` that was written after frame `index`."""
        while offset < self.end:
            data, at = self._bytes_at(offset)
            hit = data.find(MAGIC[:3], at)
            if hit < 0:
                offset = max(offset + BLOCK, self._window_at + padded(len(data)))
                continue
            place = self._window_at + hit
            offset = (place // BLOCK + 1) * BLOCK
            if place % BLOCK == 0:
                found = self.frame_at(place, None)
                if found is not None and _is_later(found.frame, index, lsn, incarnation):
                    return found
        return None

    def _bytes_at(self, offset: int) -> tuple[bytes, int]:
        """Give (window, place in it) with the whole frame at `offset` in it as far as the file has it."""
        at = offset - self._window_at
        if at < 0 or at + HEADER_BYTES > len(self._window):
            self._fill(offset, self._chunk_bytes)
            at = 0
        need = frame_length(self._window, at)
        if need is not None and at + need > len(self._window) and offset + need <= self.end:
            self._fill(offset, max(self._chunk_bytes, padded(need)))
            at = 0
        return self._window, at

    def _fill(self, offset: int, size: int) -> None:
        assert self._handle is not None, "a closed scan reads nothing"
        size = min(size, self.end - offset)
        self._window_at = offset
        self._window = self._fs.read(self._handle, offset, size) if size > 0 else b""


def _is_later(frame: Frame, index: int, lsn: int, incarnation: int | None) -> bool:
    return frame.index > index and frame.first_lsn >= lsn and incarnation in {None, frame.incarnation}
