"""What a supervisor must do, as data.

The host carries the effects of one event out in the order of the list, and tells what they led to as further events.

Guarantees: frozen records. Does not: do anything.
"""

from __future__ import annotations

import msgspec

from deathless.core.supervisor.detection import Report
from deathless.core.supervisor.records import ToWorker


class StartWorker(msgspec.Struct, frozen=True, tag=True):
    """Start a worker with a fresh page. Answered by WorkerStarted or WorkerNotStarted."""


class Tell(msgspec.Struct, frozen=True, tag=True):
    """Tell the worker; lost when it does not hear any more."""

    record: ToWorker


class KillWorker(msgspec.Struct, frozen=True, tag=True):
    """End the worker at once; WorkerExited follows when the kernel is done with it."""


class CloseLine(msgspec.Struct, frozen=True, tag=True):
    """The worker is gone and everything it said was told."""


class StartIngress(msgspec.Struct, frozen=True, tag=True):
    """Start the process that serves HTTP. Answered by IngressStarted or IngressNotStarted."""


class StopIngress(msgspec.Struct, frozen=True, tag=True):
    """Have it answer what it took in, and end."""


class TellPeers(msgspec.Struct, frozen=True, tag=True):
    """Tell every other supervisor how this replica is."""

    report: Report


class PeerLives(msgspec.Struct, frozen=True, tag=True):
    """A report of this replica came in: no need to wait before connecting to it."""

    replica: str


class RefuseReport(msgspec.Struct, frozen=True, tag=True):
    """Whoever sent the report just told is not to be heard: a later instance of its replica is."""

    text: str


class ReadMembers(msgspec.Struct, frozen=True, tag=True):
    """Somebody reports who is not known to have announced itself. MembersSeen follows."""


class Announce(msgspec.Struct, frozen=True, tag=True):
    """Say where this replica is reached."""


class LeaveWord(msgspec.Struct, frozen=True, tag=True):
    """Write down where people look why the worker stays stopped; empty: it does not."""

    text: str


class LookAgain(msgspec.Struct, frozen=True, tag=True):
    """Something changed: HeartbeatDue is wanted once everything that stands ready was told."""


class Note(msgspec.Struct, frozen=True, tag=True):
    """For the log: "info", "warning" or "error", what happened, and fields."""

    level: str
    text: str
    fields: dict[str, str | int | float | bool | None] = {}


class Exit(msgspec.Struct, frozen=True, tag=True):
    """The ordered stop is done."""


Effect = (
    StartWorker
    | Tell
    | KillWorker
    | CloseLine
    | StartIngress
    | StopIngress
    | TellPeers
    | PeerLives
    | RefuseReport
    | ReadMembers
    | Announce
    | LeaveWord
    | LookAgain
    | Note
    | Exit
)
