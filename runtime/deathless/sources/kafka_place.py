"""Where to go on in a partition of Kafka, and whether what stands there is what stood there before. Pure.

    id of a record = its offset + shift         the shift is 0 until an operator lets a stream go on in a topic that was
                                                made anew, whose offsets begin at 0 again while ids must ascend

A note (docs/formats/kafka-note.md) says what a place was made of: the topic's id, and the leader epoch of the last
record that was seen.

Why `seen`: markers of transactions and records that were aborted have offsets, and the
leader epoch that they were written in is not told. To ask whether the log was cut, the end of an epoch is compared with
the offset behind the last record of that epoch that was really seen.

What shows that something is missing (SourceGap, each by a class of its own):

    another topic id                                                    SourceTopicReplaced
    the place is below the first record that is kept                    SourceRecordsGone
    the place is above the end; an epoch ended below it                 SourceLogCut

Ids without records are no gap: compaction, markers and aborted records leave them.

Guarantees: no clock, no IO; a note that was decoded is encoded to the same bytes. Does not: find out that a whole
cluster was set back to an older copy of itself and wrote on under the same epochs: nothing in Kafka tells that.
Imports the port.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from deathless.base.errors import InvalidArgument, SourceGap, SourceLogCut, SourceRecordsGone, SourceTopicReplaced
from deathless.sources.port import ID_MAX, Point

VERSION: Final = 1
EPOCH_UNKNOWN: Final = -1
_FIXED: Final = struct.Struct("<B16siQQ")
_SEEN: Final = struct.Struct("<Q")

END: Final = "_PARTITION_EOF"  # errors have the names that librdkafka gives them; this one is none
LOST: Final = frozenset({"OFFSET_OUT_OF_RANGE", "_AUTO_OFFSET_RESET", "_LOG_TRUNCATION"})
"""Errors that say that the place is not there."""
PASSED_OVER: Final = frozenset({"GROUP_AUTHORIZATION_FAILED"})
"""Errors of what reading does not need."""


class Note(msgspec.Struct, frozen=True):
    """What a place was made of; the module's docstring says what the fields mean."""

    topic: bytes
    epoch: int = EPOCH_UNKNOWN
    first: int = 0
    shift: int = 0
    seen: int | None = None

    def encode(self) -> bytes:
        """Give its bytes."""
        fixed = _FIXED.pack(VERSION, self.topic, self.epoch, self.first, self.shift)
        return fixed if self.seen is None else fixed + _SEEN.pack(self.seen)


def decode_note(note: bytes) -> Note:
    """Read a note. Raises: SourceGap when it is not one of ours, as that of a source which was of another kind."""
    if len(note) not in (_FIXED.size, _FIXED.size + _SEEN.size) or note[0] != VERSION:
        raise SourceGap("the note that was logged is not that of a partition of Kafka: was this source another one?")
    _, topic, epoch, first, shift = _FIXED.unpack_from(note)
    seen = _SEEN.unpack_from(note, _FIXED.size)[0] if len(note) > _FIXED.size else None
    if epoch < EPOCH_UNKNOWN or max(first, shift, seen or 0) > ID_MAX:
        raise SourceGap("the note that was logged is damaged")
    return Note(topic=topic, epoch=epoch, first=first, shift=shift, seen=seen)


class Kept(NamedTuple):
    """What a partition has now, as offsets."""

    low: int  # the first record that is kept
    high: int  # behind the last one that may be read


class Check(NamedTuple):
    """A question to the partition: does an epoch end at this offset or behind it?"""

    offset: int
    epoch: int


class Place(NamedTuple):
    """From where a partition is read."""

    start: Check  # an unknown epoch: nothing is asked, reading begins there
    last_id: int  # records up to here were taken in: they are not given again
    note: Note  # that holds at `last_id`
    others: tuple[Check, ...] = ()  # what must hold as well before reading begins


def place(points: Sequence[Point], topic: bytes, kept: Kept, *, oldest: bool) -> Place:
    """Decide from where a partition is read.

    Args:
        points: how far each shard is, the lowest first; one at least.
        topic: id of the topic that has the name now.
        kept: what the partition has now.
        oldest: where nothing was taken in, begin at the first record that is kept; otherwise at offset 0.

    Raises: SourceGap and what derives from it.
    """
    noted = [(each, decode_note(each.note) if each.note else None) for each in points]
    notes = [note for _, note in noted if note is not None]
    if not notes:
        if points[-1].last_id >= 0:
            raise SourceGap(f"id {points[-1].last_id} was taken in without a note: was this source another one?")
        note = Note(topic=topic, first=kept.low if oldest else 0)
    else:
        for each in notes:
            expect_topic(topic, each.topic)
        if len({each.shift for each in notes}) > 1:
            raise SourceTopicReplaced("the shards do not agree on where the stream goes on: decide it again")
        note = noted[0][1] or Note(topic=topic, shift=notes[0].shift)
        note = msgspec.structs.replace(note, first=max(each.first for each in notes))
    last_id = max(points[0].last_id, note.first - 1)
    resume = last_id + 1 - note.shift
    expect(resume, kept)
    expect(max(points[-1].last_id, last_id) + 1 - note.shift, kept)
    if last_id != points[0].last_id:  # what the note says of an epoch was not seen here
        note = msgspec.structs.replace(note, epoch=EPOCH_UNKNOWN, seen=None)
    checks = [_check(each, told, kept) for each, told in noted[1:] if told is not None]
    start = _check(Point(last_id=last_id, note=b""), note, kept) or Check(resume, EPOCH_UNKNOWN)
    others = {each for each in checks if each is not None and each != start}
    return Place(start=start, last_id=last_id, note=note, others=tuple(sorted(others)))


def _check(point: Point, note: Note, kept: Kept) -> Check | None:
    """Say what shows that a place is what it was; None: nothing can, as no epoch is known or its record is not kept."""
    behind = (point.last_id if note.seen is None else note.seen) + 1 - note.shift
    return Check(behind, note.epoch) if note.epoch != EPOCH_UNKNOWN and behind >= kept.low else None


def expect_topic(topic: bytes, was: bytes) -> None:
    """Look whether a topic is the one that was read before. Raises: SourceTopicReplaced."""
    if topic != was:
        raise SourceTopicReplaced("the topic was deleted and made anew, or the source names another one now")


def expect(offset: int, kept: Kept) -> None:
    """Look whether reading can go on at an offset. Raises: SourceRecordsGone, SourceLogCut."""
    if offset < kept.low:
        raise SourceRecordsGone(f"offset {offset} is to be read next, and the first record kept is {kept.low}")
    if offset > kept.high:
        raise SourceLogCut(f"offset {offset} is to be read next, and the partition ends at {kept.high}")


def lost(check: Check, kept: Kept) -> SourceGap:
    """Give the error of a place that the broker refused."""
    try:
        expect(check.offset, kept)
    except SourceGap as gap:
        return gap
    return SourceLogCut(
        f"records before offset {check.offset} were replaced: leader epoch {check.epoch} ended below it"
    )


def follow(note: Note, epoch: int) -> Note:
    """Give the note that holds at a record.

    Args:
        note: that held before it.
        epoch: leader epoch of the record; EPOCH_UNKNOWN: it has none.
    """
    if note.seen is None and note.epoch == epoch:
        return note
    return msgspec.structs.replace(note, epoch=epoch, seen=None)


def reach(note: Note, seen_id: int, last_id: int) -> Note:
    """Give the note that holds at an id behind the last record.

    Args:
        note: that holds at the last record, or at the place where reading began.
        seen_id: the id that this is.
        last_id: at least that.
    """
    if last_id == seen_id or note.seen is not None or note.epoch == EPOCH_UNKNOWN:
        return note
    return msgspec.structs.replace(note, seen=seen_id)


def adopted(at: str, topic: bytes, kept: Kept, last_id: int) -> Point:
    """Give the point behind which the record at an offset follows.

    Args:
        at: an offset; `oldest` or `newest` for the first one that is kept and the one that is written next.
        topic: id of the topic.
        kept: what the partition has now.
        last_id: the highest id that any shard has taken in.

    Raises: InvalidArgument when there is no such offset.
    """
    words = {"oldest": kept.low, "newest": kept.high}
    if not (at in words or (at.isascii() and at.isdigit() and len(at) < 20)):
        raise InvalidArgument(f"a place in Kafka is an offset, `oldest` or `newest`, not {at[:40]!r}")
    offset = words[at] if at in words else int(at)
    if not kept.low <= offset <= kept.high:
        raise InvalidArgument(f"offset {offset} is not there: the partition has {kept.low} to {kept.high}")
    number = max(offset, last_id + 2)  # behind an id without a record, which is logged as a mark
    shift = number - offset
    return Point(last_id=number - 1, note=Note(topic=topic, first=number, shift=shift).encode())
