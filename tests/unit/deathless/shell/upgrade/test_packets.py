"""Packets between an upgrader and the former code are put together from any pieces, and what is none is refused."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.base.errors import InvalidArgument
from deathless.base.ids import ChainHash, Epoch, Incarnation, Lsn
from deathless.codec.frames import Frame
from deathless.shell.upgrade.packets import BODY_BYTES_MAX, HEAD, Kind, Reader, frame_body, frame_of, packet

FRAME = Frame(1, Epoch(2), Lsn(3), Lsn(4), 5, Incarnation(6), ChainHash(b"b" * 16), ChainHash(b"c" * 16), 7, b"payload")


@given(
    st.lists(st.tuples(st.sampled_from(Kind), st.binary(max_size=40)), max_size=5),
    st.lists(st.integers(min_value=1, max_value=9), min_size=1, max_size=9),
)
def test_packets_come_whole_however_they_are_cut(sent: list[tuple[Kind, bytes]], sizes: list[int]) -> None:
    data = b"".join(packet(kind, body) for kind, body in sent)
    reader, found, at, turn = Reader(), [], 0, 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        found += list(reader.feed(data[at : at + size]))
        at, turn = at + size, turn + 1
    assert found == sent
    assert list(reader.feed(b"")) == []


def test_a_packet_that_says_it_is_too_long_is_refused_by_its_head_alone() -> None:
    reader = Reader()
    assert list(reader.feed(HEAD.pack(BODY_BYTES_MAX, Kind.APPLY))) == []
    with pytest.raises(InvalidArgument, match="at most"):
        list(Reader().feed(packet(Kind.STANDS, b"12345678") + HEAD.pack(BODY_BYTES_MAX + 1, Kind.APPLY)))


def test_a_frame_is_as_it_was() -> None:
    assert frame_of(frame_body(FRAME)) == FRAME


@pytest.mark.parametrize(
    "body",
    [b"", b"\xc1", msgspec.msgpack.encode((1, 2)), msgspec.msgpack.encode({"kind": 1}), b"\x91" * 3000,
     msgspec.msgpack.encode((*FRAME[:9], "text"))],
)  # fmt: skip
def test_what_is_no_frame_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidArgument, match="can't be read"):
        frame_of(body)
