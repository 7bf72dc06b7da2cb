"""Lines of what a process prints, however it prints them, and how much of it is kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deathless.shell.foreign.output_lines import LINE_BYTES, LINE_BYTES_MAX, Lines


def test_lines_come_when_they_end_and_the_last_at_the_end() -> None:
    lines = Lines()
    assert lines.feed(b"one\ntw", 0.0) == ["one"]
    assert lines.feed(b"o\n\nthree", 0.0) == ["two"]
    assert lines.end() == ["three"]
    assert lines.end() == []


def test_bytes_that_are_no_text_are_shown() -> None:
    assert Lines().feed(b"\xff\n", 0.0) == ["\\xff"]


def test_a_line_without_an_end_comes_in_pieces() -> None:
    lines = Lines()
    found = lines.feed(b"x" * (2 * LINE_BYTES_MAX + 1), 0.0) + lines.end()
    assert [len(each) for each in found] == [LINE_BYTES_MAX, LINE_BYTES_MAX, 1]


def test_what_is_too_much_in_a_second_is_dropped_and_told_when_there_is_room_again() -> None:
    lines = Lines(rate=10, line_bytes=0)
    assert lines.feed(b"12345678\nabcdef\n", 0.0) == ["12345678"]
    assert lines.feed(b"more\n", 0.0) == []
    assert lines.dropped == 11
    assert lines.feed(b"again\n", 1.0) == ["a", "(11 bytes of output were dropped)", "again"]


def test_what_was_dropped_last_is_told_at_the_end() -> None:
    lines = Lines(rate=4, line_bytes=0)
    lines.feed(b"abc\ndef\n", 0.0)
    assert lines.end() == ["(4 bytes of output were dropped)"]


@given(st.lists(st.tuples(st.binary(max_size=40), st.floats(0, 3)), max_size=20))
def test_never_more_is_kept_than_the_rate_allows(prints: list[tuple[bytes, float]]) -> None:
    lines, now, given_bytes = Lines(rate=16), 0.0, 0
    for data, pause in prints:
        now += pause
        given_bytes += len(data)
        lines.feed(data, now)
    assert 0 <= given_bytes - lines.dropped <= 16 + now * 16


def test_short_lines_without_an_end_are_few_in_a_second() -> None:
    """Each becomes a line of our log: half a million in a second would leave no time for anything else."""
    lines = Lines()
    found = [line for _ in range(32) for line in lines.feed(b"a\n" * (1 << 15), 0.0)]
    assert len(found) <= lines.rate // LINE_BYTES
    assert lines.dropped > 0
