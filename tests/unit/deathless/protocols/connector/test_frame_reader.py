"""Cutting a connection's bytes into frames: any pieces, any lengths."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.deathless.protocols.connector.strategies import FRAMES

from deathless.base.errors import CorruptFrame, TooLarge
from deathless.protocols.connector.frame_reader import FrameReader
from deathless.protocols.connector.frames import AnyFrame, EosMessage, Message, MessageId, Ok, StreamId, encode

MAX = 1 << 16


def frames_of(reader: FrameReader) -> Iterator[AnyFrame]:
    while (frame := reader.next()) is not None:
        yield frame


def pieces(data: bytes, cuts: Sequence[int]) -> Iterator[bytes]:
    ends = sorted(cut % (len(data) + 1) for cut in cuts)
    for start, end in zip([0, *ends], [*ends, len(data)], strict=True):
        yield data[start:end]


@given(frames=st.lists(FRAMES, max_size=6), cuts=st.lists(st.integers(0, 10_000), max_size=12), late=st.booleans())
def test_frames_are_the_same_however_their_bytes_are_cut(frames: list[AnyFrame], cuts: list[int], late: bool) -> None:
    reader = FrameReader(MAX)
    found: list[AnyFrame] = []
    for piece in pieces(b"".join(map(encode, frames)), cuts):
        reader.feed(piece)
        if not late:
            found += frames_of(reader)
    found += frames_of(reader)
    assert found == frames


@given(data=st.binary(max_size=200), cuts=st.lists(st.integers(0, 200), max_size=5))
def test_arbitrary_bytes_raise_nothing_but_our_errors(data: bytes, cuts: list[int]) -> None:
    reader = FrameReader(MAX)
    with contextlib.suppress(CorruptFrame, TooLarge):
        for piece in pieces(data, cuts):
            reader.feed(piece)
            list(frames_of(reader))


def test_frames_before_a_bad_one_are_given_first() -> None:
    reader = FrameReader(MAX)
    reader.feed(encode(Ok(1)) + encode(EosMessage(StreamId(2))) + b"\0\0\0\x01\xff")
    assert [reader.next(), reader.next()] == [Ok(1), EosMessage(StreamId(2))]
    with pytest.raises(CorruptFrame, match="255 is unknown"):
        reader.next()


def test_a_frame_of_length_zero_is_refused() -> None:
    reader = FrameReader(MAX)
    reader.feed(bytes(4))
    with pytest.raises(CorruptFrame, match="length 0"):
        reader.next()


def test_the_longest_frame_passes_and_a_longer_one_is_refused_by_its_length_alone() -> None:
    longest = Message(StreamId(1), MessageId(1), 0, b"", bytes(MAX - 27))
    reader = FrameReader(MAX)
    reader.feed(encode(longest))
    assert reader.next() == longest
    reader.feed((MAX + 1).to_bytes(4, "big"))
    with pytest.raises(TooLarge, match=f"{MAX + 1} bytes, at most {MAX}"):
        reader.next()


def test_a_length_of_four_gigabytes_costs_no_memory() -> None:
    tracemalloc.start()
    try:
        reader = FrameReader(MAX)
        reader.feed(b"\xff\xff\xff\xff\x05")
        with pytest.raises(TooLarge):
            reader.next()
        assert tracemalloc.get_traced_memory()[1] < 1 << 16
    finally:
        tracemalloc.stop()


def test_bytes_of_a_long_frame_are_joined_once_it_is_whole() -> None:
    frame = Message(StreamId(1), MessageId(1), 0, b"", bytes(MAX - 27))
    reader = FrameReader(MAX)
    data = encode(frame)
    for at in range(0, len(data) - 1, 100):
        reader.feed(data[at : min(at + 100, len(data) - 1)])
        assert reader.next() is None
    assert len(reader._parts) > MAX / 2, "each piece would be copied again with every one behind it"
    assert (reader.frames, reader.unfinished_bytes) == (0, len(data) - 1)
    reader.feed(data[-1:])
    assert reader.next() == frame
    assert (reader.frames, reader.unfinished_bytes) == (1, 0)


def test_small_pieces_of_a_long_frame_take_no_more_memory_than_their_bytes() -> None:
    frame = encode(Message(StreamId(1), MessageId(1), 0, b"", bytes(MAX - 27)))
    pieces = [frame[at : at + 3] for at in range(0, len(frame) - 3, 3)]
    reader = FrameReader(MAX)
    tracemalloc.start()
    try:
        for piece in pieces:
            reader.feed(bytes(bytearray(piece)))
            assert reader.next() is None
        assert tracemalloc.get_traced_memory()[0] < 2 * MAX
    finally:
        tracemalloc.stop()
