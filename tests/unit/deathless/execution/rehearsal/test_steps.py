"""Steps, and what came of them, from one process to another."""

from __future__ import annotations

import pytest

from deathless.base.errors import InvalidArgument
from deathless.base.times import Times
from deathless.codec.messages import Kind, encode
from deathless.execution.rehearsal.steps import (
    Advanced,
    Again,
    Called,
    Did,
    MapChange,
    Moved,
    Recorded,
    Replaced,
    Sent,
    Step,
    Turned,
    decode_trace,
    encode_did,
    encode_trace,
    named_in,
)

MESSAGE = encode(Kind.CALL, method=b"deposit", key=b"alice")
STEPS: tuple[Step, ...] = (
    Called(3, 7, MESSAGE),
    Sent(4, 7, MESSAGE, "stock", 2),
    Moved(0, Times(1, 2, 3, 4)),
    Advanced(5, Times(1, 2, 3, 4), caught_up=False),
    Recorded(6, 7, Kind.OUTCOME, b"body"),
    Again(7, 7, 3, MESSAGE),
    Replaced(8, 7, "stock", 1),
)
FIRST = Turned(3, "deposit", b"alice", [b"asked"], b"\0\1", {b"alice": b"a"}, [MapChange(b"m", True, [(b"mx", None)])])
NEXT = Turned(4, "pay", b"bob", states={b"alice": b"c", b"bob": b"b"})
DID = Did([FIRST, NEXT], {b"alice": True}, waits=True, ran=False)


def test_a_trace_comes_back_from_its_bytes() -> None:
    trace = [(step, DID) for step in STEPS]
    assert decode_trace(encode_trace(trace)) == trace


def test_bytes_that_are_no_trace_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="can't be read"):
        decode_trace(b"\xc1")


def test_what_was_left_is_that_of_all_turns_the_last_one_last() -> None:
    assert DID.states == {b"alice": b"c", b"bob": b"b"}
    assert DID.maps == FIRST.maps
    assert Did([FIRST]).states == {b"alice": b"a"}
    assert Did().states == {}


def test_the_same_was_done_where_the_bytes_are_the_same() -> None:
    assert encode_did(Did([FIRST])) == encode_did(Did([FIRST]))
    assert encode_did(Did([FIRST])) != encode_did(Did([FIRST], waits=True))


def test_a_step_is_about_its_message_or_its_first_turn() -> None:
    assert [named_in(step, DID) for step in STEPS[:3]] == [("deposit", b"alice")] * 3
    assert named_in(STEPS[4], Did([NEXT])) == ("pay", b"bob")
    assert named_in(Called(3, 7, b"broken"), Did()) == ("", b"")
