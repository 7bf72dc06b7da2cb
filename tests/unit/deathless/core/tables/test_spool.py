"""Runs of messages outside memory: what is loaded is what was stored, or an error (I8)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.base.errors import Internal
from deathless.core.tables.spool import Run, Stored, store


class Cell:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self) -> bytes:
        return self.data


class Cells:
    def __init__(self) -> None:
        self.last = Cell(b"")

    def append(self, data: bytes) -> Cell | None:
        self.last = Cell(data)
        return self.last


class Full:
    def append(self, data: bytes) -> None:
        return None


def stored(spool: Cells, *messages: bytes, first: int = 1) -> Run:
    run = store(spool, first, messages)
    assert run is not None
    return run


@given(messages=st.lists(st.binary(max_size=9), min_size=1, max_size=9))
def test_messages_are_loaded_as_they_were_stored(messages: list[bytes]) -> None:
    run = stored(Cells(), *messages, first=7)
    assert (run.load(), run.end, run.size) == (messages, 7 + len(messages), sum(map(len, messages)))


def test_a_spool_that_takes_nothing_gives_no_run() -> None:
    assert store(Full(), 1, [b"a"]) is None


@given(at=st.integers(0, 12), bit=st.integers(0, 7))
def test_i8_one_flipped_bit_is_found_wherever_it_is(at: int, bit: int) -> None:
    spool = Cells()
    run = stored(spool, b"ab", b"cde")
    data = bytearray(spool.last.data)
    data[at] ^= 1 << bit
    spool.last.data = bytes(data)
    with pytest.raises(Internal, match="from position 1 "):
        run.load()


def test_i8_another_run_that_is_whole_is_not_taken_for_this_one() -> None:
    spool = Cells()
    one = stored(spool, b"ab")
    cell = spool.last
    stored(spool, b"cd")
    cell.data = spool.last.data
    with pytest.raises(Internal):
        one.load()


def test_what_is_stored_is_gone_through_as_often_as_one_likes() -> None:
    spool = Cells()
    kept = Stored([stored(spool, b"a", b"b"), stored(spool, b"c", first=3)], 1, 1, [b"d"])
    assert (len(kept), list(kept), list(kept)) == (3, [b"b", b"c", b"d"], [b"b", b"c", b"d"])
