"""What happened, told to a replica's state machine; past tense, per buffer and per frame.

Guarantees: frozen records. Does not: decide anything. Imports codec and base.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, NewType

from deathless.base.errors import DeathlessError
from deathless.codec.frames import Frame, Position, Run
from deathless.codec.wire import Batch, Follow, Following, Handover, Hello

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


@dataclass(frozen=True, slots=True)
class ConnectionOpened:
    """Somebody said HELLO (already authorised)."""

    conn: Conn
    hello: Hello


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """The connection ended; UPSTREAM when it is the one to the primary."""

    conn: Conn


@dataclass(frozen=True, slots=True)
class BatchReceived:
    """Messages of a client."""

    conn: Conn
    batch: Batch


@dataclass(frozen=True, slots=True)
class RegisterReceived:
    """A client asks for a session."""

    conn: Conn
    nonce: bytes


@dataclass(frozen=True, slots=True)
class QueriesReceived:
    """A client's queries."""

    conn: Conn
    stale: bool
    ids: Sequence[int]
    messages: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class FollowReceived:
    """A follower asks for the stream."""

    conn: Conn
    follow: Follow


@dataclass(frozen=True, slots=True)
class AppliedReceived:
    """A follower applied everything up to `lsn`."""

    conn: Conn
    lsn: int


@dataclass(frozen=True, slots=True)
class BuffersDrained:
    """All sockets that were readable have been read: time to form a frame (group commit without a timer)."""


@dataclass(frozen=True, slots=True)
class FrameSynced:
    """The messages ran and the frame is durable, at `offset` of the file `roll` of our epoch."""

    frame: Frame
    raw: bytes
    roll: int
    offset: int
    results: Sequence[RunResult]
    registered: Sequence[tuple[bytes, int]]  # (nonce, session id)
    time_us: int


@dataclass(frozen=True, slots=True)
class ControlSynced:
    """A frame without messages is durable."""

    kind: int
    confirmed_lsn: int


@dataclass(frozen=True, slots=True)
class ControlRefused:
    """There was no room for a frame without messages; nothing was written."""


@dataclass(frozen=True, slots=True)
class SpaceRefused:
    """There was no room for the frame; nothing ran. `runs` are those of the RunFrame, empty for a probe."""

    runs: Sequence[tuple[Run, Sequence[bytes]]]


@dataclass(frozen=True, slots=True)
class SpaceFound:
    """There is room again."""


@dataclass(frozen=True, slots=True)
class ProofAnswered:
    """The answer to one Prove; `owned` False is definite."""

    number: int
    owned: bool


@dataclass(frozen=True, slots=True)
class QueriesAnswered:
    """Answers computed on the last completed turn's state."""

    conn: Conn
    ids: Sequence[int]
    answers: Sequence[bytes]
    saw_lsn: int
    stale: bool


@dataclass(frozen=True, slots=True)
class LockSeen:
    """The lock store answered a look."""

    lock: LockState


@dataclass(frozen=True, slots=True)
class LockTaken:
    """The lock is ours, in this epoch; `head` is the predecessor."""

    epoch: int
    head: int


@dataclass(frozen=True, slots=True)
class LockRefused:
    """Somebody was faster."""


@dataclass(frozen=True, slots=True)
class SealsLinked:
    """Every epoch from head on is closed."""


@dataclass(frozen=True, slots=True)
class TailRead:
    """The predecessor's log was read to its end, after the seals."""

    tail: TailSummary


@dataclass(frozen=True, slots=True)
class CutWritten:
    """Cut and copies are durable."""


@dataclass(frozen=True, slots=True)
class HeadSet:
    """Head names our epoch; revision None: deposed."""

    revision: int | None


@dataclass(frozen=True, slots=True)
class CopiesApplied:
    """The copies, now confirmed, have been run."""

    lsn: int


@dataclass(frozen=True, slots=True)
class Recovered:
    """The newest checkpoint is loaded and the confirmed log behind it applied, up to `lsn`."""

    lsn: int


@dataclass(frozen=True, slots=True)
class LogRead:
    """A stretch of the confirmed log was applied; `end`: that was all there is now."""

    lsn: int
    end: bool


@dataclass(frozen=True, slots=True)
class UpstreamAnswered:
    """The primary answered FOLLOW, or changed its checkpointer."""

    following: Following


@dataclass(frozen=True, slots=True)
class FramesApplied:
    """Frames of the stream were applied up to `lsn`; `gap`: one did not fit, ask anew."""

    lsn: int
    messages: int
    size: int
    gap: bool


@dataclass(frozen=True, slots=True)
class HandoverReceived:
    """The primary hands its lock to us."""

    handover: Handover


@dataclass(frozen=True, slots=True)
class TakeoverOrdered:
    """The failure detector found the primary of `epoch` (0: none known) gone."""

    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class SwitchoverOrdered:
    """An operator wants another primary; target empty: the best follower."""

    conn: Conn
    request: int
    target: str


@dataclass(frozen=True, slots=True)
class StopOrdered:
    """An orderly stop."""


@dataclass(frozen=True, slots=True)
class PrimarySeen:
    """Gossip or the lock names the primary: its epoch, replica and addresses."""

    epoch: int
    replica: str
    client_address: str


@dataclass(frozen=True, slots=True)
class DeathsReported:
    """A worker died while it ran (session, seq); `deaths` in that message so far, none completed in between."""

    session: int
    seq: int
    deaths: int


@dataclass(frozen=True, slots=True)
class CheckpointWritten:
    """A checkpoint of ours is linked and durable; name empty: it could not be written, try again when next due."""

    lsn: int
    name: str


@dataclass(frozen=True, slots=True)
class CheckpointAnnounced:
    """A follower wrote a checkpoint."""

    conn: Conn
    lsn: int
    name: str


@dataclass(frozen=True, slots=True)
class DivergenceReported:
    """A follower computed something else than was logged; it stopped (I6)."""

    replica: str
    text: str


@dataclass(frozen=True, slots=True)
class CheckpointVerified:
    """A checkpoint was read back through a fresh descriptor by another process than its writer."""

    lsn: int
    name: str
    good: bool


@dataclass(frozen=True, slots=True)
class Failed:
    """Something broke that stops the replica (I8)."""

    error: DeathlessError


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The deadline the machine named is reached."""


OfClient = ConnectionOpened | BatchReceived | RegisterReceived | FollowReceived | QueriesReceived | QueriesAnswered
"""What comes from clients, and from others that take us for the primary."""

RareForPrimary = (
    ConnectionOpened
    | ControlSynced
    | ControlRefused
    | SpaceRefused
    | SpaceFound
    | SwitchoverOrdered
    | StopOrdered
    | DeathsReported
    | CheckpointWritten
    | CheckpointAnnounced
    | CheckpointVerified
    | DivergenceReported
    | PrimarySeen
    | LockSeen
    | LockTaken
    | LockRefused
    | SealsLinked
    | TailRead
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
    | BatchReceived
    | RegisterReceived
    | QueriesReceived
    | FollowReceived
    | AppliedReceived
    | BuffersDrained
    | FrameSynced
    | ControlSynced
    | ControlRefused
    | SpaceRefused
    | SpaceFound
    | ProofAnswered
    | QueriesAnswered
    | LockSeen
    | LockTaken
    | LockRefused
    | SealsLinked
    | TailRead
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
    | PrimarySeen
    | DeathsReported
    | CheckpointWritten
    | CheckpointAnnounced
    | DivergenceReported
    | CheckpointVerified
    | Failed
    | TimerFired
)
