"""The FORK of a row: the row stands in it as it stood outside, and why it is refused where it is."""

from __future__ import annotations

import msgspec
import pytest

from deathless.codec.messages import Kind, decode
from deathless.codec.streams.records import note_of
from deathless.codec.streams.rows import RowArguments, decode_row, encode_row, method_of


def test_a_row_is_a_fork_whose_method_no_handler_can_have() -> None:
    message = encode_row("flights", b"JFK", b'{"a": 1}', b"note")
    taken = decode(message)
    assert (taken.kind, taken.method, taken.key) == (Kind.FORK, b"input:flights", b"JFK")
    assert decode_row(taken.args) == RowArguments(b'{"a": 1}')
    assert note_of(message) == b"note"
    assert not method_of("flights").isidentifier()


def test_a_row_that_is_refused_says_why() -> None:
    taken = decode(encode_row("flights", b"", b"\xff", why="no key"))
    assert decode_row(taken.args) == RowArguments(b"\xff", "no key")


@pytest.mark.parametrize("data", [b"", b"\x80", msgspec.msgpack.encode({"row": b"", "more": 1})])
def test_what_is_no_row_is_refused(data: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_row(data)
