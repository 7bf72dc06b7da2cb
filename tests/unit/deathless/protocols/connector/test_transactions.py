"""Transaction messages: their bytes, both ways, and bytes that are none."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.deathless.protocols.connector.strategies import TRANSACTIONS

from deathless.base.errors import CorruptFrame, InvalidArgument, TooLarge
from deathless.protocols.connector.frames import (
    TRANSACTION_STREAM,
    Message,
    MessageId,
    StreamId,
    WorkersLeft,
    encode_message,
)
from deathless.protocols.connector.transactions import (
    FIRST_RTAG,
    AnyTransaction,
    ListUncommitted,
    Phase1,
    Phase2,
    Range,
    Reply,
    ReplyUncommitted,
    Type,
    decode,
    encode,
    in_frame,
)

TXN: Final = b"0011:77:0:1-100:1"
RANGE: Final = Range(StreamId(1), MessageId(0), MessageId(4096))
SAMPLES: Final[dict[str, AnyTransaction]] = {
    "list_uncommitted": ListUncommitted(FIRST_RTAG),
    "reply_uncommitted": ReplyUncommitted(FIRST_RTAG, (TXN, b"other")),
    "phase1": Phase1(TXN, (RANGE,)),
    "reply": Reply(TXN, True),
    "phase2": Phase2(TXN, False),
    "workers_left_2pc": WorkersLeft(FIRST_RTAG, (b"w1",)),
}


def framed(payload: bytes) -> Message:
    return Message(TRANSACTION_STREAM, MessageId(0), 0, b"", payload)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_bytes_of_each_transaction_message_are_pinned(name: str, golden: Callable[[str, bytes], None]) -> None:
    golden(f"connector_{name}", encode_message(in_frame(SAMPLES[name])))
    assert decode(in_frame(SAMPLES[name])) == SAMPLES[name]


def test_each_type_has_a_sample_and_its_number() -> None:
    assert [encode(message)[0] for message in SAMPLES.values()] == list(Type) == list(range(201, 207))


@given(message=TRANSACTIONS)
def test_a_transaction_message_reads_back_as_it_was_written(message: AnyTransaction) -> None:
    assert decode(in_frame(message)) == message


@given(
    data=st.binary(max_size=60) | st.builds(bytes.__add__, st.sampled_from([bytes((t,)) for t in Type]), st.binary())
)
def test_arbitrary_payloads_are_a_message_or_a_corrupt_one(data: bytes) -> None:
    with contextlib.suppress(CorruptFrame):
        message = decode(framed(data))
        assert encode(message) == data


@pytest.mark.parametrize("name", SAMPLES)
def test_a_transaction_message_that_is_cut_or_goes_on_is_refused(name: str) -> None:
    data = encode(SAMPLES[name])
    for cut in (*(data[:end] for end in range(len(data))), data + b"\0"):
        with pytest.raises(CorruptFrame):
            decode(framed(cut))


@pytest.mark.parametrize(
    ("frame", "told"),
    [
        (framed(b""), "an empty payload"),
        (framed(b"\xc8"), "transaction type: 200 is unknown, known are 201 to 206"),
        (framed(b"\xcb\x00\x00\xff\xff\xff\xff"), "PHASE1: ranges: 4294967295 items"),
        (framed(b"\xca" + bytes(8) + b"\xff\xff\xff\xff"), "REPLY_UNCOMMITTED: transactions: 4294967295 items"),
        (framed(b"\xcc\x00\x00\x02"), "REPLY: commit: 2, where 0 or 1 is meant"),
        (Message(TRANSACTION_STREAM, MessageId(1), 0, b"", b"\xc9" + bytes(8)), "have to be 0"),
        (Message(TRANSACTION_STREAM, MessageId(0), 1, b"", b"\xc9" + bytes(8)), "have to be 0"),
        (Message(TRANSACTION_STREAM, MessageId(0), 0, b"k", b"\xc9" + bytes(8)), "have to be 0"),
    ],
)
def test_what_is_wrong_with_a_transaction_message_is_named(frame: Message, told: str) -> None:
    with pytest.raises(CorruptFrame, match=told):
        decode(frame)


def test_what_does_not_fit_is_not_written() -> None:
    with pytest.raises(InvalidArgument):
        encode(ListUncommitted(2**64))
    with pytest.raises(TooLarge):
        encode(Reply(bytes(65_536), True))
