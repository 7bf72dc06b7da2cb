"""What the engine asks of the world; each port has a real and a simulated side under one conformance suite.

The file system is synchronous (an fdatasync in a thread beside busy Python starves); the lock is asynchronous in
nature but the directory's is not, so `Lock` is synchronous too and a shell with a remote store wraps it (see
`AsyncLock`). Guarantees: nothing; these are Protocols and the records that cross them. Imports codec and base.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple, NewType, Protocol

import msgspec

from deathless.base.times import Due, Times
from deathless.codec.frames import Cut, Frame, Position, Run
from deathless.codec.peer_messages import (
    SELF_SESSION,
    ActivityStart,
    Attempt,
    Crowd,
    History,
    InvocationView,
    Known,
    Order,
    Outcome,
    Outputs,
    ScheduleView,
    Target,
)
from deathless.codec.witness import Point

Handle = NewType("Handle", int)
"""An open file of a FileSystem."""


class FileSystem(Protocol):
    """The shared directory. Paths are relative to its root, '/'-separated. Every method may raise OSError.

    A sync error is never retried on the same handle (I8); FileNotFoundError proves nothing by itself.
    """

    def create(self, path: str) -> Handle:
        """Create exclusively and open for writing and reading. Raises FileExistsError."""
        ...

    def open(self, path: str, *, write: bool = False) -> Handle:
        """Open an existing file through a fresh descriptor."""
        ...

    def write(self, handle: Handle, offset: int, data: bytes) -> None:
        """Write all of `data` at `offset`; not durable yet."""
        ...

    def read(self, handle: Handle, offset: int, size: int) -> bytes:
        """Read up to `size` bytes; fewer only at the end of the file."""
        ...

    def sync(self, handle: Handle) -> None:
        """Make data and size durable (fdatasync)."""
        ...

    def allocate(self, handle: Handle, offset: int, size: int) -> None:
        """Reserve space; the file reads as zeros there. Raises OSError ENOSPC: not a sync error."""
        ...

    def truncate(self, handle: Handle, size: int) -> None:
        """Give back what lies beyond `size`, space and bytes; for a file of one's own, beyond what was written."""
        ...

    def size(self, handle: Handle) -> int:
        """Size of the file in bytes."""
        ...

    def close(self, handle: Handle) -> None:
        """Close."""
        ...

    def link(self, source: str, target: str) -> None:
        """Hard link, exclusive. Raises FileExistsError."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Atomic replace; for hints and temporary names only, never for the log or lock."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a name."""
        ...

    def exists(self, path: str) -> bool:
        """Look a name up by itself, not in a listing."""
        ...

    def listing(self, path: str) -> list[str]:
        """Sorted names in a folder; may be stale (absence proves nothing)."""
        ...

    def make_folder(self, path: str) -> None:
        """Create a folder and its parents if missing."""
        ...

    def sync_folder(self, path: str) -> None:
        """Make created, linked and removed names durable."""
        ...


class ServiceRecord(msgspec.Struct, array_like=True, frozen=True):
    """The lock store's `service` key: written once as creating, then live."""

    name: str
    service_id: bytes  # 16 random bytes, never reused
    incarnation: int
    seed: bytes  # 32 random bytes: ctx.random, key hashing
    hash_seed: int  # PYTHONHASHSEED of every worker
    fence: str  # seal | etcd
    live: bool


class Holder(msgspec.Struct, array_like=True, frozen=True):
    """The lock's value. Ownership is compared by this value and the store id, never by a create revision."""

    epoch: int
    replica: str
    nonce: bytes


class LockView(NamedTuple):
    """What the lock store says at one moment."""

    service: ServiceRecord | None
    epoch: int  # last epoch given, 0: none
    head: int  # last epoch that may have released, 0: none
    holder: Holder | None  # None: nobody holds it
    revision: int  # grows with every change of the lock's keys
    store_id: str
    confirmed: Point | None = None  # the store's witness; None: it keeps none, or none was written yet


class Lock(Protocol):
    """The lock of one shard (design 0003, "The lock and the fence").

    Every method may raise LockUnavailable: no answer, outcome unknown.
    """

    def view(self) -> LockView:
        """Read everything, linearizable."""
        ...

    def create_service(self, record: ServiceRecord) -> ServiceRecord:
        """Write `service` if absent; give what stands there now (another's, when one was first)."""
        ...

    def go_live(self, holder: Holder) -> bool:
        """Mark the service live, guarded by the lock. False: deposed."""
        ...

    def take(self, replica: str, nonce: bytes, seen: LockView) -> Holder | None:
        """Take or steal: raise epoch and set the holder in one transaction, if nothing changed since `seen`.

        None: somebody was faster; look again.
        """
        ...

    def set_head(self, holder: Holder, point: Point | None = None) -> int | None:
        """Set head to the holder's epoch, guarded by the lock. Gives the store's revision; None: deposed.

        `point`, the end of the copies, becomes the store's witness at the same moment, where the store keeps one.
        Raises: LogTruncated when the witness there is not the one read at the take.
        """
        ...

    def owns(self, holder: Holder) -> bool:
        """Linearizable: is the lock's value still this one, in the same store? False is definite."""
        ...

    def release(self, holder: Holder, point: Point | None = None) -> None:
        """Give the lock up if it is still this holder's; `point` becomes the store's witness at the same moment."""
        ...

    def confirmed(self, holder: Holder) -> Point | None:
        """Give the store's witness as it stood when `holder` took the lock; None: there was none."""
        ...

    def witness(self, holder: Holder, point: Point) -> bool | None:
        """Write the store's witness, guarded by the lock and by what the holder wrote or read there last.

        Returns: False: it stands. True: it does, and had been removed by somebody. None: deposed, or none is kept.
        Raises: LogTruncated when another's point stands there: this log was rolled back under us.
        """
        ...


class AsyncLock(Protocol):
    """`Lock` with awaitable methods of the same names and meanings, for stores behind a network."""

    async def view(self) -> LockView:
        """See Lock."""
        ...

    async def create_service(self, record: ServiceRecord) -> ServiceRecord:
        """See Lock."""
        ...

    async def go_live(self, holder: Holder) -> bool:
        """See Lock."""
        ...

    async def take(self, replica: str, nonce: bytes, seen: LockView) -> Holder | None:
        """See Lock."""
        ...

    async def set_head(self, holder: Holder, point: Point | None = None) -> int | None:
        """See Lock."""
        ...

    async def owns(self, holder: Holder) -> bool:
        """See Lock."""
        ...

    async def release(self, holder: Holder, point: Point | None = None) -> None:
        """See Lock."""
        ...

    async def confirmed(self, holder: Holder) -> Point | None:
        """See Lock."""
        ...

    async def witness(self, holder: Holder, point: Point) -> bool | None:
        """See Lock."""
        ...


class Tail(NamedTuple):
    """What a successor read behind what it had applied."""

    confirmed: list[tuple[Frame, bytes]]  # DATA frames up to the confirmed position, with their raw bytes
    unconfirmed: list[tuple[Frame, bytes]]  # valid DATA frames behind it: copied behind the cut
    position: Position  # the confirmed position
    passed_over: str = ""  # a changed frame behind the end, which is known to be unconfirmed; empty: there is none


class LogStore(Protocol):
    """The segments of one shard. One writer per epoch; any number of readers through fresh handles.

    Every method may raise OSError (the caller stops, I8) and the DataCorrupt errors named.
    """

    def check_store(self, head: int, epoch: int, revision: int) -> Cut | None:
        """Compare the lock store with the log; gives the head's cut, None where there is no head.

        Raises: StoreOlderThanLog when the log knows a later epoch or revision; LogTruncated, ForeignDirectory.
        """
        ...

    def check_head(self, head: int) -> Cut:
        """Read head's cut, to see whose log it is. Raises: LogTruncated when it is missing; ForeignDirectory."""
        ...

    def read(self, head: int, lsn: int, chain: bytes, *, bytes_max: int) -> tuple[list[tuple[Frame, bytes]], bool]:
        """DATA frames after (lsn, chain) up to the last lsn that headers of the chain of `head` call confirmed.

        At most about `bytes_max` at a time. True: that is all that is confirmed now.
        Raises: LogTruncated (a file of the chain is missing, or (lsn, chain) is not on it), CorruptFrame.
        """
        ...

    def read_tail(self, head: int, lsn: int, chain: bytes, confirmed_lsn: int, *, ends_at: int | None = None) -> Tail:
        """After the seals stand: everything after (lsn, chain); `confirmed_lsn` is the highest any replica knows.

        `ends_at` is the last confirmed lsn, where that is known; a changed frame behind it is passed over.
        Raises: LogTruncated when the chain ends below `confirmed_lsn`; CorruptFrame when valid frames follow a bad one,
        or when the last frame was whole once and is not what was written.
        """
        ...

    def chain_at(self, head: int, lsn: int) -> bytes | None:
        """Chain hash behind the message of an lsn, read from the log; None: that part was collected.

        An lsn within a frame has none and gives b"". Raises: as `read`.
        """
        ...

    def write_cut(self, epoch: int, cut: bytes, tail: Tail, *, incarnation: int) -> None:
        """Create the first segment exclusively (from the spare) with CUT frame and copies; sync file and folder."""
        ...

    def reserve(self, size: int) -> bool:
        """Reserve room for a frame of `size` bytes, rolling to the next file where needed. False: no space (507)."""
        ...

    def append(
        self, kind: int, payload: bytes, *, first_lsn: int, count: int, confirmed_lsn: int
    ) -> tuple[Frame, bytes]:
        """Write one frame in the room reserved; not durable until `sync` returned. Gives frame and unpadded bytes."""
        ...

    def sync(self) -> None:
        """Sync what was appended, on the descriptor that wrote it. Raises OSError: stop, never retry (I8)."""
        ...

    def last_place(self) -> tuple[int, int]:
        """Roll and offset of the frame appended last."""
        ...

    def note_place(self, frame: Frame, roll: int, offset: int) -> None:
        """Hear where a frame that was applied from the stream stands, so that a takeover need not look for it.

        A hint: it is compared with the file before it is used.
        """
        ...

    def link_seals(self, first: int, last: int) -> None:
        """Link seal.N for N in [first, last] and sync the folder; existing ones count."""
        ...

    def sealed(self, epoch: int) -> bool:
        """Does seal.`epoch` stand? A look-up of just that name."""
        ...

    def collect(self, lsn: int) -> list[str]:
        """Remove segments whose messages all lie at or below `lsn`; gives their names."""
        ...

    def remove_unread(self) -> list[str]:
        """Remove segments that this epoch's cut passes over and that nothing was copied from; gives their names.

        Only once head is this epoch and proved: before, a successor of an older head may have to read them.
        """
        ...

    def close(self) -> None:
        """Close the writer's file; the log is closed for this epoch."""
        ...


class SegmentMaker(Protocol):
    """Fills files with zeros beside a replica, so that nobody who writes a log waits for it."""

    def make(self, path: str, size: int, done: Callable[[bool], None]) -> None:
        """Make a file that does not stand yet.

        Args:
            path: below the shared directory.
            size: bytes of it.
            done: told, later, whether it is there with all of them, durably. A part of it may stand where it is not.
        """
        ...


class Executor(Protocol):
    """Runs the messages of a frame and holds the state (design 0003, "Turns").

    Deterministic: the same messages in the same order give the same replies, digests and state in any process.
    """

    def open(self) -> None:
        """Make ready to execute the runs of one frame, called from where this is called; `close` must follow."""
        ...

    def close(self) -> None:
        """End what `open` began."""
        ...

    def execute_runs(
        self, runs: Sequence[tuple[Run, Sequence[bytes]]], first_lsn: int, now_us: int
    ) -> list[tuple[list[bytes], list[int], bytes]]:
        """Run CALL messages of several senders in order, between `open` and `close`, each turn whole or rolled back.

        Returns: for each run the reply bytes and u32 digests, one of each a message, and what `rolling_update` gives
            behind it. Never raises for what a handler does.
        """
        ...

    def execute_peer(
        self,
        peer: Target,
        first_seq: int,
        first_lsn: int,
        now_us: int,
        messages: Sequence[bytes],
        session: int = SELF_SESSION,
    ) -> list[int]:
        """Run FORK, REQUEST, RESPONSE and CANCEL messages of a peer in order (SELF: of our own outbox).

        `session` is the peer's; handlers do not see it, but the running page names it (I11).

        Returns: u32 digest of each; what the turns give is in `take_outputs`. Never raises for what a handler does.
        """
        ...

    def moved(self, times: Times) -> None:
        """The shard's times are these now: behind a TIME record, before `advance`, and behind `restore`."""
        ...

    def advance(self, lsn: int, times: Times, *, caught_up: bool = True) -> None:
        """Take a TIME record in: timers and deadlines that are due fire, in (deadline, creation) order.

        `caught_up` False, of a record of version 1 only: more of these come at once; ticks wait for the last.
        """
        ...

    def outcome(self, lsn: int, now_us: int, outcome: Outcome) -> None:
        """Take the end of an activity's attempt in; one that nobody waits for changes nothing."""
        ...

    def attempt(self, lsn: int, now_us: int, attempt: Attempt) -> None:
        """Note that an at-most-once activity may have begun."""
        ...

    def order(self, lsn: int, now_us: int, order: Order) -> None:
        """Carry out an operator's command for an invocation."""
        ...

    def retry(self, lsn: int, now_us: int, parked: int, message: bytes) -> bytes:
        """Run a message that the record at lsn `parked` set aside; gives b"", or why not as an error reply."""
        ...

    def peer_replaced(self, lsn: int, now_us: int, target: Target) -> None:
        """Resolve what waits for a peer that was created anew, with error PeerReplaced."""
        ...

    def limit_targets(self, known: Known) -> None:
        """Told once, before anything runs: whom the outbox knows. A turn that would pass `targets_max` fails."""
        ...

    def take_outputs(self) -> Outputs | None:
        """Give what turns sent, answered late, started and stopped since the last call, in order; None: nothing."""
        ...

    def due(self) -> Due:
        """When `advance` has something to do."""
        ...

    def activities(self) -> list[ActivityStart]:
        """All activities without an outcome, in the order in which they were asked for."""
        ...

    def traceparent(self, invocation: int, operation: int) -> str:
        """Give the trace context of what an operation causes, as the header of that name; empty: none."""
        ...

    def holds(self, invocation: int) -> bool:
        """Has this invocation begun, and not ended?"""
        ...

    def invocation_count(self) -> int:
        """How many handlers have begun, or wait to, and not ended."""
        ...

    def crowd(self) -> Crowd:
        """How much is suspended."""
        ...

    def invocations(self, first: int = 0, count_max: int = sys.maxsize) -> list[InvocationView]:
        """Invocations that have begun and not ended, from id `first` on, the first `count_max`, for operators."""
        ...

    def held_count(self) -> int:
        """How many invocations are held because the code does not fit them."""
        ...

    def history(self, invocation: int, count_max: int) -> History | None:
        """What an invocation was given, the last `count_max` of it, for operators; None: it is not there."""
        ...

    def not_begun(self, invocation: int) -> bytes:
        """Give the message that waits for its key under this id, as a CALL; b"": none does."""
        ...

    def schedules(self) -> list[ScheduleView]:
        """All schedules, for operators."""
        ...

    def suspended(self) -> list[bytes]:
        """Encoded invocations for a checkpoint, ascending by id."""
        ...

    def query(self, message: bytes, now_us: int) -> bytes:
        """Run a query on the last completed turn's state; gives reply bytes."""
        ...

    def rolling_update(self) -> bytes:
        """Bytes that stand for all states and replies since the last call; the frame's rolling digest takes them in."""
        ...

    def state(self) -> dict[bytes, bytes]:
        """Encoded state per key; the caller must not change it."""
        ...

    def count(self) -> int:
        """How many keys have a state."""
        ...

    def restore(self, state: dict[bytes, bytes], suspended: Sequence[bytes] = (), *, same_code: bool = True) -> None:
        """Replace all state, and all invocations by what `suspended` gave: each runs again up to where it waits.

        Args:
            state: as `state` gave it.
            suspended: as `suspended` gave it.
            same_code: this very code gave them; of other code, an invocation that does not fit is held (`misfits`).

        Raises: Diverged naming the invocation that asked for something else than it did before, of the same code.
        """
        ...

    def discard(self) -> None:
        """Forget everything (before a reload)."""
        ...


__all__ = [
    "AsyncLock",
    "Executor",
    "FileSystem",
    "Frame",
    "Handle",
    "Holder",
    "Lock",
    "LockView",
    "LogStore",
    "Position",
    "Run",
    "ServiceRecord",
    "Tail",
]
