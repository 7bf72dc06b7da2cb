"""What two runs of one application are compared by: the bytes of what it emits, their chain, and their shape.

Why it exists: an application that emits something else on replay than in its first run has to be found before its
output leaves. Both ends of a lane compute one chain over the same items, so one hash at one position stands for all
before it. Where bytes may differ by policy (a clock in an argument), the shape must not: what kind of message it is,
and for which method.

Guarantees: `chain_of` is a function of the items alone; both ends of a lane and every replica get the same.
Does not: decide what a difference leads to (`lanes`). Imports codec.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from deathless.codec.untrusted import read_json
from deathless.protocols.ambrosia.messages import Kind, MessageType, Oversized, Rpc

HASH_BYTES: Final = 8
EMPTY: Final = bytes(HASH_BYTES)
"""The chain before the first item."""
POST_METHOD: Final = -1
"""Method id of forks that carry a call by name in JSON, as the original's JavaScript binding sends all of its calls."""
OTHERS: Final = "$others"
"""The lane of all targets beyond the maximum: its items name their destinations, and these are a part of them."""
_TOMBSTONE: Final = 0xFF
_RPC: Final = bytes((MessageType.RPC,))
_OVERSIZED: Final = struct.Struct("<BBqqQ")


class _Post(msgspec.Struct, frozen=True):
    methodName: str = ""  # noqa: N815  the binding's names
    callID: int | str | None = None  # noqa: N815  as above


def bytes_of(item: Rpc | Oversized) -> bytes:
    """Give what an item is compared by; of one that was too long, a tombstone: kind, method, sequence and size."""
    if isinstance(item, Oversized):
        return _OVERSIZED.pack(_TOMBSTONE, item.kind, item.method, item.sequence, item.size)
    return bytes((item.type,)) + item.body


def bytes_in(lane: str, item: Rpc | Oversized) -> bytes:
    """Give what an item of a lane is compared by: where a lane has several targets, with its destination."""
    return bytes_of(item) + b"\0" + item.destination.encode() if lane == OTHERS else bytes_of(item)


def chain_of(before: bytes, item: bytes) -> bytes:
    """Give the chain behind an item: BLAKE2b with a digest of 8 bytes, over the chain before it and its bytes."""
    return hashlib.blake2b(before + item, digest_size=HASH_BYTES).digest()


def chains_of(before: bytes, items: Iterable[Rpc]) -> Iterator[bytes]:
    """Give the chains behind items of type RPC, one after the other; as `chain_of`, with less around each."""
    blake2b, chain, kind = hashlib.blake2b, before, _RPC
    for item in items:
        chain = blake2b(chain + kind + item.body, digest_size=HASH_BYTES).digest()
        yield chain


def shape_of(item: Rpc | Oversized) -> bytes:
    """Give what must be equal where bytes may differ, 8 bytes.

    Kind, method and sequence; for a call by name its name and call id as well.
    """
    name, call = "", ""
    if isinstance(item, Rpc) and item.kind is Kind.FORK and item.method == POST_METHOD:
        try:
            post = read_json(item.arguments, _Post)
        except msgspec.DecodeError:
            post = _Post()
        name, call = post.methodName, repr(post.callID)
    text = repr((int(item.kind), item.method, item.sequence, name, call))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=HASH_BYTES).digest()
