"""Records of streams: the bytes, ids as seqs, and notes that can't be read."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.base.errors import CorruptFrame
from deathless.codec.messages import Kind, decode, encode
from deathless.codec.peer_messages import Target, TracedFork, decode_body, encode_body
from deathless.codec.streams.records import (
    END_SEQ,
    ID_MAX,
    NOTE_BYTES_MAX,
    InputFork,
    OnRefusal,
    StreamKey,
    StreamOpened,
    encode_input,
    encode_mark,
    note_of,
    seq_of,
)

OPENED = StreamOpened("flights", 7, bytes(range(16)), OnRefusal.DEAD_LETTER)
NOTE = st.binary(max_size=NOTE_BYTES_MAX)


def opened() -> bytes:
    return encode(Kind.STREAM, args=encode_body(OPENED))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("message_stream", opened()),
        ("message_mark", encode_mark(b"epoch 3")),
        ("message_input", encode_input(b"record", b"AA12", b"\x80", b"epoch 3")),
    ],
)
def test_the_bytes_of_messages_of_streams_are_version_2(
    name: str, data: bytes, golden: Callable[[str, bytes], None]
) -> None:
    golden(name, data)


def test_a_stream_record_reads_back_as_it_was_written() -> None:
    assert decode_body(StreamOpened, decode(opened()).args) == OPENED
    assert OPENED.key == StreamKey("flights", 7)
    assert str(OPENED.key) == "flights/7"
    with pytest.raises(CorruptFrame):
        decode_body(StreamOpened, encode_body(StreamOpened("flights", 2**63, bytes(16))))
    with pytest.raises(CorruptFrame):
        decode_body(StreamOpened, encode_body(StreamOpened("flights", 7, bytes(15))))


def test_turns_know_a_stream_by_a_name_that_no_service_has() -> None:
    assert OPENED.key.target == Target(":flights", 7)
    assert StreamKey.of(OPENED.key.target) == OPENED.key


def test_the_seqs_of_ids_leave_room_below_the_first_and_above_the_last() -> None:
    assert seq_of(0) == 1
    assert seq_of(ID_MAX) + 1 == END_SEQ - 1, "what is expected behind it, and the end there, have seqs as well"


@given(NOTE)
def test_a_note_that_an_input_or_a_mark_carries_is_read_back(note: bytes) -> None:
    assert note_of(encode_mark(note)) == note
    message = encode_input(b"record", b"k", b"\x80", note)
    assert note_of(message) == note
    assert decode_body(TracedFork, decode(message).idempotency_key) == TracedFork()


def test_a_note_that_is_too_long_or_malformed_is_an_error() -> None:
    with pytest.raises(CorruptFrame, match="65 bytes"):
        note_of(encode_mark(bytes(65)))
    with pytest.raises(CorruptFrame):
        note_of(encode(Kind.FORK, idempotency_key=encode_body(InputFork(note=bytes(65)))))
    with pytest.raises(CorruptFrame):
        note_of(encode(Kind.FORK, idempotency_key=b"\xc1"))
