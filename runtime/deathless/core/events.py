"""What happened, told to a replica's state machine; past tense, per buffer and per frame.

Guarantees: frozen records; Structs, since a frozen dataclass costs four times as much. Does not: decide anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, NewType

import msgspec

from deathless.base.errors import DeathlessError
from deathless.base.times import Times
from deathless.codec.frames import Frame, Position, Run
from deathless.codec.peer_messages import ActivityStart, Adopt, Order, Reference, Target
from deathless.codec.snapshot import UnknownRecord
from deathless.codec.streams.packets import StreamBatch, StreamHello
from deathless.codec.streams.records import InputResult
from deathless.codec.traces import Span
from deathless.codec.wire import Batch, Follow, Following, Handover, Hello, PeerIntroduction

Conn = NewType("Conn", int)
"""An accepted connection of this replica, never reused within a process."""

UPSTREAM = Conn(0)
"""The connection of a follower to its primary."""


class LockState(NamedTuple):
    """The lock as seen at one moment; the fields of the lock port's view that the core decides by."""

    epoch: int
    head: int
    holder_epoch: int  # 0: nobody
    holder_replica: str
    revision: int
    live: bool  # the service has served before


class TailSummary(NamedTuple):
    """What the successor read; the frames themselves stay with the engine."""

    position: Position
    confirmed_lsn: int  # last lsn at `position`
    last_lsn: int  # last lsn of the copies
    copies: int


class RunResult(NamedTuple):
    """One run of an executed frame."""

    run: Run
    replies: Sequence[bytes]
    history: bytes = b""  # of a peer's session behind the run: codec.peer_history


class ConnectionOpened(msgspec.Struct, frozen=True):
    """Somebody said HELLO (already authorised); `name` is the one in the certificate it showed, empty without one."""

    conn: Conn
    hello: Hello
    name: str = ""


class ConnectionLost(msgspec.Struct, frozen=True):
    """The connection ended; UPSTREAM when it is the one to the primary."""

    conn: Conn


class BatchesReceived(msgspec.Struct, frozen=True):
    """Messages of clients: all that came in one turn of the event loop, in the order they came."""

    batches: Sequence[tuple[Conn, Batch]]


class RegisterReceived(msgspec.Struct, frozen=True):
    """A client asks for a session."""

    conn: Conn
    nonce: bytes


class QueriesReceived(msgspec.Struct, frozen=True):
    """A client's queries."""

    conn: Conn
    stale: bool
    ids: Sequence[int]
    messages: Sequence[bytes]


class AttachReceived(msgspec.Struct, frozen=True):
    """A client asks for the results of invocations, one for each of its ids."""

    conn: Conn
    ids: Sequence[int]
    invocations: Sequence[int]


class PeerHelloReceived(msgspec.Struct, frozen=True):
    """Another service says who it is, its primary's epoch and history; its messages will come on this connection."""

    conn: Conn
    said: PeerIntroduction


class FollowReceived(msgspec.Struct, frozen=True):
    """A follower asks for the stream."""

    conn: Conn
    follow: Follow


class AppliedReceived(msgspec.Struct, frozen=True):
    """A follower applied everything up to `lsn`."""

    conn: Conn
    lsn: int


class BuffersDrained(msgspec.Struct, frozen=True):
    """All sockets that were readable have been read: time to form a frame (group commit without a timer)."""


class StreamHelloReceived(msgspec.Struct, frozen=True):
    """A source wants to own a stream."""

    conn: Conn
    hello: StreamHello


class StreamBatchReceived(msgspec.Struct, frozen=True):
    """A source sends input of a stream."""

    conn: Conn
    batch: StreamBatch


class FrameSynced(msgspec.Struct, frozen=True):
    """The messages ran and the frame is durable, at `offset` of the file `roll` of our epoch."""

    frame: Frame
    raw: bytes
    roll: int
    offset: int
    results: Sequence[RunResult]
    registered: Sequence[tuple[bytes, int]]  # (nonce, session id)
    times: Times  # of the shard behind it
    sent: Sequence[tuple[Target, int]] = ()  # (target, next position) of each outbox that the frame made longer
    starts: Sequence[ActivityStart] = ()  # activities that its turns asked for
    stops: Sequence[Reference] = ()  # activities that nobody wants any more
    finished: Sequence[tuple[int, bytes]] = ()  # (invocation, reply) of those that a client was promised
    spans: Sequence[Span] = ()  # what is over, for traces
    run_s: float = 0.0  # what running its messages took
    unknown: Sequence[UnknownRecord] = ()  # activities of which nobody knows whether they were done
    killers: Sequence[bytes] = ()  # handlers of what was parked in it, because a copy of the process died of it
    inputs: Sequence[InputResult] = ()  # what its runs of streams came to


class PeerReady(msgspec.Struct, frozen=True):
    """A connection to the primary of a peer stands, and it has said from which position it takes our messages."""

    target: Target
    session: int  # ours, at the peer
    next_position: int
    history: bytes = b""  # before that position, as the peer knows it: codec.peer_history


class PeerCommitted(msgspec.Struct, frozen=True):
    """A peer has confirmed our messages up to a position."""

    target: Target
    through: int


class PeerLost(msgspec.Struct, frozen=True):
    """The connection to a peer ended; the shell looks for its primary again, for ever (I4)."""

    target: Target


class ActivityEnded(msgspec.Struct, frozen=True):
    """One attempt of an activity ended; `reply` as a handler's."""

    invocation: int
    operation: int
    attempt: int
    reply: bytes


class OrderReceived(msgspec.Struct, frozen=True):
    """An operator's command for an invocation, or to adopt a peer; answered once it is confirmed."""

    conn: Conn
    request: int
    record: Order | Adopt


class ControlSynced(msgspec.Struct, frozen=True):
    """A frame without messages is durable."""

    kind: int
    confirmed_lsn: int


class ControlRefused(msgspec.Struct, frozen=True):
    """There was no room for a frame without messages; nothing was written."""


class SpaceRefused(msgspec.Struct, frozen=True):
    """There was no room for the frame; nothing ran. `runs` are those of the RunFrame, empty for a probe."""

    runs: Sequence[tuple[Run, Sequence[bytes]]]


class ClockTold(msgspec.Struct, frozen=True):
    """Time goes otherwise than the clocks of those who go on from what they were told: tell them again."""


class MachineSlept(msgspec.Struct, frozen=True):
    """The machine slept: so much passed that the steady clock does not show."""

    us: int


class SpaceFound(msgspec.Struct, frozen=True):
    """There is room again."""


class ProofAnswered(msgspec.Struct, frozen=True):
    """The answer to one Prove; `owned` False is definite."""

    number: int
    owned: bool


class QueriesAnswered(msgspec.Struct, frozen=True):
    """Answers computed on the last completed turn's state."""

    conn: Conn
    ids: Sequence[int]
    answers: Sequence[bytes]
    saw_lsn: int
    stale: bool


class LockSeen(msgspec.Struct, frozen=True):
    """The lock store answered a look."""

    lock: LockState


class LockTaken(msgspec.Struct, frozen=True):
    """The lock is ours, in this epoch; `head` is the predecessor."""

    epoch: int
    head: int


class LockRefused(msgspec.Struct, frozen=True):
    """Somebody was faster."""


class SealsLinked(msgspec.Struct, frozen=True):
    """Every epoch from head on is closed."""


class TailRead(msgspec.Struct, frozen=True):
    """The predecessor's log was read to its end, after the seals."""

    tail: TailSummary


class Migrated(msgspec.Struct, frozen=True):
    """What the new code goes on with is made, behind the record at `lsn`, and its checkpoint reads back well."""

    lsn: int


class UpgradeFailed(msgspec.Struct, frozen=True):
    """The upgrade can't be made: a replica of the code of before goes on."""

    error: DeathlessError


class CutWritten(msgspec.Struct, frozen=True):
    """Cut and copies are durable."""


class HeadSet(msgspec.Struct, frozen=True):
    """Head names our epoch; revision None: deposed."""

    revision: int | None


class CopiesApplied(msgspec.Struct, frozen=True):
    """The copies, now confirmed, have been run."""

    lsn: int
    gap_us: int = 0  # what has passed since the last time record, as far as it is known


class Recovered(msgspec.Struct, frozen=True):
    """The newest checkpoint is loaded and the confirmed log behind it applied, up to `lsn`."""

    lsn: int


class LogRead(msgspec.Struct, frozen=True):
    """A stretch of the confirmed log was applied; `end`: that was all there is now."""

    lsn: int
    end: bool


class UpstreamAnswered(msgspec.Struct, frozen=True):
    """The primary answered FOLLOW, or changed its checkpointer."""

    following: Following


class FramesApplied(msgspec.Struct, frozen=True):
    """Frames of the stream were applied up to `lsn`; `gap`: one did not fit, ask anew."""

    lsn: int
    messages: int
    size: int
    gap: bool


class HandoverReceived(msgspec.Struct, frozen=True):
    """The primary hands its lock to us."""

    handover: Handover


class TakeoverOrdered(msgspec.Struct, frozen=True):
    """The failure detector found the primary of `epoch` (0: none known) gone; others have applied `confirmed_lsn`."""

    epoch: int
    reason: str
    confirmed_lsn: int = 0


class SwitchoverOrdered(msgspec.Struct, frozen=True):
    """An operator wants another primary; target empty: the best follower."""

    conn: Conn
    request: int
    target: str
    upgrade: bytes = b""  # id of the upgrade that the target is to make; empty: none


class StopOrdered(msgspec.Struct, frozen=True):
    """An orderly stop."""

    at_once: bool = False  # without the wait for activities that must run at most once


class PrimarySeen(msgspec.Struct, frozen=True):
    """Gossip or the lock names the primary: its epoch, replica and addresses."""

    epoch: int
    replica: str
    client_address: str


class DeathsReported(msgspec.Struct, frozen=True):
    """A worker died while it ran (session, seq); `deaths` in that message so far, none completed in between."""

    session: int
    seq: int
    deaths: int


class CheckpointWritten(msgspec.Struct, frozen=True):
    """A checkpoint of ours is linked and durable; name empty: it could not be written, try again when next due."""

    lsn: int
    name: str


class CheckpointAnnounced(msgspec.Struct, frozen=True):
    """A follower wrote a checkpoint."""

    conn: Conn
    lsn: int
    name: str


class DivergenceReported(msgspec.Struct, frozen=True):
    """A follower computed something else than was logged; it stopped (I6)."""

    replica: str
    text: str


class CheckpointVerified(msgspec.Struct, frozen=True):
    """A checkpoint was read back through a fresh descriptor by another process than its writer."""

    lsn: int
    name: str
    good: bool


class ConfirmedStored(msgspec.Struct, frozen=True):
    """The lock store knows that everything up to `lsn` is confirmed, or keeps no such place, or we were deposed."""

    lsn: int


class CheckpointsFound(msgspec.Struct, frozen=True):
    """Lsns of the verified checkpoints of this log's history, in the directory that all replicas share."""

    lsns: list[int]


class Failed(msgspec.Struct, frozen=True):
    """Something broke that stops the replica (I8)."""

    error: DeathlessError


class TimerFired(msgspec.Struct, frozen=True):
    """The deadline the machine named is reached."""


OfClient = (
    ConnectionOpened
    | BatchesReceived
    | RegisterReceived
    | FollowReceived
    | QueriesReceived
    | QueriesAnswered
    | AttachReceived
    | PeerHelloReceived
    | OrderReceived
    | StreamHelloReceived
    | StreamBatchReceived
)
"""What comes from clients, and from others that take us for the primary."""

OfMessaging = (
    PeerReady
    | PeerCommitted
    | PeerLost
    | ActivityEnded
    | AttachReceived
    | PeerHelloReceived
    | OrderReceived
    | StreamHelloReceived
    | StreamBatchReceived
)
"""What a primary hears of its peers, its activities, and those who wait for results."""

RareForPrimary = (
    ConnectionOpened
    | OfMessaging
    | ControlSynced
    | ControlRefused
    | SpaceRefused
    | SpaceFound
    | MachineSlept
    | ClockTold
    | SwitchoverOrdered
    | StopOrdered
    | ConfirmedStored
    | DeathsReported
    | CheckpointWritten
    | CheckpointAnnounced
    | CheckpointVerified
    | CheckpointsFound
    | DivergenceReported
    | PrimarySeen
    | LockSeen
    | LockTaken
    | LockRefused
    | SealsLinked
    | TailRead
    | Migrated
    | UpgradeFailed
    | CutWritten
    | HeadSet
    | CopiesApplied
    | Recovered
    | LogRead
    | UpstreamAnswered
    | FramesApplied
    | HandoverReceived
    | TakeoverOrdered
    | Failed
)
"""What a primary meets seldom, or only late."""

Event = (
    ConnectionOpened
    | ConnectionLost
    | BatchesReceived
    | RegisterReceived
    | QueriesReceived
    | AttachReceived
    | PeerHelloReceived
    | OrderReceived
    | StreamHelloReceived
    | StreamBatchReceived
    | PeerReady
    | PeerCommitted
    | PeerLost
    | ActivityEnded
    | FollowReceived
    | AppliedReceived
    | BuffersDrained
    | FrameSynced
    | ControlSynced
    | ControlRefused
    | SpaceRefused
    | SpaceFound
    | MachineSlept
    | ClockTold
    | ProofAnswered
    | QueriesAnswered
    | LockSeen
    | LockTaken
    | LockRefused
    | SealsLinked
    | TailRead
    | Migrated
    | UpgradeFailed
    | CutWritten
    | HeadSet
    | CopiesApplied
    | Recovered
    | LogRead
    | UpstreamAnswered
    | FramesApplied
    | HandoverReceived
    | TakeoverOrdered
    | SwitchoverOrdered
    | StopOrdered
    | ConfirmedStored
    | PrimarySeen
    | DeathsReported
    | CheckpointWritten
    | CheckpointAnnounced
    | DivergenceReported
    | CheckpointVerified
    | CheckpointsFound
    | Failed
    | TimerFired
)
