"""Bytes that nobody means well with, made from bytes that are right: JSON, msgpack, YAML and packed columns.

Each generator gives (name, bytes). What is put in the place of a field is put in the place of each field in turn, so
that a door which checks one of them is not taken for one that checks all.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec

T = TypeVar("T")
LEVELS = 100_000
ITEMS = 1_000_000
DIGITS = 100_000

JSON_TOKENS: dict[str, bytes] = {
    "deep array": b"[" * LEVELS + b"]" * LEVELS,
    "deep object": b'{"a":' * LEVELS + b"1" + b"}" * LEVELS,
    "open array": b"[" * LEVELS,
    "digits": b"1" * DIGITS,
    "fraction": b"0." + b"1" * DIGITS,
    "exponent": b"1e" + b"9" * 1000,
    "above 64 bits": b"%d" % 2**70,
    "below 64 bits": b"%d" % -(2**70),
    "nan": b"NaN",
    "infinity": b"Infinity",
    "minus infinity": b"-Infinity",
    "nul": b'"\\u0000"',
    "half a surrogate": b'"\\ud800"',
    "broken text": b'"\xff\xfe"',
    "null": b"null",
    "empty array": b"[]",
    "empty object": b"{}",
}
MSGPACK_TOKENS: dict[str, bytes] = {
    "deep array": b"\x91" * LEVELS + b"\x01",
    "deep map": b"\x81\xa1a" * LEVELS + b"\x01",
    "just too deep": b"\x91" * 201 + b"\x01",
    "open array": b"\x91" * LEVELS,
    "4 Gi items": b"\xdd\xff\xff\xff\xff",
    "4 Gi pairs": b"\xdf\xff\xff\xff\xff",
    "4 GiB of text": b"\xdb\xff\xff\xff\xff",
    "4 GiB of bytes": b"\xc6\xff\xff\xff\xff",
    "4 GiB of extension": b"\xc9\xff\xff\xff\xff\x01",
    "lies in lies": b"\xdd\xff\xff\xff\xff" * 150,
    "nan": b"\xcb\x7f\xf8" + bytes(6),
    "broken text": b"\xa2\xff\xfe",
    "highest": b"\xcf" + b"\xff" * 8,
    "lowest": b"\xd3\x80" + bytes(7),
    "map as a key": b"\x81\x80\x01",
    "no type": b"\xc1",
    "nil": b"\xc0",
}


def truncated(good: bytes) -> Iterator[tuple[str, bytes]]:
    """Every beginning of it; of a long one, some."""
    step = max(1, len(good) // 80)
    for end in range(0, len(good), step):
        yield f"the first {end} bytes", good[:end]


def _places(every: Sequence[T], token: bytes) -> Sequence[T]:
    """Where a token goes: to each place; of a long one, to the first, a later one, and one that nobody knows."""
    return every if len(token) < 1000 or len(every) < 3 else (every[0], every[-2], every[-1])


def json_bytes(good: bytes) -> Iterator[tuple[str, bytes]]:
    """Hostile variants of a JSON text."""
    yield from truncated(good)
    yield "nul bytes", bytes(4096)
    yield "a million items", b"[" + b"1," * (ITEMS - 1) + b"1]"
    for name, token in JSON_TOKENS.items():
        yield name, token
        yield from ((f"{name} in {place}", data) for place, data in _in_json(good, token))
    value = json.loads(good)
    if isinstance(value, dict) and value:
        first = next(iter(value))
        pair = f"{json.dumps(first)}:{json.dumps(value[first])}"
        yield "the same key twice", f"{{{pair},{json.dumps(value)[1:]}".encode()


def _in_json(good: bytes, token: bytes) -> Iterator[tuple[str, bytes]]:
    value = json.loads(good)
    if isinstance(value, dict):
        for at in _places([*value, "unknown"], token):
            parts = {name: json.dumps(inner).encode() for name, inner in value.items()} | {at: token}
            yield at, b"{" + b",".join(json.dumps(n).encode() + b":" + part for n, part in parts.items()) + b"}"
    elif isinstance(value, list):
        for at in _places(range(len(value) + 1), token):
            parts_ = [json.dumps(inner).encode() for inner in value]
            parts_[at:] = [token, *parts_[at + 1 :]]
            yield str(at), b"[" + b",".join(parts_) + b"]"


def msgpack_bytes(good: bytes) -> Iterator[tuple[str, bytes]]:
    """Hostile variants of a msgpack value."""
    yield from truncated(good)
    yield "nul bytes", bytes(4096)
    yield "a million items", b"\xdd" + struct.pack(">I", ITEMS) + b"\x01" * ITEMS
    value = msgspec.msgpack.decode(good)
    for name, token in MSGPACK_TOKENS.items():
        yield name, token
        if isinstance(value, list):
            parts = [msgspec.msgpack.encode(inner) for inner in value]
            for at in _places(range(len(parts) + 1), token):
                found = [*parts[:at], token, *parts[at + 1 :]]
                yield f"{name} in {at}", b"\xdc" + struct.pack(">H", len(found)) + b"".join(found)


def yaml_bytes(good: bytes) -> Iterator[tuple[str, bytes]]:
    """Hostile variants of a YAML document."""
    yield from truncated(good)
    yield "nul bytes", bytes(4096)
    yield "deep flow", b"a: " + b"[" * LEVELS
    yield "deep mappings", b"{a: " * LEVELS
    yield "deep blocks", b"\n".join(b" " * level + b"a:" for level in range(1_000))
    yield "deep dashes", b"- " * LEVELS
    laughs = b"a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + b"".join(
        b"a%d: &a%d [%s]\n" % (at, at, b", ".join([b"*a%d" % (at - 1)] * 10)) for at in range(1, 12)
    )
    yield "a billion laughs", laughs
    yield "itself", b"a: &a [*a]\n"
    yield "a tag", good + b"\nx: !!python/object/apply:os.system ['true']\n"
    yield "digits", good + b"\nx: " + b"1" * DIGITS
    yield "many items", good + b"\nx: [" + b"1," * 200_000 + b"1]"
    yield "broken text", good + b"\nx: \xff\xfe"
    yield "the same key twice", good + b"\n" + good
    yield "nan", good + b"\nx: .nan"


def packed_bytes(good: bytes) -> Iterator[tuple[str, bytes]]:
    """Hostile variants of heads, columns and blobs: every four bytes of the beginning state other numbers in turn."""
    yield from truncated(good)
    yield "nul bytes", bytes(4096)
    yield "ones", b"\xff" * 4096
    for at in range(min(len(good), 96)):
        for lie in (b"\xff\xff\xff\xff", b"\0\0\0\0", b"\xff\xff\xff\x7f"):
            yield f"{lie.hex()} at {at}", good[:at] + lie + good[at + 4 :]
