"""Messages of the AMBROSIA client protocol: what a coordinator reads from an application, and what it writes to it.

A message is ZigZagInt size (of type and data), u8 type, data. From the application:

    0   RPC             ZigZagInt length, name of the destination (length 0: itself), body
    1   ATTACH_TO       name of the destination
    2   TAKE_CHECKPOINT (empty)
    5   RPC_BATCH       ZigZagInt count, so many messages of type 0, 6 or 7
    6,7 PING(_RETURN)   as RPC
    8   CHECKPOINT      ZigZagLong length; the checkpoint's bytes follow the message
    9   INITIAL         any bytes

To the application, in records: 0, 6, 7 with the body alone, 2, 5, 8, 9 as above, and without data 10
UPGRADE_TAKE_CHECKPOINT, 11 TAKE_BECOMING_PRIMARY_CHECKPOINT, 12 UPGRADE_SERVICE, 15 BECOMING_PRIMARY. 3 COMMIT, 4
REPLAY_FROM and 14 TRIM_TO are spoken between the original's coordinators alone. 13 COUNT_REPLAYABLE_RPC_BATCH is a
batch whose impulses are counted; it is never needed here, since impulses keep their type.

A body is what sender and receiver share; it goes through a coordinator as it is:

    call    u8 0, ZigZagInt method id, u8 type (0 async, 1 fork, 2 impulse),
            for type 0: ZigZagInt length, name that the return goes to, ZigZagLong sequence; arguments
    return  u8 1 (value), 2 (void) or 3 (exception), ZigZagInt length, name of who returns, ZigZagLong sequence, payload

Sources: the protocol's page for types and calls; the original's sources where the page is silent (returns, the part
for type 0, 6 and 7). Whether a body is a call is told by its first byte before anything else of it is looked at.

Guarantees: ProtocolViolated is all that reading raises; a body that was read is kept as its bytes were; a destination
that is too long, or no UTF-8, is nobody (`nobody_of`, `unreadable_of`), so what goes there costs itself alone. Does
not: judge when a message is legal (`machine`). Imports base.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final

import msgspec

from deathless.protocols.ambrosia.bounds import Bounds
from deathless.protocols.ambrosia.errors import ProtocolViolated
from deathless.protocols.ambrosia.integers import (
    INT_BYTES_MAX,
    LONG_BITS,
    LONG_BYTES_MAX,
    encode_int,
    encode_long,
    read_int,
)

SELF: Final = ""
"""Name of the destination that a call to oneself has."""
_UNREADABLE: Final = " that are no UTF-8"


class MessageType(enum.IntEnum):
    """The type byte."""

    RPC = 0
    ATTACH_TO = 1
    TAKE_CHECKPOINT = 2
    COMMIT = 3
    REPLAY_FROM = 4
    RPC_BATCH = 5
    PING = 6
    PING_RETURN = 7
    CHECKPOINT = 8
    INITIAL = 9
    UPGRADE_TAKE_CHECKPOINT = 10
    TAKE_BECOMING_PRIMARY_CHECKPOINT = 11
    UPGRADE_SERVICE = 12
    COUNT_REPLAYABLE_RPC_BATCH = 13
    TRIM_TO = 14
    BECOMING_PRIMARY = 15


RPC_TYPES: Final = frozenset({MessageType.RPC, MessageType.PING, MessageType.PING_RETURN})
FROM_APPLICATION: Final = RPC_TYPES | {
    MessageType.ATTACH_TO,
    MessageType.TAKE_CHECKPOINT,
    MessageType.RPC_BATCH,
    MessageType.CHECKPOINT,
    MessageType.INITIAL,
}


class Kind(enum.IntEnum):
    """What an RPC is: a call by its RPC type, a return by 16 and its first byte."""

    ASYNC = 0
    FORK = 1
    IMPULSE = 2
    VALUE = 17
    VOID = 18
    EXCEPTION = 19


RETURNS: Final = frozenset({Kind.VALUE, Kind.VOID, Kind.EXCEPTION})
_RETURN_BASE: Final = 16
_KINDS: Final = (Kind.ASYNC, Kind.FORK, Kind.IMPULSE)


class Rpc(msgspec.Struct, frozen=True, kw_only=True):
    """A call or return, with its body as it was read."""

    destination: str  # SELF: the sender
    kind: Kind
    body: bytes
    type: MessageType = MessageType.RPC  # RPC, PING or PING_RETURN
    method: int = 0  # of a call; negative ones belong to the binding
    name: str = ""  # ASYNC: where the return goes; a return: who returns
    sequence: int = 0  # ASYNC and returns, in [0, 2**63)
    arguments_at: int = 0  # where arguments or payload begin in `body`

    @property
    def arguments(self) -> bytes:
        """Arguments of a call, payload of a return."""
        return self.body[self.arguments_at :]


class Oversized(msgspec.Struct, frozen=True, kw_only=True):
    """A call or return that is longer than a message may be: its head was read, its arguments were thrown away."""

    destination: str
    kind: Kind
    method: int
    name: str
    sequence: int
    size: int  # of type and data, bytes, as the message states it


class Packed(msgspec.Struct, frozen=True):
    """Calls for an application, in the bytes that it is given: messages with their sizes, one behind the other."""

    count: int  # of them, at least 1
    messages: bytes


class AttachTo(msgspec.Struct, frozen=True):
    """The application is going to send to this destination."""

    destination: str


class AskCheckpoint(msgspec.Struct, frozen=True):
    """TAKE_CHECKPOINT from the application: it wants one to be taken soon."""


class Initial(msgspec.Struct, frozen=True):
    """INITIAL: bytes that come back to the application as its first message."""

    data: bytes


class CheckpointStarts(msgspec.Struct, frozen=True):
    """CHECKPOINT: so many bytes follow as CheckpointPart, then CheckpointEnds."""

    length: int


class CheckpointPart(msgspec.Struct, frozen=True):
    """Some bytes of a checkpoint."""

    data: bytes


class CheckpointEnds(msgspec.Struct, frozen=True):
    """The checkpoint is whole."""


Item = Rpc | Oversized | AttachTo | AskCheckpoint | Initial | CheckpointStarts | CheckpointPart | CheckpointEnds
"""What an application sends, one by one; a batch is unpacked."""


# ---------------------------------------------------------------- to the application


def encode_message(kind: MessageType, data: bytes = b"") -> bytes:
    """Give a message with its size."""
    return b"".join((encode_int(1 + len(data)), bytes((kind,)), data))


def encode_batch(parts: Sequence[bytes], count: int | None = None) -> bytes:
    """Give an RPC_BATCH of messages that were encoded before.

    Args:
        parts: the messages; in one part there may be several.
        count: of the messages; None: each part is one.
    """
    number = len(parts) if count is None else count
    return encode_message(MessageType.RPC_BATCH, encode_int(number) + b"".join(parts))


def encode_delivery(rpcs: Sequence[Rpc | Packed]) -> bytes:
    """Give what an application is given at once: the message, where it is one, and else a batch of all."""
    count = sum(each.count if isinstance(each, Packed) else 1 for each in rpcs)
    parts = [each.messages if isinstance(each, Packed) else encode_message(each.type, each.body) for each in rpcs]
    return parts[0] if count == 1 else encode_batch(parts, count)


def encode_checkpoint(length: int) -> bytes:
    """Give the CHECKPOINT message; so many bytes have to follow it."""
    return encode_message(MessageType.CHECKPOINT, encode_long(length))


def make_call(destination: str, method: int, kind: Kind, arguments: bytes, *, name: str = "", sequence: int = 0) -> Rpc:
    """Make a call that no application sent.

    Args:
        destination: SELF: who receives it.
        method: in [-2**31, 2**31).
        kind: ASYNC, FORK or IMPULSE.
        arguments: as the receiver understands them.
        name: ASYNC: where the return goes.
        sequence: ASYNC: comes back with the return, in [0, 2**63).
    """
    assert kind not in RETURNS, kind
    parts = [b"\0", encode_int(method), bytes((kind,))]
    if kind is Kind.ASYNC:
        parts += [_named(name), encode_long(sequence)]
    return _made(destination, parts, arguments, kind=kind, method=method, name=name, sequence=sequence)


def make_return(destination: str, kind: Kind, payload: bytes, *, name: str, sequence: int) -> Rpc:
    """Make a return that no application sent.

    Args:
        destination: where the call came from.
        kind: VALUE, VOID or EXCEPTION.
        payload: as the caller understands it; VOID has none.
        name: who returns.
        sequence: of the call.
    """
    assert kind in RETURNS, kind
    parts = [bytes((kind - _RETURN_BASE,)), _named(name), encode_long(sequence)]
    return _made(destination, parts, payload, kind=kind, method=0, name=name, sequence=sequence)


def _named(name: str) -> bytes:
    encoded = name.encode()
    return encode_int(len(encoded)) + encoded


def _made(
    destination: str, parts: list[bytes], rest: bytes, *, kind: Kind, method: int, name: str, sequence: int
) -> Rpc:
    head = b"".join(parts)
    found = name if kind is Kind.ASYNC or kind in RETURNS else ""
    return Rpc(
        destination=destination,
        kind=kind,
        body=head + rest,
        method=method,
        name=found,
        sequence=sequence,
        arguments_at=len(head),
    )


# ---------------------------------------------------------------- from the application


def decode_rpc(kind: MessageType, data: bytes, bounds: Bounds) -> Rpc:
    """Read the data of an RPC, PING or PING_RETURN from an application.

    Raises: ProtocolViolated.
    """
    destination, start = _read_destination(data, bounds)
    found, method, name, sequence, end = _read_head_behind(destination, data, start, bounds)
    return Rpc(
        destination=destination,
        kind=found,
        body=data[start:],
        type=kind,
        method=method,
        name=name,
        sequence=sequence,
        arguments_at=end - start,
    )


def decode_oversized(head: bytes, size: int, bounds: Bounds) -> Oversized:
    """Read what a message that is too long begins with.

    Args:
        head: its first `head_bytes(bounds)` bytes behind the type, and what the destination has too much.
        size: what it states.
        bounds: what is too long.

    Raises: ProtocolViolated.
    """
    destination, start = _read_destination(head, bounds)
    kind, method, name, sequence, _ = _read_head_behind(destination, head, start, bounds)
    return Oversized(destination=destination, kind=kind, method=method, name=name, sequence=sequence, size=size)


def head_bytes(bounds: Bounds) -> int:
    """Give how many bytes of an RPC whose destination is not too long hold everything before its arguments, at most."""
    return 3 * INT_BYTES_MAX + LONG_BYTES_MAX + 2 + 2 * bounds.name_bytes_max


def nobody_of(size: int) -> str:
    """Give the destination in the place of one that is too long, of so many bytes: no service has such a name."""
    return f"$name of {size} bytes"


def unreadable_of(size: int) -> str:
    """Give the destination in the place of one that is no UTF-8, of so many bytes: no service has such a name."""
    return nobody_of(size) + _UNREADABLE


def decode_name(data: bytes, bounds: Bounds) -> AttachTo:
    """Read the data of an ATTACH_TO. Raises: ProtocolViolated where it is too long."""
    return AttachTo(_readable(data, bounds))


def decode_length(data: bytes, bounds: Bounds) -> CheckpointStarts:
    """Read the data of a CHECKPOINT. Raises: ProtocolViolated."""
    length, end = read_int(data, 0, "length of the checkpoint", LONG_BITS)
    if end != len(data):
        raise ProtocolViolated(f"{len(data) - end} bytes stand behind the length of the checkpoint, in its message")
    if not 0 <= length <= bounds.checkpoint_bytes_max:
        raise ProtocolViolated(f"the length of the checkpoint is {length}, at most {bounds.checkpoint_bytes_max}")
    return CheckpointStarts(length)


def _read_head_behind(destination: str, data: bytes, at: int, bounds: Bounds) -> tuple[Kind, int, str, int, int]:
    """As `_read_head`; a length that counted characters has cut the destination, which the error tells then."""
    try:
        return _read_head(data, at, bounds)
    except ProtocolViolated as error:
        if not destination.startswith("$") or not destination.endswith(_UNREADABLE):
            raise
        told = "the destination before it is no UTF-8: its length counts bytes, not characters"
        raise ProtocolViolated(f"{error.message}; {told}") from None


def _read_head(data: bytes, at: int, bounds: Bounds) -> tuple[Kind, int, str, int, int]:
    """Read a body up to its arguments: kind, method, name, sequence, and where the arguments begin."""
    first, at = _byte(data, at, "return byte")
    method, name, sequence = 0, "", 0
    if first == 0:
        method, at = read_int(data, at, "method id")
        rpc_type, at = _byte(data, at, "RPC type")
        if rpc_type > Kind.IMPULSE:
            raise ProtocolViolated(f"the RPC type is {rpc_type}: 0 (async), 1 (fork) or 2 (impulse) is right")
        kind = _KINDS[rpc_type]
    elif first <= Kind.EXCEPTION - _RETURN_BASE:
        kind = Kind(first + _RETURN_BASE)
    else:
        raise ProtocolViolated(f"the return byte is {first}: 0 (a call), 1, 2 or 3 (a return) is right")
    if kind is Kind.ASYNC or first:
        name, at = _read_name(data, at, "name of the caller" if first == 0 else "name of the responder", bounds)
        sequence, at = read_int(data, at, "sequence of the call", LONG_BITS)
        if sequence < 0:
            raise ProtocolViolated(f"the sequence of the call is {sequence}: it is never negative")
    return kind, method, name, sequence, at


def _byte(data: bytes, at: int, field: str) -> tuple[int, int]:
    if at >= len(data):
        raise ProtocolViolated(f"the message ends before its {field}")
    return data[at], at + 1


def _read_destination(data: bytes, bounds: Bounds) -> tuple[str, int]:
    size, at = read_int(data, 0, "length of the destination")
    if size < 0:
        raise ProtocolViolated(f"the destination has {size} bytes, 0 to {bounds.name_bytes_max} are right")
    if at + size > len(data):
        raise ProtocolViolated(f"the message ends within the destination, {size} bytes long")
    if size > bounds.name_bytes_max:
        return nobody_of(size), at + size
    return _readable(data[at : at + size], bounds), at + size


def _readable(data: bytes, bounds: Bounds) -> str:
    """Give a destination as text; where it is no UTF-8, nobody's."""
    if len(data) > bounds.name_bytes_max:
        raise ProtocolViolated(f"the destination has {len(data)} bytes, at most {bounds.name_bytes_max} are right")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return unreadable_of(len(data))


def _read_name(data: bytes, at: int, field: str, bounds: Bounds) -> tuple[str, int]:
    size, at = read_int(data, at, f"length of the {field}")
    if not 0 <= size <= bounds.name_bytes_max:
        raise ProtocolViolated(f"the {field} has {size} bytes, 0 to {bounds.name_bytes_max} are right")
    if at + size > len(data):
        raise ProtocolViolated(f"the message ends within the {field}, {size} bytes long")
    return _text(data[at : at + size], field), at + size


def _text(data: bytes, field: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ProtocolViolated(
            f"the {field} is no UTF-8: {data[:40].hex()}; its length counts bytes, not characters"
        ) from None
