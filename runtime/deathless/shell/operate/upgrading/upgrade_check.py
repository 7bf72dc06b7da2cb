"""Checks, while a service runs or not, whether other code may go on with it: the types, then the state itself.

    types       the interface that is recorded for the code that serves, beside the new code's
    messages    those of the newest checkpoint that wait: each must have a handler that takes its arguments
    state       every key of it is migrated, twice: here with keys ascending, and in a process with another hash seed
                with keys descending; and, where there is a way back, up and down again
    handlers    where the code says how suspended ones are carried, those that do not fit are, twice likewise

Guarantees: nothing in the directory is changed; what is found is told by name, with counts. Does not: run handlers
otherwise, so that code which does something else with the same types is not noticed; see what came behind the
checkpoint.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import InvalidService
from deathless.base.limits import Limits
from deathless.codec.snapshot import Snapshot
from deathless.execution.author.changes import Gap
from deathless.execution.author.service import Service
from deathless.execution.executor import Hide
from deathless.execution.interface.comparison import compare
from deathless.execution.interface.interface import Interface, encode_interface, interface_of
from deathless.execution.interface.misfit import Misfit, Tally, merged
from deathless.execution.interface.way_back import way_back
from deathless.execution.migration.determinism import PRINT_BYTES, check_way_back, differences, prints_of
from deathless.execution.migration.messages import fit_messages, under_way_in, waiting_in
from deathless.execution.migration.state import Migrator, parted
from deathless.execution.snapshot_migration import migrate_snapshot
from deathless.shell.lock_stores.inspection import Inspection, inspect
from deathless.shell.operate.log_generations import newest_of_head
from deathless.shell.operate.upgrading.migration_child import Job, Outcome, print_of
from deathless.shell.operate.upgrading.way_back_check import lowered_at
from deathless.shell.process.turn_guards import TurnGuards
from deathless.shell.service_code.fingerprint import describe
from deathless.shell.service_code.interface_record import needed
from deathless.shell.service_code.loading import load_service
from deathless.shell.service_code.separate_process import STANDARD_ERROR, Reports, answer, ask

MODULE: Final = "deathless.shell.operate.upgrading.upgrade_check"
CHILD: Final = "deathless.shell.operate.upgrading.migration_child"
SHOWN_KEYS: Final = 8  # keys whose two results are fetched to be shown
WAY_BACK_KEYS: Final = 20_000
TOLD_KEYS: Final = 4096
Told = Callable[[str], object]


class Checked(msgspec.Struct, kw_only=True):
    """What came of it."""

    from_version: int
    to_version: int
    same_code: bool = False  # it is the code that serves
    compatible: bool = False  # it needs no version of its own
    misfits: list[Misfit] = []
    notes: list[Misfit] = []
    keys: int = 0  # migrated to see
    carried: int = 0  # suspended handlers that do not fit and go on as the code says
    lsn: int = 0  # of the newest checkpoint that was looked at; 0: there was none
    way_back: bool | None = False  # behind it, is there a way back to the code that serves now? None: this is one

    @property
    def fits(self) -> bool:
        """Nothing is in the way."""
        return not self.misfits


class _Order(msgspec.Struct):
    """What the process that checks is to do, see `check_upgrade`."""

    configs: list[ReplicaConfig]
    target: str
    folder: str


def check_upgrade(
    configs: Sequence[ReplicaConfig], target: str, *, folder: str | Path = ".", told: Told = str
) -> Checked:
    """Check new code against a service, in a process of its own: it may end that one, and has no verdict then.

    Args:
        configs: of a replica of each shard.
        target: the new code, as for `load_service`.
        folder: what a relative path in it is relative to.
        told: is told how far it is.

    Raises: InvalidArgument where nothing was started; UpgradeRefused where no interface is recorded; InvalidService for
    the new code, CodeEndedProcess where that ended the process, ImportNotEnded.
    """
    order = msgspec.json.encode(_Order([*configs], target, str(folder)))
    checked = ask(MODULE, order, os.environ, code=target, output=STANDARD_ERROR, told=told)
    return msgspec.msgpack.decode(checked, type=Checked)


def _check(order: _Order, reports: Reports) -> Checked:
    """Check in the process that imports the new code, and migrates by it."""
    configs = order.configs
    guards = TurnGuards(None)  # before the author's code is imported
    service = load_service(order.target, order.folder, name=configs[0].service)
    reports.imported()
    looks = [asyncio.run(inspect(config)) for config in configs]
    limits = configs[0].make_limits()
    result: Checked | None = None
    for look in looks:
        one = _Shard(look, service, limits, order.target, order.folder, reports.tell, guards).run()
        result = one if result is None else _both(result, one)
    assert result is not None, "a service has a shard"
    return result


def _both(one: Checked, other: Checked) -> Checked:
    """Give what came of two shards: each thing once, counted together."""
    misfits, notes = Tally(), Tally()
    for each in (one, other):
        misfits.extend(each.misfits)
        notes.extend(each.notes)
    return msgspec.structs.replace(
        one,
        same_code=one.same_code and other.same_code,
        compatible=one.compatible and other.compatible,
        misfits=misfits.misfits(),
        notes=notes.misfits(),
        keys=one.keys + other.keys,
        carried=one.carried + other.carried,
        way_back=None if one.way_back is None else one.way_back and other.way_back,
        lsn=max(one.lsn, other.lsn),
    )


class _Shard:
    """The check of one shard."""

    def __init__(
        self, look: Inspection, service: Service, limits: Limits, target: str, folder: str, told: Told, hide: Hide
    ) -> None:
        self._look = look
        self._service = service
        self._limits = limits
        self._target = target
        self._folder = folder
        self._told = told
        self._hide = hide

    def run(self) -> Checked:
        """Check all."""
        config, service = self._look.config, self._service
        snapshot = newest_of_head(self._look)
        before = self._interface(snapshot)
        parts = describe(service, self._limits, config.sharding)
        new = interface_of(service, self._limits)
        if new.version < before.version:
            return self._lowered(snapshot, before)
        carries = service.declared.carries(before.version)
        under_way = None if snapshot is None else under_way_in(snapshot, carries)
        compared = compare(before, new, service.declared, under_way=under_way)
        result = Checked(
            from_version=before.version,
            to_version=new.version,
            same_code=self._written(snapshot) in parts.spellings,
            compatible=compared.compatible,
            misfits=compared.misfits,
            notes=compared.notes,
            lsn=0 if snapshot is None else int(snapshot.lsn),
        )
        result.way_back = way_back(new, before, service.declared).exists
        if snapshot is None or isinstance(service.declared.way(before.version), Gap) or before.single != new.single:
            return result
        counted = self._state(snapshot, before, result)
        if carries and not (counted or result.misfits):
            counted = self._carry(snapshot, before, result)
        _, waiting, noted = fit_messages(waiting_in(snapshot), service, before)
        result.misfits = merged(result.misfits, [*counted, *waiting])
        result.notes = merged(result.notes, noted)
        result.compatible = result.compatible and not result.misfits  # state may hold what no type tells
        return result

    def _lowered(self, snapshot: Snapshot | None, before: Interface) -> Checked:
        """Have the code that serves lower the checkpoint, by the way back that it declares."""
        service = self._service
        result = Checked(from_version=before.version, to_version=service.version, way_back=None)
        if snapshot is None:
            return result
        self._told(f"version {before.version}, which serves, makes the state of version {service.version}")
        found = asyncio.run(lowered_at(self._look, snapshot, service, before.version))
        result.misfits, result.notes = found.misfits, found.notes
        result.compatible, result.keys, result.lsn = found.compatible, found.keys, int(snapshot.lsn)
        return result

    def _written(self, snapshot: Snapshot | None) -> bytes:
        """Give the fingerprint of the code that serves."""
        head = self._look.view.head
        if head:
            return bytes(self._look.reader.routes.cut(head).fingerprint)
        return b"" if snapshot is None else bytes(snapshot.fingerprint)

    def _interface(self, snapshot: Snapshot | None) -> Interface:
        return needed(self._look.config.directory, self._written(snapshot))

    def _state(self, snapshot: Snapshot, before: Interface, result: Checked) -> list[Misfit]:
        """Migrate every key, twice, and see whether it can be undone."""
        service, config = self._service, self._look.config
        time_us = snapshot.times.time_us
        keys, items, _ = parted(snapshot.state)
        keys.sort()
        migrator = Migrator(service, before, time_us=time_us, limits=self._limits, shards=config.shards)
        prints: list[bytes] = []
        for done, print_ in enumerate(prints_of(migrator, snapshot.state, items, keys)):
            prints.append(print_)
            if not done % TOLD_KEYS:
                self._told(f"{done:,} of {len(keys):,} keys are migrated")
        result.keys += len(keys)
        found = migrator.misfits
        if not migrator.hops or not any(hop.state or hop.maps or hop.key for hop in migrator.hops):
            return found  # nothing of the author's ran
        self._told("migrating once more, in another process")
        job = self._job(snapshot, before)
        outcome = _in_another_process(job)
        differ = [key for key, one, other in zip(keys, prints, _cut(outcome.prints), strict=True) if one != other]
        if differ:
            job.only = differ[:SHOWN_KEYS]
            again = _in_another_process(job)
            mine = migrator.group([(key, snapshot.state[key]) for key in job.only], items)
            shown = differences(mine, again.entries, service.state) or [
                Misfit("MigrationNotDeterministic", service.state.__name__, "a key gives another state each time")
            ]
            first = msgspec.structs.replace(shown[0], count=len(differ), of=len(keys))
            found = [*found, first]
        else:
            result.notes += self._back(snapshot, before, result)
        return found

    def _job(self, snapshot: Snapshot, before: Interface) -> Job:
        """Say what another process is to migrate."""
        config = self._look.config
        return Job(
            target=self._target,
            folder=self._folder,
            name=self._service.name,
            directory=config.directory,
            lsn=int(snapshot.lsn),
            chain=bytes(snapshot.chain),
            before=encode_interface(before),
            time_us=snapshot.times.time_us,
            limits=config.limits,
            shards=config.shards,
        )

    def _carry(self, snapshot: Snapshot, before: Interface, result: Checked) -> list[Misfit]:
        """Meet the suspended handlers, and carry those that do not fit, here and in another process."""
        config, time_us = self._look.config, snapshot.times.time_us
        seed = self._look.record.seed
        found = migrate_snapshot(
            snapshot,
            self._service,
            before,
            limits=self._limits,
            seed=seed,
            time_us=time_us,
            sharding=config.sharding,
            hide=self._hide,
        )
        result.notes = merged(result.notes, found.notes)
        result.carried += found.carried
        if found.misfits or not found.carried:
            return found.misfits
        job = self._job(snapshot, before)
        job.carries, job.seed, job.shard = True, seed, config.shard
        if _in_another_process(job).prints == print_of(found.snapshot.invocations):
            return []
        what = "what carries suspended handlers gives another way to go on in another process"
        return [Misfit("CarryNotDeterministic", "carry", what, "it may use nothing but its arguments")]

    def _back(self, snapshot: Snapshot, before: Interface, result: Checked) -> list[Misfit]:
        """See whether each key can go up and down again; gives notes."""
        time_us = snapshot.times.time_us
        try:
            back = check_way_back(
                snapshot.state, self._service, before, time_us=time_us, limits=self._limits, sample=WAY_BACK_KEYS
            )
        except InvalidService as error:  # functions for items alone do not say what the older state is
            result.way_back = False
            return [Misfit("NoDownMigration", before.state_name, error.message)]
        result.way_back = result.way_back and all(each.word == "DownLoses" for each in back)
        return [each for each in back if each.word == "DownLoses"]


def _cut(prints: bytes) -> list[bytes]:
    return [prints[at : at + PRINT_BYTES] for at in range(0, len(prints), PRINT_BYTES)]


def _in_another_process(job: Job) -> Outcome:
    """Migrate in a process whose sets have another order. Raises: as `ask`."""
    ours = os.environ.get("PYTHONHASHSEED", "0")
    environment = os.environ | {"PYTHONHASHSEED": "2" if ours == "1" else "1"}
    told = ask(CHILD, msgspec.msgpack.encode(job), environment, code=job.target, output=STANDARD_ERROR)
    return msgspec.msgpack.decode(told, type=Outcome)


def _checked(order: bytes, reports: Reports) -> bytes:
    return msgspec.msgpack.encode(_check(msgspec.json.decode(order, type=_Order), reports))


if __name__ == "__main__":
    answer(_checked, "checking the upgrade")
