"""What is logged of streams, and what a shard keeps of them.

A stream is numbered input from outside: its source numbers what it sends by ids that ascend and may have gaps. In a
run of the log an id stands as a seq, so that everything that goes by (session, seq) holds for it as well:

    seq of an id  = id + 1              0 is before every id, so a fresh stream has next expected seq 1
    seq of an end = END_SEQ + next expected seq: the end of the stream behind all ids below that one

The field `acked` of a run says what the run follows: the seq up to which everything must have been taken in. Ids
between that and the first seq of the run do not exist. A run that does not follow changes nothing: see
core.tables.stream_table.

A message of a stream is a FORK, whose envelope may carry a note, or a MARK: an id without a message.

Guarantees: frozen records; what is decoded was encoded, or CorruptFrame. Does not: decide anything. Imports base and
codec.
"""

from __future__ import annotations

import enum
from typing import Annotated, Final, NamedTuple

import msgspec

from deathless.base.errors import CorruptFrame
from deathless.codec.messages import Kind, Message, decode, encode
from deathless.codec.peer_messages import (
    STREAM_PREFIX,
    Name,
    RedeliveredFork,
    Sender,
    Target,
    decode_body,
    encode_body,
)

NOTE_BYTES_MAX: Final = 64
NONCE_BYTES: Final = 16
END_SEQ: Final = 1 << 63
ID_MAX: Final = END_SEQ - 3
"""The highest id: its seq, and the one behind it, are below END_SEQ."""

Note = Annotated[bytes, msgspec.Meta(max_length=NOTE_BYTES_MAX)]
Nonce = Annotated[bytes, msgspec.Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
StreamId = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class OnRefusal(enum.StrEnum):
    """What becomes of an input that its handler refuses."""

    STOP = "stop"  # the stream stands at it until an operator says how it goes on
    DEAD_LETTER = "deadLetter"  # it is kept with the reason, and the stream goes on
    SKIP = "skip"  # the reason is kept, and the stream goes on


class StreamKey(NamedTuple):
    """Which stream."""

    source: str
    stream: int

    def __str__(self) -> str:
        """Give it for operators."""
        return f"{self.source}/{self.stream}"

    @property
    def target(self) -> Target:
        """As whom turns know it."""
        return Target(STREAM_PREFIX + self.source, self.stream)

    @classmethod
    def of(cls, target: Target) -> StreamKey:
        """Give the stream that turns know as this."""
        return cls(target.service.removeprefix(STREAM_PREFIX), target.shard)


class StreamOpened(msgspec.Struct, array_like=True, frozen=True):
    """Body of STREAM: who owns the stream from now on. The LSN of its first such record is the stream's session."""

    source: Name
    stream: StreamId
    nonce: Nonce
    on_refusal: OnRefusal = OnRefusal.STOP

    @property
    def key(self) -> StreamKey:
        """Which stream it is."""
        return StreamKey(self.source, self.stream)


class InputFork(RedeliveredFork, array_like=True, frozen=True):
    """Envelope of a FORK of a stream; read as any other's it is that."""

    note: Note = b""  # of the source, for who opens the stream next; empty: as before


class InputResult(NamedTuple):
    """What a frame's run of a stream, or a parked input of it, came to; `count` is that of its messages."""

    session: int
    count: int  # type: ignore[assignment]  # as in a run
    next_seq: int  # behind it
    ended: bool  # behind it
    taken: bool  # False: it did not follow, so nothing of it counts
    stopped: bool  # behind it


NO_ENVELOPE: Final = encode_body(Sender())
"""The envelope of a FORK that says nothing."""


def seq_of(number: int) -> int:
    """Give the seq of an id in [0, ID_MAX]."""
    return number + 1


def encode_mark(note: bytes = b"") -> bytes:
    """Give a MARK: an id without a message."""
    return encode(Kind.MARK, args=note)


def encode_input(method: bytes, key: bytes, args: bytes, note: bytes = b"") -> bytes:
    """Give the FORK of an input.

    Raises: TooLarge when method or key are longer than the header can say.
    """
    envelope = encode_body(InputFork(note=note)) if note else NO_ENVELOPE
    return encode(Kind.FORK, method=method, key=key, idempotency_key=envelope, args=args)


def note_of(message: bytes) -> bytes:
    """Give the note that a message of a stream carries; empty: none, and the one before stands.

    Raises: CorruptFrame when it can't be read.
    """
    taken: Message = decode(message)
    if taken.kind == Kind.MARK:
        note = taken.args
    elif taken.idempotency_key == NO_ENVELOPE:
        return b""
    else:
        note = decode_body(InputFork, taken.idempotency_key).note
    if len(note) > NOTE_BYTES_MAX:
        raise CorruptFrame(f"a note of {len(note)} bytes, at most {NOTE_BYTES_MAX}")
    return note
