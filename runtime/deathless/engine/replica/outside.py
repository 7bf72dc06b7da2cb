"""What a replica's engine touches besides log and executor: one port for each kind of thing.

    Clock        times of this machine
    LockPort     the lock, asked without waiting
    Clients      accepted connections: clients, followers, peers
    Upstream     the connection to the primary that is followed
    Peers        connections to other services
    Activities   what runs beside the replica
    Checkpoints  written, read back and counted by helpers
    Witness      what was confirmed, kept outside log and lock store
    Watchers     who is told: supervisor, collectors of traces, operators
    Process      this process: events that come back, copies of it, its end

Why: shell and simulation are twins behind these, so what the engine does is what is tested. A port is as small as what
stands behind it, so most of what implements one is handed over as it is. Completions come back through
`Process.complete`; an order of the world that the core must not rely on is for the simulation to try.

Guarantees: nothing; they are Protocols. Does not: decide anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from deathless.base.errors import DeathlessError
from deathless.codec.frames import Frame, Run
from deathless.codec.peer_messages import ActivityStart, Reference, Target
from deathless.codec.snapshot import Head, Snapshot, UnknownRecord
from deathless.codec.traces import Span
from deathless.codec.witness import Point
from deathless.core import events as ev
from deathless.core.replica.witness import Sighting
from deathless.core.tables.logical_time import Anchor
from deathless.engine.ports import AsyncLock, Holder, Lock, LockView
from deathless.execution.turn.running import Running

T = TypeVar("T")


class Clock(Protocol):
    """Times of this machine."""

    def now(self) -> float:
        """Monotonic seconds."""
        ...

    def wall_us(self) -> int:
        """Wall clock in microseconds; may jump."""
        ...

    def boot_us(self) -> int:
        """Microseconds since this machine's boot, sleep included; the steady clock with another beginning."""
        ...

    def anchor(self) -> Anchor | None:
        """What an earlier process of this replica noted last on the same boot of the machine; None: nothing."""
        ...

    def note_anchor(self, anchor: Anchor) -> None:
        """Remember it for the next process of this replica; costs no IO."""
        ...


class LockPort(Protocol):
    """The lock, asked without waiting."""

    def ask(self, operation: Callable[[Lock | AsyncLock], T | Awaitable[T]], done: Callable[[T], None]) -> object:
        """Ask the lock; asks again, with back-off, for as long as there is no answer. Only for repeatable questions."""
        ...

    def take(self, replica: str, nonce: bytes, seen: LockView, done: Callable[[Holder | None], None]) -> object:
        """Take the lock once. An outcome that is unknown is found out by looking for our nonce."""
        ...


class Clients(Protocol):
    """Accepted connections: of clients, followers and peers."""

    def send(self, conn: ev.Conn, data: bytes) -> None:
        """Send on one, or drop it when its other end is too slow."""
        ...

    def disconnect(self, conn: ev.Conn) -> None:
        """End one."""
        ...


class Upstream(Protocol):
    """The connection to the primary that is followed."""

    def follow(self, replica: str) -> None:
        """Connect to this replica, and ask for the stream behind what is applied once that stands."""
        ...

    def ask(self, lsn: int, chain: bytes) -> None:
        """Ask again on the same connection."""
        ...

    def send(self, data: bytes) -> None:
        """Send to the primary, if one is followed."""
        ...

    def leave(self) -> None:
        """Follow nobody."""
        ...


class Peers(Protocol):
    """Connections to other services."""

    def dial(self, target: Target) -> None:
        """Keep a connection to the primary of a peer, and make it again for ever, until `drop`."""
        ...

    def send(self, target: Target, data: bytes) -> None:
        """Send to a peer, if its connection stands."""
        ...

    def drop(self, target: Target) -> None:
        """Keep no connection to a peer any more; no event of the one that stood comes after this."""
        ...


class Activities(Protocol):
    """What runs beside the replica."""

    def start(self, start: ActivityStart) -> None:
        """Run an activity; `Process.complete` with ActivityEnded."""
        ...

    def stop(self, reference: Reference) -> None:
        """End an activity, if it runs."""
        ...


class Checkpoints(Protocol):
    """Checkpoints, written, read back and counted by helpers."""

    def load_newest(self, fits: Callable[[Head], bool]) -> Snapshot | None:
        """The newest announced checkpoint that fits and reads back well; None: there is none."""
        ...

    def load_at(self, lsn: int, chain: bytes) -> Snapshot | None:
        """The checkpoint of just this place, announced or not; None: there is none, or it does not read back well."""
        ...

    def write(self, snapshot: Callable[[], Snapshot], lsn: int, chain: bytes, done: Callable[[int, str], None]) -> None:
        """Copy the state, which is that at `lsn`, and write it in a helper; `done` (lsn, name) once it is linked."""
        ...

    def write_first(self, snapshot: Callable[[], Snapshot], done: Callable[[str], None]) -> None:
        """Write the first checkpoint of a generation and read it back; `done` with what went wrong, "" if nothing did.

        It is not announced: head's cut names it.
        """
        ...

    def verify(self, name: str, done: Callable[[bool], None]) -> None:
        """Read one back in another process."""
        ...

    def prune(self, below: int) -> None:
        """Remove those of less than this lsn."""
        ...

    def count(self, head: int, done: Callable[[list[int]], None]) -> None:
        """Have a helper look which announced checkpoints were read back and lie on the log of this head.

        `done` gets their lsns, ascending; none where the helper failed. Asked again meanwhile, it does nothing more.
        """
        ...


class Former(Protocol):
    """The former code of a service that is upgraded: it runs the log on, in a process of its own, until the cut.

    Both calls before `migrated` only order; what fails in them is told by `migrated`.
    """

    @property
    def level(self) -> int:
        """Newest format level that its build knows (codec.generations), as far as it said by now."""
        ...

    def restore(self, snapshot: Snapshot) -> None:
        """Have it begin with a checkpoint of its own."""
        ...

    def apply(self, frame: Frame) -> None:
        """Have it run a confirmed frame."""
        ...

    def migrated(self, done: Callable[[Snapshot | DeathlessError], None]) -> None:
        """Give what the new code goes on with of the state behind all of that, or why it can't be given.

        The snapshot has the place, the tables and the generation of before; what is new in it are the state, the
        invocations, and what else is of the author's types.
        """
        ...


class Witness(Protocol):
    """What was confirmed, kept outside log and lock store."""

    def note_confirmed(self, point: Point, *, first: bool) -> None:
        """Write down what we confirmed, so that a death of this process leaves it; no sync, no wait.

        `first`: of our reign.
        """
        ...

    def sightings(self) -> Sequence[Sighting]:
        """Find the points that were written down, in pages and files."""
        ...

    def boot(self) -> int:
        """A number that differs from boot to boot of this machine; 0: not known."""
        ...


class Watchers(Protocol):
    """Who is told what happens here; none of it waits, none fails."""

    def tell_role(self, role: str, epoch: int, reason: str) -> None:
        """Tell supervisor and metrics."""
        ...

    def export_spans(self, spans: Sequence[Span]) -> None:
        """Have them exported, now being when they ended."""
        ...

    def report_unknown(self, records: Sequence[UnknownRecord]) -> None:
        """Warn operators of activities that may have been done."""
        ...


class Process(Protocol):
    """This process."""

    def complete(self, event: ev.Event) -> None:
        """Bring a completion back to the engine: at once, or later in a simulation."""
        ...

    def pause(self, seconds: float, done: Callable[[], None]) -> None:
        """Call `done` after so many seconds, while the rest of the world goes on."""
        ...

    def nonce(self) -> bytes:
        """16 random bytes."""
        ...

    def try_out(self, runs: Sequence[tuple[Run, Sequence[bytes]]]) -> Running | None:
        """Run the messages of a frame in a copy of this process; give the one in which the copy died (I11).

        None: it survived, or died in no message, or there is no copy to be had. The state here stays as it is.
        """
        ...

    def end(self, error: DeathlessError | None, successor: str = "") -> None:
        """End it after what was sent has left; a primary may have handed over to `successor`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """All of them; real and simulated."""

    clock: Clock
    lock: LockPort
    clients: Clients
    upstream: Upstream
    peers: Peers
    activities: Activities
    checkpoints: Checkpoints
    witness: Witness
    watchers: Watchers
    process: Process
