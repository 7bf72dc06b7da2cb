"""What happened, told to a supervisor's state machine.

Guarantees: frozen records, which can be written down and told again. Does not: decide anything.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from deathless.core.supervisor.detection import Report
from deathless.core.supervisor.progress import Signs
from deathless.core.supervisor.records import ToSupervisor

MessageId = tuple[int, int]
"""Session and seq of a message."""


class PageRead(NamedTuple):
    """What the page that the worker writes shows at one moment."""

    running: MessageId | None = None  # the message that is being run
    ticks: int = 0  # rounds of the worker's loop
    calls: int = 0  # of the file system; odd while one is under way
    lsn: int = 0  # applied
    full: bool = False  # of a primary: the log has no room
    outbox_full: bool = False  # of a primary: messages to peers have no room
    clock: str = ""  # of a primary whose wall clock logical time does not go with: ahead or behind
    unproved_s: float = 0.0  # so long a primary's proof has been without an answer
    slowest_ms: int = 0  # what the slowest call of the file system took lately; 0: none took long
    storage: int = 0  # 0: well, 1: read-only, 2: without a free inode
    upstream_age_s: float = float("inf")  # since the worker last heard the primary
    lock_answers_s: float = 0.0  # so long the lock store has been answering this follower

    @property
    def signs(self) -> Signs:
        """What tells whether the worker gets on."""
        return Signs(self.running, self.ticks, self.calls)


class Begun(msgspec.Struct, frozen=True, tag=True):
    """The supervisor may begin: the replica is its own."""

    control: str  # address of its control port
    pid: int = 0  # its process
    generation: int = 0  # see `Report.generation`
    local: bool = True  # the log lies on a file system of this machine
    running: MessageId | None = None  # the message in which a worker died that nobody looked after


class HeartbeatDue(msgspec.Struct, frozen=True, tag=True):
    """`heartbeat_s` has passed since the last one, or `LookAgain` asked for it."""


class WorkerStarted(msgspec.Struct, frozen=True, tag=True):
    """Answer to `StartWorker`."""

    pid: int = 0


class WorkerNotStarted(msgspec.Struct, frozen=True, tag=True):
    """Answer to `StartWorker`: an error."""

    code: str
    text: str  # `DLnnnn text (remedy)`


class LineOpened(msgspec.Struct, frozen=True, tag=True):
    """The worker hears what it is told from now on."""


class LineEnded(msgspec.Struct, frozen=True, tag=True):
    """Everything the worker said was told."""


class WorkerSaid(msgspec.Struct, frozen=True, tag=True):
    """The worker that was started last says something."""

    record: ToSupervisor


class WorkerSuspended(msgspec.Struct, frozen=True, tag=True):
    """A signal stopped it, or had it go on."""

    suspended: bool


class WorkerExited(msgspec.Struct, frozen=True, tag=True):
    """It is gone; what it said last may still be on the line."""

    exit_code: int
    running: MessageId | None = None  # the message that stood in the page


class IngressStarted(msgspec.Struct, frozen=True, tag=True):
    """Answer to `StartIngress`."""


class IngressNotStarted(msgspec.Struct, frozen=True, tag=True):
    """Answer to `StartIngress`: an error."""

    text: str


class IngressExited(msgspec.Struct, frozen=True, tag=True):
    """The process that serves HTTP is gone."""

    exit_code: int


class ReportReceived(msgspec.Struct, frozen=True, tag=True):
    """Another supervisor tells how its replica is."""

    report: Report


class ReportsTaken(msgspec.Struct, frozen=True, tag=True):
    """All packets of one buffer of a connection to the control port were told."""


class MembersSeen(msgspec.Struct, frozen=True, tag=True):
    """The folder of announcements was read."""

    names: frozenset[str]  # replicas that have announced themselves
    ingress: str | None = None  # what our own announcement says of it; None: there is none of this instance


class Fenced(msgspec.Struct, frozen=True, tag=True):
    """An operator keeps the worker stopped, or does not any more."""

    fenced: bool


class Superseded(msgspec.Struct, frozen=True, tag=True):
    """A later instance of this replica runs."""

    later: str  # its name


class StopOrdered(msgspec.Struct, frozen=True, tag=True):
    """An orderly stop; what is admitted is confirmed and answered first."""


class CodeNotKept(msgspec.Struct, frozen=True, tag=True):
    """The worker's code is not the log's, and the log's is not there to go on with."""


class RestartOrdered(msgspec.Struct, frozen=True, tag=True):
    """An operator wants another worker: this one stops in order, and one that stays stopped is started."""


Event = (
    Begun
    | HeartbeatDue
    | WorkerStarted
    | WorkerNotStarted
    | LineOpened
    | LineEnded
    | WorkerSaid
    | WorkerSuspended
    | WorkerExited
    | IngressStarted
    | IngressNotStarted
    | IngressExited
    | ReportReceived
    | ReportsTaken
    | MembersSeen
    | Fenced
    | Superseded
    | StopOrdered
    | RestartOrdered
    | CodeNotKept
)
