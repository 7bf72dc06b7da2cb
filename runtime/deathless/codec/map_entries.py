r"""Items of maps among the entries of a checkpoint's STATE: each item of a Map is an entry of its own.

    key of the entry    b"\0deathless.map\0", u16 length of the key, key, name of the field, b"\0", item
    item                b"b" and the bytes of its key, b"s" and its text in UTF-8, or b"i" and 8 bytes of the integer
                        plus 2^63; all integers big-endian
    value of the entry  the item's value, as msgpack

A key of a user never begins with a zero byte. So the entries of one map ascend together, its items by their own keys:
bytes and texts by their bytes (which is the order of code points), integers by their value.

Guarantees: pure; `take_apart` gives what an entry was made of or raises CorruptCheckpoint. Imports base only.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from deathless.base.errors import CorruptCheckpoint

PREFIX: Final = b"\0deathless.map\0"
"""What keys of entries begin with, and no others."""

_LENGTH: Final = struct.Struct(">H")
_NUMBER: Final = struct.Struct(">Q")
_OFFSET: Final = 1 << 63
ItemKey = str | int | bytes


class Entry(NamedTuple):
    """Where an item belongs."""

    key: bytes  # of the state it is part of, UTF-8
    field: str
    item: ItemKey
    prefix: bytes  # of all entries of its map


def prefix_of(key: bytes, field: str) -> bytes:
    """Give what the keys of all entries of one map begin with."""
    return PREFIX + _LENGTH.pack(len(key)) + key + field.encode() + b"\0"


def encode_item(item: ItemKey) -> bytes:
    """Give the bytes of an item's key, which order as it does.

    Raises: ValueError for a text with lone surrogates, or an integer outside [-2^63, 2^63).
    """
    if isinstance(item, str):
        return b"s" + item.encode()
    if isinstance(item, bytes):
        return b"b" + item
    if not -_OFFSET <= item < _OFFSET:
        raise ValueError("an integer has 64 bits, and a sign")
    return b"i" + _NUMBER.pack(item + _OFFSET)


def decode_item(data: bytes) -> ItemKey:
    """Give the key of which `encode_item` gave the bytes.

    Raises: ValueError.
    """
    kind, rest = data[:1], data[1:]
    if kind == b"s":
        return rest.decode()
    if kind == b"b":
        return rest
    if kind != b"i" or len(rest) != _NUMBER.size:
        raise ValueError("no item of a map")
    (number,) = _NUMBER.unpack(rest)
    return int(number) - _OFFSET


def take_apart(entry: bytes) -> Entry:
    """Give what the key of an entry is made of.

    Raises: CorruptCheckpoint.
    """
    at = len(PREFIX) + _LENGTH.size
    if len(entry) > at:
        (length,) = _LENGTH.unpack_from(entry, len(PREFIX))
        end = entry.find(b"\0", at + length)
        if end > at + length:
            try:
                item = decode_item(entry[end + 1 :])
                return Entry(entry[at : at + length], entry[at + length : end].decode(), item, entry[: end + 1])
            except ValueError:
                pass
    raise CorruptCheckpoint(f"entry {entry[:100]!r} of the state is no item of a map")


def show_key(key: bytes) -> str:
    """Give the key of a state, or of an item of a map, for people: alice, or alice.items['apple']."""
    if not key.startswith(PREFIX):
        return key.decode(errors="backslashreplace")
    entry = take_apart(key)
    return f"{entry.key.decode(errors='backslashreplace')}.{entry.field}[{entry.item!r}]"


def owner_of(key: bytes) -> bytes:
    """Give the key whose state this is, or whose map's item."""
    return take_apart(key).key if key.startswith(PREFIX) else key
