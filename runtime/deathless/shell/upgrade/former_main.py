"""The process of the former code: `python -m deathless.shell.upgrade.former_main FD [CONFIG.json]`.

It runs by the interpreter, and from the sources, that wrote the log, and is told everything by an upgrader (packets).
It reads one file of the service's folder, the checkpoint that it begins with, and writes one, what it is asked to give;
it has no lock, no port, and no part in what is decided. The upgrader's config is of its own release, and may be of a
later one than this: where the former server started this process, the server's config counts in place of it.

Guarantees: it runs the log as a replica does, and gives up at the first difference; it ends with its parent. Does not:
outlive anything.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import CorruptCheckpoint, DeathlessError, InvalidArgument, UpgradeRequired
from deathless.codec import checkpoint
from deathless.codec.checkpoint_ahead import changes_between
from deathless.codec.generations import NEWEST
from deathless.codec.snapshot import Snapshot
from deathless.codec.untrusted import read_json, read_msgpack
from deathless.engine.log.checkpoint_store import CheckpointStore
from deathless.engine.ports import Executor
from deathless.engine.replica.failures import as_ours
from deathless.engine.shard.assembly import open_shard
from deathless.engine.shard.shard import Shard
from deathless.execution.executor import HandlerExecutor, Hide, nothing_hidden
from deathless.execution.handlers.noting import Noting
from deathless.execution.interface.interface import decode_interface
from deathless.execution.invocations.kept_records import KeptRecords
from deathless.execution.migration.lowering import lower_snapshot
from deathless.execution.values.failure import FATAL
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.shell.link.config_file import read_config
from deathless.shell.process.forked import die_with_parent
from deathless.shell.process.turn_guards import TurnGuards
from deathless.shell.service_code.code_record import what_differs
from deathless.shell.service_code.fingerprint import describe
from deathless.shell.service_code.kept_code import former_spellings, node_name
from deathless.shell.service_code.loading import load_configured
from deathless.shell.upgrade.packets import (
    GIVES_CHANGES,
    PLACE,
    Back,
    Begin,
    ChangesGiven,
    Failed,
    Kind,
    LoweredThere,
    Reader,
    frame_of,
    packet,
)

READ_BYTES: Final = 1 << 20
Imported = Callable[[], object]


def nobody_told() -> None:
    """Nobody waits for the import."""


class FormerCode:
    """One run of it.

    Args:
        begin: what it was told first.
        config: that counts; None: the one that it was told.
        make: class of the executor.
        hide: called around turns.
        imported: called when the code is imported.
    """

    def __init__(
        self,
        begin: Begin,
        config: ReplicaConfig | None = None,
        make: type[HandlerExecutor] = HandlerExecutor,
        hide: Hide = nothing_hidden,
        imported: Imported = nobody_told,
    ) -> None:
        config = config or read_json(begin.config, ReplicaConfig)
        self._config = config
        service = load_configured(config)
        imported()
        limits = config.make_limits()
        code = describe(service, limits, config.sharding)
        if begin.fingerprint not in code.spellings | former_spellings(config.directory, code):
            told = what_differs(config.directory, begin.fingerprint, code, node_name())
            raise UpgradeRequired(f"what runs here as the former code is not what wrote the log: {told}")
        self._service = service
        self._limits = limits
        self._fingerprint = begin.fingerprint
        self._shard: Shard = open_shard(service, limits, begin.seed, sharding=config.sharding, make=make, hide=hide)
        self._epoch = 0  # of the last frame
        self._given: dict[bytes, bytes] | None = None  # the state as it was given whole last, where that is kept
        self._noting: Noting | None = None  # of what changed since then
        self._records = KeptRecords()
        self._known: Mapping[bytes, bytes] = {}  # see Lowered

    @property
    def lsn(self) -> int:
        """Up to which it has run the log."""
        return self._shard.place.lsn

    @property
    def executor(self) -> Executor:
        """That runs its handlers."""
        return self._shard.executor

    def restore(self, body: bytes) -> None:
        """Begin with a checkpoint. Raises: CorruptCheckpoint where it can't be read."""
        snapshot = checkpoint_at(self._config, body, "former")
        if self._noting is not None:  # what it notes from is gone with this
            self._given, self._noting = self._noting.base(), None
        self._shard.restore(snapshot)
        self._epoch = snapshot.epoch

    def apply(self, body: bytes) -> None:
        """Run a frame. Raises: Diverged, CorruptFrame, InvalidArgument."""
        frame = frame_of(body)
        self._shard.apply(frame)
        self._epoch = frame.epoch

    def give(self, path: str) -> bytes:
        """Write everything to a file; gives where that stands. Raises: OSError.

        The service's identity is for the reader to know: it is not in there.
        """
        snapshot = self._snapshot(self._executor.entities.all())
        _write(path, snapshot)
        self._note_changes(snapshot.state)
        return PLACE.pack(snapshot.lsn, snapshot.chain)

    def give_changes(self, path: str) -> ChangesGiven:
        """Write what changed of the state since it was given whole, and all of the rest; as `give`.

        Raises: InvalidArgument where it never was; OSError.
        """
        changed, gone = self._changes()
        snapshot = self._snapshot(changed)
        _write(path, snapshot)
        return ChangesGiven(PLACE.pack(snapshot.lsn, snapshot.chain), gone)

    def lower(self, back: Back) -> LoweredThere:
        """Write everything in the words of an older version, by what this code declares; as `give`.

        Raises: InvalidConfig where the interface can't be read; OSError.
        """
        snapshot = self._snapshot(self._executor.entities.all())
        told = self._lower(back, snapshot, None, [])
        self._note_changes(snapshot.state)
        return told

    def lower_changes(self, back: Back) -> LoweredThere:
        """Write what changed of the state since all was lowered, and all of the rest; as `lower`.

        Raises: InvalidArgument where nothing was; OSError.
        """
        changed, gone = self._changes()
        return self._lower(back, self._snapshot(changed), self._known, gone)

    def _lower(
        self, back: Back, snapshot: Snapshot, known: Mapping[bytes, bytes] | None, gone: list[bytes]
    ) -> LoweredThere:
        lowered = lower_snapshot(
            snapshot,
            self._service,
            decode_interface(back.interface),
            limits=self._limits,
            time_us=back.time_us,
            shards=self._config.shards,
            upgrade=back.upgrade,
            known=known,
        )
        _write(back.path, lowered.snapshot)
        self._known = lowered.known
        return LoweredThere(
            PLACE.pack(lowered.snapshot.lsn, lowered.snapshot.chain),
            msgspec.msgpack.encode(lowered.misfits),
            msgspec.msgpack.encode(lowered.notes),
            lowered.keys,
            lowered.changed,
            gives_changes=True,
            gone=gone,
        )

    def _note_changes(self, given: dict[bytes, bytes]) -> None:
        """Note what changes from now on of the state, which was given whole."""
        entities = self._executor.entities
        self._given = self._noting = None
        if Noting.can_be(entities):
            self._noting = Noting(entities)
        else:
            self._given = dict(given)

    def _changes(self) -> tuple[dict[bytes, bytes], list[bytes]]:
        """Give what changed since then. Raises: InvalidArgument."""
        if self._noting is not None:
            return self._noting.changes()
        if self._given is None:
            raise InvalidArgument("changes are asked for before all of it")
        return changes_between(self._given, self._shard.executor.state())

    @property
    def _executor(self) -> HandlerExecutor:
        executor = self._shard.executor
        assert isinstance(executor, HandlerExecutor)
        return executor

    def _snapshot(self, state: dict[bytes, bytes]) -> Snapshot:
        invocations = self._executor.suspended(self._records)
        return snapshot_of(self._shard, self._config, self._epoch, self._fingerprint, state, invocations)


def checkpoint_at(config: ReplicaConfig, place: bytes, instance: str) -> Snapshot:
    """Read a checkpoint of the service's folder.

    Args:
        config: of the service.
        place: of the checkpoint (packets.PLACE).
        instance: what reads it, as other processes of this replica may.

    Raises: CorruptCheckpoint where it can't be read.
    """
    lsn, chain = PLACE.unpack(place)
    snapshot = CheckpointStore(RealFileSystem(config.directory), f"{config.owner}.{instance}").load_at(lsn, chain)
    if snapshot is None:
        raise CorruptCheckpoint(f"the checkpoint at lsn {lsn} is gone, or can't be read")
    return snapshot


def snapshot_of(
    shard: Shard,
    config: ReplicaConfig,
    epoch: int,
    fingerprint: bytes,
    state: dict[bytes, bytes] | None = None,
    invocations: list[bytes] | None = None,
) -> Snapshot:
    """Give what a shard holds that only runs a log: the service's identity is for the reader to know.

    Args:
        shard: that ran it.
        config: of the service.
        epoch: of the last frame.
        fingerprint: of the code that wrote the log.
        state: as Shard.snapshot.
        invocations: likewise.
    """
    return shard.snapshot(
        service=config.service,
        service_id=bytes(16),
        incarnation=0,
        epoch=epoch,
        fingerprint=fingerprint,
        state=state,
        invocations=invocations,
    )


def _write(path: str, snapshot: Snapshot) -> None:
    with Path(path).open("wb") as file:
        file.writelines(checkpoint.encode(snapshot))


class Line:
    """The socket to the upgrader."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._reader = Reader()

    def packets(self) -> Iterator[list[tuple[int, bytes]]]:
        """Give what came, piece by piece, until the other end is gone."""
        while piece := self._socket.recv(READ_BYTES):
            yield list(self._reader.feed(piece))

    def send(self, kind: int, body: bytes) -> None:
        """Say something."""
        self._socket.sendall(packet(kind, body))

    def close(self) -> None:
        """Be gone: the upgrader takes note."""
        self._socket.close()


def serve(line: Line, config: ReplicaConfig | None = None, hide: Hide = nothing_hidden) -> None:
    """Do what is said until the upgrader is gone. Raises: DeathlessError, OSError.

    Args:
        line: to the upgrader.
        config: see FormerCode.
        hide: likewise.
    """
    code: FormerCode | None = None
    for packets in line.packets():
        for kind, body in packets:
            if kind == Kind.BEGIN:
                code = FormerCode(read_msgpack(body, Begin), config, hide=hide)
                line.send(Kind.LEVEL, NEWEST.to_bytes(4, "little"))
            elif code is None:
                raise InvalidArgument(f"packet {kind} before BEGIN")
            elif kind == Kind.RESTORE:
                code.restore(body)
            elif kind == Kind.APPLY:
                code.apply(body)
            elif kind == Kind.GIVE:
                line.send(Kind.GIVEN, code.give(body.decode()) + GIVES_CHANGES)
            elif kind == Kind.GIVE_CHANGES:
                line.send(Kind.GIVEN_CHANGES, msgspec.msgpack.encode(code.give_changes(body.decode())))
            elif kind == Kind.BACK:
                line.send(Kind.LOWERED, msgspec.msgpack.encode(code.lower(read_msgpack(body, Back))))
            elif kind == Kind.BACK_CHANGES:
                lowered = code.lower_changes(read_msgpack(body, Back))
                line.send(Kind.LOWERED_CHANGES, msgspec.msgpack.encode(lowered))
            else:
                raise InvalidArgument(f"packet {kind} is not known")
        if code is not None:
            line.send(Kind.STANDS, code.lsn.to_bytes(8, "little"))


def main() -> int:
    """Be the process; the arguments are the socket's descriptor, and the path of the config that counts."""
    die_with_parent()
    descriptor, *paths = sys.argv[1:]
    guards = TurnGuards(None)  # before the author's code is imported
    with contextlib.closing(Line(int(descriptor))) as line:

        def work() -> None:
            serve(line, read_config(paths[0]) if paths else None, guards)

        return run_told(line, Kind.FAILED, "former code", work)


def run_told(line: Line, failed: int, where: str, work: Callable[[], None]) -> int:
    """Work for the other end of a line, which is told why it ends; gives the exit code.

    Args:
        line: to whoever started this process.
        failed: kind of the packet that says so.
        where: it happened, for errors that are none of ours.
        work: ends once the other end is gone.
    """
    try:
        work()
    except FATAL:  # of the author's code: nothing is said, as a worker says nothing
        traceback.print_exc()
        return 1
    except Exception as error:  # noqa: BLE001  whatever it was, the other end is told why this process ends
        ours = as_ours(error, where)
        if not isinstance(error, (DeathlessError, OSError)):
            traceback.print_exc()
        with contextlib.suppress(OSError):
            line.send(failed, msgspec.msgpack.encode(Failed(ours.code, ours.message)))
        return ours.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
