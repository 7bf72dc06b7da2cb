"""The records of a checkpoint: what is left of a shard when its log up to one lsn is thrown away.

Why here: `core` gives and takes these records and `checkpoint` turns them into bytes; neither may know the other.
Guarantees: plain values; equal records mean equal shards. Does not: check relations between fields (`core` does at
restore, `checkpoint` when it reads). Imports base only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from deathless.base.ids import ChainHash, Digest, Epoch, Fingerprint, Incarnation, Lsn
from deathless.base.times import Times
from deathless.codec.generations import FIRST, Generation, encode_of

REQUEST_HASH_BYTES: Final = 16


class SessionRecord(msgspec.Struct, frozen=True, gc=False):
    """One session of `core.tables.sessions`; times in microseconds of age (`base.times`)."""

    id: int
    next_seq: int
    acked: int
    last_us: int
    nonce: bytes  # 16 bytes
    replies: dict[int, bytes]  # reply per seq in (acked, next_seq)
    peer: bool = False  # of a peer or of ourselves; in a checkpoint this is told by PEERS
    history: bytes = b""  # of a peer: see peer_history; in a checkpoint this stands in HISTORIES


class KeyRecord(msgspec.Struct, frozen=True, gc=False):
    """One remembered idempotency key of `core.tables.keys`."""

    key: bytes
    request_hash: bytes  # 16 bytes over handler, entity key and arguments
    reply: bytes
    at_us: int  # age of the shard when it was first seen


class ParkedRecord(msgspec.Struct, frozen=True, gc=False):
    """A message set aside unrun (I11): lsn of its PARKED record, who sent it, and its bytes."""

    lsn: int
    session: int
    seq: int
    message: bytes


class Messages(Protocol):
    """Messages that can be counted, and gone through more than once: a list, or what reads them from elsewhere."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[bytes]: ...


class OutboxRecord(msgspec.Struct, frozen=True, gc=False):
    """What is kept for one target of `core.tables.outbox`; it stands also when it is empty, for the position is not."""

    service: str
    shard: int
    first_position: int  # of the first message; without messages: of the next
    messages: Messages
    history: bytes = b""  # before the first message, see peer_history; in a checkpoint this stands in HISTORIES


class PeerRecord(msgspec.Struct, frozen=True, gc=False):
    """One peer of `core.tables.peer_table`."""

    service: str
    shard: int
    service_id: bytes  # 16 bytes
    incarnation: int
    session: int


class ResultRecord(msgspec.Struct, frozen=True, gc=False):
    """The kept result of one ended invocation of `core.tables.results`."""

    invocation: int
    at_us: int  # age of the shard when it ended
    reply: bytes


class UnknownRecord(msgspec.Struct, frozen=True, gc=False):
    """An activity of which nobody knows whether it was done, not settled yet (`core.tables.unknown_outcomes`)."""

    invocation: int
    operation: int
    handler: str  # that asked for the activity
    key: bytes  # whose invocation it is
    activity: str  # its name
    activity_key: str  # what it shows the world outside as its own, the same for every attempt
    lsn: int  # of the OUTCOME record
    at_us: int  # logical time of that


class UndeliveredRecord(msgspec.Struct, frozen=True, gc=False):
    """One message that a driver gave up, and that nobody has seen to (`core.tables.undelivered`)."""

    id: int  # lsn of the RESPONSE that told of it; 0: it was seen to, and its driver may tell of it again
    service: str  # the target, whose name the driver has
    shard: int
    position: int  # in the outbox of that target
    at_us: int  # logical time at which it was given up
    why: str
    message: bytes  # as it was sent


class RefusedRecord(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An input that its handler refused."""

    lsn: int  # of the message; of one that was refused late, of the message that began the invocation
    session: int
    seq: int  # 0: it was refused after turns of it stood, so it can't be run again
    at_us: int  # logical time
    code: str  # of the error
    why: str
    message: bytes = b""  # what can be run again; empty: nothing is kept


class StreamRecord(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One stream, as a checkpoint keeps it."""

    source: str
    stream: int
    session: int
    next_seq: int
    ended: bool
    note: bytes
    nonce: bytes
    on_refusal: str  # codec.streams.records.OnRefusal
    refused: int  # inputs, in all
    stopped: RefusedRecord | None = None  # the input at which it stands


class Head(msgspec.Struct, array_like=True, frozen=True):
    """Payload of HEAD: whose checkpoint this is and where on the chain it stands."""

    service: str
    service_id: bytes
    incarnation: int
    epoch: int
    lsn: int
    chain: bytes
    digest: bytes
    time_us: int
    fingerprint: bytes
    keys_floor_us: int
    state_keys: int
    elapsed_us: int = 0  # this and what follows: see base.times; version 1 has `time_us` alone
    age_us: int = 0
    wall_us: int = 0
    generation: int = FIRST.number  # this and what follows: see codec.generations; older versions have the first alone
    upgraded_lsn: int = FIRST.lsn
    upgraded_chain: bytes = FIRST.chain
    level: int | bytes = FIRST.level  # bytes: the room behind the fields of a checkpoint that was written ahead

    def of_generation(self) -> Generation:
        """Give the generation whose code made the state."""
        level = self.level if isinstance(self.level, int) else FIRST.level
        return Generation(self.generation, self.upgraded_lsn, self.upgraded_chain, level)

    def encode(self) -> bytes:
        """Give the payload."""
        return encode_of(self, self.of_generation())

    @property
    def times(self) -> Times:
        """The shard's times there; all equal in a checkpoint of version 1."""
        if not self.elapsed_us:
            return Times.of_version_1(self.time_us)
        return Times(self.time_us, self.elapsed_us, self.age_us, self.wall_us)


class Begun(msgspec.Struct, frozen=True):
    """A checkpoint whose state was written before its place on the chain was known (`codec.checkpoint_ahead`)."""

    end: int  # of what is written, bytes
    sections: int  # up to there, HEAD included
    keys: int  # in STATE
    digest: bytes  # of the payloads of STATE


@dataclass(frozen=True, slots=True)
class Since:
    """What is other than in a state that was written ahead."""

    begun: Begun
    changed: Mapping[bytes, bytes]  # entries that are new or other ones
    gone: Collection[bytes]  # keys that are no more


@dataclass(slots=True, kw_only=True)
class Snapshot:
    """All of a shard right behind message `lsn`, a function of the log's prefix."""

    service: str  # name
    service_id: bytes  # 16 bytes
    incarnation: Incarnation
    epoch: Epoch  # of the frame that ends at `lsn`
    lsn: Lsn
    chain: ChainHash  # behind the frame that ends at `lsn`
    digest: Digest  # the rolling digest there
    times: Times  # there
    fingerprint: Fingerprint  # of the code that made the state
    state: dict[bytes, bytes]  # encoded state per key; `decode` gives it in ascending order
    sessions: list[SessionRecord] = field(default_factory=list)  # longest idle first, then those of peers by id
    keys: list[KeyRecord] = field(default_factory=list)  # idempotency keys
    keys_floor_us: int = -1  # see core.tables.keys
    parked: list[ParkedRecord] = field(default_factory=list)
    invocations: list[bytes] = field(default_factory=list)  # the executor's own, ascending by id
    outbox: list[OutboxRecord] = field(default_factory=list)  # by target, ascending
    peers: list[PeerRecord] = field(default_factory=list)  # by target, ascending
    results: list[ResultRecord] = field(default_factory=list)  # the oldest first
    unknown: list[UnknownRecord] = field(default_factory=list)  # the oldest first
    undelivered: list[UndeliveredRecord] = field(default_factory=list)  # the oldest first
    streams: list[StreamRecord] = field(default_factory=list)  # by session, ascending
    refused: list[RefusedRecord] = field(default_factory=list)  # the oldest first
    generation: Generation = FIRST
    state_digest: bytes = b""  # set by `decode`, and by `encode` when it has given all
    since: Since | None = None  # `state` was written ahead but for this; None: it was not

    def head(self) -> Head:
        """Give the record of HEAD."""
        return Head(
            self.service,
            self.service_id,
            self.incarnation,
            self.epoch,
            self.lsn,
            self.chain,
            self.digest,
            self.times.time_us,
            self.fingerprint,
            self.keys_floor_us,
            len(self.state),
            self.times.elapsed_us,
            self.times.age_us,
            self.times.wall_us,
            *self.generation,
        )
