"""What a replica must do, as data; imperative, per buffer and per frame.

The engine carries the effects of one event out in the order of the list; the order that matters is written on the
type: a frame is durable, then proved, then released (I1); a successor takes the lock, then seals, then
reads, then cuts, then sets head, then opens, then proves, then serves (design 0003, "Takeover").

Guarantees: frozen records. Imports codec and base.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from deathless.base.errors import DeathlessError
from deathless.codec.frames import Run
from deathless.codec.peer_messages import ActivityStart, Reference, Target
from deathless.codec.snapshot import UnknownRecord
from deathless.codec.traces import Span
from deathless.core.events import Conn


class Send(msgspec.Struct, frozen=True):
    """Send packets on a connection; lost when it is gone."""

    conn: Conn
    data: bytes


class Disconnect(msgspec.Struct, frozen=True):
    """End a connection after what was sent."""

    conn: Conn


class NoteConfirmed(msgspec.Struct, frozen=True):
    """Write down outside the log that everything up to here is confirmed, before anything that shows it leaves."""

    lsn: int
    chain: bytes


class RunFrame(msgspec.Struct, frozen=True):
    """Reserve room, run the messages, write and sync them. Answered by FrameSynced or SpaceRefused."""

    runs: Sequence[tuple[Run, Sequence[bytes]]]
    confirmed_lsn: int
    try_out: bool = False  # run them in a copy of the process first, and park what ends it (I11)
    plain: bool = False  # clients' calls alone, which came the short way


class WriteControl(msgspec.Struct, frozen=True):
    """Write and sync a frame without messages. Answered by ControlSynced or ControlRefused."""

    kind: int
    payload: bytes
    confirmed_lsn: int


class Prove(msgspec.Struct, frozen=True):
    """Prove that no successor has taken over; begun only after a sync returned. Answered by ProofAnswered."""

    number: int


class RunQueries(msgspec.Struct, frozen=True):
    """Answer queries on the last completed turn's state. Answered by QueriesAnswered."""

    conn: Conn
    ids: Sequence[int]
    messages: Sequence[bytes]
    stale: bool


class ProbeSpace(msgspec.Struct, frozen=True):
    """Try to reserve room. Answered by SpaceFound or SpaceRefused."""


class DialPeer(msgspec.Struct, frozen=True):
    """Keep a connection to the primary of a peer until DropPeer. Answered by PeerReady, each time one stands."""

    target: Target


class SendPeer(msgspec.Struct, frozen=True):
    """Send packets to a peer; lost when its connection is gone, which says from where to send again."""

    target: Target
    data: bytes


class DropPeer(msgspec.Struct, frozen=True):
    """Keep no connection to a peer any more; nothing of the old one is told."""

    target: Target


class StartActivity(msgspec.Struct, frozen=True):
    """Run an activity in a worker process; only for a confirmed frame (I1). Answered by ActivityEnded."""

    start: ActivityStart


class StopActivity(msgspec.Struct, frozen=True):
    """End an activity; nobody waits for its outcome."""

    reference: Reference


class ExportSpans(msgspec.Struct, frozen=True):
    """What a confirmed frame of ours brought to its end, for traces."""

    spans: Sequence[Span]


class ReportUnknown(msgspec.Struct, frozen=True):
    """Tell operators of activities that may have been done; only of a confirmed frame, and they are listed (I7)."""

    records: Sequence[UnknownRecord]


class ReadLock(msgspec.Struct, frozen=True):
    """Look at the lock; writes `service` as creating at the very first start. Answered by LockSeen."""


class TakeLock(msgspec.Struct, frozen=True):
    """Takeover step 1, if nothing changed since the last LockSeen. Answered by LockTaken or LockRefused."""


class LinkSeals(msgspec.Struct, frozen=True):
    """Takeover step 2. Answered by SealsLinked."""

    first: int
    last: int


class ReadTail(msgspec.Struct, frozen=True):
    """Takeover step 3, through fresh descriptors. Answered by TailRead."""

    head: int
    confirmed_lsn: int


class Migrate(msgspec.Struct, frozen=True):
    """Make of the state where the log ends what other code goes on with. Answered by Migrated or UpgradeFailed."""

    epoch: int


class WriteCut(msgspec.Struct, frozen=True):
    """Takeover step 4: cut and copies, synced, folder too. Answered by CutWritten."""

    epoch: int


class SetHead(msgspec.Struct, frozen=True):
    """Takeover step 5. Answered by HeadSet."""


class RemoveUnread(msgspec.Struct, frozen=True):
    """Remove files of earlier epochs that no cut leads to any more: head is ours, and proved. Not answered."""


class ApplyCopies(msgspec.Struct, frozen=True):
    """Run the copies, which the opening frame's proof has confirmed. Answered by CopiesApplied."""


class Recover(msgspec.Struct, frozen=True):
    """Load the newest good checkpoint and apply the confirmed log behind it. Answered by Recovered."""


class ReadLog(msgspec.Struct, frozen=True):
    """Apply a stretch of the confirmed log. Answered by LogRead."""


class FollowPrimary(msgspec.Struct, frozen=True):
    """Connect to the primary's replication port and ask for the stream behind what is applied."""

    replica: str
    epoch: int


class AskUpstream(msgspec.Struct, frozen=True):
    """Ask again on the connection that stands."""


class LeavePrimary(msgspec.Struct, frozen=True):
    """Close the connection to the primary."""


class SendUpstream(msgspec.Struct, frozen=True):
    """Send packets to the primary."""

    data: bytes


class TakeCheckpoint(msgspec.Struct, frozen=True):
    """Copy the state between frames and write it in a helper. Answered by CheckpointWritten."""


class VerifyCheckpoint(msgspec.Struct, frozen=True):
    """Read a checkpoint back in another process. Answered by CheckpointVerified."""

    lsn: int
    name: str


class ListCheckpoints(msgspec.Struct, frozen=True):
    """Look which checkpoints stand verified and belong to this log's history. Answered by CheckpointsFound."""


class Collect(msgspec.Struct, frozen=True):
    """Remove the log below `lsn`, and checkpoints of less than `checkpoints_from`; only after a proof."""

    lsn: int
    checkpoints_from: int


class TellRole(msgspec.Struct, frozen=True):
    """The role changed: tell supervisor, clients, metrics."""

    role: str
    epoch: int
    reason: str


class StoreConfirmed(msgspec.Struct, frozen=True):
    """Have the lock store hear of the last confirmed place, where it keeps one. Answered by ConfirmedStored."""

    lsn: int


class ReleaseLock(msgspec.Struct, frozen=True):
    """Give the lock up at an orderly stop."""


class StopReplica(msgspec.Struct, frozen=True):
    """End the process; the supervisor starts it again unless `error` says an operator must act first."""

    error: DeathlessError | None
    successor: str = ""  # replica that a primary has handed over to


Effect = (
    Send
    | Disconnect
    | NoteConfirmed
    | RunFrame
    | WriteControl
    | Prove
    | RunQueries
    | ProbeSpace
    | DialPeer
    | SendPeer
    | DropPeer
    | StartActivity
    | StopActivity
    | ExportSpans
    | ReportUnknown
    | ReadLock
    | TakeLock
    | LinkSeals
    | ReadTail
    | Migrate
    | WriteCut
    | SetHead
    | RemoveUnread
    | ApplyCopies
    | Recover
    | ReadLog
    | FollowPrimary
    | AskUpstream
    | LeavePrimary
    | SendUpstream
    | TakeCheckpoint
    | VerifyCheckpoint
    | ListCheckpoints
    | Collect
    | TellRole
    | StoreConfirmed
    | ReleaseLock
    | StopReplica
)
