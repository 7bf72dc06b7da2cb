"""The log and the checkpoints as the upgrade model sees them, and how readers follow them.

Why it exists: the model of upgrades (``upgrade_model``) changes files; this module says what stands in them and what of
it is the log. Files, rolls and what a power cut leaves are those of ``takeover_log``; the records know their code here.

What it guarantees: equal files are equal values; a reader meets just the records that its arguments hold, or
``MissingFileError``. Does not: model bytes; a record is whole or absent.
Imports ``takeover_log``, ``upgrade_rules``. Pure.
"""

from functools import lru_cache
from typing import Literal, NamedTuple

from deathless.simulation.models.takeover_log import FrameId, MissingFileError, Position, Roll, SegmentOf, get_file
from deathless.simulation.models.upgrade_rules import Generation

LOGS_MAX = 1 << 16
"""Logs that are remembered, so that most are read once: far fewer logs than states exist."""


class Upgraded(NamedTuple):
    """Name of a record UPGRADED: the epoch that wrote it (0 where the record does not hold it), and what it begins."""

    epoch: int
    to: Generation


Name = FrameId | Upgraded
Place = tuple[Name, ...]
"""A place of the log with its chain: all that stands before it."""


class Ran(NamedTuple):
    """One frame in a state's past, and the code that ran it."""

    name: Name
    code: str
    # Of a record UPGRADED: the migration that made the state (its epoch), for another one may give other bytes.
    migration: int = 0


View = tuple[Ran, ...]
"""What a state is made of, in order."""


class Checkpoint(NamedTuple):
    """A file with the state at one place."""

    # All that its name tells, and by which it is found; the number is 0 where names hold no generation.
    name: tuple[Place, int]
    of: Generation
    view: View
    durable: bool


class Cut(NamedTuple):
    """First record of an epoch: the log up to ``base``, the generation that goes on, a checkpoint if cuts name it."""

    base: Position
    writer: Generation
    first: tuple[Place, int] | None = None
    tag: Literal["cut"] = "cut"


class Frame(NamedTuple):
    """A data frame. ``confirmed`` counts the frames that were proved when this header was written."""

    name: Name
    confirmed: int
    writer: Generation
    tag: Literal["frame"] = "frame"


class Header(NamedTuple):
    """A frame without messages: an opening frame, one that says what is confirmed, or one that closes the log."""

    kind: Literal["opening", "confirm", "close"]
    confirmed: int


Record = Cut | Frame | Header | Roll
File = SegmentOf[Record]
Files = tuple[File, ...]


class Placed(NamedTuple):
    """A frame of the log and the place behind it."""

    frame: Frame
    end: Position


class Log(NamedTuple):
    """What a reader finds."""

    frames: tuple[Placed, ...]
    # How many of them a header on the way calls confirmed.
    confirmed: int
    # The last record of all.
    last: Record

    @property
    def place(self) -> Place:
        """The end of the log, with its chain."""
        return tuple(placed.frame.name for placed in self.frames)


def first_record(files: Files, epoch: int) -> Cut:
    """Return the cut with which an epoch begins.

    Raises:
        MissingFileError: the file is gone, or empty.
    """
    records = get_file(files, epoch, 0).records
    if not records or not isinstance(records[0], Cut):
        raise MissingFileError(f"{epoch}.0 has no cut")
    return records[0]


@lru_cache(maxsize=LOGS_MAX)
def read_log(files: Files, epoch: int, end: Position | None = None) -> Log:
    """Return the log whose last epoch is ``epoch``, up to ``end`` or to its own end, following cuts backwards.

    Raises:
        MissingFileError: something that the log refers to is not there.
    """
    base = first_record(files, epoch).base
    before = read_log(files, base.epoch, base) if epoch > 1 else None
    frames = list(before.frames) if before else []
    confirmed = before.confirmed if before else 0
    segment = get_file(files, epoch, 0)
    while True:
        length = end.length if end is not None and end.roll == segment.roll else len(segment.records)
        if length > len(segment.records):
            raise MissingFileError(f"{epoch}.{segment.roll} ends before the cut of its successor")
        for index, record in enumerate(segment.records[:length]):
            if isinstance(record, Frame):
                frames.append(Placed(record, Position(epoch, segment.roll, index + 1)))
            if isinstance(record, Frame | Header):
                confirmed = max(confirmed, record.confirmed)
        last = segment.records[length - 1] if length else Roll(segment.roll)
        if end is not None and end.roll == segment.roll:
            break
        if not (length and isinstance(last, Roll)):
            if end is not None:
                raise MissingFileError(f"{epoch}.{segment.roll} ends before the roll that its successor cut")
            break
        segment = get_file(files, epoch, last.roll)
    return Log(tuple(frames), min(confirmed, len(frames)), last)


def route(files: Files, head: int) -> tuple[int, ...]:
    """Return the epochs that the cuts lead through, from ``head`` backwards to the first."""
    epochs = [head]
    while epochs[-1] > 1:
        epochs.append(first_record(files, epochs[-1]).base.epoch)
    return tuple(epochs)


def opened_above(files: Files, head: int) -> int:
    """Return the highest epoch above head with an opening frame, or 0; the lock store is then older than the log."""
    opened = (
        segment.epoch
        for segment in files
        if segment.epoch > head and any(isinstance(each, Header) and each.kind == "opening" for each in segment.records)
    )
    return max(opened, default=0)


def without_unread(files: Files, head: int, candidate: int) -> Files:
    """Return the files without what no reader can follow from head or from the candidate's file, if it has one.

    Raises:
        MissingFileError: something that the log refers to is not there.
    """
    kept = [segment for segment in files if segment.epoch in {head, candidate}]
    epoch = head
    while epoch > 1:
        base = first_record(files, epoch).base
        # Sealed by a cut that head leads through: nothing behind it is read again.
        for segment in files:
            if segment.epoch == base.epoch and segment.roll <= base.roll:
                length = base.length if segment.roll == base.roll else len(segment.records)
                durable = min(segment.durable, length)
                kept.append(segment._replace(records=segment.records[:length], durable=durable))
        epoch = base.epoch
    return tuple(sorted(kept, key=lambda each: (each.epoch, each.roll)))
