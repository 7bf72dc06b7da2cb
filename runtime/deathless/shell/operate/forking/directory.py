"""Writes the directory of a forked service, in which it goes on: lock, log, checkpoint, code, and what holds it back.

The log begins with an epoch of its own, whose cut continues the original's at exactly the place of the fork. Nothing of
the original's log comes along, because a run of it would give the original's table of peers: the checkpoint of that
place is all that comes before, as where older files were collected.

Guarantees: what leaves the service is held but for services of the fork; what was logged after the cut is in no way in
it. Does not: start anything. May import engine, core, codec and base.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import LockUnavailable
from deathless.base.foreign.binding import INPUTS
from deathless.base.lock_stores import SEAL
from deathless.codec.frames import Cut, FrameKind, Opening, Position
from deathless.codec.witness import Point
from deathless.core.access.fork import ForkedService
from deathless.core.replica.fork_cut import ForkPlace
from deathless.engine.lock.directory_lock import LOCK_FOLDER
from deathless.engine.log.store import ShardLog
from deathless.engine.ports import AsyncLock, Holder, ServiceRecord, Tail
from deathless.shell.directory.adopted import Adoption, read_adoption, write_adoption
from deathless.shell.directory.service_record import keep_copy
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.shell.lock_stores.opening import open_lock
from deathless.shell.operate.forking.in_replay import NAME, ForkOrder
from deathless.shell.operate.forking.originals import Original
from deathless.shell.operate.replay import ReplayOrder, replay
from deathless.shell.service_code.code_record import FOLDER as CODE


@dataclass(frozen=True, slots=True)
class Forking:
    """One service of a fork."""

    original: Original
    place: ForkPlace
    position: Position  # of that place in the original's log


async def write_directory(forking: Forking, directory: Path, forked: Mapping[str, ForkedService]) -> None:
    """Write it.

    Args:
        forking: what.
        directory: that is made.
        forked: all services of the fork.

    Raises: ForkRefused: its program's state is not kept from so early on; as `replay`; OutOfSpace; OSError.
    """
    original, own = forking.original, forked[forking.original.name]
    _make(original, directory)
    if original.program is not None:
        original.program.copy(directory, forking.place.sent.get(INPUTS.name, 0))
    order = ForkOrder(
        directory=str(directory),
        service=original.name,
        forked=dict(forked),
        epoch=forking.position.epoch,
        fingerprint=original.cut.fingerprint,
    )
    await replay(original.config, ReplayOrder(to=forking.place.lsn, fork=order, folder=original.folder))
    record = msgspec.structs.replace(
        original.record, service_id=own.forked_id, incarnation=own.forked_incarnation, fence=SEAL, live=False
    )
    await _begin_log(forking, directory, record)
    keep_copy(str(directory), record)
    others = sorted(name for name in forked if name != original.name)
    former = [*read_adoption(original.config.directory).former, original.record.incarnation]
    write_adoption(str(directory), Adoption(hold_outside=True, forked_with=others, former=former))
    _remove_own(directory)


def _make(original: Original, directory: Path) -> None:
    """Make the folder, with the code that was kept with the log."""
    directory.mkdir(parents=True)
    code = Path(original.config.directory) / CODE
    if code.is_dir():
        shutil.copytree(code, directory / CODE)


def _remove_own(directory: Path) -> None:
    """Remove what the log and the lock keep for whoever writes them, and what is ours here: no replica has our name."""
    shutil.rmtree(directory / "replicas" / NAME, ignore_errors=True)
    (directory / LOCK_FOLDER / f"reserve.{NAME}").unlink(missing_ok=True)


async def _begin_log(forking: Forking, directory: Path, record: ServiceRecord) -> None:
    """Begin an epoch that continues from the cut, in the order of every takeover (design 0003, "Takeover")."""
    original, base = forking.original, forking.position
    config = ReplicaConfig(service=original.name, module="", directory=str(directory), replica=NAME, fence=SEAL)
    filesystem = RealFileSystem(str(directory))
    log = ShardLog(filesystem, original.config.make_limits(), NAME)
    log.prepare()
    async with open_lock(config, filesystem, NAME) as lock:
        await lock.create_service(record)
        holder = await _take_above(lock, base.epoch)
        store_id = (await lock.view()).store_id
        cut = Cut(
            base,
            record.name,
            record.service_id,
            record.incarnation,
            SEAL,
            store_id,
            original.cut.fingerprint,
            NAME,
            0,
            *original.cut.of_generation(),
        )
        log.write_cut(holder.epoch, cut.encode(), Tail([], [], base), incarnation=record.incarnation)
        point = Point(record.service_id, record.incarnation, holder.epoch, base.lsn, base.chain, by=NAME)
        revision = await lock.set_head(holder, point)
        if revision is None:
            raise LockUnavailable(f"{directory}: somebody else took the lock of a folder that is being made")
        opening = msgspec.msgpack.encode(Opening(base.lsn, revision, 0))
        log.append(FrameKind.OPENING, opening, first_lsn=base.lsn + 1, count=0, confirmed_lsn=base.lsn)
        log.sync()
        log.close()
        await lock.go_live(holder)
        await lock.release(holder, msgspec.structs.replace(point, final=True))


async def _take_above(lock: AsyncLock, epoch: int) -> Holder:
    """Take the lock until its epoch is above the original's at the cut, so that the log's epochs rise."""
    while True:
        holder = await lock.take(NAME, os.urandom(16), await lock.view())
        if holder is None:
            raise LockUnavailable("somebody else took the lock of a folder that is being made")
        if holder.epoch > epoch:
            return holder
