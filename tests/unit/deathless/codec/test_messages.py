"""Messages: the bytes, both ways, and every way to be wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.base.errors import CorruptFrame, TooLarge
from deathless.base.times import Times
from deathless.codec import messages
from deathless.codec.messages import HEADER_BYTES, Kind, Message
from deathless.codec.traces import untraced

FOLDER = Path(__file__).parents[3] / "golden"
SHORT = st.binary(max_size=40)


def sample_call() -> bytes:
    return messages.encode(
        Kind.CALL, method=b"deposit", key=b"alice", idempotency_key=b"k1", args=b"\x81\xa6amount\x05"
    )


def test_the_bytes_of_a_call_are_version_1(golden: Callable[[str, bytes], None]) -> None:
    golden("message_call", sample_call())
    assert sample_call()[:8] == bytes([1, 0, 7, 0, 5, 0, 2, 0])


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("message_time", messages.encode_time(Times.at(1_700_000_000_000_000)), Kind.TIME),
        ("message_register", messages.encode_register(bytes(range(16))), Kind.REGISTER),
        ("message_parked", messages.encode_parked(7, 9, sample_call()), Kind.PARKED),
        ("message_rebased", messages.encode_rebased(42), Kind.REBASED),
    ],
)
def test_the_bytes_of_the_shards_own_records_are_version_1(
    name: str, data: bytes, kind: Kind, golden: Callable[[str, bytes], None]
) -> None:
    golden(name, data)
    assert messages.decode(data).kind == kind


def test_time_records_are_read_as_they_were_written_and_those_of_version_1_have_one_clock() -> None:
    times = Times(4, 3, 2, 1)
    assert messages.decode_time(messages.decode(messages.encode_time(times)).args) == times
    old = (FOLDER / "message_time_version_1.bin").read_bytes()
    assert messages.decode_time(messages.decode(old).args) == Times.of_version_1(1_700_000_000_000_000)
    with pytest.raises(CorruptFrame, match="16 bytes, 32 expected"):
        messages.decode_time(bytes(16))


def test_a_parked_record_carries_the_message_verbatim() -> None:
    body = messages.decode(messages.encode_parked(7, 9, sample_call())).args
    size = messages.PARKED_HEADER.size
    assert messages.PARKED_HEADER.unpack_from(body) == (7, 9)
    assert body[size:] == sample_call()


@given(kind=st.integers(0, 255), method=SHORT, key=SHORT, idempotency_key=SHORT, args=SHORT)
def test_what_is_encoded_is_decoded(kind: int, method: bytes, key: bytes, idempotency_key: bytes, args: bytes) -> None:
    data = messages.encode(kind, method=method, key=key, idempotency_key=idempotency_key, args=args)
    assert messages.decode(data) == Message(kind, method, key, idempotency_key, args)


@given(st.binary(max_size=64))
def test_random_bytes_are_a_message_that_encodes_to_them_or_a_typed_error(data: bytes) -> None:
    try:
        kind, method, key, idempotency_key, args = messages.decode(data)
    except CorruptFrame:
        return
    plain, _ = untraced(data)
    assert messages.encode(kind, method=method, key=key, idempotency_key=idempotency_key, args=args) == plain


@pytest.mark.parametrize("length", range(HEADER_BYTES))
def test_a_message_shorter_than_its_header_is_refused(length: int) -> None:
    with pytest.raises(CorruptFrame, match="shorter than its header"):
        messages.decode(sample_call()[:length])


@pytest.mark.parametrize("length", range(HEADER_BYTES, HEADER_BYTES + 14))
def test_a_message_shorter_than_its_lengths_is_refused(length: int) -> None:
    with pytest.raises(CorruptFrame, match="shorter than its lengths"):
        messages.decode(sample_call()[:length])


@pytest.mark.parametrize("bit", range(1, 8))
def test_a_flag_that_version_1_does_not_know_is_refused(bit: int) -> None:
    data = bytearray(sample_call())
    data[1] = 1 << bit
    with pytest.raises(CorruptFrame, match="unknown flags"):
        messages.decode(bytes(data))


def test_a_trace_context_is_left_out_of_the_arguments() -> None:
    plain = sample_call()
    data = bytearray(plain + bytes(messages.TRACE_BYTES))
    data[1] = messages.TRACED
    assert messages.decode(bytes(data)) == messages.decode(plain)


def test_only_a_call_has_a_trace_context_behind_its_arguments() -> None:
    data = bytearray(messages.encode(Kind.FORK, args=bytes(messages.TRACE_BYTES)))
    data[1] = messages.TRACED
    with pytest.raises(CorruptFrame, match="unknown flags"):
        messages.decode(bytes(data))


def test_a_flag_without_a_trace_context_is_refused() -> None:
    data = bytearray(messages.encode(Kind.CALL, args=bytes(messages.TRACE_BYTES - 1)))
    data[1] = messages.TRACED
    with pytest.raises(CorruptFrame, match="shorter"):
        messages.decode(bytes(data))


@pytest.mark.parametrize("field", ["method", "key", "idempotency_key"])
def test_a_field_fits_16_bits_of_length_and_no_more(field: str) -> None:
    longest = bytes(0xFFFF)
    assert getattr(messages.decode(messages.encode(Kind.CALL, **{field: longest})), field) == longest
    with pytest.raises(TooLarge, match="65535"):
        messages.encode(Kind.CALL, **{field: bytes(0x10000)})


@pytest.mark.parametrize("length", [0, 15, 17])
def test_a_nonce_has_16_bytes(length: int) -> None:
    with pytest.raises(AssertionError):
        messages.encode_register(bytes(length))
