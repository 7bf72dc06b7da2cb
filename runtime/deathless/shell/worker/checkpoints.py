"""Checkpoints of a running replica: written and read back by forked children, announced once they are confirmed.

Guarantees: the worker never waits for a checkpoint's bytes (I9); one is announced only when everything in it is
confirmed; one that is being written is never written twice at once; a child that hangs keeps no later one from being
taken. Does not: decide when (core does).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Mapping

import msgspec

from deathless.base.errors import DeathlessError
from deathless.base.limits import Limits
from deathless.base.storage import Use, waits
from deathless.codec.checkpoint import Read, decode
from deathless.codec.snapshot import Begun, Head, Snapshot
from deathless.core.tables.outbox import Outbox
from deathless.engine.log.checkpoint_store import CheckpointStore, checkpoint_name
from deathless.engine.log.own_history import counted_on_log
from deathless.engine.log.spare import Spare
from deathless.engine.ports import FileSystem
from deathless.shell.disk.background_writer import GentleFileSystem
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.shell.disk.spool_files import FileSpool
from deathless.shell.process.forked import Children

CHILD_MAX_S = 3600.0  # writing, or reading back, takes less unless the storage hangs; then the next one is tried
_LOG = logging.getLogger("deathless.checkpoints")


class Checkpoints:
    """The checkpoints of one replica.

    Args:
        replica: its name, with its instance if it has one.
        spare: the replica's spare segment; a child gives it up where a checkpoint finds no other room (I8).
        spool: holds what of the outbox is not in memory, also that of a checkpoint that is loaded.
    """

    def __init__(
        self,
        directory: str,
        replica: str,
        loop: asyncio.AbstractEventLoop,
        limits: Limits,
        *,
        spare: Spare | None = None,
        spool: FileSpool | None = None,
    ) -> None:
        self._directory = directory
        self._replica = replica
        self._limits = limits
        self._spare = spare
        self._spool = spool
        self._children = Children(loop)
        self._store = self._open()
        self._store.clear(replica.partition(".")[0])
        self._waiting: tuple[int, str, Callable[[int, str], None]] | None = None  # written, not confirmed
        self._confirmed_lsn = 0
        self._busy = False
        self._counting = False

    def _open(self, filesystem: FileSystem | None = None) -> CheckpointStore:
        filesystem = filesystem or RealFileSystem(self._directory)
        make_room = self._spare.free if self._spare is not None else None
        kept = self._limits.checkpoints_kept
        return CheckpointStore(filesystem, self._replica, kept=kept, make_room=make_room, decode=self._decode)

    def load_newest(self, fits: Callable[[Head], bool] | None = None) -> Snapshot | None:
        """See the port. Raises: NewerFormat, OSError."""
        return self._store.load_newest(fits=fits)

    def load_at(self, lsn: int, chain: bytes) -> Snapshot | None:
        """See the port. Raises: NewerFormat, OSError."""
        return self._store.load_at(lsn, chain)

    def _decode(self, read: Read) -> Snapshot:
        return decode(read, Outbox(self._spool, self._limits.outbox_memory_bytes_max))

    def write(self, snapshot: Callable[[], Snapshot], lsn: int, chain: bytes, done: Callable[[int, str], None]) -> None:
        """Have a child copy and write; `done` once it is announced. A second call meanwhile does nothing."""
        if self._busy:
            return
        self._busy = True
        name = checkpoint_name(lsn, chain)
        self._children.run(
            lambda: self._write_in_child(snapshot),
            lambda good: self._written(good, lsn, name, done),
            max_s=CHILD_MAX_S,
            keep=self._spool.descriptors() if self._spool is not None else (),
        )

    def begin_first(self, state: Mapping[bytes, bytes], done: Callable[[Begun | None], None]) -> None:
        """Have a child write a state of which a generation's first checkpoint is to be made; None: it could not."""
        answer = os.memfd_create("begun")

        def work() -> bool:
            try:
                begun = self._open(GentleFileSystem(self._directory)).begin_first(state)
            except (DeathlessError, OSError) as error:
                _LOG.warning("first checkpoint not begun", extra={"why": str(error)})
                return False
            os.pwrite(answer, msgspec.msgpack.encode(begun), 0)
            return True

        def begun(good: bool) -> None:
            data = os.pread(answer, os.fstat(answer).st_size, 0)
            os.close(answer)
            done(msgspec.msgpack.decode(data, type=Begun) if good else None)

        self._children.run(work, begun, max_s=CHILD_MAX_S, keep=(answer,))

    def drop_begun(self) -> None:
        """Give up what was begun; nobody needs it any more."""
        with contextlib.suppress(OSError):  # it is taken away when this replica is started again
            self._store.drop_begun()

    def write_first(self, snapshot: Callable[[], Snapshot], done: Callable[[str], None]) -> None:
        """See the port. In a child, so that heartbeats go on; read back through a fresh descriptor.

        Nobody is served until it stands, so the child gives way to nobody: processes that end and start at a cut want
        the processor as well.
        """
        self._children.run(
            lambda: self._write_first_in_child(snapshot),
            lambda good: done(
                "" if good else "it could not be written, or read back; the log of this replica says why"
            ),
            max_s=CHILD_MAX_S,
            keep=self._spool.descriptors() if self._spool is not None else (),
            gives_way=False,
        )

    def _write_first_in_child(self, snapshot: Callable[[], Snapshot]) -> bool:
        try:
            self._open().write_first(snapshot())
        except (DeathlessError, OSError) as error:
            _LOG.warning("first checkpoint not written", extra={"why": str(error)})
            return False
        return True

    def _write_in_child(self, snapshot: Callable[[], Snapshot]) -> bool:
        try:
            self._open(GentleFileSystem(self._directory)).write(snapshot())
        except (DeathlessError, OSError) as error:
            _LOG.warning("checkpoint not written", extra={"why": str(error)})
            return False
        return True

    def _written(self, good: bool, lsn: int, name: str, done: Callable[[int, str], None]) -> None:
        if self._spare is not None:
            self._spare.recheck()
        if not good:
            self._busy = False
            done(lsn, "")
            return
        self._waiting = (lsn, name, done)
        self.confirmed(self._confirmed_lsn)

    def confirmed(self, lsn: int) -> None:
        """Everything up to `lsn` is confirmed: announce what waits for that.

        Raises: OSError, but not for lack of space or on a read-only volume.
        """
        self._confirmed_lsn = max(self._confirmed_lsn, lsn)
        if self._waiting is None or self._waiting[0] > self._confirmed_lsn:
            return
        (at, name, done), self._waiting = self._waiting, None
        self._busy = False
        try:
            self._store.announce(name)
        except OSError as error:
            # Where it is gone the primary has pruned it: a newer one counts already.
            if not isinstance(error, FileNotFoundError) and not waits(error, Use.CHECKPOINT):
                raise
            _LOG.warning("checkpoint not announced", extra={"file": name, "why": str(error)})
            done(at, "")
            return
        _LOG.info("checkpoint announced", extra={"lsn": at, "file": name})
        done(at, name)

    def verify(self, name: str, done: Callable[[bool], None]) -> None:
        """Have a child read a checkpoint back."""
        self._children.run(lambda: self._verify_in_child(name), done, max_s=CHILD_MAX_S)

    def _verify_in_child(self, name: str) -> bool:
        try:
            self._open().verify(name)
        except (DeathlessError, OSError) as error:
            _LOG.error("checkpoint can't be read back", extra={"file": name, "why": str(error)})
            return False
        return True

    def count(self, head: int, done: Callable[[list[int]], None]) -> None:
        """Have a child look which ones stand verified on the log of this head; a second call meanwhile does nothing."""
        if self._counting:
            return
        self._counting = True
        answer = os.memfd_create("checkpoints")

        def work() -> bool:
            filesystem = GentleFileSystem(self._directory)
            try:
                lsns = counted_on_log(filesystem, self._open(filesystem), head)
            except (DeathlessError, OSError) as error:
                _LOG.warning("checkpoints not compared with the log", extra={"why": str(error)})
                return False
            os.pwrite(answer, msgspec.json.encode(lsns), 0)
            return True

        def counted(good: bool) -> None:
            self._counting = False
            data = os.pread(answer, os.fstat(answer).st_size, 0) if good else b"[]"
            os.close(answer)
            done(msgspec.json.decode(data, type=list[int]))

        self._children.run(work, counted, max_s=CHILD_MAX_S, keep=(answer,))

    def prune(self, below: int) -> None:
        """Remove those of less than this lsn."""
        self._store.prune(below)
