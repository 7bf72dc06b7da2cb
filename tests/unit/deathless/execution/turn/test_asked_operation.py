"""Records of what a handler asked for: what is written is read, and people can tell two of them apart."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.base.errors import CorruptCheckpoint
from deathless.execution.turn.asked_operation import (
    AskedCall,
    AskedCancel,
    AskedComplete,
    AskedContinue,
    AskedFork,
    AskedOperation,
    AskedPromise,
    AskedRun,
    AskedTimer,
    decode_asked,
    encode_asked,
    name_of,
    tell_apart,
)

TEXT = st.text(max_size=20)
BYTES = st.binary(max_size=40)
US = st.integers(0, 2**62)
OPERATIONS: st.SearchStrategy[AskedOperation] = st.one_of(
    st.builds(AskedFork, TEXT, US, TEXT, TEXT, BYTES),
    st.builds(AskedCall, TEXT, US, TEXT, TEXT, BYTES, US, US),
    st.builds(AskedTimer, US, US),
    st.builds(AskedRun, TEXT, BYTES, US, US, st.booleans()),
    st.builds(AskedPromise),
    st.builds(AskedComplete, TEXT, BYTES),
    st.builds(AskedContinue, TEXT, BYTES),
    st.builds(AskedCancel, US),
)
TAKE = AskedCall("stock", 0, "apples", "take", b"\x81\xa5count\x02", 5_000_000)


@given(OPERATIONS)
def test_record_is_what_was_written_and_can_be_told(asked: AskedOperation) -> None:
    data = encode_asked(asked)
    assert decode_asked(data) == asked
    assert name_of(asked)


@given(OPERATIONS, OPERATIONS)
def test_two_are_told_apart(one: AskedOperation, other: AskedOperation) -> None:
    first, second = tell_apart(one, other)
    assert first
    assert second


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x91\x63", b"\x92\x01\xa1a"])
def test_what_is_no_record_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        decode_asked(data)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (msgspec.structs.replace(TAKE, method="reserve"), ("stock.take", "stock.reserve")),
        (
            msgspec.structs.replace(TAKE, key="pears"),
            ("stock.take of key apples in shard 0", "stock.take of key pears in shard 0"),
        ),
        (
            msgspec.structs.replace(TAKE, arguments=b"\x81\xa5count\x03"),
            (
                "stock.take of key apples in shard 0 with {'count': 2}",
                "stock.take of key apples in shard 0 with {'count': 3}",
            ),
        ),
        (AskedFork("stock", 0, "apples", "take", b"\x80"), ("stock.take", "a fork to stock.take")),
        (AskedTimer(5_000_000, 0), ("stock.take", "a timer of 0:00:05")),
        (AskedTimer(0, 5_000_000), ("stock.take", "a timer at 1970-01-01T00:00:05+00:00")),
        (AskedRun("charge", b"\x80"), ("stock.take", "activity charge")),
        (AskedComplete("4.1", b"\x00\x05"), ("stock.take", "completing promise 4.1")),
        (AskedContinue("more", b"\x80"), ("stock.take", "going on with more")),
        (AskedCancel(3), ("stock.take", "cancelling operation 3")),
    ],
    ids=str,
)
def test_as_much_is_told_as_it_takes(other: AskedOperation, told: tuple[str, str]) -> None:
    assert tell_apart(TAKE, other) == told


def test_records_are_small() -> None:
    names = len("stock" + "apples" + "take") + len(TAKE.arguments)
    assert len(encode_asked(TAKE)) - names <= 16
    assert len(encode_asked(AskedTimer(5_000_000, 0))) <= 8
    assert len(encode_asked(AskedPromise())) == 2
    assert len(encode_asked(AskedRun("charge", b"\x80", 30_000_000, 5_000_000))) - len("charge") <= 18
