"""The binding's bytes: what it refuses of a coordinator. What it writes is read by the coordinator's own tests."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.protocols.ambrosia_binding.encoding import (
    Answer,
    Call,
    CallType,
    Outcome,
    Scanner,
    Tag,
    arrived,
    message,
    messages_of,
    named,
    number,
    outgoing_answer,
    outgoing_call,
)
from deathless.protocols.ambrosia_binding.errors import CoordinatorWrong

ONE = message(Tag.RPC, b"\0\2\1a")


def test_both_kinds_of_batches_are_unpacked() -> None:
    counted = message(Tag.COUNT_REPLAYABLE_RPC_BATCH, number(2), number(1), ONE, ONE)
    plain = message(Tag.RPC_BATCH, number(1), ONE)
    assert list(messages_of(counted + plain + message(Tag.TAKE_CHECKPOINT))) == [
        (Tag.RPC, b"\0\2\1a"),
        (Tag.RPC, b"\0\2\1a"),
        (Tag.RPC, b"\0\2\1a"),
        (Tag.TAKE_CHECKPOINT, b""),
    ]


WRONG = [
    (b"\0", "a message of 0 bytes"),
    (b"\x01", "a message of -1 bytes"),
    (b"\x04\0", "2 bytes were announced, 1 are there"),
    (b"\x02\x03", "of type 3, which no application gets"),
    (b"\x80" * 5 + b"\0", "more than 32 bits"),
    (b"\xff\xff\xff\xff\x7f", "more than 32 bits"),
    (message(Tag.RPC_BATCH, number(2), ONE), "1 bytes were announced, 0"),
    (message(Tag.RPC_BATCH, number(0), ONE), "a batch of 0 messages"),
    (message(Tag.RPC_BATCH, number(-1)), "a batch of -1 messages"),
    (message(Tag.RPC_BATCH, number(1), message(Tag.TAKE_CHECKPOINT)), "more than RPCs"),
    (message(Tag.COUNT_REPLAYABLE_RPC_BATCH, number(1), number(2), ONE), r"\(2 replayable\)"),
]


@pytest.mark.parametrize(("payload", "match"), WRONG)
def test_messages_that_are_none_are_refused(payload: bytes, match: str) -> None:
    with pytest.raises(CoordinatorWrong, match=match):
        list(messages_of(payload))


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "1 bytes were announced"),
        (b"\0\2\3", "an RPC of type 3"),
        (b"\4", "whose first byte is 4"),
        (b"\1\x02\xff\0", "no UTF-8"),
        (b"\1\x01", "-1 bytes were announced"),
        (b"\1\0" + b"\x80" * 10, "more than 64 bits"),
    ],
)
def test_an_rpc_that_is_none_is_refused(data: bytes, match: str) -> None:
    with pytest.raises(CoordinatorWrong, match=match):
        arrived(data)


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_messages_or_an_error_of_ours(data: bytes) -> None:
    for read in (lambda: list(messages_of(data)), lambda: arrived(data)):
        with suppress(CoordinatorWrong):
            read()


def test_an_answer_arrives_with_who_gave_it_and_the_number_of_the_call() -> None:
    assert arrived(b"\1\x02a\x06v") == Answer(Outcome.VALUE, "a", 3, b"v")


def test_names_and_numbers_are_written_as_the_page_says() -> None:
    assert named("ä").hex() == "04c3a4"
    assert Scanner(named("ä") + number(-1)).text() == "ä"
    assert outgoing_call("", Call(1, CallType.FORKED, b"")).hex() == "0a0000000201"
    assert outgoing_answer("b", Answer(Outcome.NOTHING, "a", 0, b"")).hex() == "0e00026202026100"
