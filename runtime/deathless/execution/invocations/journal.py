"""What a checkpoint keeps of handlers that wait: records that say how to get them there again.

    SuspendedInvocation   an `async def` handler that waits: its arguments, its state at its start, and in order what
                          it was given, what it asked for (see turn.asked_operation) and what it saw of its maps; run
                          again, it must ask for the same and end in the same state
    SuspendedLooks        version 1 of the same where the state has maps: answers alone, not what was looked at
    SuspendedHeld         one of these that the code does not fit, as it stood, with what came for it since
    SuspendedReply        a caller of a plain handler that waits for a reply that comes later
    SuspendedMessage      a message that waits for the invocation that holds its key
    SuspendedSchedule     a schedule, and up to when its ticks are dealt with

Version 1 of SuspendedInvocation ends behind `elapsed_us`; `asked` is None then, and `prints` holds a CRC-32 of each
thing that it asked for, by which it is compared.

Guarantees: `decode_record` gives what was encoded or raises CorruptCheckpoint. Does not: decide. Imports base, codec.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from deathless.base.errors import CorruptCheckpoint
from deathless.codec.untrusted import UNREADABLE
from deathless.execution.invocations.misfits import UnfitInvocation

STATE_HASH_BYTES: Final = 16
_WAITS: Final = 1  # tag of SuspendedInvocation
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


class Looked(msgspec.Struct, array_like=True, frozen=True):
    """One look at a map of its key."""

    field: int  # index in `fields`
    next: bool  # it asked which item comes behind, not for the item
    item: bytes  # encoded key of the item; empty: the beginning of the map
    answer: bytes | None  # the encoded item, or the encoded key of the next one; None: there was none


class Came(msgspec.Struct, array_like=True, frozen=True):
    """Something that came for an invocation while it was held."""

    kind: int  # see CAME_*
    operation: int = 0
    reply: bytes = b""
    attempt: int = 0
    service: str = ""  # of a RESPONSE who sent it, of a REPLACED who was created anew
    shard: int = 0


CAME_RESPONSE, CAME_OUTCOME, CAME_ATTEMPT, CAME_VALUE, CAME_CANCEL, CAME_REPLACED = range(6)
"""Kinds of a Came: what a call gave, how an attempt ended, that an at-most-once activity may have begun, what a promise
was completed with, that its caller waits no more, that a peer was created anew."""


class SuspendedInvocation(msgspec.Struct, array_like=True, frozen=True, tag=_WAITS):
    """See the module."""

    id: int
    received: Received
    lsn: int  # of its first turn; 0: it is carried, and that is still to come
    now_us: int  # likewise
    count: int  # operations asked for before its first turn, by those that it continues
    order: int  # likewise, resolved
    part: int  # likewise, turns
    start: bytes | None  # state of the key at its start; None: it had none
    journal: list[Event]
    prints: list[int]  # of version 1: of what it asked for
    activities: list[PendingActivity]
    state_hash: bytes  # of the state behind its last turn
    since_us: int
    elapsed_us: int = 0  # of its first turn; 0, of version 1: as `now_us`
    asked: list[bytes] | None = None  # what it asked for, in order; None, of version 1: see `prints`
    shared: bool = False  # others may take turns of its key meanwhile
    state: bytes | None = None  # behind its last turn; None: as the key's, or of version 1
    looked: list[Looked] | None = None  # what it saw of its maps, in order; None: its state has none, or of version 1
    fields: list[str] = []  # names of the maps that it looked at
    begun_in: int = 0  # version of the code in which it began; 0, which is left out: in the one that kept this


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


class SuspendedHeld(msgspec.Struct, array_like=True, frozen=True, tag=6):
    """See the module."""

    id: int
    record: bytes  # the record of the invocation, byte for byte as it was found
    misfit: (
        UnfitInvocation | None
    )  # why it is held; None: code that fits has met it, it goes on with the next TIME record
    holds: bool  # True: it holds its key
    state: bytes | None = None  # of the key when it was first held; None: it had none
    came: list[Came] = []  # in order
    disowned: bool = False  # True: its caller was created anew since, so nobody is told


Suspended = SuspendedInvocation | SuspendedLooks
Record = Suspended | SuspendedReply | SuspendedMessage | SuspendedSchedule | SuspendedHeld
_encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final[msgspec.msgpack.Decoder[Record]] = msgspec.msgpack.Decoder(Record)


def encode_record(record: Record) -> bytes:
    """Encode one record; of what began in the present version, the bytes are those of before there were others."""
    if type(record) is SuspendedInvocation and not record.begun_in:
        return _encode((_WAITS, *msgspec.structs.astuple(record)[:-1]))
    return _encode(record)


def decode_record(data: bytes) -> Record:
    """Decode one record.

    Raises: CorruptCheckpoint.
    """
    try:
        return _decoder.decode(data)
    except UNREADABLE as error:
        raise CorruptCheckpoint(f"a suspended invocation can't be read: {error}") from None


def decode_suspended(data: bytes) -> SuspendedInvocation:
    """Decode the record of an invocation, of whichever version; what it looked at has empty items in version 1.

    Raises: CorruptCheckpoint.
    """
    record = decode_record(data)
    if isinstance(record, SuspendedLooks):
        looked = [Looked(0, next=False, item=b"", answer=answer) for answer in record.looked]
        return msgspec.structs.replace(record.record, looked=looked)
    if not isinstance(record, SuspendedInvocation):
        raise CorruptCheckpoint("what is held is no suspended invocation")
    return record


def state_hash(state: bytes) -> bytes:
    """Give the hash of a state's bytes."""
    return hashlib.blake2b(state, digest_size=STATE_HASH_BYTES).digest()
