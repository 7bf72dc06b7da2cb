"""`deathless upgrade --offline`: other code for a service of which every replica is stopped.

Nobody runs the former code here, so a checkpoint has to hold all that its turns left: one at the log's end, as an
orderly stop leaves it. What is made of that is decided where every upgrade decides it
(execution.snapshot_migration), and what does not fit is refused.

    look     lock, log and witness say that all of the log is in the checkpoint; it is checked, and migrated
    make     lock taken -> seals -> the log's end read again -> first checkpoint, read back -> cut and UPGRADED -> head

The order of `make` is that of a takeover which makes an upgrade (design 0026): until head is set nothing that others
read was changed, and running it again is harmless.

Guarantees: `look_offline` changes nothing; nothing is made while a replica runs, or of what `look_offline` did not see.
Does not: go back to an older version, for only the code that serves can lower its state. May import execution, engine,
codec and base.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import InvalidArgument, LockUnavailable, OtherSupervisor, UpgradeRefused
from deathless.base.lock_stores import lock_store
from deathless.base.topics.settings import check_kept
from deathless.codec.frames import Cut, FrameKind, Opening
from deathless.codec.generations import NEWEST, Upgraded, raised
from deathless.codec.snapshot import Snapshot
from deathless.codec.witness import Point
from deathless.core.replica.witness import Owner, Sighting, check_point
from deathless.engine.lock.async_lock import SyncToAsync
from deathless.engine.log.checkpoint_store import CheckpointStore
from deathless.engine.log.store import ShardLog
from deathless.engine.ports import AsyncLock, Holder, LockView, ServiceRecord, Tail
from deathless.engine.replica.upgrade_steps import run_record
from deathless.engine.shard.assembly import open_shard
from deathless.execution.author.service import Service
from deathless.execution.interface.misfit import Misfit, merged
from deathless.execution.snapshot_migration import Migrated
from deathless.shell.directory.adopted import read_adoption
from deathless.shell.directory.identity import read_identities
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.shell.disk.open_log import open_log
from deathless.shell.link.status_page import confirmed_elsewhere
from deathless.shell.lock_stores.inspection import Inspection, inspect
from deathless.shell.lock_stores.opening import open_lock
from deathless.shell.operate.adoption import look, refuse_while_running
from deathless.shell.operate.log_generations import newest_of_head
from deathless.shell.operate.upgrading.upgrade_check import Checked, check_upgrade
from deathless.shell.process.turn_guards import TurnGuards
from deathless.shell.service_code import interface_record
from deathless.shell.service_code.description import Description
from deathless.shell.service_code.fingerprint import describe
from deathless.shell.service_code.import_trial import load_tried
from deathless.shell.service_code.kept_code import keep
from deathless.shell.upgrade.migration import Migration, told
from deathless.shell.upgrade.planning import Head, plan_upgrade

NAME: Final = "upgrade"  # stands as replica in the lock while the upgrade is made
RUN_FIRST: Final = (
    "start the former code once (`deathless up --kept-code --detach`, in a cluster its image) and stop it in order "
    "(`deathless down`), which takes a checkpoint at the end; or upgrade while it runs: `deathless upgrade`"
)
GO_ON: Final = (
    "declare what becomes of it, or go on with the former code (`deathless up --kept-code`, in a cluster its image) "
    "until nothing needs it; `deathless upgrade check` gives the same list"
)


class NothingToUpgrade(InvalidArgument):
    """The log is of this code already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflinePlan:
    """An upgrade of one shard that can be made.

    Attributes:
        module: of the new code, as it was named.
        checked: what was found.
        migrated: what the new code goes on with.
        before: the checkpoint at the log's end.
        upgrade: the record that is to be written; its epoch is known once the lock is taken.
    """

    config: ReplicaConfig
    module: str
    service: Service
    described: Description
    record: ServiceRecord
    view: LockView
    before: Snapshot
    upgrade: Upgraded
    checked: Checked
    migrated: Migrated

    @property
    def lsn(self) -> int:
        """Where the log ends."""
        return int(self.before.lsn)

    @property
    def notes(self) -> list[Misfit]:
        """What changes, and may."""
        return merged(self.checked.notes, self.migrated.notes)


class OfflineOutcome(msgspec.Struct, rename="camel"):
    """What an upgrade of a shard comes to, or came to."""

    shard: int
    generation: int
    fingerprint: str
    from_version: int
    to_version: int
    lsn: int  # where the log of the former code ends
    keys: int  # that were migrated, or stay
    compatible: bool  # states stay as they are
    notes: list[str]


def outcome_of(plan: OfflinePlan) -> OfflineOutcome:
    """Say what a plan comes to."""
    return OfflineOutcome(
        shard=plan.config.shard,
        generation=plan.upgrade.generation,
        fingerprint=plan.described.fingerprint.hex(),
        from_version=plan.upgrade.from_version,
        to_version=plan.upgrade.to_version,
        lsn=plan.lsn,
        keys=plan.migrated.keys,
        compatible=plan.migrated.compatible,
        notes=[each.text for each in plan.notes],
    )


async def look_at_all(
    configs: Sequence[ReplicaConfig], module: str, tell: Callable[[str], object] = str
) -> list[OfflinePlan]:
    """Look at all shards of a service; those that an earlier run has upgraded already are left out.

    Raises: as `look_offline`; NothingToUpgrade where all of them were.
    """
    plans: list[OfflinePlan] = []
    nothing: NothingToUpgrade | None = None
    for config in configs:
        try:
            plans.append(await look_offline(config, module or config.module, tell))
        except NothingToUpgrade as error:
            nothing = error
    if not plans and nothing is not None:
        raise nothing
    return plans


async def look_offline(config: ReplicaConfig, module: str, tell: Callable[[str], object] = str) -> OfflinePlan:
    """Find out whether a shard can be given other code now, and what that comes to. Nothing is changed.

    Args:
        config: of any replica of the shard.
        module: the new code, as for `load_service`.
        tell: is told how far it is.

    Raises: OtherSupervisor while a replica runs; InvalidArgument where there is nothing to upgrade, or something has
        to be done first; UpgradeRefused for what does not fit; what the log says of itself.
    """
    for difference in (await look(config)).differences:
        raise InvalidArgument(f"{config.directory}: {difference.what}", remedy="see to it first: `deathless adopt`")
    found = await inspect(config)
    adoption = read_adoption(config.directory)
    record, view = adoption.apply(found.record), found.view
    _refuse_holder(config, view)
    if not view.head:
        raise InvalidArgument(f"{config.directory}: the log is empty: any code may start it")
    guards = TurnGuards(None)  # before the author's code is imported
    service = load_tried(module, name=config.service)
    check_kept([*service.topics], config.drivers)  # no replica would start with it
    described = describe(service, config.make_limits(), config.sharding)
    head = Head(found.reader.routes.cut(view.head), record)
    if head.is_of(config.directory, described):
        raise NothingToUpgrade("the log was written by this code: there is nothing to upgrade")
    before = _at_the_end(found, _log_of(config, record, view))
    _check_witness(config, record, view, before)
    wanted = plan_upgrade(config, head, described)
    if service.version < wanted.from_version:
        raise UpgradeRefused(
            f"the state is of version {wanted.from_version}, the code of version {service.version}: only the code "
            "that serves can make the older state",
            remedy="start it, and go back while it runs: `deathless upgrade back-out`, or `deathless upgrade --to`",
        )
    checked = await asyncio.to_thread(check_upgrade, [config], module, told=tell)  # it has a loop of its own
    migrated = Migration(service, config, wanted, record.seed, hide=guards).look(before)
    if misfits := merged(checked.misfits, migrated.misfits):
        raise UpgradeRefused(told(misfits), remedy=GO_ON)
    upgrade = Upgraded(
        head.cut.generation + 1,
        0,
        bytes.fromhex(wanted.id),
        wanted.from_version,
        head.cut.fingerprint,
        service.version,
        described.fingerprint,
        wanted.time_us,
        raised(head.cut.level, NEWEST, NEWEST),  # the build that ran the former code is not asked
    )
    return OfflinePlan(
        config=config,
        module=module,
        service=service,
        described=described,
        record=record,
        view=view,
        before=before,
        upgrade=upgrade,
        checked=checked,
        migrated=migrated,
    )


async def make_offline(plan: OfflinePlan) -> None:
    """Make the upgrade.

    Raises: OtherSupervisor, LockUnavailable where somebody goes on with the service meanwhile; OutOfSpace, OSError.
    """
    config = plan.config
    refuse_while_running(config.directory)
    keep(config.directory, plan.described, service=config.service, module=plan.module)
    interface_record.keep(config.directory, plan.described.fingerprint, plan.service, config.make_limits())
    log = _log_of(config, plan.record, plan.view)
    log.prepare()
    async with open_lock(config, RealFileSystem(config.directory), NAME) as lock:
        view = await lock.view()
        if (view.head, view.store_id) != (plan.view.head, plan.view.store_id):
            _went_on()
        holder = await lock.take(NAME, os.urandom(16), view)
        if holder is None:
            _went_on()
        committing = False
        try:
            log.link_seals(max(view.head, 1), holder.epoch - 1)
            point = _write(plan, log, holder)
            committing = True
            await _commit(lock, log, holder, point, view.head)
        except BaseException:
            if not committing:
                await lock.release(holder)
            raise
        finally:
            log.close()


def _write(plan: OfflinePlan, log: ShardLog, holder: Holder) -> Point:
    """Write the first checkpoint of the new code, then cut and record; gives the place behind them."""
    config, record = plan.config, plan.record
    tail = log.read_tail(plan.view.head, plan.lsn, plan.before.chain, plan.lsn)
    if tail.confirmed or tail.unconfirmed:
        _went_on()
    limits = config.make_limits()
    shard = open_shard(plan.service, limits, record.seed, sharding=config.sharding)
    shard.restore(plan.migrated.snapshot, same_code=False)
    upgrade = msgspec.structs.replace(plan.upgrade, epoch=holder.epoch)
    frame = run_record(shard, upgrade, record.incarnation)
    first = shard.snapshot(
        service=record.name,
        service_id=record.service_id,
        incarnation=record.incarnation,
        epoch=holder.epoch,
        fingerprint=plan.described.fingerprint,
    )
    CheckpointStore(RealFileSystem(config.directory), NAME, kept=limits.checkpoints_kept).write_first(first)
    cut = Cut(
        tail.position,
        record.name,
        record.service_id,
        record.incarnation,
        record.fence,
        plan.view.store_id,
        plan.described.fingerprint,
        NAME,
        1,
        *shard.place.generation,
    )
    log.write_cut(holder.epoch, cut.encode(), Tail([], [(frame, b"")], tail.position), incarnation=record.incarnation)
    return Point(record.service_id, record.incarnation, holder.epoch, frame.last_lsn, frame.chain, by=NAME)


async def _commit(lock: AsyncLock | SyncToAsync, log: ShardLog, holder: Holder, point: Point, before: int) -> None:
    """Set head, which is the commit, and close the epoch as an orderly stop does."""
    revision = await lock.set_head(holder, point)
    if revision is None:
        _went_on()
    opening = msgspec.msgpack.encode(Opening(point.lsn, revision, before))
    log.append(FrameKind.OPENING, opening, first_lsn=point.lsn + 1, count=0, confirmed_lsn=point.lsn)
    log.sync()
    await lock.release(holder, msgspec.structs.replace(point, final=True))


def _went_on() -> NoReturn:
    raise LockUnavailable(
        "somebody went on with the service meanwhile", remedy="stop all replicas, and give the command again"
    )


def _log_of(config: ReplicaConfig, record: ServiceRecord, view: LockView) -> ShardLog:
    adoption = read_adoption(config.directory)
    return open_log(
        RealFileSystem(config.directory),
        config.make_limits(),
        next(iter(read_identities(config.directory)), config.replica),
        record,
        view.store_id,
        adoption.through_epoch,
        frozenset(adoption.former_services),
    )


def _refuse_holder(config: ReplicaConfig, view: LockView) -> None:
    """On other machines replicas are seen by the lock alone. Raises: OtherSupervisor."""
    if not lock_store(config.lock).in_directory and view.holder is not None and view.holder.replica != NAME:
        raise OtherSupervisor(
            f"replica {view.holder.replica} holds the lock",
            remedy="stop all replicas; after a kill -9 the lock expires within seconds",
        )


def _at_the_end(found: Inspection, log: ShardLog) -> Snapshot:
    """Give the checkpoint that holds all of the log. Raises: InvalidArgument where there is none; as `read_tail`."""
    view = found.view
    log.check_store(view.head, view.epoch, view.revision)
    newest = newest_of_head(found)
    if newest is None:
        raise InvalidArgument("there is no checkpoint of the code that wrote the log", remedy=RUN_FIRST)
    tail = log.read_tail(view.head, newest.lsn, newest.chain, newest.lsn)
    behind = [frame for frame, _ in [*tail.confirmed, *tail.unconfirmed]]
    if behind:
        raise InvalidArgument(
            f"the log ends at lsn {behind[-1].last_lsn}, and the newest checkpoint is at lsn {newest.lsn}: only the "
            "code that wrote the messages between can run them",
            remedy=RUN_FIRST,
        )
    return newest


def _check_witness(config: ReplicaConfig, record: ServiceRecord, view: LockView, end: Snapshot) -> None:
    """Compare with all that was confirmed, as a takeover would. Raises: LogTruncated."""
    log = _log_of(config, record, view)
    owner = Owner(record.service_id, record.incarnation, read_adoption(config.directory).former_incarnations)
    seen = confirmed_elsewhere(config.directory, NAME)
    if view.confirmed is not None:
        seen.append(Sighting(view.confirmed, "lock store"))

    def chain_at(lsn: int) -> bytes | None:
        return bytes(end.chain) if lsn == end.lsn else log.chain_at(view.head, lsn)

    for each in seen:
        check_point(each, owner, end_lsn=int(end.lsn), epoch=view.head, chain_at=chain_at)
