"""Writes the segments of one epoch: cut, copies, frames, rolls.

Why it exists: the order of a few writes and syncs is what keeps confirmed messages (design 0003, "The log"). It
stands here
and nowhere else.

    IDLE --begin--> OPEN --append, reserve--> OPEN --close--> IDLE
                      |
                      +--any error after a write began--> FAILED (for ever: I8)

- begin: the epoch's first file is created exclusively (of the spare, where there is no other room), cut and copies are
  written, then the file is synced, then its folder. Only then may head be set.
- append: write; sync: sync. Nothing is written between the two. The descriptor of a file is kept from its creation
  to its end: an error of an earlier write-back is reported to that descriptor or to none.
- roll: next file created, allocated and synced, folder synced, ROLL frame written and synced in the old file, and only
  then frames in the new one. So a ROLL frame always leads to a file that is there.
- prepared: once an epoch has written as much as that takes, a file filled with zeros is made ahead of time, and rolled
  to as soon as it is there (`prepared`). Behind what was filled the file grows as any other, until there is the next.
- reserve: space is allocated in steps before messages are run; "no space" is an answer here, not an error. Two blocks
  behind every reservation stay free, for the ROLL frame and for one CONFIRM frame, so that a full disk does not keep
  a primary from confirming. Without a spare nothing is reserved: the next takeover must fit. A file asks for as much
  again as it has, up to `allocate_bytes`, so an epoch that ends soon leaves little behind that nobody wrote to; one
  that ends in order gives that back too. Nobody but its writer ever cuts a file.

Guarantees: what was appended before `sync` returned is durable; frames continue each other. Does not: prove
anything, or judge what it is given beyond lsn and room. May import codec and base.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from deathless.base.errors import Closed, Internal, OutOfSpace, StoreOlderThanLog
from deathless.base.ids import ChainHash, Epoch, Incarnation, Lsn
from deathless.base.limits import Limits
from deathless.base.storage import Use, storage_error, waits
from deathless.codec.frames import (
    BLOCK,
    HEADER_BYTES,
    Frame,
    FrameKind,
    Position,
    RollTo,
    chain_after,
    encode_frame,
    padded,
)
from deathless.codec.generations import Level
from deathless.engine.log.prepared import PreparedSegment
from deathless.engine.log.segment_scan import LOG_FOLDER, segment_path
from deathless.engine.log.spare import Spare
from deathless.engine.ports import FileSystem, Handle
from deathless.engine.safeguards import ALL_SAFEGUARDS, Safeguards

ROLL_ROOM: Final = BLOCK  # a ROLL frame
SLACK: Final = 2 * BLOCK  # a ROLL frame and a CONFIRM frame
WRITE_BYTES: Final = 4 << 20  # copies are written in steps of about this
GROW_MIN: Final = 64 << 10  # bytes by which a short file grows


class WriterState(enum.Enum):
    """The machine in the module's docstring."""

    IDLE = "idle"
    OPEN = "open"
    FAILED = "failed"


class OpenFile(NamedTuple):
    """The file being written."""

    handle: Handle
    path: str
    filled: int = 0  # bytes of it that were filled ahead of time


class SegmentWriter:
    """The one writer of one epoch's files.

    Args:
        fs: the shared directory.
        limits: sizes of segments and allocations.
        spare: this replica's spare segment.
        safeguards: all on, but in tests.
        prepared: the next file made ahead of time; None: there is never one.
    """

    def __init__(
        self,
        fs: FileSystem,
        limits: Limits,
        spare: Spare,
        safeguards: Safeguards = ALL_SAFEGUARDS,
        prepared: PreparedSegment | None = None,
    ) -> None:
        self._fs = fs
        self._limits = limits
        self._spare = spare
        self._prepared = prepared or PreparedSegment(fs, "", 0, None, "")
        self._safeguards = safeguards
        self._state = WriterState.IDLE
        self._file = OpenFile(Handle(-1), "")
        self._incarnation = 0
        self._offset = 0  # of the next frame in the file, bytes
        self._allocated = 0  # bytes of the file that have their space; Invariant: _offset <= _allocated
        self._index = 0  # of the next frame in the file
        self._lsn = 0  # of the last message written
        self._chain = ChainHash(bytes(16))  # behind it
        self._written = False  # a frame is written and not synced
        self._confirmed_written = 0  # highest confirmed lsn in a header
        self.epoch = 0  # of the files; 0: none yet
        self.roll = 0  # of the file being written
        self.last_place = (0, 0)  # roll and offset of the frame appended last
        self.confirmed = 0  # highest confirmed lsn in a header that is synced

    @property
    def open(self) -> bool:
        """May frames be appended?"""
        return self._state is WriterState.OPEN

    def begin(
        self,
        epoch: int,
        cut: bytes,
        base: Position,
        copies: Sequence[Frame],
        incarnation: int,
        *,
        level: int = Level.FIRST,
    ) -> None:
        """Create the epoch's first file with cut and copies, durable when this returns; `level` is the cut's.

        Raises: OutOfSpace: nothing was left behind, try again later. StoreOlderThanLog when the file exists. OSError:
            stop.
        """
        if self._state is not WriterState.IDLE or epoch <= self.epoch:
            raise Closed(f"the log's writer is {self._state.value} in epoch {self.epoch}; it can't begin epoch {epoch}")
        blocks = padded(HEADER_BYTES + len(cut)) + sum(padded(HEADER_BYTES + len(copy.payload)) for copy in copies)
        # Room for the opening frame as well: it must follow whatever happens to the space meanwhile.
        self._create_first(epoch, blocks + BLOCK + SLACK)
        self.epoch, self.roll, self._incarnation = epoch, 0, incarnation
        self._offset = self._index = 0
        self._prepared.begin()
        self._lsn, self._chain = base.lsn, ChainHash(base.chain)
        with self._failing():
            self._write_first(cut, base.lsn, copies, level)
            if self._safeguards.sync_copies:
                self._fs.sync(self._file.handle)
            if self._safeguards.sync_folder:
                self._fs.sync_folder(LOG_FOLDER)
        self.confirmed = self._confirmed_written = base.lsn
        self._written = False
        self._state = WriterState.OPEN

    def reserve(self, size: int) -> bool:
        """Make room for a frame of `size` bytes, padding included or not. False: there is no space.

        Raises: Closed; OSError: stop.
        """
        self._check_open()
        size = padded(size)
        if self._safeguards.keep_spare and not self._spare.prepare():
            return False
        # While a frame waits for its sync the file grows beyond its size rather than rolls.
        end = self._offset + size
        may_roll = self._index > 0 and not self._written and end + SLACK > self._file.filled
        if may_roll and (end + ROLL_ROOM > self._limits.segment_bytes_max or self._may_roll_early(size)):
            return self._roll(size)
        return self._grow(end + SLACK)

    def _may_roll_early(self, size: int) -> bool:
        """Is there a file filled ahead of time that takes a frame of so many bytes? Where there is none, order one."""
        prepared = self._prepared
        if not prepared.due(self._offset):
            return False
        prepared.order(self._offset)
        return prepared.ready and size + SLACK <= prepared.size

    def append(
        self, kind: int, payload: bytes, *, first_lsn: int, count: int, confirmed_lsn: int
    ) -> tuple[Frame, bytes]:
        """Write one frame; it is durable once `sync` returned.

        Args:
            kind: a FrameKind.
            payload: as the kind asks for.
            first_lsn: the next lsn of the log.
            count: messages in it; 0 unless kind is DATA.
            confirmed_lsn: the highest that is confirmed.

        Returns: the frame and its bytes without padding.
        Raises: OutOfSpace when there is no room for it (nothing was written). Closed. OSError: stop.
        """
        self._check_open()
        if self._written and self._safeguards.sync_before_release:
            raise Internal("a frame is written only after the one before it is synced")
        if first_lsn != self._lsn + 1 or (count > 0) != (kind == FrameKind.DATA) or confirmed_lsn > self._lsn:
            raise Internal(f"frame of kind {kind}, first lsn {first_lsn}, count {count} behind lsn {self._lsn}")
        kept = 0 if kind == FrameKind.ROLL else ROLL_ROOM
        end = self._offset + padded(HEADER_BYTES + len(payload)) + kept
        # Control frames need no reservation: a confirming primary must not hang on the spare.
        if end > self._allocated and (kind == FrameKind.DATA or not self._grow(end)):
            raise OutOfSpace(f"{self._file.path}: no room reserved for a frame of {len(payload)} bytes")
        frame, raw = self._encode(kind, payload, first_lsn, count, confirmed_lsn)
        data = raw + bytes(padded(len(raw)) - len(raw))
        try:
            self._fs.write(self._file.handle, self._offset, data)
        except BaseException:
            self._fail()
            raise
        self._written = True
        self.last_place = (self.roll, self._offset)
        self._offset += len(data)
        self._index += 1
        self._lsn, self._chain = frame.last_lsn, frame.chain
        self._confirmed_written = max(self._confirmed_written, confirmed_lsn)
        if self._offset <= self._file.filled // 2 < self._offset + len(data):
            self._prepared.order(self._offset)  # the next one, in time
        return frame, raw

    def sync(self) -> None:
        """Make durable what was appended, through the descriptor that wrote it.

        Raises: Closed. OSError: stop, never retry (I8).
        """
        self._check_open()
        if self._safeguards.sync_before_release:
            try:
                self._fs.sync(self._file.handle)
            except BaseException:
                self._fail()
                raise
        self._written = False
        self.confirmed = self._confirmed_written

    def close(self) -> None:
        """End the epoch in order and give back what its file did not need; harmless when nothing is open."""
        if self._state is not WriterState.OPEN:
            return
        self._state = WriterState.IDLE
        self._close_file()

    def _close_file(self) -> None:
        if self._safeguards.give_back_space and self._allocated > self._offset:
            with contextlib.suppress(OSError):  # zeros that nobody wrote: a file that keeps them is as good
                self._fs.truncate(self._file.handle, self._offset)
        self._fs.close(self._file.handle)

    def _create_first(self, epoch: int, size: int) -> None:
        """Make the epoch's first file with `size` bytes of space, of the spare where there is no other room."""
        path = segment_path(epoch, 0)
        try:
            handle = self._create_allocated(path, size) if self._safeguards.give_back_space else None
            if handle is None:
                handle = self._of_spare(path, size)
            else:
                self._allocated = size
        except FileExistsError as error:
            raise StoreOlderThanLog(f"{path} exists: epoch {epoch} was given before") from error
        except OSError as error:
            if waits(error, Use.ROOM):
                raise storage_error(error) or error from error
            self._fail()
            raise
        self._file = OpenFile(handle, path)

    def _of_spare(self, path: str, size: int) -> Handle:
        """Turn the spare into the file. Raises: OutOfSpace; OSError."""
        self._spare.prepare()
        found = self._spare.link_as(path)
        handle = self._fs.create(path) if found is None else found
        self._allocated = self._fs.size(handle)
        self._file = OpenFile(handle, path)
        if self._allocated > size and self._safeguards.give_back_space:
            self._fs.truncate(handle, size)
            self._allocated = size
            self._spare.prepare_least()  # the next takeover must fit as well, and may come before there is room again
        if not self._grow(size):
            self._fs.close(handle)
            self._fs.unlink(path)
            raise OutOfSpace(f"no space for the {size} bytes of cut and copies in {path}")
        return handle

    def _write_first(self, cut: bytes, confirmed_lsn: int, copies: Sequence[Frame], level: int) -> None:
        """Write cut and copies; a copy keeps lsn, payload and chain hashes and gets this epoch and its new place."""
        parts: list[bytes] = []
        size = 0
        items = [(FrameKind.CUT, cut, self._lsn + 1, 0), *[(f.kind, f.payload, f.first_lsn, f.count) for f in copies]]
        for kind, payload, first_lsn, count in items:
            of_cut = level if kind == FrameKind.CUT else Level.FIRST
            frame, data = self._encode(kind, payload, first_lsn, count, confirmed_lsn, of_cut)
            data += bytes(padded(len(data)) - len(data))
            parts.append(data)
            size += len(data)
            self._index += 1
            self._lsn, self._chain = frame.last_lsn, frame.chain
            if size >= WRITE_BYTES:
                self._flush(parts)
                size = 0
        self._flush(parts)

    def _flush(self, parts: list[bytes]) -> None:
        data = b"".join(parts)
        self._fs.write(self._file.handle, self._offset, data)
        self._offset += len(data)
        parts.clear()

    def _encode(
        self, kind: int, payload: bytes, first_lsn: int, count: int, confirmed_lsn: int, level: int = Level.FIRST
    ) -> tuple[Frame, bytes]:
        """Give the frame and its bytes, without padding."""
        chain = chain_after(self._chain, first_lsn, payload) if kind == FrameKind.DATA else self._chain
        data = encode_frame(
            kind,
            payload,
            epoch=self.epoch,
            first_lsn=first_lsn,
            confirmed_lsn=confirmed_lsn,
            count=count,
            incarnation=self._incarnation,
            prev_chain=self._chain,
            chain=chain,
            index=self._index,
            level=level,
        )
        frame = Frame(
            kind,
            Epoch(self.epoch),
            Lsn(first_lsn),
            Lsn(confirmed_lsn),
            count,
            Incarnation(self._incarnation),
            self._chain,
            chain,
            self._index,
            payload,
        )
        return frame, data

    def _grow(self, size: int) -> bool:
        """Let the file have at least `size` bytes of space; allocated in steps."""
        if size <= self._allocated:
            return True
        more = self._limits.allocate_bytes
        if self._safeguards.give_back_space:
            more = min(more, max(self._allocated, GROW_MIN))
        step = max(size, self._allocated + more)
        # Near the end of the space a small step may still fit.
        return self._allocate(step) or (size < step and self._allocate(size))

    def _allocate(self, end: int) -> bool:
        try:
            self._fs.allocate(self._file.handle, self._allocated, end - self._allocated)
        except OSError as error:
            if waits(error, Use.ROOM):
                # What was made ahead of time only saves time: its space is for whoever needs it.
                return self._prepared.free() and self._allocate(end)
            self._fail()
            raise
        self._allocated = end
        return True

    def _roll(self, size: int) -> bool:
        """Go on in the next file. False: no space for it, and nothing changed."""
        path = segment_path(self.epoch, self.roll + 1)
        if not self._safeguards.roll_file_first:
            self._append_roll()
        with self._failing():
            allocated = filled = 0
            prepared, handle = self._prepared, None
            if size + SLACK <= prepared.size:
                handle, allocated, filled = prepared.link_as(path), prepared.size, prepared.size
            if handle is None:
                allocated, filled = max(size + SLACK, self._limits.allocate_bytes), 0
                handle = self._create_allocated(path, allocated)
            if handle is None:
                return False
            self._fs.sync(handle)
            if self._safeguards.sync_folder:
                self._fs.sync_folder(LOG_FOLDER)
        if self._safeguards.roll_file_first:
            self._append_roll()
        self._close_file()
        self._file, self._allocated = OpenFile(handle, path, filled), allocated
        self.roll += 1
        prepared.rolled(self._offset)
        self._offset = self._index = 0
        return True

    def _create_allocated(self, path: str, size: int) -> Handle | None:
        """Create a file with its space. None: there is none, and the file is gone again."""
        handle: Handle | None = None
        try:
            handle = self._fs.create(path)
            self._fs.allocate(handle, 0, size)
        except OSError as error:
            if not waits(error, Use.ROOM):
                raise
            if handle is not None:
                self._fs.close(handle)
                self._fs.unlink(path)
            return None
        return handle

    def _append_roll(self) -> None:
        payload = msgspec.msgpack.encode(RollTo(self.roll + 1))
        self.append(FrameKind.ROLL, payload, first_lsn=self._lsn + 1, count=0, confirmed_lsn=self.confirmed)
        if self._safeguards.sync_roll:
            self.sync()
        self._written = False

    def _check_open(self) -> None:
        if self._state is not WriterState.OPEN:
            raise Closed(f"the log's writer is {self._state.value}")

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Any error inside ends the writer for ever: what reached the disk is not known (I8)."""
        try:
            yield
        except BaseException:
            self._fail()
            raise

    def _fail(self) -> None:
        if self._safeguards.fail_stop:
            self._state = WriterState.FAILED
