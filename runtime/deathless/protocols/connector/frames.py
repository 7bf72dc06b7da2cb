"""Frames of the connector protocol, both ways (docs/formats/connector.md has the table of bytes).

Each frame: u32 length of what follows, u8 type, fields; big-endian, as all that speak the protocol do.

Why a codec of our own: the two that exist wrap lengths over 65,535 bytes in silence, take what follows a frame's last
field for nothing, and end their process at a frame that is cut short.

Guarantees: `decode` gives exactly one frame or raises CorruptFrame, which names frame and field; a frame that was
encoded is decoded to its equal; what clients of the protocol differ in (EOS_MESSAGE of 8 or 16 bytes, RESTART with or
without an address) is read both ways and written as most of them read it. Does not: judge when a frame may be sent
(the machines do), read the transaction messages in streams of number 0 (`transactions`), limit a frame's length
(`frame_reader`). Imports base only.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Mapping
from typing import Final, NewType, TypeAlias, assert_never

import msgspec

from deathless.base.errors import CorruptFrame
from deathless.protocols.connector.fields import (
    U64_MAX,
    Fields,
    malformed,
    put_i64,
    put_short,
    put_text,
    put_u8,
    put_u32,
    put_u64,
    to_utf8,
)

StreamId = NewType("StreamId", int)
"""Number of a stream, u64; whoever sends it chooses it, always the same for the same stream."""

MessageId = NewType("MessageId", int)
"""Place of a message in its stream, below NO_POSITION; grows from message to message, with gaps. As a point of
reference it means that message and all before it."""

NO_POSITION: Final = MessageId(U64_MAX)
"""The point of reference of a stream of which nothing was ever processed. It is below 0, not above all."""

TRANSACTION_STREAM: Final = StreamId(0)
"""The stream of a sink that carries transaction messages."""

VERSIONS: Final = ("0.0.1", "v0.0.1")
"""What sources say and what sinks are told; the frames are the same."""

PREFIX_BYTES: Final = 4
"""Of a frame's length."""

_LENGTH: Final = struct.Struct(">I")
_MESSAGE: Final = struct.Struct(">QQqH")  # stream, id, event time, length of the key
_MESSAGE_HEAD: Final = struct.Struct(">IBQQqH")
_MESSAGE_BYTES_MIN: Final = 1 + _MESSAGE.size
MESSAGE_OVERHEAD_BYTES: Final = _MESSAGE_HEAD.size
"""Of a MESSAGE frame, what is neither key nor payload."""


class Type(enum.IntEnum):
    """First byte of a frame."""

    HELLO = 0
    OK = 1
    ERROR = 2
    NOTIFY = 3
    NOTIFY_ACK = 4
    MESSAGE = 5
    ACK = 6
    RESTART = 7
    EOS_MESSAGE = 8
    WORKERS_LEFT = 9


class Frame(msgspec.Struct, frozen=True):
    """What all frames are."""


class Hello(Frame, frozen=True):
    """First frame of who connects."""

    version: str
    cookie: bytes
    program: str
    instance: str  # who it is: two connections with equal ones are one sender


class Ok(Frame, frozen=True):
    """Answer to HELLO: so many frames may be sent."""

    credits: int  # u32


class Error(Frame, frozen=True):
    """Why this connection ends; who gets it closes."""

    text: str


class Notify(Frame, frozen=True):
    """A stream is to be opened."""

    stream: StreamId
    name: bytes  # for people
    position: MessageId  # the sender's own point of reference; 0: it has none


class NotifyAck(Frame, frozen=True):
    """Answer to NOTIFY."""

    success: bool  # False: others have the stream, or it can't be opened now
    stream: StreamId
    position: MessageId  # the last id that is processed; NO_POSITION: none ever was


class Message(Frame, frozen=True):
    """One message of a stream."""

    stream: StreamId
    id: MessageId
    event_time: int  # i64, in the sender's unit
    key: bytes
    payload: bytes


class Ack(Frame, frozen=True):
    """Credits to be added, and how far streams are processed."""

    credits: int  # u32
    positions: tuple[tuple[StreamId, MessageId], ...] = ()


class Restart(Frame, frozen=True):
    """Close, and connect anew."""

    address: str = ""  # host:port to connect to; empty: the same


class EosMessage(Frame, frozen=True):
    """The stream's end."""

    stream: StreamId


class WorkersLeft(Frame, frozen=True):
    """These workers will never come back. As a frame of its own an alias of the transaction message."""

    rtag: int  # u64
    workers: tuple[bytes, ...]


AnyFrame: TypeAlias = Hello | Ok | Error | Notify | NotifyAck | Message | Ack | Restart | EosMessage | WorkersLeft


def last_of(position: MessageId) -> MessageId | None:
    """Give a point of reference as the last id that is processed; None: none ever was."""
    return None if position == NO_POSITION else position


def position_of(last: MessageId | None) -> MessageId:
    """Give the last id that is processed as a point of reference."""
    return NO_POSITION if last is None else last


# ---------------------------------------------------------------- encoding


def framed(kind: int, *parts: bytes) -> bytes:
    """Give a frame of this type. Raises: InvalidArgument when it is longer than 4 GiB."""
    return put_u32("frame", "length", 1 + sum(map(len, parts))) + b"".join((put_u8("frame", "type", kind), *parts))


def encode(frame: AnyFrame) -> bytes:
    """Give a frame's bytes, its length included.

    Raises: InvalidArgument for a number that does not fit its field or text that is none, TooLarge for bytes that are
    longer than their length can say.
    """
    return framed(_TYPES[type(frame)], *_fields_of(frame))


def encode_message(frame: Message) -> bytes:
    """Give the bytes of a MESSAGE: the same as `encode`, in one step where all its fields are in range."""
    key, payload = frame.key, frame.payload
    try:
        head = _MESSAGE_HEAD.pack(
            _MESSAGE_BYTES_MIN + len(key) + len(payload),
            Type.MESSAGE,
            frame.stream,
            frame.id,
            frame.event_time,
            len(key),
        )
    except struct.error:
        return encode(frame)
    return head + key + payload


def put_workers(rtag: int, workers: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Give the fields of WORKERS_LEFT. Raises: as `encode`."""
    name = Type.WORKERS_LEFT.name
    head = put_u64(name, "rtag", rtag), put_u32(name, "workers", len(workers))
    return *head, *(put_short(name, "worker", worker) for worker in workers)


def _fields_of(frame: AnyFrame) -> tuple[bytes, ...]:
    name = _TYPES[type(frame)].name
    match frame:
        case Hello():
            return (
                put_text(name, "version", frame.version),
                put_short(name, "cookie", frame.cookie),
                put_text(name, "program", frame.program),
                put_text(name, "instance", frame.instance),
            )
        case Ok():
            return (put_u32(name, "credits", frame.credits),)
        case Error():
            return (put_text(name, "text", frame.text),)
        case Notify():
            return (
                put_u64(name, "stream", frame.stream),
                put_short(name, "name", frame.name),
                put_u64(name, "position", frame.position),
            )
        case NotifyAck():
            success = put_u8(name, "success", int(frame.success))
            return success, put_u64(name, "stream", frame.stream), put_u64(name, "position", frame.position)
        case Message():
            numbers = put_u64(name, "stream", frame.stream), put_u64(name, "id", frame.id)
            time = put_i64(name, "event time", frame.event_time)
            return *numbers, time, put_short(name, "key", frame.key), frame.payload
        case Ack():
            counts = put_u32(name, "credits", frame.credits), put_u32(name, "positions", len(frame.positions))
            pairs = (
                put_u64(name, "stream", stream) + put_u64(name, "position", position)
                for stream, position in frame.positions
            )
            return *counts, *pairs
        case Restart():
            address = to_utf8(name, "address", frame.address)
            return put_u32(name, "address", len(address)), address
        case EosMessage():
            return (put_u64(name, "stream", frame.stream),)
        case WorkersLeft():
            return put_workers(frame.rtag, frame.workers)
        case _:
            assert_never(frame)


# ---------------------------------------------------------------- decoding


def decode(data: bytes) -> AnyFrame:
    """Read one frame.

    Args:
        data: type and fields, without the length before them.

    Raises: CorruptFrame; the connection is to be ended.
    """
    if not data:
        raise malformed("frame", "type", "a frame of length 0")
    kind = data[0]
    if kind == Type.MESSAGE:
        return _message(data)
    read = _READERS.get(kind)
    if read is None:
        raise malformed("frame", "type", f"{kind} is unknown, the last is {max(Type)}")
    fields = Fields(Type(kind).name, data, 1)
    frame = read(fields)
    fields.end()
    return frame


def _message(data: bytes) -> Message:
    if len(data) < _MESSAGE_BYTES_MIN:
        raise malformed("MESSAGE", "head", f"needs {_MESSAGE_BYTES_MIN} bytes, {len(data)} are there")
    stream, ident, event_time, key_bytes = _MESSAGE.unpack_from(data, 1)
    end = _MESSAGE_BYTES_MIN + key_bytes
    if end > len(data):
        raise malformed("MESSAGE", "key", f"needs {key_bytes} bytes, {len(data) - _MESSAGE_BYTES_MIN} are left")
    return Message(stream, ident, event_time, data[_MESSAGE_BYTES_MIN:end], data[end:])


def _hello(fields: Fields) -> Hello:
    # Version and cookie stand first in every version of the protocol. What follows may have another form in one that
    # nobody here knows, and then the version is the better reason to refuse it.
    version, cookie = fields.text("version"), fields.short("cookie")
    try:
        hello = Hello(version, cookie, fields.text("program"), fields.text("instance"))
        fields.end()
    except CorruptFrame:
        if version in VERSIONS:
            raise
        fields.take("rest", fields.left)
        return Hello(version, cookie, "", "")
    return hello


def _notify(fields: Fields) -> Notify:
    return Notify(_stream(fields), fields.short("name"), _position(fields))


def _notify_ack(fields: Fields) -> NotifyAck:
    return NotifyAck(fields.flag("success"), _stream(fields), _position(fields))


def _ack(fields: Fields) -> Ack:
    total = fields.u32("credits")
    count = fields.count("positions", item_bytes=16)
    return Ack(total, tuple((_stream(fields), _position(fields)) for _ in range(count)))


def _restart(fields: Fields) -> Restart:
    if not fields.left:
        return Restart()
    return Restart(fields.as_text("address", fields.take("address", fields.u32("address"))))


def _eos_message(fields: Fields) -> EosMessage:
    frame = EosMessage(_stream(fields))
    if fields.left == 8:  # the id of the last message, in the oldest text of the protocol alone; nobody sends it
        fields.u64("id")
    return frame


def read_workers(fields: Fields) -> WorkersLeft:
    """Read the fields of WORKERS_LEFT. Raises: CorruptFrame."""
    rtag = fields.u64("rtag")
    count = fields.count("workers", item_bytes=2)
    return WorkersLeft(rtag, tuple(fields.short("worker") for _ in range(count)))


def _stream(fields: Fields) -> StreamId:
    return StreamId(fields.u64("stream"))


def _position(fields: Fields) -> MessageId:
    return MessageId(fields.u64("position"))


_TYPES: Final[Mapping[type[Frame], Type]] = {
    Hello: Type.HELLO,
    Ok: Type.OK,
    Error: Type.ERROR,
    Notify: Type.NOTIFY,
    NotifyAck: Type.NOTIFY_ACK,
    Message: Type.MESSAGE,
    Ack: Type.ACK,
    Restart: Type.RESTART,
    EosMessage: Type.EOS_MESSAGE,
    WorkersLeft: Type.WORKERS_LEFT,
}
_READERS: Final[Mapping[int, Callable[[Fields], AnyFrame]]] = {
    Type.HELLO: _hello,
    Type.OK: lambda fields: Ok(fields.u32("credits")),
    Type.ERROR: lambda fields: Error(fields.short("text").decode(errors="replace")),
    Type.NOTIFY: _notify,
    Type.NOTIFY_ACK: _notify_ack,
    Type.ACK: _ack,
    Type.RESTART: _restart,
    Type.EOS_MESSAGE: _eos_message,
    Type.WORKERS_LEFT: read_workers,
}
