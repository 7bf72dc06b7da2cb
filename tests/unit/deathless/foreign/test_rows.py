"""Calls and returns go through rows unchanged."""

import msgspec
import pytest

from deathless.foreign.rows import (
    Emitted,
    What,
    decode_emitted,
    decode_given,
    decode_items,
    encode_emitted,
    encode_items,
)
from deathless.protocols.ambrosia.messages import SELF, Kind, Oversized, make_call, make_return

CALL = make_call("bank", -3, Kind.ASYNC, b"\0\xff", name="counter", sequence=2**62)
RETURN = make_return("bank", Kind.EXCEPTION, b"no", name="bank", sequence=0)
LONG = Oversized(destination="bank", kind=Kind.FORK, method=1, name="", sequence=0, size=1 << 30)


def test_items_come_back_for_the_reader() -> None:
    """What was too long is told, and an application gets nothing of it."""
    data = encode_items([CALL, LONG, RETURN])
    here = tuple(msgspec.structs.replace(each, destination=SELF) for each in (CALL, LONG, RETURN))
    assert decode_items(data) == here
    assert decode_given(data) == (here[0], here[2])


def test_impulses_keep_where_they_go() -> None:
    """Their row is of no lane."""
    assert decode_items(encode_items([CALL], with_destination=True)) == (CALL,)


def test_row_of_a_stream_comes_back() -> None:
    """With bytes that are no text."""
    row = Emitted(What.ITEMS, encode_items([CALL]), "bank", 7, bytes(range(248, 256)))
    assert decode_emitted(encode_emitted(row)) == row


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", b"\x91\x91\x00", encode_items([CALL])[:-1], b"\x91\x98\x63\x01\x00\xa0\x00\x00\xc4\x00\xa0"]
)
def test_what_is_no_row_is_refused(data: bytes) -> None:
    """With an error of decoding."""
    with pytest.raises((msgspec.MsgspecError, ValueError)):
        decode_items(data)
