"""The short form of a rehearsal: the new code alone runs the log, whose own digests say whether it does the same.

A digest stands for all that a message wrote: states, the reply, what was sent and caused (I6). So where the new code
takes all states as they are and gives the digests that the primary logged, the former code has nothing to add. The
first difference ends the run: what differs, and whether that is declared, only both codes together can say
(rehearsal_child.New). So does the first turn of other code that asks for what no digest stands for, such as a
timer: whether it is the same one, the former code alone can tell (execution.rehearsal.undigested).

Guarantees: nothing is written; what passes here does what the former code did, message by message. Does not: migrate
states, say what differs, run on behind an upgrade.
"""

from __future__ import annotations

from collections import Counter

from deathless.base.config import ReplicaConfig
from deathless.base.errors import Diverged
from deathless.codec.frames import decode_data
from deathless.codec.messages import BEGINNING, HEADER, HEADER_BYTES
from deathless.codec.snapshot import Snapshot
from deathless.engine.shard.assembly import open_shard
from deathless.execution.author.service import Service
from deathless.execution.executor import Hide, nothing_hidden
from deathless.execution.interface.misfit import Misfit
from deathless.execution.rehearsal.findings import Coverage
from deathless.execution.rehearsal.undigested import Undigested, undigested_in
from deathless.execution.snapshot_migration import Migrated
from deathless.shell.upgrade.former_main import checkpoint_at, snapshot_of
from deathless.shell.upgrade.migration import Migration
from deathless.shell.upgrade.packets import frame_of


class DigestRun:
    """One run of the new code by itself.

    Args:
        service: with the new code.
        config: of the new code.
        seed: 32 bytes of the service.
        fingerprint: of the former code, which wrote the log.
        from_version: of the former code.
        hide: called around turns.

    Raises: InvalidService where the service can't have these shards.
    """

    def __init__(
        self,
        service: Service,
        config: ReplicaConfig,
        seed: bytes,
        fingerprint: bytes,
        from_version: int,
        hide: Hide = nothing_hidden,
    ) -> None:
        self._service = service
        self._config = config
        self._fingerprint = fingerprint
        self._from_version = from_version
        limits, sharding = config.make_limits(), config.sharding
        self._shard = open_shard(service, limits, seed, sharding=sharding, hide=hide, make=Undigested)
        self.same_code = False  # it is the code that wrote the log, which asks for the same wherever it writes the same
        self._epoch = 0
        self._met: Counter[bytes] = Counter()  # messages that began a handler, by the name that they call it by

    def start(self, place: bytes) -> Snapshot:
        """Give what the former code held where the run begins.

        Args:
            place: of a checkpoint (packets.PLACE); empty: the log's beginning.

        Raises: CorruptCheckpoint where it can't be read.
        """
        return checkpoint_at(self._config, place, "digests") if place else self._snapshot()

    def begin(self, migrated: Migrated) -> None:
        """Begin with a checkpoint, which fits the new code. Raises: CorruptCheckpoint."""
        self._shard.restore(migrated.snapshot, same_code=False)

    def apply(self, body: bytes) -> None:
        """Run a frame.

        Raises: Diverged at the first difference, and where a handler of other code asks for what no digest stands for;
        CorruptFrame; what ends a process.
        """
        frame = frame_of(body)
        data = decode_data(frame)
        self._shard.apply(frame)
        for handler, what in () if self.same_code else undigested_in(self._shard.executor).items():
            raise Diverged(f"{handler} asks for {what}, which no digest of the log stands for")
        self._epoch = frame.epoch
        first = 0
        for end in data.ends:
            if end - first >= HEADER_BYTES:
                kind, _, method_bytes, _, _ = HEADER.unpack_from(data.blob, first)
                if kind in BEGINNING:
                    self._met[data.blob[first + HEADER_BYTES : first + HEADER_BYTES + method_bytes]] += 1
            first = end

    def coverage(self) -> list[Coverage]:
        """Give how many messages began each handler, in the order of the code."""
        service = self._service
        specs = (*service.specs.values(), *service.inputs.values())
        coverage = {each.name: Coverage(each.name) for each in specs if each.kind != "query"}
        for method, count in self._met.items():
            called = method.decode(errors="replace")
            name = service.declared.name_now(called, self._from_version) or called
            if name in coverage:
                coverage[name].turns += count
        return list(coverage.values())

    def finish(self, migration: Migration) -> list[Misfit]:
        """Give what would not fit if the upgrade were made where the run ended."""
        return migration.look(self._snapshot()).misfits

    def _snapshot(self) -> Snapshot:
        return snapshot_of(self._shard, self._config, self._epoch, self._fingerprint)
