"""Encodes values that may hold sets: the same bytes in every process, whatever the sets and maps hold.

The order of a set differs between processes, so its items are sorted. msgspec does that itself where all items can be
compared and all keys of maps are texts, and refuses everything else. What it refuses is brought into order here: the
items of sets and the keys of maps are sorted by their encoded bytes, which any value has.

Guarantees: equal values give equal bytes, in every process. Does not: keep the order of the maps inside of such values.
Imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Final, TypeVar, cast

import msgspec

Encode = Callable[[object], bytes]
T = TypeVar("T")
_copy: Final = getattr(msgspec.Struct, "__copy__")  # noqa: B009  its type stubs leave it out; an author may override it


def ordered_encoder(hook: Callable[[object], object] | None = None, *, sorts_itself: bool = True) -> Encode:
    """Give the encoder.

    Args:
        hook: encodes what msgspec does not know.
        sorts_itself: msgspec may sort. False where it would accept what has no total order, as sets of sets.
    """
    plain = msgspec.msgpack.Encoder(enc_hook=_unwrapping(hook)).encode
    if not sorts_itself:
        return lambda value: plain(_in_order(value, plain))
    first = msgspec.msgpack.Encoder(enc_hook=hook, order="deterministic").encode

    def encode(value: object) -> bytes:
        try:
            return first(value)
        except TypeError:  # or what is in it can't be encoded at all, which is found out again below
            return plain(_in_order(value, plain))

    return encode


class _Key:
    """A key whose order is made, and which has no hash of its own any more."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value


def _unwrapping(hook: Callable[[object], object] | None) -> Callable[[object], object]:
    def unwrap(value: object) -> object:
        if type(value) is _Key:
            return value.value
        if hook is not None:
            return hook(value)
        raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")

    return unwrap


encode_any: Final[Encode] = ordered_encoder()
"""Encodes a value of no stated type."""


def _in_order(value: object, encode: Encode) -> object:
    """Give what encodes as `value` does, but with lists for sets, and with sorted maps."""
    match value:
        case str() | bytes() | bytearray() | memoryview():
            return value
        case dict():
            pairs = [(_in_order(key, encode), _in_order(item, encode)) for key, item in value.items()]
            return _sorted_map(pairs, encode)
        case set() | frozenset():
            # Up to one item has no order, and what is left a set is still left out as a default.
            items = [_in_order(item, encode) for item in value]
            return sorted(items, key=encode) if len(items) > 1 or items != list(value) else value
        case list() | tuple():
            return [_in_order(item, encode) for item in value]
        case msgspec.Struct():
            return _with_fields(value, value.__struct_fields__, encode)
        case _ if is_dataclass(value) and not isinstance(value, type):
            names = tuple(field.name for field in fields(value) if hasattr(value, field.name))
            return {name: _in_order(getattr(value, name), encode) for name in names}
        case _:
            return value


def _sorted_map(pairs: list[tuple[object, object]], encode: Encode) -> dict[object, object]:
    """Give the map of these pairs, sorted."""
    return {_as_key(key): item for key, item in sorted(pairs, key=lambda pair: encode(pair[0]))}


def _as_key(key: object) -> object:
    return _Key(key) if isinstance(key, list | dict | msgspec.Struct) else key


def _with_fields(value: T, names: tuple[str, ...], encode: Encode) -> T:
    """Give a copy of a Struct with its fields in order, made without calling the author's code."""
    copied: msgspec.Struct = _copy(value)
    for name in names:
        msgspec.structs.force_setattr(copied, name, _in_order(getattr(value, name), encode))
    return cast("T", copied)
