"""What a checkpoint keeps of handlers that wait: records that say how to get them there again.

    SuspendedInvocation   an `async def` handler that waits: its arguments, its state at its start, and in order what
                          it was given; run again, it must ask for the same and end in the same bytes
    SuspendedLooks        the same where the state has maps, with what it saw of them
    SuspendedReply        a caller of a plain handler that waits for a reply that comes later
    SuspendedMessage      a message that waits for the invocation that holds its key
    SuspendedSchedule     a schedule, and up to when its ticks are dealt with

Guarantees: `decode_record` gives what was encoded or raises CorruptCheckpoint. Does not: decide. Imports base only.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from deathless.base.errors import CorruptCheckpoint
from deathless.codec.untrusted import UNREADABLE

STATE_HASH_BYTES: Final = 16
CLIENT, REQUEST, FORK, TICK = 0, 1, 2, 3
"""Kinds of an Origin."""


class Origin(msgspec.Struct, array_like=True, frozen=True):
    """Who sent a message, and so whom its reply is for."""

    kind: int
    service: str = ""  # of the caller; empty: ourselves; of a TICK the schedule's name
    shard: int = 0
    invocation: int = 0  # of the caller, when it waits
    operation: int = 0

    def __str__(self) -> str:
        """Give it for operators."""
        if self.kind == TICK:
            return f"schedule {self.service}"
        return "client" if self.kind == CLIENT else f"{self.service or '(self)'}/{self.shard}"


class Received(msgspec.Struct, array_like=True, frozen=True):
    """A message to a handler, whoever sent it."""

    origin: Origin
    method: str
    key: bytes
    arguments: bytes
    chain: tuple[str, ...] = ()
    deadline_us: int = 0  # of the caller, by elapsed time; 0: none
    trace: bytes = b""  # trace context it came with; empty: none


class Event(msgspec.Struct, array_like=True, frozen=True):
    """Something that an invocation was given: the reply to an operation, or its cancellation (operation 0)."""

    operation: int
    reply: bytes
    lsn: int
    now_us: int
    state: bytes | None = None  # when others changed the state since its last turn: what it is now
    elapsed_us: int = 0  # of the shard then; 0, of version 1: as `now_us`


class PendingActivity(msgspec.Struct, array_like=True, frozen=True):
    """Where an activity stands."""

    operation: int
    attempt: int
    attempted: bool
    not_before_us: int


class SuspendedInvocation(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """See the module."""

    id: int
    received: Received
    lsn: int  # of its first turn
    now_us: int  # likewise
    count: int  # operations asked for before its first turn, by those that it continues
    order: int  # likewise, resolved
    part: int  # likewise, turns
    start: bytes | None  # state of the key at its start; None: it had none
    journal: list[Event]
    prints: list[int]  # of what it asked for
    activities: list[PendingActivity]
    state_hash: bytes  # of the state behind its last turn
    since_us: int
    elapsed_us: int = 0  # of its first turn; 0, of version 1: as `now_us`


class SuspendedLooks(msgspec.Struct, array_like=True, frozen=True, tag=5):
    """See the module."""

    record: SuspendedInvocation
    looked: list[bytes | None]  # what it saw of its maps, in order

    @property
    def id(self) -> int:
        """Of the invocation."""
        return self.record.id


class SuspendedReply(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """See the module."""

    id: int
    origin: Origin
    method: str
    key: bytes
    since_us: int


class SuspendedMessage(msgspec.Struct, array_like=True, frozen=True, tag=3):
    """See the module."""

    id: int
    received: Received
    waits_for: bytes  # the key
    since_us: int


class SuspendedSchedule(msgspec.Struct, array_like=True, frozen=True, tag=4):
    """See the module."""

    id: int  # 0: it stands before all others
    name: str
    expression: str
    zone: str
    seen_us: int  # all ticks up to here are sent or left out
    last_us: int  # the last one that was sent; 0: none
    problem: str  # how the last one that ended failed; empty: it did not


Record = SuspendedInvocation | SuspendedLooks | SuspendedReply | SuspendedMessage | SuspendedSchedule
encode_record: Final = msgspec.msgpack.Encoder().encode
_decoder: Final[msgspec.msgpack.Decoder[Record]] = msgspec.msgpack.Decoder(Record)


def decode_record(data: bytes) -> Record:
    """Decode one record.

    Raises: CorruptCheckpoint.
    """
    try:
        return _decoder.decode(data)
    except UNREADABLE as error:
        raise CorruptCheckpoint(f"a suspended invocation can't be read: {error}") from None


def state_hash(state: bytes) -> bytes:
    """Give the hash of a state's bytes."""
    return hashlib.blake2b(state, digest_size=STATE_HASH_BYTES).digest()
