"""Trace contexts: the W3C header, the bytes behind a call, the ids of spans."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
from tests.unit.deathless.codec.test_messages import sample_call

from deathless.base.errors import CorruptFrame
from deathless.codec.messages import TRACE_BYTES, TRACED, Kind, decode, encode
from deathless.codec.traces import (
    NO_SPAN,
    begun,
    from_traceparent,
    is_sampled,
    parts,
    readable,
    span_id,
    traced,
    traceparent,
    untraced,
    within,
)

# The example of W3C Trace Context, level 1, section 3.2.
HEADER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE_ID = bytes.fromhex("0af7651916cd43dd8448eb211c80319c")
PARENT = bytes.fromhex("b7ad6b7169203331")
CALL = encode(Kind.CALL, method=b"add", key=b"a", idempotency_key=b"k", args=b"\x80")


def test_a_header_is_read_and_written() -> None:
    trace = from_traceparent(HEADER)
    assert parts(trace) == (TRACE_ID, PARENT, 1)
    assert traceparent(trace) == HEADER
    assert traceparent(b"") == ""


@pytest.mark.parametrize(
    "header",
    [
        "",
        "nothing",
        HEADER.upper(),
        HEADER.replace("0af7", "0af"),
        "ff" + HEADER[2:],
        HEADER + "-more",  # version 00 ends here
        f"00-{'0' * 32}-b7ad6b7169203331-01",
        f"00-{TRACE_ID.hex()}-{'0' * 16}-01",
    ],
)
def test_what_w3c_calls_invalid_is_ignored(header: str) -> None:
    assert from_traceparent(header) == b""


def test_a_later_version_is_read_as_far_as_this_one_goes() -> None:
    assert traceparent(from_traceparent("cc" + HEADER[2:-2] + "ff-what-will-be")) == HEADER


@pytest.mark.parametrize(("flags", "sampled"), [("00", False), ("01", True), ("02", False), ("03", True)])
def test_the_callers_decision_is_the_lowest_bit(flags: str, sampled: bool) -> None:
    assert is_sampled(from_traceparent(HEADER[:-2] + flags)) is sampled
    assert is_sampled(begun(TRACE_ID, sampled=sampled)) is sampled


def test_nothing_is_not_sampled() -> None:
    assert not is_sampled(b"")
    assert not is_sampled(b"\xff")


def test_what_came_from_outside_is_a_context_or_none() -> None:
    assert readable(from_traceparent(HEADER)) == from_traceparent(HEADER)
    assert readable(begun(TRACE_ID, sampled=True)) == TRACE_ID + NO_SPAN + b"\x01"
    assert readable(bytes(TRACE_BYTES)) == b""
    assert readable(b"short") == b""


def test_what_a_span_causes_names_it_as_the_parent() -> None:
    assert traceparent(within(from_traceparent(HEADER), b"\x11" * 8)) == HEADER.replace(PARENT.hex(), "11" * 8)


def test_a_call_with_a_context_is_the_same_call() -> None:
    trace = from_traceparent(HEADER)
    data = traced(CALL, trace)
    assert (data[1], data[-TRACE_BYTES:]) == (TRACED, trace)
    assert untraced(data) == (CALL, trace)
    assert decode(data) == decode(CALL)
    assert untraced(CALL) == (CALL, b"")


def test_the_bytes_of_a_call_with_a_context_are_version_1(golden: Callable[[str, bytes], None]) -> None:
    golden("message_traced", traced(sample_call(), from_traceparent(HEADER)))


def test_a_flag_without_room_for_a_context_is_left_as_it_is() -> None:
    data = b"\x01\x01" + bytes(6 + TRACE_BYTES - 1)
    assert untraced(data) == (data, b"")
    with pytest.raises(CorruptFrame):
        decode(data)


def test_ids_of_spans_differ_by_place_and_are_the_same_everywhere() -> None:
    seeds = [bytes(32), b"x" * 32]
    places = [(seed, *place) for seed in seeds for place in product((0, 1), (1, 2), (0, 1))]
    ids = [span_id(*place) for place in places]
    assert len(set(ids)) == len(places)
    assert ids[0].hex() == "a8b84ab2af82416d"
