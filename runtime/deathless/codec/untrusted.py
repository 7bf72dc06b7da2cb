"""Reads values that others wrote, in files, answers, orders and the lock store: one error, whatever the bytes are.

Why: a decoder raises what it met, and that is more than its own errors: RecursionError for a value that is nested a
thousandfold, UnicodeDecodeError for broken text, TypeError for a list as a key, ValueError for a number of ten thousand
digits. Each is a case that a caller forgets, and the one it forgets ends a process. And an integer of JSON has no end:
it is read, and fails where it is written again.

Guarantees: `msgspec.DecodeError` and nothing else, before anything of the value is used; what has more than
`NESTING_MAX` levels is refused by its bytes, before it is decoded; JSON with an integer of more than 64 bits is
refused; time and memory grow with the bytes alone, whatever lengths they state. Does not: limit the bytes (whoever
takes them in knows how many are right); say which of two equal keys counts (the last). Imports base and codec.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

import msgspec

from deathless.base.limits import NESTING_MAX
from deathless.codec.nesting import is_json_too_deep, is_too_deep

T = TypeVar("T")

UNREADABLE: Final = (msgspec.MsgspecError, RecursionError, OverflowError, TypeError, ValueError)
"""What a decoder raises for bytes that are no such value; UnicodeDecodeError is a ValueError."""
_TOO_DEEP: Final = f"nested more than {NESTING_MAX} levels"
_encode: Final = msgspec.msgpack.Encoder(enc_hook=lambda _: None).encode


class JsonReader(Generic[T]):
    """Reads one type from JSON.

    Args:
        kind: the type.
        strict: False takes numbers that are written as texts.
    """

    __slots__ = ("_decode",)

    def __init__(self, kind: type[T], *, strict: bool = True) -> None:
        self._decode = msgspec.json.Decoder(kind, strict=strict).decode

    def decode(self, data: bytes, /) -> T:
        """Give the value. Raises: msgspec.DecodeError."""
        if is_json_too_deep(data):
            raise msgspec.DecodeError(_TOO_DEEP)
        try:
            value = self._decode(data)
            _encode(value)
        except OverflowError:
            raise msgspec.DecodeError("an integer of more than 64 bits") from None
        except msgspec.DecodeError:
            raise
        except UNREADABLE as error:
            raise msgspec.DecodeError(str(error)) from None
        return value


class MsgpackReader(Generic[T]):
    """Reads one type from msgpack; see `read_msgpack`."""

    __slots__ = ("_decode",)

    def __init__(self, kind: type[T]) -> None:
        self._decode = msgspec.msgpack.Decoder(kind).decode

    def decode(self, data: bytes, /) -> T:
        """Give the value. Raises: msgspec.DecodeError."""
        return _guarded(data, self._decode)


def read_json(data: bytes, kind: type[T]) -> T:
    """Give a value of this type from JSON. Raises: msgspec.DecodeError."""
    return JsonReader(kind).decode(data)


def read_msgpack(data: bytes, kind: type[T]) -> T:
    """Give a value of this type from msgpack.

    What is nested too deep is told by its bytes, since replicas read messages of peers with it: where a decoder gives
    up depends on its process, and replicas would go different ways (I6).

    Raises: msgspec.DecodeError.
    """
    return _guarded(data, lambda found: msgspec.msgpack.decode(found, type=kind))


def _guarded(data: bytes, decode: Callable[[bytes], T]) -> T:
    if is_too_deep(data):
        raise msgspec.DecodeError(_TOO_DEEP)
    try:
        return decode(data)
    except msgspec.DecodeError:
        raise
    except UNREADABLE as error:
        raise msgspec.DecodeError(str(error)) from None
