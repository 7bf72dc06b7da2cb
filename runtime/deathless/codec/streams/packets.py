"""Packets between a source and the primary of the shard that it sends to.

    STREAM_HELLO    s>p  msgpack array, see StreamHello: which stream, by whom, and whether it is taken or resumed
    STREAM_WELCOME  p>s  msgpack array, see StreamWelcome: where the stream stands, all of it confirmed
    STREAM_REFUSED  p>s  msgpack array, see StreamRefused: of a hello, or of what an owner sent; or its term is over
    STREAM_BATCH    s>p  u64 session, u64 first seq, u64 seq that it follows, u32 count, u32 term,
                         count x u32 end offset, blob: as BATCH (codec.wire)
    STREAM_COMMIT   p>s  msgpack array, see StreamCommit: everything below a seq is confirmed

Many streams share one connection; a term is one ownership of one stream at one primary. Guarantees and limits are those
of codec.wire. Imports base and codec.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import msgspec

from deathless.codec.frames import RUN
from deathless.codec.peer_messages import Name, UInt32, UInt64
from deathless.codec.streams.records import Nonce, Note, OnRefusal, StreamId, StreamKey, StreamOpened
from deathless.codec.wire import Batch, Type, decode_batch, packet


class StreamHello(msgspec.Struct, array_like=True, frozen=True):
    """Body of STREAM_HELLO: `nonce` names one life of one owner. A resume goes on with what that one had taken."""

    source: Name
    stream: StreamId
    nonce: Nonce
    resume: bool
    on_refusal: OnRefusal = OnRefusal.STOP

    @property
    def key(self) -> StreamKey:
        """Which stream it is."""
        return StreamKey(self.source, self.stream)

    def record(self) -> StreamOpened:
        """What is logged of it."""
        return StreamOpened(self.source, self.stream, self.nonce, self.on_refusal)


class StreamWelcome(msgspec.Struct, array_like=True, frozen=True):
    """Body of STREAM_WELCOME: the stream is the sender's. All ids below `next_seq - 1` are taken in and confirmed."""

    source: Name
    stream: StreamId
    nonce: Nonce
    session: UInt64
    term: UInt32
    next_seq: UInt64  # 1: the stream is fresh, below id 0
    ended: bool
    note: Note
    level: UInt32 = 1  # format level of the log (codec.generations): what its rows may hold

    @property
    def last_id(self) -> int:
        """The last id taken in; -1: none."""
        return self.next_seq - 2


class StreamRefused(msgspec.Struct, array_like=True, frozen=True):
    """Body of STREAM_REFUSED.

    Whoever is told this does not own the stream any more, unless `from_seq` is set: then what it sent from there on was
    not admitted, and the same may be sent again in the same term.
    """

    source: Name
    stream: StreamId
    nonce: Nonce
    code: str
    text: str
    retry_after_ms: int  # -1: never
    from_seq: UInt64 = 0


class StreamCommit(msgspec.Struct, array_like=True, frozen=True):
    """Body of STREAM_COMMIT: everything below `next_seq` is confirmed, and so is the end behind it if `ended`."""

    session: UInt64
    next_seq: UInt64
    ended: bool


class StreamBatch(NamedTuple):
    """A STREAM_BATCH as received."""

    batch: Batch
    term: int


def encode_stream_batch(session: int, first_seq: int, follows: int, term: int, messages: Sequence[bytes]) -> bytes:
    """Give a STREAM_BATCH packet of messages whose seqs count on from the first."""
    ends = struct.pack(f"<{len(messages)}I", *accumulate(map(len, messages)))
    head = RUN.pack(session, first_seq, follows, len(messages), term)
    return packet(Type.STREAM_BATCH, head, ends, b"".join(messages))


def decode_stream_batch(body: bytes) -> StreamBatch:
    """Take a STREAM_BATCH apart; checks lengths, not messages.

    Raises: CorruptFrame when columns and blob disagree.
    """
    batch = decode_batch(body)
    return StreamBatch(batch, int.from_bytes(body[RUN.size - 4 : RUN.size], "little"))
