"""The table of streams: what follows is taken in, refusals are kept or stop the stream, nothing goes back."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.base.errors import Overloaded
from deathless.codec.frames import Run
from deathless.codec.snapshot import RefusedRecord
from deathless.codec.streams.records import END_SEQ, OnRefusal, StreamKey, StreamOpened
from deathless.core.tables import stream_table
from deathless.core.tables.stream_table import Stream, StreamTable

KEY = StreamKey("flights", 7)
NONCE, OTHER = b"a" * 16, b"b" * 16
ONE_REFUSED = RefusedRecord(9, 5, 3, 1, "DL3014", "no", b"bad")


def opened(on_refusal: OnRefusal = OnRefusal.STOP) -> tuple[StreamTable, Stream]:
    table = StreamTable()
    stream = table.open(StreamOpened(*KEY, NONCE, on_refusal), 5)
    assert stream is not None
    return table, stream


def test_a_stream_begins_below_its_first_id_and_belongs_to_who_took_it_last() -> None:
    table, stream = opened()
    assert (stream.session, stream.next_seq, stream.ended, stream.nonce) == (5, 1, False, NONCE)
    assert table.open(StreamOpened(*KEY, OTHER, OnRefusal.SKIP), 8) is stream
    assert (stream.session, stream.nonce, stream.on_refusal) == (5, OTHER, OnRefusal.SKIP)
    assert table.find(KEY) is table.get(5) is stream
    assert (5 in table, 8 in table, len(table)) == (True, False, 1)


@pytest.mark.parametrize(
    ("run", "follows"),
    [
        (Run(5, 4, 3, 2), True),  # the next one
        (Run(5, 9, 3, 2), True),  # behind a gap that it names
        (Run(5, 9, 8, 2), False),  # something before it is missing
        (Run(5, 9, 2, 2), False),  # it names what was not the last
        (Run(5, 3, 2, 2), False),  # it was taken in
        (Run(5, END_SEQ + 4, 3, 1), True),
        (Run(5, END_SEQ + 3, 2, 1), False),
    ],
)
def test_a_run_follows_what_was_taken_in_or_changes_nothing(run: Run, follows: bool) -> None:
    table, stream = opened()
    table.accept(stream, 3, b"", mark=False)
    assert stream.follows(run) is follows


def test_what_was_taken_in_has_passed_and_an_end_once_it_has_come() -> None:
    table, stream = opened()
    table.accept(stream, 3, b"", mark=False)
    assert (stream.passed(3), stream.passed(4), stream.passed(END_SEQ + 3)) == (True, False, True)
    assert not stream.passed(END_SEQ + 4)
    table.end(stream)
    assert stream.passed(END_SEQ + 4)


def test_a_message_begins_an_ended_stream_again_and_a_mark_does_not() -> None:
    table, stream = opened()
    table.end(stream)
    table.accept(stream, 1, b"n1", mark=True)
    assert (stream.ended, stream.note, stream.next_seq) == (True, b"n1", 2)
    table.accept(stream, 5, b"", mark=False)
    assert (stream.ended, stream.note, stream.next_seq) == (False, b"n1", 6)


def test_a_stream_stands_at_a_refused_input_until_an_operator_lets_it_go_on() -> None:
    table, stream = opened()
    table.close_gap(stream, 3)
    assert table.refuse(stream, ONE_REFUSED) is False
    assert not stream.follows(Run(5, 3, 2, 1))
    assert table.refused() == [msgspec.structs.replace(ONE_REFUSED, message=b"")]
    table.go_on(5, 4)  # it does not stand there
    assert table.stands_at(5, 3)
    table.go_on(5, None)
    assert (stream.next_seq, stream.refused, table.refused()) == (3, 1, [])
    table.refuse(stream, ONE_REFUSED)
    table.go_on(5, 3)
    assert (stream.next_seq, stream.refused, len(table.refused())) == (4, 2, 1)
    table.check_invariants()


def test_an_end_that_is_passed_over_counts_as_come() -> None:
    table, stream = opened()
    table.refuse(stream, msgspec.structs.replace(ONE_REFUSED, seq=END_SEQ + 1))
    table.go_on(5, END_SEQ + 1)
    assert (stream.ended, stream.next_seq, stream.stopped) == (True, 1, None)


def test_dead_letters_are_kept_whole_and_what_is_skipped_is_kept_by_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_table, "REFUSED_MAX", 2)
    table, stream = opened(OnRefusal.SKIP)
    for seq in (1, 2, 3):
        assert table.refuse(stream, msgspec.structs.replace(ONE_REFUSED, seq=seq, why="x" * 5000))
    assert [(each.seq, each.message, len(each.why)) for each in table.refused()] == [(2, b"", 1000), (3, b"", 1000)]
    table.open(StreamOpened(*KEY, NONCE, OnRefusal.DEAD_LETTER), 6)
    for seq in (4, 5):
        assert table.refuse(stream, msgspec.structs.replace(ONE_REFUSED, seq=seq))
    assert not table.refuse(stream, msgspec.structs.replace(ONE_REFUSED, seq=6)), "no room: it stands there"
    assert [(each.seq, each.message) for each in table.refused()] == [(4, b"bad"), (5, b"bad"), (6, b"")]
    assert stream.refused == 6


def test_what_is_refused_late_is_listed_while_a_stream_stands_elsewhere() -> None:
    table, stream = opened()
    table.refuse(stream, ONE_REFUSED)
    assert not table.refuse(stream, msgspec.structs.replace(ONE_REFUSED, seq=0, message=b""))
    assert [each.seq for each in table.refused()] == [0, 3]


def test_there_are_at_most_so_many_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_table, "STREAMS_MAX", 1)
    table, _ = opened()
    assert table.refusal(KEY) is None
    assert isinstance(table.refusal(StreamKey("flights", 8)), Overloaded)
    assert table.open(StreamOpened("flights", 8, NONCE), 6) is None


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 40), st.integers(0, 3), st.booleans())))
def test_whatever_runs_come_the_next_seq_never_goes_back_and_a_copy_is_equal(
    runs: list[tuple[int, int, int, bool]],
) -> None:
    table, stream = opened()
    for first, follows, count, end in runs:
        before = stream.next_seq
        run = Run(5, END_SEQ + first if end else first, follows, 1 if end else count)
        if stream.follows(run):
            if end:
                table.end(stream)
            elif not count:
                table.close_gap(stream, first)
            for seq in () if end else range(first, first + count):
                table.accept(stream, seq, b"", mark=False)
        assert stream.next_seq >= before
    copy = StreamTable()
    copy.restore(*table.snapshot())
    assert copy.snapshot() == table.snapshot()


def test_what_is_listed_is_taken_off_or_gets_a_newer_reason() -> None:
    table, stream = opened(OnRefusal.DEAD_LETTER)
    other = msgspec.structs.replace(ONE_REFUSED, lsn=10, seq=4)
    table.refuse(stream, ONE_REFUSED)
    table.refuse(stream, other)
    table.refused_again(ONE_REFUSED, msgspec.structs.replace(ONE_REFUSED, lsn=50, seq=0, at_us=9, why="y" * 5000))
    first, second = table.refused()
    assert (first.lsn, first.seq, first.at_us, len(first.why), first.message) == (9, 3, 9, 1000, b"bad")
    assert (second, stream.refused) == (other, 2)
    table.check_invariants()
    table.take_off(first)
    assert (table.listed(9), table.listed(10), table.refused()) == (None, other, [other])
    table.check_invariants()


def test_nothing_is_known_of_a_stream_that_was_forgotten_and_it_begins_anew_as_another_one() -> None:
    table, stream = opened(OnRefusal.SKIP)
    table.accept(stream, 7, b"n", mark=False)
    table.refuse(stream, ONE_REFUSED)
    assert not table.keeps(stream)
    table.forget(stream)
    assert (table.find(KEY), table.get(5), 5 in table, table.refused()) == (None, None, False, [])
    table.check_invariants()
    again = table.open(StreamOpened(*KEY, NONCE, OnRefusal.STOP), 30)
    assert again is not None
    assert (again.session, again.next_seq, again.note, again.refused) == (30, 1, b"", 0)
