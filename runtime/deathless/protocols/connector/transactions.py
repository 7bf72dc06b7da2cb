"""Transaction messages of a sink: two-phase commit, as payloads of MESSAGE frames of stream 0.

Each payload: u8 type, fields; without a length of its own. The frame around it has id 0, event time 0 and no key.

Guarantees: as `frames`: exactly one message or CorruptFrame, which names message and field. Does not: know when one
may be sent, or what a transaction is. Imports base only.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias, assert_never

from deathless.protocols.connector.fields import Fields, malformed, put_short, put_u8, put_u32, put_u64
from deathless.protocols.connector.frames import (
    TRANSACTION_STREAM,
    Frame,
    Message,
    MessageId,
    StreamId,
    WorkersLeft,
    put_workers,
    read_workers,
)

FIRST_RTAG: Final = 77778
"""Where existing coordinators begin to number what they ask."""


class Type(enum.IntEnum):
    """First byte of a transaction message."""

    LIST_UNCOMMITTED = 201
    REPLY_UNCOMMITTED = 202
    PHASE1 = 203
    REPLY = 204
    PHASE2 = 205
    WORKERS_LEFT = 206


class Range(NamedTuple):
    """Bytes of one stream: offsets [start, end)."""

    stream: StreamId
    start: MessageId
    end: MessageId


class ListUncommitted(Frame, frozen=True):
    """Coordinator: which transactions are in doubt?"""

    rtag: int  # u64, given back with the answer


class ReplyUncommitted(Frame, frozen=True):
    """Participant: these are: it voted for them and was not told what became of them."""

    rtag: int
    transactions: tuple[bytes, ...]


class Phase1(Frame, frozen=True):
    """Coordinator: can these bytes be committed?"""

    transaction: bytes
    ranges: tuple[Range, ...]


class Reply(Frame, frozen=True):
    """Participant: its vote."""

    transaction: bytes
    commit: bool


class Phase2(Frame, frozen=True):
    """Coordinator: what is decided."""

    transaction: bytes
    commit: bool


AnyTransaction: TypeAlias = ListUncommitted | ReplyUncommitted | Phase1 | Reply | Phase2 | WorkersLeft


def encode(message: AnyTransaction) -> bytes:
    """Give the payload. Raises: InvalidArgument, TooLarge, as `frames.encode`."""
    kind = _TYPES[type(message)]
    name = kind.name
    head = bytes((kind,))
    match message:
        case ListUncommitted():
            return head + put_u64(name, "rtag", message.rtag)
        case ReplyUncommitted():
            count = put_u32(name, "transactions", len(message.transactions))
            names = b"".join(put_short(name, "transaction", each) for each in message.transactions)
            return head + put_u64(name, "rtag", message.rtag) + count + names
        case Phase1():
            count = put_u32(name, "ranges", len(message.ranges))
            places = b"".join(put_u64(name, "range", each) for found in message.ranges for each in found)
            return head + put_short(name, "transaction", message.transaction) + count + places
        case Reply() | Phase2():
            commit = put_u8(name, "commit", int(message.commit))
            return head + put_short(name, "transaction", message.transaction) + commit
        case WorkersLeft():
            return head + b"".join(put_workers(message.rtag, message.workers))
        case _:
            assert_never(message)


def in_frame(message: AnyTransaction) -> Message:
    """Give the frame that carries a transaction message. Raises: as `encode`."""
    return Message(TRANSACTION_STREAM, MessageId(0), 0, b"", encode(message))


def decode(frame: Message) -> AnyTransaction:
    """Read the transaction message in a frame of stream 0.

    Raises: CorruptFrame; the connection is to be ended.
    """
    if (frame.id, frame.event_time, frame.key) != (0, 0, b""):
        raise malformed("MESSAGE", "stream 0", "id, event time and length of the key have to be 0")
    if not frame.payload:
        raise malformed("MESSAGE", "stream 0", "an empty payload, where a transaction message is meant")
    kind = frame.payload[0]
    read = _READERS.get(kind)
    if read is None:
        raise malformed("MESSAGE", "transaction type", f"{kind} is unknown, known are {min(Type)} to {max(Type)}")
    fields = Fields(Type(kind).name, frame.payload, 1)
    message = read(fields)
    fields.end()
    return message


def _reply_uncommitted(fields: Fields) -> ReplyUncommitted:
    rtag = fields.u64("rtag")
    count = fields.count("transactions", item_bytes=2)
    return ReplyUncommitted(rtag, tuple(fields.short("transaction") for _ in range(count)))


def _phase1(fields: Fields) -> Phase1:
    transaction = fields.short("transaction")
    count = fields.count("ranges", item_bytes=24)
    return Phase1(transaction, tuple(_range(fields) for _ in range(count)))


def _range(fields: Fields) -> Range:
    return Range(StreamId(fields.u64("stream")), MessageId(fields.u64("start")), MessageId(fields.u64("end")))


_TYPES: Final[Mapping[type[Frame], Type]] = {
    ListUncommitted: Type.LIST_UNCOMMITTED,
    ReplyUncommitted: Type.REPLY_UNCOMMITTED,
    Phase1: Type.PHASE1,
    Reply: Type.REPLY,
    Phase2: Type.PHASE2,
    WorkersLeft: Type.WORKERS_LEFT,
}
_READERS: Final[Mapping[int, Callable[[Fields], AnyTransaction]]] = {
    Type.LIST_UNCOMMITTED: lambda fields: ListUncommitted(fields.u64("rtag")),
    Type.REPLY_UNCOMMITTED: _reply_uncommitted,
    Type.PHASE1: _phase1,
    Type.REPLY: lambda fields: Reply(fields.short("transaction"), fields.flag("commit")),
    Type.PHASE2: lambda fields: Phase2(fields.short("transaction"), fields.flag("commit")),
    Type.WORKERS_LEFT: read_workers,
}
