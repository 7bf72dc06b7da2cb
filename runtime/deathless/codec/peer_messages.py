"""What messages between services, and records about work of a shard's own, carry beside the plain message.

    FORK, REQUEST, RESPONSE, CANCEL   their envelope: a msgpack array in the message's third field
    PEER, TRIM, OUTCOME, ATTEMPT, ADOPT, ORDER   their body: a msgpack array in place of the arguments

Why here: `core` and `execution` both read and write these and may not know each other. The table of kinds is in
docs/formats/message.md, the meaning in docs/design/0006-messaging.md. Guarantees: frozen records, `decode` gives what
was encoded or raises CorruptFrame. Does not: decide anything. Imports base and codec only.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, NamedTuple, Protocol, TypeVar

import msgspec

from deathless.base.errors import CorruptFrame
from deathless.codec.messages import Kind, encode
from deathless.codec.snapshot import UnknownRecord
from deathless.codec.traces import Span
from deathless.codec.untrusted import read_msgpack


class Target(NamedTuple):
    """Whom a message is for: one shard of a service. `SELF` is the shard that sends."""

    service: str
    shard: int


SELF: Final = Target("", 0)
"""The target of messages to the own service."""

STREAM_PREFIX: Final = ":"
"""Begins the name by which turns know a stream, so that it is no service's."""

SELF_SESSION: Final = 2**63
"""Session of the runs that come from our own outbox; ids of registered sessions are lsns, far below."""


class Crowd(NamedTuple):
    """How much of a shard is suspended."""

    invocations: int  # handlers that have begun, messages that wait for their key, replies that are owed
    waiting: int  # of these, messages that wait for their key
    bytes: int  # that all of these keep


class Known(Protocol):
    """Who was ever sent to, as far as the outbox knows."""

    @property
    def others(self) -> int:
        """How many, ourselves not counted."""
        ...

    def knows(self, target: Target) -> bool:
        """Is this one among them?"""
        ...


NAME_MAX: Final = 40  # characters of a service's name
Name = Annotated[str, msgspec.Meta(max_length=NAME_MAX)]
UInt32 = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
UInt64 = Annotated[int, msgspec.Meta(ge=0)]
ServiceId = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
"""What comes from others is within these, or is malformed: columns of checkpoints hold no more."""


class Reference(msgspec.Struct, array_like=True, frozen=True):
    """One operation of one invocation: of the caller in RESPONSE and CANCEL, of ours in effects."""

    invocation: int  # lsn of the message that began it
    operation: int  # from 1, in the order in which the handler asked


class Sender(msgspec.Struct, array_like=True, frozen=True):
    """Envelope of FORK. `chain` is kept for tracing alone: a fork waits for nobody."""

    chain: tuple[str, ...] = ()


class Tick(Sender, array_like=True, frozen=True):
    """Envelope of a FORK that a schedule sends; read as a Sender it is any other's, and the reverse."""

    schedule: str = ""  # its name; empty: no tick


class TracedFork(Tick, array_like=True, frozen=True):
    """Envelope of a FORK with a trace context (see traces); read as one of the others it is that."""

    trace: bytes = b""  # empty: none


class RedeliveredFork(TracedFork, array_like=True, frozen=True):
    """Envelope of a FORK that a driver gave up and an operator sends again; read as one of the others it is that."""

    position: int = 0  # that it had first: its idempotency key at the receiver is still made from it; 0: this is it


class Request(msgspec.Struct, array_like=True, frozen=True):
    """Envelope of REQUEST: who waits, until when (0: for ever), and the chain of keys that wait with it."""

    invocation: int
    operation: int
    deadline_us: int = 0
    chain: tuple[str, ...] = ()  # `service/shard/key`, the outermost first


class TracedRequest(Request, array_like=True, frozen=True):
    """Envelope of a REQUEST with a trace context (see traces); read as a Request it is any other's."""

    trace: bytes = b""  # empty: none


class PeerHello(msgspec.Struct, array_like=True, frozen=True):
    """Body of PEER: who sends to us. Another incarnation is another peer until an operator adopts it."""

    service: Name
    shard: UInt32
    service_id: ServiceId
    incarnation: UInt64


class Adopt(msgspec.Struct, array_like=True, frozen=True):
    """Body of ADOPT: an operator says that this is the peer from now on.

    `anew`: positions begin again at 1 both ways although it is the same one, because the histories differ.
    """

    service: Name
    shard: UInt32
    service_id: ServiceId
    incarnation: UInt64
    anew: bool = False


class Trim(msgspec.Struct, array_like=True, frozen=True):
    """Body of TRIM: the target has confirmed our messages up to this position."""

    service: str
    shard: int
    through: int


class Outcome(msgspec.Struct, array_like=True, frozen=True):
    """Body of OUTCOME: an activity ended, its reply as a handler's (status byte, body). The first one counts."""

    invocation: int
    operation: int
    attempt: int
    reply: bytes


class Attempt(msgspec.Struct, array_like=True, frozen=True):
    """Body of ATTEMPT: an at-most-once activity is begun once this record is confirmed."""

    invocation: int
    operation: int
    attempt: int


class Order(msgspec.Struct, array_like=True, frozen=True):
    """Body of ORDER: an operator's command for an invocation.

    `cancel`: what it waits for is cancelled, the handler sees Cancelled at its await. `kill`: it ends at once with a
    recorded error, its last turn stands. `resume`: what it waits for (a promise) is completed with `value`. RETRY: not
    an invocation, but the message that the PARKED record at lsn `invocation` set aside is run as a new one (I11).
    SETTLE: an operator has seen to the activity `operation` whose outcome nobody knows, so it is listed no more (I7).
    REDELIVER, DISCARD: not an invocation, but the message of this id that a driver gave up. RETRY_INPUT, SKIP_INPUT:
    not an invocation, but the stream of this session; `operation` is the seq of the input at which it stands.
    RUN_INPUT, DROP_INPUT: not an invocation, but the refused input that is listed with lsn `invocation`.
    FORGET_STREAM: not an invocation, but the stream of this session.
    """

    command: str
    invocation: int
    operation: int = 0
    value: bytes = b""  # for `resume`: reply bytes; for `kill`: those of the recorded error, empty for the usual one


RETRY: Final = "retry"
"""The command of an ORDER that runs a parked message."""

SETTLE: Final = "settle"
"""The command of an ORDER that takes an unknown outcome off the list."""

REDELIVER: Final = "redeliver"
"""The command of an ORDER that sends a message again which a driver gave up; `invocation` is its id on the list."""

DISCARD: Final = "discard"
"""The command of an ORDER that takes such a message off the list."""

RETRY_INPUT: Final = "retry-input"
"""The command of an ORDER by which a stream goes on with the input at which it stands; `invocation` is its session."""

SKIP_INPUT: Final = "skip-input"
"""The command of an ORDER by which a stream goes on behind that input; `operation` is the input's seq."""

RUN_INPUT: Final = "run-input"
"""The command of an ORDER that runs a refused input again; `invocation` is the lsn with which it is listed."""

DROP_INPUT: Final = "drop-input"
"""The command of an ORDER that takes a refused input off the list."""

FORGET_STREAM: Final = "forget-stream"
"""The command of an ORDER by which nothing is known of a stream any more; `invocation` is its session."""


class ActivityStart(msgspec.Struct, array_like=True, frozen=True):
    """An activity to be run, as the turn asked for it; also an item of a checkpoint."""

    invocation: int
    operation: int
    attempt: int  # from 1; raised by each OUTCOME that is to be tried again
    name: str  # of the registered activity
    arguments: bytes  # msgpack map of the named arguments
    key: str  # stable idempotency key: the same for every attempt, in every replica
    at_most_once: bool
    attempted: bool  # an ATTEMPT record stands: for at-most-once ones, it may have begun
    not_before_us: int = 0  # elapsed time before which it is not begun (back-off); 0: at once
    timeout_us: int = 0  # of one attempt; 0: none
    heartbeat_us: int = 0  # an attempt that is silent for longer is ended; 0: none


class Ran(NamedTuple):
    """One turn of an invocation, for reports of divergences alone."""

    lsn: int  # of the message or record that caused it
    handler: str
    key: str


class Outputs(NamedTuple):
    """What turns gave since they were last asked, in order."""

    messages: list[tuple[Target, bytes]]  # for the outbox
    results: list[tuple[int, bytes]]  # (invocation, reply) that a client was promised
    starts: list[ActivityStart]
    stops: list[Reference]  # activities whose invocation does not want them any more
    turns: Sequence[Ran] = ()  # turns that a message of theirs or a record caused, and that it does not name itself
    spans: Sequence[Span] = ()  # what is over, of messages that carried a trace which is sampled
    unknown: Sequence[UnknownRecord] = ()  # activities of which nobody knows whether they were done
    refused: Sequence[tuple[int, Target, bytes]] = ()  # (lsn, stream, error reply) of inputs that handlers refused


class InvocationView(msgspec.Struct, frozen=True):
    """One invocation, for operators."""

    invocation: int
    handler: str
    key: str
    since_us: int  # logical time of its first turn
    turns: int
    waits_for: tuple[str, ...]  # each: what, and since when, in words
    origin: str  # `client`, or `service/shard` of the caller
    misfit: str = ""  # why the code does not fit it, so that it is held; empty: it is not


class ScheduleView(msgspec.Struct, frozen=True):
    """One schedule, for operators; times are logical, in microseconds."""

    name: str
    handler: str
    key: str
    expression: str
    zone: str
    missed: str
    last_us: int  # the last tick that was sent; 0: none
    next_us: int  # the next one; 0: there is none, or it is not known yet
    new: bool  # no time record has come since the code has it
    invocations: tuple[int, ...]  # of its ticks that run, or wait for their key
    problem: str  # how the last tick that ended failed; empty: it did not


class Given(msgspec.Struct, frozen=True):
    """One thing that an invocation was given, for operators."""

    operation: int  # which of those it asked for, from 1; 0: it was cancelled
    what: str  # that, in words; empty for a cancellation
    asked_us: int  # logical time when it was asked for; 0 for a cancellation
    lsn: int  # of the message or record that gave it
    at_us: int  # logical time of that
    reply: bytes  # status byte, body


class History(msgspec.Struct, frozen=True):
    """What an invocation was given, in order, for operators."""

    arguments: bytes  # msgpack map
    given: list[Given]  # the last ones
    count: int  # of all


class Retried(NamedTuple):
    """What became of an operator's RETRY."""

    invocation: int  # the new one; 0: nothing was run
    reason: bytes = b""  # error reply that says why nothing was; empty when something was


S = TypeVar("S")
_encode: Final = msgspec.msgpack.Encoder().encode


_SERVICE_NAME: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


@functools.lru_cache(maxsize=1024)  # asked for every message that a turn sends
def is_service_name(name: str) -> bool:
    """True for a DNS label of at most NAME_MAX characters: what a service may be called, and so what is sent to."""
    return len(name) <= NAME_MAX and _SERVICE_NAME.fullmatch(name) is not None


def encode_body(body: msgspec.Struct) -> bytes:
    """Give the msgpack array of a record above."""
    return _encode(body)


def decode_body(kind: type[S], data: bytes) -> S:
    """Decode an envelope or body.

    Raises: CorruptFrame when it does not fit.
    """
    try:
        return read_msgpack(data, kind)
    except msgspec.MsgspecError as error:
        raise CorruptFrame(f"{kind.__name__}: {error}") from None


RECORD_KINDS: Final[Mapping[type[msgspec.Struct], Kind]] = {
    PeerHello: Kind.PEER,
    Trim: Kind.TRIM,
    Outcome: Kind.OUTCOME,
    Attempt: Kind.ATTEMPT,
    Adopt: Kind.ADOPT,
    Order: Kind.ORDER,
}
"""Kind of the record whose body each one is."""


def encode_record(body: msgspec.Struct) -> bytes:
    """Give the record of the shard's own that carries this body; its kind follows from the body's type."""
    return encode(RECORD_KINDS[type(body)], args=_encode(body))


def encode_request(request: Request, *, method: bytes, key: bytes, args: bytes) -> bytes:
    """Give a REQUEST.

    Raises: TooLarge when method, key or chain are longer than the header can say.
    """
    return encode(Kind.REQUEST, method=method, key=key, idempotency_key=_encode(request), args=args)


def encode_response(caller: Reference, reply: bytes) -> bytes:
    """Give the RESPONSE to a REQUEST of `caller`; `reply` is a handler's (status byte, body)."""
    return encode(Kind.RESPONSE, idempotency_key=_encode(caller), args=reply)
