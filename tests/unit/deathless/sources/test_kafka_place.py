"""Where reading goes on in a partition of Kafka, from what the log and the brokers say."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.base.errors import (
    InvalidArgument,
    SourceGap,
    SourceLogCut,
    SourceRecordsGone,
    SourceTopicReplaced,
)
from deathless.sources.kafka_place import (
    EPOCH_UNKNOWN,
    Check,
    Kept,
    Note,
    Place,
    adopted,
    decode_note,
    expect_topic,
    follow,
    lost,
    place,
    reach,
)
from deathless.sources.port import ID_MAX, NOTE_BYTES_MAX, Point

TOPIC, OTHER = bytes(range(16)), bytes(16)
NEW = Point(-1, b"")
LONG = Kept(0, 100)


def at(last_id: int, epoch: int = 3, **fields: int) -> Point:
    return Point(last_id, Note(topic=TOPIC, epoch=epoch, **fields).encode())


def placed(*points: Point, kept: Kept = LONG, oldest: bool = False) -> Place:
    return place(points, TOPIC, kept, oldest=oldest)


def test_bytes_are_those_of_the_format(golden: Callable[[str, bytes], None]) -> None:
    golden("kafka_note", Note(topic=TOPIC, epoch=7, first=5, shift=2).encode())
    golden("kafka_note_seen", Note(topic=TOPIC, epoch=EPOCH_UNKNOWN, seen=9).encode())


@given(
    st.builds(
        Note,
        topic=st.binary(min_size=16, max_size=16),
        epoch=st.integers(-1, 2**31 - 1),
        first=st.integers(0, ID_MAX),
        shift=st.integers(0, ID_MAX),
        seen=st.none() | st.integers(0, ID_MAX),
    )
)
def test_notes_come_back_and_have_room(note: Note) -> None:
    assert decode_note(note.encode()) == note
    assert len(note.encode()) <= NOTE_BYTES_MAX


@given(st.binary(max_size=60))
def test_bytes_that_are_no_note_are_a_gap(data: bytes) -> None:
    try:
        note = decode_note(data)
    except SourceGap:
        return
    assert note.encode() == data


def test_what_no_field_may_hold_is_a_gap() -> None:
    for wrong in (Note(topic=TOPIC, epoch=-2), Note(topic=TOPIC, first=ID_MAX + 1), Note(topic=TOPIC, seen=2**64 - 1)):
        with pytest.raises(SourceGap, match="damaged"):
            decode_note(wrong.encode())


# ---------------------------------------------------------------- where reading begins


def test_stream_that_is_new_begins_at_offset_0() -> None:
    assert placed(NEW, NEW) == Place(Check(0, EPOCH_UNKNOWN), -1, Note(topic=TOPIC))
    with pytest.raises(SourceRecordsGone, match="offset 0 is to be read next, and the first record kept is 10"):
        placed(NEW, kept=Kept(10, 20))


def test_stream_that_is_new_may_begin_at_the_oldest_and_its_note_says_so() -> None:
    found = placed(NEW, kept=Kept(10, 20), oldest=True)
    assert (found.start, found.last_id, found.note.first) == (Check(10, EPOCH_UNKNOWN), 9, 10)
    of_another_shard = Point(15, found.note.encode())
    assert placed(NEW, of_another_shard, kept=Kept(10, 20)).start.offset == 10, "nothing between is missing"
    with pytest.raises(SourceRecordsGone):
        placed(NEW, of_another_shard, kept=Kept(12, 20), oldest=True)


def test_stream_goes_on_behind_the_lowest_point_and_all_points_are_proved() -> None:
    found = placed(at(4, 2), at(6, 2), at(9, 3))
    assert found.start == Check(5, 2)
    assert found.others == (Check(7, 2), Check(10, 3))
    assert found.last_id == 4
    assert placed(at(4, 2), at(4, 2)).others == ()
    assert placed(NEW, at(4, 2)).start == Check(0, EPOCH_UNKNOWN)


def test_epoch_is_asked_for_behind_the_record_that_was_seen_in_it() -> None:
    assert placed(at(9, 2, seen=5)).start == Check(6, 2), "in which epoch 6 to 9 were written is not known"
    assert placed(at(9, 2, seen=5), kept=Kept(8, 20)).start == Check(10, EPOCH_UNKNOWN), "the record has expired"
    assert placed(at(4, 1), at(9, 2, seen=2), kept=Kept(5, 20)).others == ()
    assert placed(at(9, EPOCH_UNKNOWN)).start == Check(10, EPOCH_UNKNOWN)


def test_place_that_the_partition_does_not_have_is_a_gap() -> None:
    assert placed(at(9), kept=Kept(10, 10)).last_id == 9, "at the end, with nothing kept before"
    with pytest.raises(SourceRecordsGone):
        placed(at(9), kept=Kept(11, 20))
    with pytest.raises(SourceLogCut, match="offset 10 is to be read next, and the partition ends at 9"):
        placed(at(9), kept=Kept(0, 9))
    with pytest.raises(SourceLogCut):
        placed(at(4), at(9), kept=Kept(0, 9))
    with pytest.raises(SourceLogCut):
        placed(at(4, EPOCH_UNKNOWN), at(9, EPOCH_UNKNOWN), kept=Kept(0, 9))


def test_another_topic_is_a_gap_even_for_one_shard_alone() -> None:
    with pytest.raises(SourceTopicReplaced):
        place([at(4)], OTHER, LONG, oldest=False)
    with pytest.raises(SourceTopicReplaced):
        placed(at(4), Point(9, Note(topic=OTHER).encode()))
    with pytest.raises(SourceTopicReplaced):
        expect_topic(TOPIC, OTHER)
    expect_topic(TOPIC, TOPIC)


def test_what_was_taken_in_without_a_note_is_not_ours() -> None:
    with pytest.raises(SourceGap, match="id 7 was taken in without a note"):
        placed(NEW, Point(7, b""))
    with pytest.raises(SourceGap, match="not that of a partition of Kafka"):
        placed(Point(7, b"\x01files"))


# ---------------------------------------------------------------- while it is read


def test_note_follows_epochs_and_is_the_same_for_all_records_of_one() -> None:
    note = Note(topic=TOPIC, epoch=1, first=4, shift=2)
    assert follow(note, 1) is note
    assert follow(note, 3) == Note(topic=TOPIC, epoch=3, first=4, shift=2)
    assert follow(Note(topic=TOPIC, epoch=1, seen=5), 1) == Note(topic=TOPIC, epoch=1)


def test_note_behind_ids_without_records_names_the_last_record() -> None:
    note = Note(topic=TOPIC, epoch=1)
    assert reach(note, 5, 5) is note
    assert reach(note, 5, 8).seen == 5
    assert reach(Note(topic=TOPIC, epoch=1, seen=3), 5, 8).seen == 3, "nothing was seen since"
    assert reach(Note(topic=TOPIC), 5, 8).seen is None, "no epoch is known"


def test_place_that_the_brokers_refuse_is_named_by_what_the_partition_has() -> None:
    assert isinstance(lost(Check(5, 1), Kept(6, 9)), SourceRecordsGone)
    assert isinstance(lost(Check(5, 1), Kept(0, 4)), SourceLogCut)
    assert "epoch 1 ended below it" in str(lost(Check(5, 1), Kept(0, 9)))


# ---------------------------------------------------------------- what an operator decides


def test_operator_lets_a_stream_go_on_behind_a_gap_with_offsets_as_ids() -> None:
    point = adopted("40", TOPIC, Kept(30, 100), 7)
    assert (point.last_id, decode_note(point.note)) == (39, Note(topic=TOPIC, first=40))
    assert adopted("oldest", TOPIC, Kept(30, 100), 7).last_id == 29
    assert adopted("newest", TOPIC, Kept(30, 100), 7).last_id == 99
    assert place([at(7), point], TOPIC, Kept(30, 100), oldest=False).start.offset == 40, "it did not reach all shards"


def test_ids_ascend_in_a_topic_that_was_made_anew() -> None:
    point = adopted("2", OTHER, LONG, 50)
    assert (point.last_id, decode_note(point.note)) == (51, Note(topic=OTHER, first=52, shift=50))
    found = place([point, Point(53, decode_note(point.note).encode())], OTHER, LONG, oldest=False)
    assert (found.start, found.last_id) == (Check(2, EPOCH_UNKNOWN), 51)
    again = Point(60, Note(topic=OTHER, epoch=4, first=52, shift=50).encode())
    assert place([again], OTHER, LONG, oldest=False).start == Check(11, 4)
    with pytest.raises(SourceTopicReplaced, match="decide it again"):
        place([again, Point(61, Note(topic=OTHER, epoch=4).encode())], OTHER, LONG, oldest=False)


def test_operator_may_name_the_offset_that_is_next() -> None:
    point = adopted("51", TOPIC, LONG, 50)
    assert (point.last_id, decode_note(point.note)) == (51, Note(topic=TOPIC, first=52, shift=1))
    assert place([point], TOPIC, LONG, oldest=False).start.offset == 51


@pytest.mark.parametrize("text", ["", "-1", "x", "²", "1" * 30, "29", "101"])
def test_operator_can_only_name_offsets_that_are_there(text: str) -> None:
    with pytest.raises(InvalidArgument, match="offset"):
        adopted(text, TOPIC, Kept(30, 100), 7)
