"""`deathless adopt --restored` and `--cut-at-end`: going on from a log that lost what was confirmed, or is damaged.

A start refuses a log that does not pass through what a witness calls confirmed (`core.replica.witness`), and a last
frame that was whole once and is not what was written. Where the newer bytes are lost, a person decides here:

    --restored     what is missing is given up: a new incarnation begins where the log reads well last. Points,
                   sessions and peers of the incarnations before do not count any more; what goes out of the service is
                   held until `deathless resume-outside`, since activities behind that place ran already
    --cut-at-end   nothing is given up: no witness knows anything behind the damaged frame. The incarnation stays

Either way the log is ended by what ends an epoch in every takeover: a cut in a file of its own, which names the last
place that reads well, and which the lock's head then names.

Guarantees: nothing is written before `accept_restored`, and adopted.json, which lists what was given up, comes first:
run again after a crash, it does the rest. Does not: repair bytes, or go on across a hole before the last takeover. May
import engine, codec and base.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import CorruptFrame, HalfCopy, InvalidArgument, LogTruncated, OtherSupervisor
from deathless.base.lock_stores import lock_store
from deathless.codec.frames import Cut, FrameKind, Opening
from deathless.codec.generations import Generation
from deathless.codec.witness import Point
from deathless.core.replica.witness import Owner, Sighting, concerns
from deathless.engine.log.checkpoint_store import CHECKPOINT_FOLDER, CheckpointName, CheckpointStore
from deathless.engine.log.overview import newest_opening
from deathless.engine.log.own_history import foreign
from deathless.engine.log.reader import LogReader
from deathless.engine.log.route import Place, listed_segments
from deathless.engine.log.segment_scan import segment_path
from deathless.engine.log.store import ShardLog
from deathless.engine.ports import FileSystem, Holder, LockView, ServiceRecord, Tail
from deathless.shell.directory.adopted import Adoption, read_adoption, write_adoption
from deathless.shell.directory.identity import Identity, read_identities, write_identity
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.shell.link.status_page import WITNESS_FILE, Page, confirmed_elsewhere, page_path
from deathless.shell.lock_stores.opening import open_lock
from deathless.shell.operate.adoption import NAME, Difference, refuse_while_running


@dataclass(slots=True)
class RestorePlan:
    """What is given up, and what is to be written on a person's word."""

    config: ReplicaConfig
    differences: list[Difference]
    adoption: Adoption
    record: ServiceRecord  # with the incarnation that counts from now on
    view: LockView
    end: Place  # the last place that reads well
    fingerprint: bytes  # of the code that wrote it
    generation: Generation  # its
    foreign: list[CheckpointName]  # checkpoints that are not of the log as it is accepted
    known_lsn: int  # the highest lsn that one of them, being announced, shows to have been confirmed; 0: none is
    seen: list[Sighting]
    restored: bool = False  # something is given up: a new incarnation begins


async def look_restored(config: ReplicaConfig, *, cut_only: bool) -> RestorePlan:
    """Find where the log reads well last, and what is known of more.

    Args:
        config: of any replica.
        cut_only: nothing may be given up.

    Raises: OtherSupervisor while a replica runs; InvalidArgument where there is nothing to decide, or `cut_only` would
        give something up; HalfCopy, LogTruncated, CorruptFrame for a log that can't go on at all.
    """
    refuse_while_running(config.directory)
    filesystem = RealFileSystem(config.directory)
    adoption = read_adoption(config.directory)
    async with open_lock(config, filesystem, NAME) as lock:
        view = await lock.view()
    if view.service is None:
        raise HalfCopy(
            f"{config.directory}: the lock store knows no service", remedy="`deathless adopt` first, then --restored"
        )
    if not lock_store(config.lock).in_directory and view.holder is not None and view.holder.replica != NAME:
        raise OtherSupervisor(
            f"replica {view.holder.replica} holds the lock",
            remedy="stop all replicas; after a kill -9 the lock expires within seconds",
        )
    record = adoption.apply(view.service)
    owner = Owner(record.service_id, record.incarnation, adoption.former_incarnations)
    seen = confirmed_elsewhere(config.directory, NAME)
    if view.confirmed is not None:
        seen.append(Sighting(view.confirmed, "lock store"))
    seen = [each for each in seen if concerns(each.point, owner)]
    base = _newest_epoch(filesystem, view)
    store = CheckpointStore(filesystem, NAME)
    names = store.names(announced_only=False)
    end, damage = _find_end(filesystem, base, names)
    strangers = foreign(filesystem, base, end.lsn, names)
    _check_beginning(filesystem, base, [each for each in store.names() if each not in strangers])
    known_lsn = max((each.lsn for each in strangers if store.announced(each.name)), default=0)
    written = LogReader(filesystem, None).routes.cut(base)
    if end.lsn < written.upgraded_lsn:
        raise CorruptFrame(
            f"{damage}; generation {written.generation} of the code begins behind that, at lsn {written.upgraded_lsn}",
            remedy="restore the directory from a copy without that damage",
        )
    plan = RestorePlan(
        config,
        [],
        adoption,
        record,
        view,
        end,
        written.fingerprint,
        written.of_generation(),
        strangers,
        known_lsn,
        seen,
    )
    lost = max([each.point.lsn for each in seen] + [known_lsn]) - end.lsn
    if cut_only:
        _plan_cut(plan, damage, lost)
    else:
        _plan_restore(plan, damage, lost)
    if strangers:
        listed = ", ".join(each.name for each in strangers)
        plan.differences.append(Difference(f"checkpoints are not of this log's history: {listed}", "they are removed"))
    return plan


def _newest_epoch(filesystem: FileSystem, view: LockView) -> int:
    """Give the epoch to go on from: the lock's head, or where the log went back behind it, the last that opened."""
    if view.head and filesystem.exists(segment_path(view.head, 0)):
        return view.head
    opened = newest_opening(filesystem)
    if opened is None:
        raise InvalidArgument(
            "the log has no epoch that ever served: there is nothing to continue from",
            remedy="restore the directory from a copy that has one",
        )
    return opened[0]


def _find_end(filesystem: FileSystem, head: int, names: Sequence[CheckpointName]) -> tuple[Place, str]:
    """Give the last place that reads well, and why there is more that does not; empty: there is not."""
    reader = LogReader(filesystem, None)
    for start in [*sorted({each.lsn for each in names}, reverse=True), reader.routes.find_oldest(head).start.lsn]:
        try:
            place, damage = reader.find_end(head, start)
        except (LogTruncated, CorruptFrame):
            continue  # the log was collected there, or does not reach that far
        if place.lsn < start:
            continue  # a checkpoint above what there is of the log
        if place.epoch != head:
            raise CorruptFrame(
                f"{damage}; that lies before the last takeover, and what follows it can't be reached",
                remedy="restore the directory from a copy without that damage",
            )
        return place, damage
    raise LogTruncated(
        f"no file of epoch {head} can be read without an error", remedy="restore the directory from another copy"
    )


def _check_beginning(filesystem: FileSystem, head: int, own: Sequence[CheckpointName]) -> None:
    """Refuse where nothing holds what came before the oldest file of the log."""
    first = LogReader(filesystem, None).routes.find_oldest(head).start.lsn
    if first > 0 and not any(each.lsn >= first for each in own):
        raise LogTruncated(
            f"the log begins after lsn {first}, and no checkpoint of its history contains what came before",
            remedy="restore the directory from a copy that has such a checkpoint",
        )


def _plan_cut(plan: RestorePlan, damage: str, lost: int) -> None:
    if lost > 0 or plan.known_lsn:
        raise InvalidArgument(
            f"{max(lost, 1)} messages after lsn {plan.end.lsn} were confirmed: cutting there would lose them",
            remedy="restore the file from a copy, or `deathless adopt --restored`",
        )
    if not damage:
        raise InvalidArgument("the end of the log is intact: there is nothing to cut")
    plan.differences.append(
        Difference(damage, f"the log ends at lsn {plan.end.lsn}; nothing behind it is known to be confirmed")
    )


def _plan_restore(plan: RestorePlan, damage: str, lost: int) -> None:
    adoption, record = plan.adoption, plan.record
    plan.restored = True
    if damage:
        plan.differences.append(Difference(damage, f"the log ends at lsn {plan.end.lsn}"))
    known = [(each.point.lsn, each.where) for each in plan.seen]
    known += [(each.lsn, f"{CHECKPOINT_FOLDER}/{each.name}") for each in plan.foreign if each.lsn == plan.known_lsn]
    if lost > 0:
        lsn, where = max(known)
        what = f"lsn {lsn} was confirmed ({where}), the log ends at lsn {plan.end.lsn}"
        plan.differences.append(Difference(what, f"{lost} messages, acknowledged to their senders, are given up"))
    else:
        plan.differences.append(
            Difference(
                f"the log ends at lsn {plan.end.lsn}, and nothing here knows how much was confirmed behind it",
                "whatever was, is given up",
            )
        )
    adoption.through_epoch = max(adoption.through_epoch, plan.view.epoch, plan.end.epoch)
    gone = {record.incarnation, *(each.point.incarnation for each in plan.seen)}
    adoption.former = sorted({*adoption.former, *gone})
    adoption.incarnation = int.from_bytes(os.urandom(7), "little") | 1
    adoption.hold_outside = True
    plan.record = adoption.apply(record)
    plan.differences.append(
        Difference(
            "sessions, peers and witnesses are of the incarnation before",
            f"incarnation {adoption.incarnation:x} begins; what goes out of the service is held until "
            "`deathless resume-outside` (in a cluster `kubectl deathless resume-outside`)",
        )
    )


async def accept_restored(plan: RestorePlan) -> None:
    """Write what the plan says, adopted.json first.

    Raises: OtherSupervisor; LockUnavailable; OutOfSpace; OSError. Running it again is harmless.
    """
    config = plan.config
    refuse_while_running(config.directory)
    if plan.restored:
        write_adoption(config.directory, plan.adoption)
    filesystem = RealFileSystem(config.directory)
    CheckpointStore(filesystem, NAME).remove([each.name for each in plan.foreign])
    point = await _end_log(plan, filesystem)
    for name in read_identities(config.directory):
        record = plan.record
        _set_page(config.directory, name, point)
        (Path(config.directory) / "replicas" / name / WITNESS_FILE).unlink(missing_ok=True)
        identity = Identity(record.name, record.service_id, record.incarnation, config.fence, plan.view.store_id)
        write_identity(config.directory, name, identity)
    for path in (Path(config.directory) / "members").glob("*.json"):
        path.unlink(missing_ok=True)


async def _end_log(plan: RestorePlan, filesystem: FileSystem) -> Point:
    """Begin an epoch that continues from the log's end, in the order of every takeover (design 0003, "Takeover")."""
    record, end, config = plan.record, plan.end, plan.config
    replica = next(iter(read_identities(config.directory)), config.replica)
    log = ShardLog(filesystem, config.make_limits(), replica)
    log.prepare()
    async with open_lock(config, filesystem, NAME) as lock:
        used = max((epoch for epoch, _ in listed_segments(filesystem)), default=0)
        holder: Holder | None = None
        while holder is None or holder.epoch <= used:  # a lock store that is older than the log gives epochs again
            holder = await lock.take(NAME, os.urandom(16), await lock.view())
            if holder is None:
                raise OtherSupervisor("the lock was taken meanwhile", remedy="stop all replicas, and run it again")
        log.link_seals(max(plan.view.head, 1), holder.epoch - 1)
        cut = Cut(
            end.position,
            record.name,
            record.service_id,
            record.incarnation,
            config.fence,
            plan.view.store_id,
            plan.fingerprint,
            NAME,
            0,
            *plan.generation,
        )
        tail = Tail([], [], end.position)
        log.write_cut(holder.epoch, cut.encode(), tail, incarnation=record.incarnation)
        point = Point(record.service_id, record.incarnation, holder.epoch, end.lsn, end.chain, by=NAME)
        revision = await lock.set_head(holder, point)
        if revision is None:
            raise OtherSupervisor("the lock was taken meanwhile", remedy="stop all replicas, and run it again")
        opening = msgspec.msgpack.encode(Opening(end.lsn, revision, plan.view.head))
        log.append(FrameKind.OPENING, opening, first_lsn=end.lsn + 1, count=0, confirmed_lsn=end.lsn)
        log.sync()
        log.close()
        last = msgspec.structs.replace(point, final=True)
        await lock.release(holder, last)
    return last


def _set_page(directory: str, replica: str, point: Point) -> None:
    """Let the page of a replica name the new end, so that an older copy of this directory is refused here."""
    path = page_path(directory, replica)
    if os.path.exists(path):
        with contextlib.suppress(OSError):
            page = Page(path)
            page.forget_confirmed()
            page.note_confirmed(point)
