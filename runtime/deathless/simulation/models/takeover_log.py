"""The log as the takeover model sees it: files that may lose what was not synced, and how readers follow them.

Why it exists: the model of takeover (``takeover_model``) changes files; this module says what a file is, what a
power cut may leave of it, and how a reader finds the frames that belong to the log (design 0003, "The log").

What it guarantees: equal files are equal values, so that the explorer can count states; a reader meets exactly
the bytes that its arguments hold, or ``MissingFileError``.

What it does NOT model: bytes. A record is whole or absent (a torn record reads as absent), and checksums never lie.

Every record and every state carries a tag of its class, because the explorer compares by value and named tuples
of different classes with equal fields are equal. Imports nothing of ours. Pure.
"""

from collections.abc import Iterator
from enum import StrEnum
from functools import lru_cache
from itertools import product
from typing import Any, Generic, Literal, NamedTuple, TypeVar

ENTRY_NOT_SYNCED = -1
"""``Segment.durable`` of a file whose directory entry is not synced: a power cut may remove the whole file."""


IMAGES_MAX = 1 << 14
"""Directories whose images after a power cut are remembered: far fewer directories than states exist."""


class MissingFileError(Exception):
    """A file, or a part of it, that the log refers to is not there. Never an end of log: absence proves nothing."""


class FrameId(NamedTuple):
    """Which frame: who wrote it first, and its number among that writer's. Copies keep it."""

    epoch: int
    number: int


class Position(NamedTuple):
    """A place in the log: behind the first ``length`` records of one file."""

    epoch: int
    roll: int
    length: int


ROOT = Position(1, 0, 1)
"""Behind the cut of the first epoch: where the log begins."""


class Cut(NamedTuple):
    """First record of an epoch: everything before it is the log up to ``base``, and nothing beyond."""

    base: Position
    tag: Literal["cut"] = "cut"


class Frame(NamedTuple):
    """Messages. ``confirmed`` counts the frames of the log that the writer had proved when it wrote this one."""

    name: FrameId
    confirmed: int
    tag: Literal["frame"] = "frame"


class Roll(NamedTuple):
    """Last record of a file: the epoch goes on in file ``roll``."""

    roll: int
    tag: Literal["roll"] = "roll"


class Opening(NamedTuple):
    """The epoch may release from here on; written after ``head`` was set to it."""

    tag: Literal["opening"] = "opening"


Record = Cut | Frame | Roll | Opening
RecordT = TypeVar("RecordT")


class SegmentOf(NamedTuple, Generic[RecordT]):
    """One file: the records written, and how many of them a power cut leaves for certain."""

    epoch: int
    roll: int
    records: tuple[RecordT, ...]
    # [0, len(records)], or ENTRY_NOT_SYNCED.
    durable: int

    def append(self, record: RecordT) -> "SegmentOf[RecordT]":
        """Return the file with one more record, not synced."""
        return self._replace(records=(*self.records, record))

    def synced(self) -> "SegmentOf[RecordT]":
        """Return the file with everything durable, its directory entry included."""
        return self._replace(durable=len(self.records))

    def after_power_cut(self) -> "Iterator[SegmentOf[RecordT] | None]":
        """Yield all that may be left: any length from durable to written, or no file (None)."""
        for length in range(max(self.durable, 0), len(self.records) + 1):
            yield self._replace(records=self.records[:length], durable=length)
        if self.durable == ENTRY_NOT_SYNCED:
            yield None


Segment = SegmentOf[Record]
Files = tuple[Segment, ...]
"""The directory, sorted by (epoch, roll). Invariant: one file per (epoch, roll)."""


class AbsentFile(StrEnum):
    """What a reader makes of a rolled file that its listing does not show."""

    ERROR = "error"
    END_OF_LOG = "end of log"


def find_file(files: tuple[SegmentOf[RecordT], ...], epoch: int, roll: int) -> SegmentOf[RecordT] | None:
    """Return the file, or None if the directory has none of that name."""
    for segment in files:
        if segment.epoch == epoch and segment.roll == roll:
            return segment
    return None


def get_file(files: tuple[SegmentOf[RecordT], ...], epoch: int, roll: int) -> SegmentOf[RecordT]:
    """Return the file.

    Raises:
        MissingFileError: there is none; a reader is stuck, a writer has a bug.
    """
    segment = find_file(files, epoch, roll)
    if segment is None:
        raise MissingFileError(f"{epoch}.{roll} is not there")
    return segment


def put_file(files: tuple[SegmentOf[RecordT], ...], segment: SegmentOf[RecordT]) -> tuple[SegmentOf[RecordT], ...]:
    """Return the directory with the file created or replaced."""
    others = (old for old in files if (old.epoch, old.roll) != (segment.epoch, segment.roll))
    return tuple(sorted((*others, segment), key=lambda each: (each.epoch, each.roll)))


def after_power_cut(files: tuple[SegmentOf[RecordT], ...]) -> tuple[tuple[SegmentOf[RecordT], ...], ...]:
    """Return every directory that a power cut may leave."""
    return _images(files)


@lru_cache(maxsize=IMAGES_MAX)
def _images(files: tuple[SegmentOf[Any], ...]) -> tuple[tuple[SegmentOf[Any], ...], ...]:
    images = product(*(tuple(segment.after_power_cut()) for segment in files))
    return tuple(tuple(segment for segment in image if segment is not None) for image in images)


class Placed(NamedTuple):
    """A frame of the log and the place behind it."""

    frame: Frame
    end: Position


def read_log(files: Files, head: int, absent: AbsentFile = AbsentFile.ERROR) -> tuple[Placed, ...]:
    """Return the frames of the log whose last epoch is ``head``, following cuts backwards.

    Bytes of earlier epochs beyond the cut of their successor are ignored: that is what makes a late write of a
    deposed primary harmless.

    Raises:
        MissingFileError: something that the log refers to is not there.
    """
    return _read_epoch(files, head, None, absent)


def _read_epoch(files: Files, epoch: int, end: Position | None, absent: AbsentFile) -> tuple[Placed, ...]:
    """Return the frames of the log up to ``end`` in this epoch, or up to the epoch's own end."""
    first = get_file(files, epoch, 0)
    if not first.records or not isinstance(first.records[0], Cut):
        raise MissingFileError(f"{epoch}.0 has no cut")
    base = first.records[0].base
    before = () if epoch == 1 else _read_epoch(files, base.epoch, base, absent)
    return (*before, *_read_files(files, first, end, absent))


def _read_files(files: Files, segment: Segment, end: Position | None, absent: AbsentFile) -> Iterator[Placed]:
    """Yield the frames of one epoch, file after file."""
    while True:
        last = end is not None and segment.roll == end.roll
        length = end.length if end is not None and last else len(segment.records)
        if length > len(segment.records):
            raise MissingFileError(f"{segment.epoch}.{segment.roll} ends before the cut of its successor")
        next_roll = None
        for index, record in enumerate(segment.records[:length]):
            if isinstance(record, Frame):
                yield Placed(record, Position(segment.epoch, segment.roll, index + 1))
            elif isinstance(record, Roll):
                next_roll = record.roll
        if last:
            return
        if next_roll is None:
            if end is not None:
                raise MissingFileError(f"{segment.epoch}.{segment.roll} ends before the roll that its successor cut")
            return
        if absent is AbsentFile.END_OF_LOG and find_file(files, segment.epoch, next_roll) is None:
            return
        segment = get_file(files, segment.epoch, next_roll)
