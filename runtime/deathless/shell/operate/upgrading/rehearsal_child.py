"""One process of a rehearsal: runs a code over a log, and tells what it did, or compares it with what another one did.

    tool                                 former code                      new code (one or two processes)
    BEGIN (code, place)      ------->    imports its code
                             <-------    IMPORTED; reads its checkpoint, gives
                             <-------    READY, and all it holds   ...
    BEGIN (code)             ---------------------------------------->    imports its code
                             <----------------------------------------    IMPORTED; migrates that
                             <----------------------------------------    READY (what does not fit)
    APPLY (a frame)          ------->    runs it
                             <-------    DID (steps, and what was done)
    STEPS (the same)         ---------------------------------------->    runs them, and compares
                             <----------------------------------------    JUDGED (how much differs, prints of steps)
    GIVE                     ------->    gives all it holds at the end
                             <-------    GIVEN
    FINISH                   ---------------------------------------->    migrates that, and compares
                             <----------------------------------------    FOUND (differences, coverage, misfits)

Where the new code takes all states as they are, two processes of it run the log by themselves first (digest_run):

    BEGIN (code, place)      ---------------------------------------->    imports its code
                             <----------------------------------------    IMPORTED; reads the checkpoint
                             <----------------------------------------    READY (what does not fit)
    APPLY (a frame)          ---------------------------------------->    runs it, and compares digests
                             <----------------------------------------    SAME
    FINISH                   ---------------------------------------->    FOUND (coverage, misfits)

Packets are those of shell.upgrade.packets; what a code holds passes through one open file without a name, which ends
with the last process that has it. In a pod the former code is another container's, started by its former server: there
the file has a name, in the folder that both containers have, and IMPORTED is not said, for tools of before do not know
it. The process of the new code notes in it which step it
runs, for who finds it dead.

Guarantees: nothing in the service's folder is changed; it ends with its parent, and gives way to the service. Does not:
decide (execution.rehearsal does), take a lock, open a port.
"""

from __future__ import annotations

import contextlib
import enum
import hashlib
import os
import sys
from functools import partial
from typing import Final

import msgspec

from deathless.base.config import ReplicaConfig, UpgradeConfig
from deathless.base.errors import InvalidArgument
from deathless.codec import checkpoint
from deathless.codec.snapshot import Snapshot
from deathless.codec.untrusted import read_json, read_msgpack
from deathless.core.tables.outbox import Outbox
from deathless.execution.executor import Hide, nothing_hidden
from deathless.execution.interface.misfit import Misfit
from deathless.execution.rehearsal.findings import Coverage, Difference
from deathless.execution.rehearsal.judge import Judge
from deathless.execution.rehearsal.recorder import Recorder
from deathless.execution.rehearsal.steps import decode_trace, encode_did, encode_trace
from deathless.execution.snapshot_migration import Migrated
from deathless.shell.link.config_file import read_config
from deathless.shell.operate.upgrading.digest_run import DigestRun
from deathless.shell.process.forked import NICE, die_with_parent
from deathless.shell.process.turn_guards import TurnGuards
from deathless.shell.service_code.fingerprint import describe
from deathless.shell.service_code.interface_record import needed
from deathless.shell.service_code.loading import load_service
from deathless.shell.upgrade.former_link import REHEARSAL_MODULE
from deathless.shell.upgrade.former_main import FormerCode, Imported, Line, nobody_told, run_told
from deathless.shell.upgrade.migration import Migration
from deathless.shell.upgrade.packets import Begin

MODULE: Final = REHEARSAL_MODULE
PRINT_BYTES: Final = 8
COUNT_BYTES: Final = 4
"""In front of the prints: how many differences there are so far that nobody declares."""
NOTE_BYTES: Final = 8
SERVED: Final = "--served"
NO_FILE: Final = -1
"""Who is served by a former server has no file but the one that its orders name."""


class Word(enum.IntEnum):
    """What a packet is."""

    BEGIN = 1
    READY = 2
    APPLY = 3
    DID = 4
    STEPS = 5
    JUDGED = 6
    GIVE = 7
    GIVEN = 8
    FINISH = 9
    FOUND = 10
    FAILED = 11
    SAME = 12
    IMPORTED = 13


class Orders(msgspec.Struct, array_like=True, frozen=True):
    """Body of BEGIN."""

    former: bool  # False: the new code
    config: bytes  # ReplicaConfig as JSON; `module` and `code` are those of the code that runs here
    seed: bytes  # 32 bytes of the service
    fingerprint: bytes  # of the former code
    place: bytes = b""  # of the checkpoint to begin with (packets.PLACE); empty: the log's beginning
    notes: bool = False  # note which step is run
    path: str = ""  # of the file through which it gives what it holds; empty: the one that it was started with
    digests: bool = False  # the new code by itself, compared with the digests of the log


class Ready(msgspec.Struct, array_like=True, frozen=True):
    """Body of READY, of the new code."""

    same_code: bool
    from_version: int
    to_version: int
    runs: bool  # what does not fit keeps it from being run
    misfits: list[Misfit]
    notes: list[Misfit]
    compatible: bool = False  # states are as they were
    fingerprint: str = ""  # of the new code, hexadecimal


class Found(msgspec.Struct, array_like=True, frozen=True):
    """Body of FOUND."""

    differences: list[Difference]
    coverage: list[Coverage]
    misfits: list[Misfit]


class Former:
    """The former code."""

    def __init__(self, orders: Orders, file: int, config: ReplicaConfig | None, hide: Hide, imported: Imported) -> None:
        begin = Begin(orders.config, orders.seed, orders.fingerprint)
        self._code = FormerCode(begin, config, Recorder, hide, imported)
        self._path = orders.path or f"/proc/self/fd/{file}"
        assert isinstance(self._code.executor, Recorder)
        self._recorder = self._code.executor
        if orders.place:
            self._code.restore(orders.place)

    def take(self, word: int, body: bytes) -> tuple[Word, bytes]:
        """Do what is said; gives the answer. Raises: DeathlessError, OSError."""
        if word == Word.APPLY:
            self._code.apply(body)
            return Word.DID, encode_trace(self._recorder.taken())
        if word == Word.GIVE:
            self.give()
            return Word.GIVEN, b""
        raise InvalidArgument(f"packet {word} is not for the former code")

    def give(self) -> bytes:
        """Write all that it holds into the file."""
        return self._code.give(self._path)


class _NewCode:
    """The new code, and how it takes over what the former one holds.

    Raises: InvalidArgument for code of an older version; InvalidService, UpgradeRefused.
    """

    migration: Migration
    ready: Ready

    def __init__(self, orders: Orders, hide: Hide, imported: Imported) -> None:
        self._orders = orders
        self._hide = hide
        self.config = config = read_json(orders.config, ReplicaConfig)
        self.service = load_service(config.module, name=config.service)
        imported()
        self.before = needed(config.directory, orders.fingerprint)
        if self.service.version < self.before.version:
            raise InvalidArgument(
                f"version {self.service.version} is older than version {self.before.version}, which serves: a way "
                "back is not rehearsed",
                remedy="`deathless upgrade check --to` says what can't go back",
            )

    def look(self, start: Snapshot) -> Migrated:
        """Migrate what the former code holds where the run begins, and note what comes of it."""
        config, orders = self.config, self._orders
        upgrade = UpgradeConfig(
            id=bytes(16).hex(),
            from_generation=start.generation.number,
            from_fingerprint=orders.fingerprint.hex(),
            from_version=self.before.version,
            time_us=start.times.time_us,
        )
        self.migration = Migration(self.service, config, upgrade, orders.seed, hide=self._hide)
        migrated = self.migration.look(start)
        described = describe(self.service, config.make_limits(), config.sharding)
        self.ready = Ready(
            same_code=orders.fingerprint in described.spellings,
            from_version=self.before.version,
            to_version=self.service.version,
            runs=migrated.snapshot is not start,
            misfits=migrated.misfits,
            notes=migrated.notes,
            compatible=migrated.compatible,
            fingerprint=described.fingerprint.hex(),
        )
        return migrated


class Alone:
    """The new code by itself, where it takes all states as they are."""

    def __init__(self, orders: Orders, hide: Hide = nothing_hidden, imported: Imported = nobody_told) -> None:
        self._code = code = _NewCode(orders, hide, imported)
        self._run = DigestRun(code.service, code.config, orders.seed, orders.fingerprint, code.before.version, hide)
        migrated = code.look(self._run.start(orders.place))
        self.ready = code.ready
        self._run.same_code = self.ready.same_code
        if self.ready.runs and self.ready.compatible and orders.place:
            self._run.begin(migrated)

    def take(self, word: int, body: bytes) -> tuple[Word, bytes]:
        """Do what is said; gives the answer. Raises: as DigestRun.apply; DeathlessError, OSError."""
        if word == Word.APPLY:
            self._run.apply(body)
            return Word.SAME, b""
        if word == Word.FINISH:
            misfits = self._run.finish(self._code.migration)
            return Word.FOUND, msgspec.msgpack.encode(Found([], self._run.coverage(), misfits))
        raise InvalidArgument(f"packet {word} is not for the new code by itself")


class New:
    """The new code."""

    def __init__(self, orders: Orders, file: int, hide: Hide, imported: Imported) -> None:
        self._file = file
        self._notes = orders.notes
        self._code = code = _NewCode(orders, hide, imported)
        start = self._given()
        migrated = code.look(start)
        self.ready = code.ready
        self._judge: Judge | None = None
        if self.ready.runs:
            self._judge = Judge(
                code.service,
                code.before,
                start,
                migrated,
                limits=code.config.make_limits(),
                seed=orders.seed,
                time_us=start.times.time_us,
                sharding=code.config.sharding,
                hide=hide,
            )

    def take(self, word: int, body: bytes) -> tuple[Word, bytes]:
        """Do what is said; gives the answer. Raises: DeathlessError, OSError; what ends a process."""
        judge = self._judge
        if judge is None:
            raise InvalidArgument("code that does not fit is not run")
        if word == Word.STEPS:
            return Word.JUDGED, self._judged(judge, body)
        if word == Word.FINISH:
            misfits = judge.finish(self._code.migration.look(self._given()))
            return Word.FOUND, msgspec.msgpack.encode(Found(judge.differences, judge.coverage, misfits))
        raise InvalidArgument(f"packet {word} is not for the new code")

    def _judged(self, judge: Judge, body: bytes) -> bytes:
        prints = []
        for step, did in decode_trace(body):
            if self._notes:
                os.pwrite(self._file, step.lsn.to_bytes(NOTE_BYTES, "little"), 0)
            run = judge.step(step, did)
            done = b"" if run is None else encode_did(run)
            prints.append(hashlib.blake2b(done, digest_size=PRINT_BYTES).digest())
        found = sum(not each.declared for each in judge.differences)
        return found.to_bytes(COUNT_BYTES, "little") + b"".join(prints)

    def _given(self) -> Snapshot:
        """Read what the former code holds."""

        def read(offset: int, size: int) -> bytes:
            return os.pread(self._file, size, offset)

        return checkpoint.decode(read, Outbox())


def serve(line: Line, file: int, hide: Hide, config: ReplicaConfig | None = None) -> None:
    """Do what is said until the tool is gone. Raises: DeathlessError, OSError.

    Args:
        line: to the tool.
        file: through which what a code holds is passed.
        hide: called around turns.
        config: that counts for the former code, in place of the one that it is told.
    """
    code: Former | New | Alone | None = None
    imported = nobody_told if file == NO_FILE else partial(line.send, Word.IMPORTED, b"")
    for packets in line.packets():
        for word, body in packets:
            if word != Word.BEGIN:
                if code is None:
                    raise InvalidArgument(f"packet {word} before BEGIN")
                answer = code.take(word, body)
            else:
                orders = read_msgpack(body, Orders)
                if orders.former:
                    code = Former(orders, file, config, hide, imported)
                    answer = Word.READY, code.give()
                else:
                    code = Alone(orders, hide, imported) if orders.digests else New(orders, file, hide, imported)
                    answer = Word.READY, msgspec.msgpack.encode(code.ready)
            line.send(*answer)


def main() -> int:
    """Be the process; the arguments are the descriptors of the socket and of the file.

    Of a former server: `--served`, the descriptor of the socket, and the path of the config that counts.
    """
    die_with_parent()
    os.nice(NICE)
    guards = TurnGuards(None)  # before the author's code is imported
    served = sys.argv[1] == SERVED
    with contextlib.closing(Line(int(sys.argv[2 if served else 1]))) as line:

        def work() -> None:
            if served:
                serve(line, NO_FILE, guards, read_config(sys.argv[3]))
            else:
                serve(line, int(sys.argv[2]), guards)

        return run_told(line, Word.FAILED, "rehearsal", work)


if __name__ == "__main__":
    sys.exit(main())
