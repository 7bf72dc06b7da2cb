"""Frames: their bytes, both ways, and bytes that are none."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.deathless.protocols.connector.strategies import FRAMES

from deathless.base.errors import CorruptFrame, InvalidArgument, TooLarge
from deathless.protocols.connector.frames import (
    NO_POSITION,
    PREFIX_BYTES,
    VERSIONS,
    Ack,
    AnyFrame,
    EosMessage,
    Error,
    Hello,
    Message,
    MessageId,
    Notify,
    NotifyAck,
    Ok,
    Restart,
    StreamId,
    Type,
    WorkersLeft,
    decode,
    encode,
    encode_message,
    framed,
    last_of,
    position_of,
)

ONE: Final = StreamId(1)
SEVEN: Final = MessageId(7)
SAMPLES: Final[dict[str, AnyFrame]] = {
    "hello": Hello("0.0.1", b"Dragons-Love-Tacos", "prog", "inst"),
    "hello_sink": Hello("v0.0.1", b"", "deathless", "shop-0"),
    "ok": Ok(500),
    "error": Error("DL3010 the cookie is wrong (give both ends the same cookie)"),
    "notify": Notify(ONE, b"flights/1", SEVEN),
    "notify_ack": NotifyAck(True, ONE, SEVEN),
    "notify_ack_new": NotifyAck(True, ONE, NO_POSITION),
    "notify_ack_refused": NotifyAck(False, ONE, SEVEN),
    "message": Message(ONE, SEVEN, -1, b"k", b"hi"),
    "message_bare": Message(ONE, SEVEN, 0, b"", b""),
    "ack": Ack(3, ((ONE, SEVEN),)),
    "ack_credits": Ack(250),
    "restart": Restart(),
    "restart_address": Restart("10.0.0.7:7405"),
    "eos_message": EosMessage(ONE),
    "workers_left": WorkersLeft(77778, (b"w1", b"w2")),
}
PUBLISHED: Final = {  # as existing clients and workers write them
    "ok": "00000005 01 000001f4",
    "message": "0000001e 05 0000000000000001 0000000000000007 ffffffffffffffff 0001 6b 6869",
    "ack": "00000019 06 00000003 00000001 0000000000000001 0000000000000007",
    "restart": "00000005 07 00000000",
    "eos_message": "00000009 08 0000000000000001",
    "hello": ("00000028 00 0005 302e302e31 0012 447261676f6e732d4c6f76652d5461636f73 0004 70726f67 0004 696e7374"),
}


def body(frame: AnyFrame) -> bytes:
    return encode(frame)[PREFIX_BYTES:]


@pytest.mark.parametrize("name", SAMPLES)
def test_the_bytes_of_each_frame_are_pinned(name: str, golden: Callable[[str, bytes], None]) -> None:
    golden(f"connector_{name}", encode(SAMPLES[name]))
    assert decode(body(SAMPLES[name])) == SAMPLES[name]


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_bytes_are_those_of_existing_clients_and_workers(name: str) -> None:
    assert encode(SAMPLES[name]) == bytes.fromhex(PUBLISHED[name])


def test_each_type_of_frame_has_a_sample() -> None:
    assert {encode(frame)[PREFIX_BYTES] for frame in SAMPLES.values()} == set(Type)
    assert VERSIONS == ("0.0.1", "v0.0.1")


@given(frame=FRAMES)
def test_a_frame_reads_back_as_it_was_written(frame: AnyFrame) -> None:
    data = encode(frame)
    assert struct.unpack_from(">I", data) == (len(data) - PREFIX_BYTES,)
    assert decode(data[PREFIX_BYTES:]) == frame
    if isinstance(frame, Message):
        assert encode_message(frame) == data


@given(data=st.binary(max_size=80))
def test_arbitrary_bytes_are_a_frame_or_a_corrupt_one(data: bytes) -> None:
    with contextlib.suppress(CorruptFrame):
        frame = decode(data)
        assert decode(body(frame)) == frame


@given(frame=FRAMES, at=st.integers(0), value=st.integers(0, 255))
def test_a_frame_with_a_changed_byte_is_a_frame_or_a_corrupt_one(frame: AnyFrame, at: int, value: int) -> None:
    data = bytearray(body(frame))
    data[at % len(data)] = value
    with contextlib.suppress(CorruptFrame):
        decode(bytes(data))


@pytest.mark.parametrize("name", sorted(SAMPLES.keys() - {"message", "restart", "restart_address", "hello_sink"}))
def test_a_frame_that_is_cut_or_goes_on_is_refused(name: str) -> None:
    data = body(SAMPLES[name])
    ends = range(27 if name == "message_bare" else len(data))
    for cut in (data[:end] for end in ends):
        with pytest.raises(CorruptFrame):
            decode(cut)
    if name != "message_bare":
        with pytest.raises(CorruptFrame, match="end: 1 more bytes"):
            decode(data + b"\0")


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "frame: type: a frame of length 0"),
        (b"\x0a", "frame: type: 10 is unknown, the last is 9"),
        (b"\xff", "frame: type: 255 is unknown"),
        (b"\x05" + bytes(25), "MESSAGE: head: needs 27 bytes, 26 are there"),
        (b"\x05" + bytes(24) + b"\x00\x03ab", "MESSAGE: key: needs 3 bytes, 2 are left"),
        (b"\x04\x02" + bytes(16), "NOTIFY_ACK: success: 2, where 0 or 1 is meant"),
        (b"\x06" + bytes(4) + b"\x00\x00\x00\x02" + bytes(16), "ACK: positions: 2 items need 32 bytes, 16 are left"),
        (b"\x07\x00\x00\x00\x05abcd", "RESTART: address: needs 5 bytes, 4 are left"),
        (b"\x09" + bytes(8) + b"\xff\xff\xff\xff", "WORKERS_LEFT: workers: 4294967295 items"),
        (b"\x00\x00\x050.0.1\x00\x00\x00\x00", "HELLO: instance: needs 2 bytes, 0 are left"),
        (b"\x00\x00\x02\xff\xfe", "HELLO: version: no UTF-8 at byte 0"),
    ],
)
def test_what_is_wrong_with_a_frame_is_named(data: bytes, told: str) -> None:
    with pytest.raises(CorruptFrame, match=told):
        decode(data)


def test_the_end_of_a_stream_is_read_with_and_without_an_id() -> None:
    assert decode(b"\x08" + bytes(7) + b"\x01" + bytes(8)) == EosMessage(ONE)
    for size in (9, 15, 17, 24):
        with pytest.raises(CorruptFrame):
            decode(b"\x08" + bytes(size))


def test_a_restart_is_read_with_and_without_an_address() -> None:
    assert decode(b"\x07") == Restart()
    with pytest.raises(CorruptFrame, match="no UTF-8"):
        decode(b"\x07\x00\x00\x00\x01\xff")


def test_a_hello_of_an_unknown_version_is_read_as_far_as_its_cookie() -> None:
    head = b"\x00\x00\x012\x00\x01c"
    assert decode(head + b"\xff\xff") == Hello("2", b"c", "", "")
    assert decode(head + b"\x00\x01p\x00\x01i") == Hello("2", b"c", "p", "i")
    with pytest.raises(CorruptFrame, match="cookie"):
        decode(b"\x00\x00\x012\x00\x09c")


def test_an_error_is_read_whatever_its_bytes_are() -> None:
    assert decode(b"\x02\x00\x02a\xff") == Error("a\N{REPLACEMENT CHARACTER}")


@pytest.mark.parametrize(
    "frame",
    [
        Ok(2**32),
        Notify(StreamId(-1), b"", SEVEN),
        Message(ONE, MessageId(2**64), 0, b"", b""),
        Message(ONE, SEVEN, 2**63, b"", b""),
        Error("\ud800"),
        Restart("\ud800"),
    ],
)
def test_what_does_not_fit_is_not_written(frame: AnyFrame) -> None:
    with pytest.raises(InvalidArgument):
        encode(frame)
    if isinstance(frame, Message):
        with pytest.raises(InvalidArgument):
            encode_message(frame)


@pytest.mark.parametrize("frame", [Message(ONE, SEVEN, 0, bytes(65_536), b""), Error("x" * 65_536)])
def test_what_its_length_can_not_say_is_not_written(frame: AnyFrame) -> None:
    with pytest.raises(TooLarge, match="65536 bytes, at most 65535"):
        encode(frame)
    if isinstance(frame, Message):
        with pytest.raises(TooLarge):
            encode_message(frame)


def test_a_frame_is_its_length_its_type_and_its_parts() -> None:
    assert framed(Type.OK, b"ab", b"c") == b"\0\0\0\x04\x01abc"


def test_no_position_is_below_all_ids_and_never_one() -> None:
    assert NO_POSITION == 2**64 - 1
    assert last_of(NO_POSITION) is None
    assert position_of(None) == NO_POSITION
    assert last_of(position_of(SEVEN)) == SEVEN
    assert last_of(MessageId(0)) == 0
