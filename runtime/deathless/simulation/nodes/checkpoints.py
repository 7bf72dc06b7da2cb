"""Checkpoints of a simulated worker: written and read back by its helper, announced once confirmed.

Guarantees: as the shell's. Does not: fork; the helper gets a snapshot that was made at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from deathless.base.errors import DeathlessError
from deathless.base.storage import Use, waits
from deathless.codec.checkpoint import decode
from deathless.codec.snapshot import Begun, Head, Snapshot
from deathless.engine.log.checkpoint_store import CheckpointStore
from deathless.engine.log.own_history import counted_on_log
from deathless.engine.ports import FileSystem
from deathless.simulation.world.scheduler import ProcessState

if TYPE_CHECKING:
    from deathless.simulation.nodes.worker_node import WorkerNode

T = TypeVar("T")


class Checkpoints:
    """Checkpoints of one worker: written and read back by its helper, announced once confirmed; twin of the shell's."""

    def __init__(self, worker: WorkerNode, filesystem: FileSystem, make_room: Callable[[], None]) -> None:
        self._worker = worker
        self._make_room = make_room
        self._store = self._open(filesystem)
        self._waiting: tuple[int, str, Callable[[int, str], None]] | None = None  # written, not confirmed
        self._confirmed_lsn = 0
        self._busy = False
        self._counting = False

    def _open(self, filesystem: FileSystem) -> CheckpointStore:
        host = self._worker.host
        kept = self._worker.limits.checkpoints_kept
        return CheckpointStore(
            filesystem,
            host.name,
            kept=kept,
            decode=lambda read: decode(read, self._worker.make_outbox()),
            make_room=self._make_room,
            safeguards=host.safeguards,
        )

    def load_newest(self, fits: Callable[[Head], bool]) -> Snapshot | None:
        """See the port."""
        return self._store.load_newest(fits=fits)

    def load_at(self, lsn: int, chain: bytes) -> Snapshot | None:
        """See the port."""
        return self._store.load_at(lsn, chain)

    def write(
        self,
        snapshot: Callable[[], Snapshot],
        lsn: int,
        chain: bytes,
        done: Callable[[int, str], None],
    ) -> None:
        """Have the helper write it; a second call meanwhile does nothing."""
        if self._busy:
            return
        self._busy = True
        copied = snapshot()

        def written(name: str) -> None:
            if not name:
                self._busy = False
                done(lsn, "")
                return
            self._waiting = (lsn, name, done)
            self.confirmed(self._confirmed_lsn)

        self._help(lambda store, _: store.write(copied), "", written)

    def begin_first(self, state: dict[bytes, bytes], done: Callable[[Begun | None], None]) -> None:
        """Have the helper write a state ahead; None: it could not."""
        nothing: Begun | None = None
        self._help(lambda store, _: store.begin_first(state), nothing, done)

    def write_first(self, snapshot: Callable[[], Snapshot], done: Callable[[str], None]) -> None:
        """See the port."""
        copied = snapshot()

        def work(store: CheckpointStore, _: FileSystem) -> str:
            store.write_first(copied)
            return ""

        self._help(work, "the helper failed", done)

    def confirmed(self, lsn: int) -> None:
        """Everything up to `lsn` is confirmed: announce what waits for that."""
        self._confirmed_lsn = max(self._confirmed_lsn, lsn)
        if self._waiting is None or self._waiting[0] > self._confirmed_lsn:
            return
        (at, name, done), self._waiting = self._waiting, None
        self._busy = False
        try:
            self._store.announce(name)
        except OSError as error:
            if not isinstance(error, FileNotFoundError) and not waits(error, Use.CHECKPOINT):
                raise
            done(at, "")
            return
        self._worker.host.note(f"checkpoint {name[:16]}")
        done(at, name)

    def verify(self, name: str, done: Callable[[bool], None]) -> None:
        """Have the helper read one back."""
        self._help(lambda store, _: bool(store.verify(name)), False, done)

    def count(self, head: int, done: Callable[[list[int]], None]) -> None:
        """Have the helper look which ones stand verified on the log of this head."""
        if self._counting:
            return
        self._counting = True

        def counted(lsns: list[int]) -> None:
            self._counting = False
            done(lsns)

        safeguards = self._worker.host.safeguards
        none: list[int] = []
        self._help(lambda store, filesystem: counted_on_log(filesystem, store, head, safeguards), none, counted)

    def prune(self, below: int) -> None:
        """Remove those of less than this lsn."""
        self._store.prune(below)

    def _help(self, work: Callable[[CheckpointStore, FileSystem], T], failed: T, done: Callable[[T], None]) -> None:
        host, worker = self._worker.host, self._worker.process
        generation = worker.generation

        def run() -> None:
            try:
                filesystem = host.open_filesystem(host.helper)
                result = work(self._open(filesystem), filesystem)
            except (DeathlessError, OSError) as error:
                host.note(f"helper: {error}")
                result = failed
            if worker.generation == generation:
                worker.post(lambda: done(result))

        if host.helper.state is ProcessState.DEAD:
            host.helper.start(run)
        else:
            host.helper.post(run)
