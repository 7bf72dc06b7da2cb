"""What a service and its application exchange: rows of a topic one way, rows of a stream the other way.

    Given    a row of the topic `inputs`: what the application gets, by position
    Emitted  a row of the input `emitted`: what the application sent, by lane and position

    items = msgpack [[type, kind, method, name, sequence, arguments at, body], ...]
          | a run of forks (`protocols.ambrosia.runs`)

Bodies are those of the protocol, as they were read. An item that was too long has type -1, its size in the place of
where its arguments begin, and no body: whoever waits for it is told. A row of a lane tells up to which position it
goes, the chain of all items of that lane up to there, and the shape of the last (`protocols.ambrosia.items`).

Guarantees: what is decoded was encoded, or msgspec.MsgspecError. Does not: decide anything. Imports protocols and the
author's names.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from deathless.base.foreign import binding
from deathless.codec.untrusted import MsgpackReader, read_json
from deathless.protocols.ambrosia.messages import SELF, Kind, MessageType, Oversized, Packed, Rpc
from deathless.protocols.ambrosia.runs import forks_of, is_run, packed
from deathless.sdk import Struct

INPUTS: Final = binding.INPUTS.name
"""Name of the topic that the application reads."""
INPUT: Final = "emitted"
"""Name of the input that takes them."""
CALLERS: Final = "$callers"
"""Where an application sends the returns of calls that came from outside of it."""


class What(enum.IntEnum):
    """What a row is."""

    INITIAL = 0  # the application's own first message
    ITEMS = 1  # calls and returns, or none: then it tells how far a lane is
    HELD = 2  # without items: what goes to `target` is kept, since the service may send to no further one
    FULL = 3  # likewise: so much is kept that no more of the lane `target` is to come
    ROOM = 4  # likewise: what is kept for `target` leaves, or the lane `target` is to go on


class Given(Struct):
    """A row that every replica's application gets."""

    what: int
    items: bytes  # of INITIAL its data
    target: str = ""  # whose lane is told of, where `upto` is above 0
    upto: int = 0
    chain: bytes = b""
    shape: bytes = b""  # of the item at `upto`; empty: it is not known


class Emitted(Struct):
    """What the application of the primary's replica sent."""

    what: int
    items: bytes
    target: str = ""  # a lane; of that of several targets the items name theirs
    upto: int = 0  # position of the last item in its lane; 0: impulses, which have none
    chain: bytes = b""
    shape: bytes = b""  # of the item at `upto`


class _Item(msgspec.Struct, frozen=True, array_like=True, gc=False):
    type: int
    kind: int
    method: int
    name: str
    sequence: int
    arguments_at: int
    body: bytes
    destination: str = ""  # of an impulse, whose row is of no lane


_TOO_LONG: Final = -1
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = MsgpackReader(tuple[_Item, ...]).decode


def encode_items(items: Iterable[Rpc | Oversized], *, with_destination: bool = False) -> bytes:
    """Give items as bytes."""
    return _encode([_item(each, each.destination if with_destination else "") for each in items])


def _item(item: Rpc | Oversized, destination: str) -> _Item:
    if isinstance(item, Oversized):
        return _Item(_TOO_LONG, item.kind, item.method, item.name, item.sequence, item.size, b"", destination)
    return _Item(item.type, item.kind, item.method, item.name, item.sequence, item.arguments_at, item.body, destination)


def decode_items(data: bytes) -> tuple[Rpc | Oversized, ...]:
    """Give items back; those without a destination are for the reader.

    Raises: msgspec.MsgspecError, ValueError.
    """
    return forks_of(data) if is_run(data) else tuple(_decoded(each) for each in _decode(data))


def delivered(data: bytes) -> Sequence[Rpc | Packed]:
    """Give the items of a row as an application is given them. Raises: msgspec.MsgspecError, ValueError."""
    return (packed(data),) if is_run(data) else decode_given(data)


def decode_given(data: bytes) -> tuple[Rpc, ...]:
    """Give the items of a row that an application gets, none of which is too long.

    Raises: msgspec.MsgspecError, ValueError.
    """
    return tuple(each for each in decode_items(data) if isinstance(each, Rpc))


def _decoded(item: _Item) -> Rpc | Oversized:
    destination, kind = item.destination or SELF, Kind(item.kind)
    if item.type == _TOO_LONG:
        return Oversized(
            destination=destination, kind=kind, method=item.method, name=item.name, sequence=item.sequence,
            size=item.arguments_at,
        )  # fmt: skip
    return Rpc(
        destination=destination,
        kind=kind,
        body=item.body,
        type=MessageType(item.type),
        method=item.method,
        name=item.name,
        sequence=item.sequence,
        arguments_at=item.arguments_at,
    )


def encode_emitted(row: Emitted) -> bytes:
    """Give the bytes of a row of the stream."""
    return msgspec.json.encode(row)


def decode_emitted(data: bytes) -> Emitted:
    """Give it back. Raises: msgspec.MsgspecError."""
    return read_json(data, Emitted)
