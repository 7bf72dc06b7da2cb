"""What a replica's engine touches besides log and executor: clocks, chance, the lock, peers, checkpoints, its own end.

Why it exists: shell and simulation are twins behind this one Protocol, so what the engine does is what is tested.
Completions come back through `complete`; an order of the world that the core must not rely on is for the simulation
to try.

Guarantees: nothing; it is a Protocol. Does not: decide anything. Imports core, codec, base and the ports.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from deathless.base.errors import DeathlessError
from deathless.codec.frames import Run
from deathless.codec.peer_messages import ActivityStart, Reference, Target
from deathless.codec.snapshot import Snapshot, UnknownRecord
from deathless.codec.traces import Span
from deathless.codec.witness import Point
from deathless.core import events as ev
from deathless.core.replica.witness import Sighting
from deathless.core.tables.logical_time import Anchor
from deathless.engine.ports import AsyncLock, Holder, Lock, LockView
from deathless.execution.turn.running import Running

T = TypeVar("T")


class Outside(Protocol):
    """What else a replica touches; real and simulated."""

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

    def nonce(self) -> bytes:
        """16 random bytes."""
        ...

    def complete(self, event: ev.Event) -> None:
        """Bring a completion back to the engine: at once, or later in a simulation."""
        ...

    def lock(self, operation: Callable[[Lock | AsyncLock], T | Awaitable[T]], done: Callable[[T], None]) -> None:
        """Ask the lock; asks again, with back-off, for as long as there is no answer. Only for repeatable questions."""
        ...

    def take_lock(self, replica: str, nonce: bytes, seen: LockView, done: Callable[[Holder | None], None]) -> None:
        """Take the lock once. An outcome that is unknown is found out by looking for our nonce."""
        ...

    def pause(self, seconds: float, done: Callable[[], None]) -> None:
        """Call `done` after so many seconds, while the rest of the world goes on."""
        ...

    def note_confirmed(self, point: Point, *, first: bool) -> None:
        """Write down outside the log what we confirmed, so that a death of this process leaves it; no sync, no wait.

        `first`: of our reign.
        """
        ...

    def sightings(self) -> Sequence[Sighting]:
        """Find the points that were written down outside the log and the lock store, in pages and files."""
        ...

    def boot(self) -> int:
        """A number that differs from boot to boot of this machine; 0: not known."""
        ...

    def try_out(self, runs: Sequence[tuple[Run, Sequence[bytes]]]) -> Running | None:
        """Run the messages of a frame in a copy of this process; give the one in which the copy died (I11).

        None: it survived, or died in no message, or there is no copy to be had. The state here stays as it is.
        """
        ...

    def send(self, conn: ev.Conn, data: bytes) -> None:
        """Send on an accepted connection, or drop it when the peer is too slow."""
        ...

    def disconnect(self, conn: ev.Conn) -> None:
        """End an accepted connection."""
        ...

    def follow(self, replica: str, epoch: int, lsn: int, chain: bytes) -> None:
        """Connect to the primary and ask for the stream."""
        ...

    def ask_upstream(self, lsn: int, chain: bytes) -> None:
        """Ask again on the same connection."""
        ...

    def leave(self) -> None:
        """Close the connection to the primary."""
        ...

    def send_upstream(self, data: bytes) -> None:
        """Send to the primary."""
        ...

    def dial_peer(self, target: Target) -> None:
        """Keep a connection to the primary of a peer, and make it again for ever, until `drop_peer`."""
        ...

    def send_peer(self, target: Target, data: bytes) -> None:
        """Send to a peer, if its connection stands."""
        ...

    def drop_peer(self, target: Target) -> None:
        """Keep no connection to a peer any more; no event of the one that stood comes after this."""
        ...

    def start_activity(self, start: ActivityStart) -> None:
        """Run an activity beside the replica; `complete` with ActivityEnded."""
        ...

    def stop_activity(self, reference: Reference) -> None:
        """End an activity, if it runs."""
        ...

    def export_spans(self, spans: Sequence[Span]) -> None:
        """Have them exported, now being when they ended; never waits, never fails."""
        ...

    def report_unknown(self, records: Sequence[UnknownRecord]) -> None:
        """Warn operators of activities that may have been done; never waits, never fails."""
        ...

    def load_checkpoint(self) -> Snapshot | None:
        """The newest checkpoint that reads back well; None: there is none."""
        ...

    def write_checkpoint(self, snapshot: Callable[[], Snapshot], done: Callable[[int, str], None]) -> None:
        """Copy and write in a helper; `done` (lsn, name) once it is linked."""
        ...

    def verify_checkpoint(self, lsn: int, name: str, done: Callable[[bool], None]) -> None:
        """Read back in another process."""
        ...

    def prune_checkpoints(self, below: int) -> None:
        """Remove checkpoints of less than this lsn."""
        ...

    def verified_checkpoints(self, head: int, done: Callable[[list[int]], None]) -> None:
        """Have a helper look which announced checkpoints were read back and lie on the log of this head.

        `done` gets their lsns, ascending; none where the helper failed. Asked again meanwhile, it does nothing more.
        """
        ...

    def tell_role(self, role: str, epoch: int, reason: str) -> None:
        """Tell supervisor and metrics."""
        ...

    def stop(self, error: DeathlessError | None, successor: str = "") -> None:
        """End the process after what was sent has left; a primary may have handed over to `successor`."""
        ...
