"""What a code was told, message by message, and what it did: a log as two codes can be compared by.

    step    what an executor is told: a call, a message of a peer, the time, the outcome of an activity ...
    Did     what came of it: the turns it caused, the states and items that they left, and which keys are held now

Steps are what is left of a log when sessions, outboxes and repeated calls have been dealt with: whoever runs them needs
no more than an executor. They pass from the process of the former code to that of the new one.

Guarantees: `decode_trace` gives what `encode_trace` was given. Does not: run anything. Imports base and codec.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from deathless.base.errors import CorruptFrame, InvalidArgument
from deathless.base.times import Times
from deathless.codec.messages import decode
from deathless.codec.untrusted import UNREADABLE, read_msgpack


class Called(msgspec.Struct, array_like=True, frozen=True, tag=0):
    """A message of a client."""

    lsn: int
    now_us: int  # logical time
    message: bytes  # as codec.messages describes


class Sent(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """A message of a peer, or of the shard to itself."""

    lsn: int
    now_us: int
    message: bytes
    service: str  # of the sender; empty: the shard itself
    shard: int


class Moved(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """The times of the shard moved."""

    lsn: int
    times: Times


class Advanced(msgspec.Struct, array_like=True, frozen=True, tag=3):
    """They moved, and something is due."""

    lsn: int
    times: Times
    caught_up: bool


class Recorded(msgspec.Struct, array_like=True, frozen=True, tag=4):
    """A record of the shard's own: OUTCOME, ATTEMPT or ORDER."""

    lsn: int
    now_us: int
    kind: int  # see codec.messages.Kind
    body: bytes


class Again(msgspec.Struct, array_like=True, frozen=True, tag=5):
    """A message that was set aside is run after all."""

    lsn: int
    now_us: int
    parked: int  # lsn of the record that set it aside
    message: bytes


class Replaced(msgspec.Struct, array_like=True, frozen=True, tag=6):
    """A peer was created anew."""

    lsn: int
    now_us: int
    service: str
    shard: int


Step = Called | Sent | Moved | Advanced | Recorded | Again | Replaced


class MapChange(msgspec.Struct, array_like=True, frozen=True):
    """What became of one map."""

    prefix: bytes
    cleared: bool  # everything that was there went first
    entries: list[tuple[bytes, bytes | None]]  # None: the item went


class Turned(msgspec.Struct, array_like=True):
    """One turn, or how something ended without one."""

    invocation: int  # lsn of the message that began it
    handler: str  # empty: it is not known
    key: bytes
    asked: list[bytes] = []  # of each thing asked for, in order (see turn.asked_operation)
    reply: bytes = b""  # that it ended with: status byte, body; empty: it waits, or its reply is promised
    states: dict[bytes, bytes] = {}  # that it left, by key
    maps: list[MapChange] = []


class Did(msgspec.Struct, array_like=True):
    """What came of one step."""

    turns: list[Turned] = []
    held: dict[bytes, bool] = {}  # of each key that the step and its turns name: does a handler hold it now?
    waits: bool = False  # what the step began has not ended
    ran: bool = True  # False: it was answered from what is recorded under its idempotency key

    @property
    def states(self) -> dict[bytes, bytes]:
        """States that were left, by key."""
        turns = self.turns
        if len(turns) == 1:
            return turns[0].states
        return {key: state for turned in turns for key, state in turned.states.items()}

    @property
    def maps(self) -> list[MapChange]:
        """What became of maps, in order."""
        return [change for turned in self.turns for change in turned.maps]


Trace = Sequence[tuple[Step, Did]]
_encode: Final = msgspec.msgpack.Encoder().encode


def encode_trace(trace: Trace) -> bytes:
    """Give the bytes of a trace."""
    return _encode(trace)


def encode_did(did: Did) -> bytes:
    """Give bytes that stand for what was done: the same where the same was done."""
    return _encode(did)


def decode_trace(data: bytes) -> list[tuple[Step, Did]]:
    """Take the bytes of a trace apart.

    Raises: InvalidArgument.
    """
    try:
        return read_msgpack(data, list[tuple[Step, Did]])
    except UNREADABLE as error:
        raise InvalidArgument(f"what a code did can't be read: {error}") from None


def named_in(step: Step, did: Did) -> tuple[str, bytes]:
    """Give the handler and the key that a step is about: of its message, else of its first turn."""
    if isinstance(step, Called | Sent | Again):
        try:
            _, method, key, _, _ = decode(step.message)
        except CorruptFrame:
            method, key = b"", b""
        if method:
            return method.decode(errors="replace"), key
    if did.turns:
        return did.turns[0].handler, did.turns[0].key
    return "", b""
