"""Packets of streams: the bytes, both ways, and rubbish."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from deathless.base.errors import CorruptFrame
from deathless.codec.frames import Run
from deathless.codec.generations import Level
from deathless.codec.streams.packets import (
    StreamCommit,
    StreamHello,
    StreamRefused,
    StreamWelcome,
    decode_stream_batch,
    encode_stream_batch,
)
from deathless.codec.streams.records import OnRefusal, StreamKey
from deathless.codec.wire import PacketReader, Type, decode_struct, struct_packet

GOLDEN = Path(__file__).parents[4] / "golden"
NONCE = bytes(range(16))
STRUCTS: dict[Type, msgspec.Struct] = {
    Type.STREAM_HELLO: StreamHello("flights", 7, NONCE, resume=True, on_refusal=OnRefusal.SKIP),
    Type.STREAM_WELCOME: StreamWelcome("flights", 7, NONCE, 12, 3, 43, ended=True, note=b"epoch 3", level=Level.RUNS),
    Type.STREAM_REFUSED: StreamRefused("flights", 7, NONCE, "DL3080", "taken", -1, 5),
    Type.STREAM_COMMIT: StreamCommit(12, 43, ended=False),
}
PACKETS = {kind.name.lower(): struct_packet(kind, body) for kind, body in STRUCTS.items()} | {
    "stream_batch": encode_stream_batch(12, 43, 40, 3, [b"one", b"", b"three"])
}


def body_of(packet: bytes) -> bytes:
    [(_, body)] = PacketReader(1 << 20).feed(packet)
    return body


@pytest.mark.parametrize("name", PACKETS)
def test_the_bytes_of_each_packet_of_streams_stay(name: str, golden: Callable[[str, bytes], None]) -> None:
    golden(f"wire_{name}", PACKETS[name])


@pytest.mark.parametrize("kind", STRUCTS)
def test_packets_of_streams_read_back_as_they_were_written(kind: Type) -> None:
    assert decode_struct(type(STRUCTS[kind]), body_of(struct_packet(kind, STRUCTS[kind]))) == STRUCTS[kind]


def test_a_welcome_of_a_build_without_levels_is_of_the_first() -> None:
    body = body_of((GOLDEN / "wire_stream_welcome_without_level.bin").read_bytes())
    found = decode_struct(StreamWelcome, body)
    assert found.level == Level.FIRST
    assert msgspec.structs.replace(found, level=Level.RUNS) == STRUCTS[Type.STREAM_WELCOME]


def test_a_batch_says_what_it_follows_and_in_which_term() -> None:
    batch, term = decode_stream_batch(body_of(PACKETS["stream_batch"]))
    assert (batch.run, term, batch.blob) == (Run(12, 43, 40, 3), 3, b"onethree")
    one, term = decode_stream_batch(body_of(encode_stream_batch(12, 43, 40, 9, [b"one"])))
    assert (one.run, term) == (Run(12, 43, 40, 1), 9)
    for rubbish in (b"", bytes(31), body_of(PACKETS["stream_batch"])[:-1]):
        with pytest.raises(CorruptFrame):
            decode_stream_batch(rubbish)


def test_the_last_id_of_a_fresh_stream_is_below_zero() -> None:
    welcome = StreamWelcome("flights", 7, NONCE, 12, 1, 1, ended=False, note=b"")
    assert welcome.last_id == -1
    assert StreamHello("flights", 7, NONCE, resume=False).key == StreamKey("flights", 7)
    assert msgspec.structs.replace(welcome, next_seq=2).last_id == 0
