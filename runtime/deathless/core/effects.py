"""What a replica must do, as data; imperative, per buffer and per frame.

The engine carries the effects of one event out in the order of the list; the order that matters is written on the
type: a frame is durable, then proved, then released (I1); a successor takes the lock, then seals, then
reads, then cuts, then sets head, then opens, then proves, then serves (design section 5).

Guarantees: frozen records. Imports codec and base.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deathless.base.errors import DeathlessError
from deathless.codec.frames import Run
from deathless.core.events import Conn


@dataclass(frozen=True, slots=True)
class Send:
    """Send packets on a connection; lost when it is gone."""

    conn: Conn
    data: bytes


@dataclass(frozen=True, slots=True)
class Disconnect:
    """End a connection after what was sent."""

    conn: Conn


@dataclass(frozen=True, slots=True)
class RunFrame:
    """Reserve room, run the messages, write and sync them. Answered by FrameSynced or SpaceRefused."""

    runs: Sequence[tuple[Run, Sequence[bytes]]]
    confirmed_lsn: int


@dataclass(frozen=True, slots=True)
class WriteControl:
    """Write and sync a frame without messages. Answered by ControlSynced or ControlRefused."""

    kind: int
    payload: bytes
    confirmed_lsn: int


@dataclass(frozen=True, slots=True)
class Prove:
    """Prove that no successor has taken over; begun only after a sync returned. Answered by ProofAnswered."""

    number: int


@dataclass(frozen=True, slots=True)
class RunQueries:
    """Answer queries on the last completed turn's state. Answered by QueriesAnswered."""

    conn: Conn
    ids: Sequence[int]
    messages: Sequence[bytes]
    stale: bool


@dataclass(frozen=True, slots=True)
class ProbeSpace:
    """Try to reserve room. Answered by SpaceFound or SpaceRefused."""


@dataclass(frozen=True, slots=True)
class ReadLock:
    """Look at the lock; writes `service` as creating at the very first start. Answered by LockSeen."""


@dataclass(frozen=True, slots=True)
class TakeLock:
    """Takeover step 1, if nothing changed since the last LockSeen. Answered by LockTaken or LockRefused."""


@dataclass(frozen=True, slots=True)
class LinkSeals:
    """Takeover step 2. Answered by SealsLinked."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class ReadTail:
    """Takeover step 3, through fresh descriptors. Answered by TailRead."""

    head: int
    confirmed_lsn: int


@dataclass(frozen=True, slots=True)
class WriteCut:
    """Takeover step 4: cut and copies, synced, folder too. Answered by CutWritten."""

    epoch: int


@dataclass(frozen=True, slots=True)
class SetHead:
    """Takeover step 5. Answered by HeadSet."""


@dataclass(frozen=True, slots=True)
class ApplyCopies:
    """Run the copies, which the opening frame's proof has confirmed. Answered by CopiesApplied."""


@dataclass(frozen=True, slots=True)
class Recover:
    """Load the newest good checkpoint and apply the confirmed log behind it. Answered by Recovered."""


@dataclass(frozen=True, slots=True)
class ReadLog:
    """Apply a stretch of the confirmed log. Answered by LogRead."""


@dataclass(frozen=True, slots=True)
class FollowPrimary:
    """Connect to the primary's replication port and ask for the stream behind what is applied."""

    replica: str
    epoch: int


@dataclass(frozen=True, slots=True)
class AskUpstream:
    """Ask again on the connection that stands."""


@dataclass(frozen=True, slots=True)
class LeavePrimary:
    """Close the connection to the primary."""


@dataclass(frozen=True, slots=True)
class SendUpstream:
    """Send packets to the primary."""

    data: bytes


@dataclass(frozen=True, slots=True)
class TakeCheckpoint:
    """Copy the state between frames and write it in a helper. Answered by CheckpointWritten."""


@dataclass(frozen=True, slots=True)
class VerifyCheckpoint:
    """Read a checkpoint back in another process. Answered by CheckpointVerified."""

    lsn: int
    name: str


@dataclass(frozen=True, slots=True)
class Collect:
    """Remove log below `lsn` and checkpoints but the newest; only after a proof."""

    lsn: int


@dataclass(frozen=True, slots=True)
class TellRole:
    """The role changed: tell supervisor, clients, metrics."""

    role: str
    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class ReleaseLock:
    """Give the lock up at an orderly stop."""


@dataclass(frozen=True, slots=True)
class StopReplica:
    """End the process; the supervisor starts it again unless `error` says an operator must act first."""

    error: DeathlessError | None


Effect = (
    Send
    | Disconnect
    | RunFrame
    | WriteControl
    | Prove
    | RunQueries
    | ProbeSpace
    | ReadLock
    | TakeLock
    | LinkSeals
    | ReadTail
    | WriteCut
    | SetHead
    | ApplyCopies
    | Recover
    | ReadLog
    | FollowPrimary
    | AskUpstream
    | LeavePrimary
    | SendUpstream
    | TakeCheckpoint
    | VerifyCheckpoint
    | Collect
    | TellRole
    | ReleaseLock
    | StopReplica
)
