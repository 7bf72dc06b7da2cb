"""Values that others wrote: one error for whatever a decoder raises, and the same verdict at any depth of the stack."""

from __future__ import annotations

import sys

import msgspec
import pytest

from deathless.base.errors import CorruptFrame
from deathless.base.limits import NESTING_MAX
from deathless.codec.peer_messages import Reference, decode_body
from deathless.codec.untrusted import JsonReader, MsgpackReader, read_json, read_msgpack


class Numbered(msgspec.Struct):
    n: int = 0
    name: str = ""


class Raising(msgspec.Struct):
    n: int

    def __post_init__(self) -> None:
        raise {0: RecursionError, 1: OverflowError, 2: TypeError, 3: ValueError}[self.n]("x")


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 100_000,
        b'{"z":' * (NESTING_MAX + 1) + b"1" + b"}" * (NESTING_MAX + 1),
        b'{"n":%d}' % 2**64,
        b'{"n":%d}' % (-(2**63) - 1),
        b'{"n":' + b"1" * 100_000 + b"}",
        b'{"name":"\xff"}',
        b'{"name":1}',
        b"",
    ],
    ids=["open", "unknown field", "above", "below", "digits", "text", "type", "empty"],
)
def test_whatever_is_wrong_with_json_is_one_error(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        read_json(text, Numbered)


def test_json_that_is_right_is_read() -> None:
    deep = b"[" * NESTING_MAX + b"]" * NESTING_MAX
    assert read_json(b'{"n":%d,"z":%s}' % (2**64 - 1, b"1"), Numbered) == Numbered(2**64 - 1)
    assert isinstance(read_json(deep, object), list)
    assert JsonReader(Numbered, strict=False).decode(b'{"n":"5"}') == Numbered(5)


@pytest.mark.parametrize("number", range(4))
def test_what_a_type_raises_is_one_error(number: int) -> None:
    with pytest.raises(msgspec.DecodeError):
        read_json(b'{"n":%d}' % number, Raising)
    with pytest.raises(msgspec.DecodeError):
        read_msgpack(msgspec.msgpack.encode({"n": number}), Raising)


@pytest.mark.parametrize(
    "data", [b"\x91" * 100_000, b"\x81\xa4name\xa1\xff", b"\x81\x80\x01", b"\xdd\xff\xff\xff\xff", b""]
)
def test_whatever_is_wrong_with_msgpack_is_one_error(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        MsgpackReader(Numbered).decode(data)


@pytest.mark.parametrize("levels", [NESTING_MAX, 400, 900])
def test_what_a_peer_nested_is_refused_wherever_it_is_read(levels: int) -> None:
    nested = b"\x93\x01\x02" + b"\x91" * levels + b"\x01"  # a field that this version does not know

    def deeper(frames: int) -> None:
        if frames:
            deeper(frames - 1)
            return
        with pytest.raises(CorruptFrame, match="nested more than"):
            decode_body(Reference, nested)

    deeper(0)
    deeper(sys.getrecursionlimit() // 3)
    assert decode_body(Reference, b"\x93\x01\x02" + b"\x91" * (NESTING_MAX - 1) + b"\x01") == Reference(1, 2)
