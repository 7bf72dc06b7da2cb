"""What an operator accepted by `deathless adopt`: the one door through checks that otherwise refuse to start.

Each check is there because going on without a look loses data (design 0003, "Takeover"): another lock store or fence,
a store restored from a backup. This module looks what differs, says it in words, and on the operator's word writes down
exactly that, in `adopted.json` of the shared directory, where every replica reads it. Other code is an upgrade's
(operate.upgrading).

    differs                                   what adopting does
    the lock store knows no service           copies who the service is from the directory (`service.json`, or its own
                                              lock); raises the store's epoch and head to the log's
    the store is older than the log           raises epoch and head to the highest opening frame
    store id or fence                         cuts up to now may name the old one; replicas forget the old store

Guarantees: nothing is written while a replica runs, before `carry_out`, or beyond what `look` listed; service id and
seeds never change. Does not: make a lost seed or a hole in the log good: such a directory is refused. May import
engine, codec and base.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import ForeignDirectory, HalfCopy, InvalidArgument, LockUnavailable, OtherSupervisor
from deathless.base.lock_stores import lock_store
from deathless.codec.frames import Opening
from deathless.engine.lock.async_lock import SyncToAsync
from deathless.engine.lock.directory_lock import DirectoryLock
from deathless.engine.log.overview import newest_opening
from deathless.engine.ports import AsyncLock, FileSystem, Holder, LockView, ServiceRecord
from deathless.shell.directory.adopted import Adoption, read_adoption, write_adoption
from deathless.shell.directory.identity import Identity, read_identities, write_identity
from deathless.shell.directory.place import check_place
from deathless.shell.directory.service_record import read_copy
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.shell.disk.holders import holder_of
from deathless.shell.lock_stores.opening import open_lock

TAKES_MAX: Final = 100_000  # epochs that a store is raised by
NAME: Final = "adopt"  # stands as replica in the lock while it is raised


class Difference(msgspec.Struct, rename="camel"):
    """One thing that refuses to start, and what adopting it does."""

    what: str
    effect: str


@dataclass(slots=True)
class Plan:
    """What differs, and what is to be written on the operator's word."""

    config: ReplicaConfig
    differences: list[Difference]
    adoption: Adoption
    create: ServiceRecord | None = None  # to write into the lock store
    head: int = 0  # the lock store's head shall be at least this
    identities: dict[str, Identity] | None = None  # to write; None: they stay


async def look(config: ReplicaConfig) -> Plan:
    """Find what differs between manifest, lock store and directory.

    Raises: CopiedDirectory, which has decisions of its own; OtherSupervisor while a replica runs; HalfCopy,
    ForeignDirectory, InvalidArgument for what can't be adopted.
    """
    check_place(config.directory)
    refuse_while_running(config.directory)
    filesystem = RealFileSystem(config.directory)
    plan = Plan(config, [], read_adoption(config.directory))
    async with open_lock(config, filesystem, NAME) as lock:
        view = await lock.view()
    known = plan.adoption.apply(view.service) if view.service is not None else None
    record = known if known is not None else _record_of_directory(plan, filesystem)
    if record.name != config.shard_name:
        raise ForeignDirectory(
            f"{config.directory} belongs to service {record.name!r}, not {config.shard_name!r}",
            remedy="name the right folder",
        )
    newest = newest_opening(filesystem, 0, view.epoch)
    _find_store(plan, view, newest)
    _find_fence(plan, record)
    _find_identities(plan, record, view)
    if plan.differences:
        plan.adoption.through_epoch = max(plan.adoption.through_epoch, view.epoch, newest[0] if newest else 0)
    return plan


def refuse_while_running(directory: str) -> None:
    """Raises: OtherSupervisor; InvalidArgument for what is no folder."""
    if not Path(directory).is_dir():
        raise InvalidArgument(f"{directory} is not a folder: there is nothing to adopt")
    # In a pod each instance of a replica has its own; another machine's are seen where the storage carries locks.
    for lock in sorted((Path(directory) / "replicas").glob("*/supervisor*.lock")):
        pid = holder_of(lock)
        if pid:
            raise OtherSupervisor(
                f"replica {lock.parent.name} is running (process {pid})",
                remedy="`deathless down` first: all replicas must be stopped",
            )


def _record_of_directory(plan: Plan, filesystem: FileSystem) -> ServiceRecord:
    """The lock store knows no service: who it is stands in the directory, as a copy or in its lock."""
    config = plan.config
    copy = read_copy(config.directory)
    known = copy.record() if copy is not None else None
    if known is None and not lock_store(config.lock).in_directory:
        known = DirectoryLock(filesystem, process=NAME, fresh_store_id="").view().service
    identities = read_identities(config.directory)
    if known is None and not identities and newest_opening(filesystem) is None:
        raise InvalidArgument(
            f"{config.directory} holds no service: there is nothing to adopt", remedy="`deathless up` starts a new one"
        )
    if known is None:
        raise HalfCopy(
            f"{config.directory}: the lock store that knew this service is gone, and so are service.json and "
            "the seeds of its handlers",
            remedy="restore the lock store from a backup, even an old one: `deathless adopt` brings it up to the log",
        )
    plan.create = msgspec.structs.replace(known, fence=config.fence, live=False)
    plan.differences.append(
        Difference(
            "the lock store knows no service", "it gets this directory's service, with its id and seeds as they are"
        )
    )
    return plan.create


def _find_store(plan: Plan, view: LockView, newest: tuple[int, Opening] | None) -> None:
    if newest is None:
        return
    epoch, opening = newest
    if view.head < epoch:
        if view.epoch >= epoch:
            raise HalfCopy(
                f"the lock store gave epoch {view.epoch} but its head is {view.head}, and the log opened epoch {epoch}",
                remedy="restore another backup of the lock store",
            )
        plan.head = epoch
        plan.differences.append(
            Difference(
                f"the log opened epoch {epoch}, the lock store's head is {view.head}: the store is older than the log",
                f"the store's epoch and head become {epoch}, the highest opening frame of the log",
            )
        )
    elif view.head == epoch and opening.store_revision > view.revision and plan.adoption.through_epoch < epoch:
        plan.differences.append(
            Difference(
                f"the log names revision {opening.store_revision} of the lock store, which is at {view.revision}",
                f"revisions named up to epoch {epoch} are not compared any more",
            )
        )


def _find_fence(plan: Plan, record: ServiceRecord) -> None:
    before = plan.adoption.fence or record.fence
    if before != plan.config.fence:
        plan.adoption.fence = plan.config.fence
        plan.differences.append(
            Difference(
                f"the fence is {plan.config.fence!r} in the manifest and was {before!r}",
                f"the fence is {plan.config.fence!r} from now on",
            )
        )


def _find_identities(plan: Plan, record: ServiceRecord, view: LockView) -> None:
    known = read_identities(plan.config.directory)
    for name, identity in known.items():
        if identity.service_id != record.service_id:
            raise ForeignDirectory(
                f"replica {name} served another service, id {identity.service_id.hex()} not {record.service_id.hex()}",
                remedy="point directory and lock store at the same service; this can't be adopted",
            )
    stale = [
        name for name, one in known.items() if one.store_id != view.store_id or one.incarnation != record.incarnation
    ]
    if not stale and plan.create is None:
        return
    if stale and plan.create is None:
        others = sorted({known[name].store_id for name in stale})
        plan.differences.append(
            Difference(
                f"{', '.join(stale)} knew lock store {', '.join(others)}, this one is {view.store_id}",
                "they forget the old store",
            )
        )
    plan.identities = {
        name: Identity(record.name, record.service_id, record.incarnation, plan.config.fence, view.store_id)
        for name in known
    }


async def carry_out(plan: Plan) -> None:
    """Write what the plan says: first what replicas must accept, last what they look at first.

    Raises: LockUnavailable; ForeignDirectory when another created the service meanwhile. Running it again is harmless.
    """
    config = plan.config
    refuse_while_running(config.directory)
    filesystem = RealFileSystem(config.directory)
    write_adoption(config.directory, plan.adoption)
    async with open_lock(config, filesystem, NAME) as lock:
        if plan.create is not None:
            stands = await lock.create_service(plan.create)
            if stands.service_id != plan.create.service_id:
                raise ForeignDirectory(
                    f"the lock store knows another service by this name, id {stands.service_id.hex()}"
                )
        if plan.head:
            await raise_store(lock, plan.head, live=plan.create is not None)
        view = await lock.view()
    for name, identity in (plan.identities or {}).items():
        write_identity(config.directory, name, msgspec.structs.replace(identity, store_id=view.store_id))


async def raise_store(lock: AsyncLock | SyncToAsync, head: int, *, live: bool) -> None:
    """Take the lock until its epoch is `head`, set head, and let go."""
    for _ in range(TAKES_MAX):
        view = await lock.view()
        if view.head >= head:
            return
        holder: Holder | None = await lock.take(NAME, os.urandom(16), view)
        if holder is None or holder.epoch < head:
            continue
        if holder.epoch > head or await lock.set_head(holder) is None or (live and not await lock.go_live(holder)):
            break
        await lock.release(holder)
        return
    raise LockUnavailable(
        "the lock changed while it was adopted", remedy="stop all replicas and run `deathless adopt` again"
    )
