"""One process of `deathless upgrade check`: migrates the state of a checkpoint, with keys in descending order.

Started by upgrade_check, with another hash seed than its own, never by hand. Job and outcome are msgpack
(service_code.separate_process).

Guarantees: nothing is written. Does not: decide; it gives a print of each key's new state, or that state itself, or
a print of all suspended handlers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from deathless.base.limits import Limits
from deathless.base.shards import Sharding
from deathless.engine.log.checkpoint_store import CheckpointStore
from deathless.execution.interface.interface import decode_interface
from deathless.execution.migration.determinism import PRINT_BYTES, prints_of
from deathless.execution.migration.state import Migrator, parted
from deathless.execution.snapshot_migration import migrate_snapshot
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.shell.process.turn_guards import TurnGuards
from deathless.shell.service_code.loading import load_service
from deathless.shell.service_code.separate_process import Reports, answer


class Job(msgspec.Struct, kw_only=True):
    """What to migrate."""

    target: str  # the new code, as for `load_service`
    folder: str  # likewise
    name: str  # of the service
    directory: str  # of the shard
    lsn: int  # of the checkpoint
    chain: bytes  # there
    before: bytes  # interface of the code that wrote it
    time_us: int
    limits: dict[str, int | float]
    shards: int = 1
    only: list[bytes] = []  # keys whose new entries are wanted; empty: prints of all
    carries: bool = False  # a print of the suspended handlers is wanted, as they go on
    seed: bytes = b""  # of the service, for that
    shard: int = 0  # likewise


class Outcome(msgspec.Struct, kw_only=True):
    """What came of it."""

    prints: bytes = b""  # of all keys, ascending; or of the suspended handlers, one
    entries: dict[bytes, bytes] = {}


def print_of(suspended: Sequence[bytes]) -> bytes:
    """Give a hash of suspended handlers."""
    return hashlib.blake2b(msgspec.msgpack.encode(suspended), digest_size=PRINT_BYTES).digest()


def run(job: Job) -> Outcome:
    """Migrate."""
    guards = TurnGuards(None)  # before the author's code is imported
    service = load_service(job.target, job.folder, name=job.name)
    snapshot = CheckpointStore(RealFileSystem(job.directory), "tool").load_at(job.lsn, job.chain)
    assert snapshot is not None, "the caller has read it"
    if job.carries:
        found = migrate_snapshot(
            snapshot,
            service,
            decode_interface(job.before),
            limits=msgspec.convert(job.limits, Limits),
            seed=job.seed,
            time_us=job.time_us,
            sharding=Sharding(shard=job.shard, shards=job.shards),
            hide=guards,
        )
        return Outcome(prints=print_of(found.snapshot.invocations))
    keys, items, _ = parted(snapshot.state)
    migrator = Migrator(
        service,
        decode_interface(job.before),
        time_us=job.time_us,
        limits=msgspec.convert(job.limits, Limits),
        shards=job.shards,
    )
    if job.only:
        only = sorted(job.only, reverse=True)
        return Outcome(entries=migrator.group([(key, snapshot.state[key]) for key in only], items))
    keys.sort(reverse=True)
    prints = list(prints_of(migrator, snapshot.state, items, keys))
    return Outcome(prints=b"".join(reversed(prints)))


def _migrated(order: bytes, _: Reports) -> bytes:
    return msgspec.msgpack.encode(run(msgspec.msgpack.decode(order, type=Job)))


if __name__ == "__main__":
    answer(_migrated, "migrating")
