"""Is the log what was written, and does it give what it gave? For `deathless log verify`.

    1  every frame on the chain: CRC, chain hash, lsn, padding; the end of the last file
    2  every confirmed message run again in a fresh process with the service's code (shell.operate.replay): its digest
    3  every place that a witness calls confirmed, compared with the chain
    4  every checkpoint read back, its place compared with the chain

Guarantees: any flipped bit on the chain or in a checkpoint is a problem that names file, offset and lsn. Bytes behind
a cut and files that no cut leads to are nobody's truth and not looked at (design 0003, "The log"). Does not: change
anything.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import CorruptCheckpoint, DataCorrupt, DeathlessError, UpgradeRequired
from deathless.codec import checkpoint as codec
from deathless.codec.frames import BLOCK, ORIGIN, FrameKind
from deathless.core.replica.witness import Owner, Sighting, check_point, concerns
from deathless.engine.log.checkpoint_store import CHECKPOINT_FOLDER, CheckpointName
from deathless.engine.log.reader import Step
from deathless.engine.log.route import Route
from deathless.engine.log.segment_scan import segment_path
from deathless.engine.ports import FileSystem
from deathless.shell.directory.adopted import read_adoption
from deathless.shell.link.status_page import confirmed_elsewhere
from deathless.shell.lock_stores.inspection import Inspection, inspect, place_of
from deathless.shell.operate.replay import ReplayOrder, replay

SETTLE_S: Final = 0.5  # a frame that a live writer is writing is whole after this


class Verification(msgspec.Struct, rename="camel"):
    """What was found."""

    files: int = 0
    frames: int = 0
    messages: int = 0
    bytes: int = 0
    first_lsn: int = 0
    last_lsn: int = 0
    confirmed_lsn: int = 0
    chain: str = ""
    executed_from: int = 0  # lsn of the checkpoint that the run began with; 0: the beginning
    executed_through: int | None = None
    digest: str = ""
    checkpoints: list[str] = []
    witnesses: list[str] = []  # places that are known to be confirmed outside the log
    notes: list[str] = []
    problems: list[str] = []


async def verify_log(config: ReplicaConfig, *, run: bool) -> Verification:
    """Verify all of a service's log.

    Raises: what `inspect` raises; problems of the log itself are in the report.
    """
    look = await inspect(config)
    report = Verification()
    if not look.view.head:
        report.notes.append("the log is empty")
        return report
    chains: dict[int, bytes] = {}
    seen = _witnesses(look)  # before the log is read, which may grow meanwhile
    last = _read_chain(look, report, chains)
    if last is not None:
        await _check_end(look, last, report)
        _check_witnesses(look, seen, last, report)
    _check_checkpoints(look, chains, report)
    if run and not report.problems:
        await _run_again(config, report)
    return report


def _read_chain(look: Inspection, report: Verification, chains: dict[int, bytes]) -> Step | None:
    """Walk all frames; notes the chain hash behind each lsn that a checkpoint could stand at."""
    last: Step | None = None
    wanted = {each.lsn for each in look.checkpoints.names(announced_only=False)}
    files: set[str] = set()
    try:
        route = look.whole_route()
        _check_beginning(look, route, report)
        report.first_lsn = route.start.lsn + 1
        report.confirmed_lsn = max(route.confirmed, look.known_confirmed)
        chains[route.start.lsn] = route.start.chain
        for step in look.reader.walk(route, judge=True):
            last = step
            frame = step.found.frame
            path, offset = place_of(step)
            files.add(path)
            report.frames += 1
            report.messages += frame.count
            report.bytes += step.found.end - offset
            report.confirmed_lsn = max(report.confirmed_lsn, frame.confirmed_lsn)
            report.chain = frame.chain.hex()
            if frame.kind == FrameKind.DATA:
                report.last_lsn = frame.last_lsn
                if frame.last_lsn in wanted:
                    chains[frame.last_lsn] = frame.chain
            _check_padding(look.filesystem, step, report)
    except (DataCorrupt, OSError) as error:
        report.problems.append(str(error))
        last = None
    report.files = len(files)
    return last


def _check_beginning(look: Inspection, route: Route, report: Verification) -> None:
    """The oldest file that can be followed is the oldest there is, and a checkpoint holds what was collected."""
    epoch, roll = route.start.epoch, route.start.roll
    before = (epoch, roll - 1)
    if roll == 0:
        base = look.reader.routes.cut(epoch).base
        if base.epoch == ORIGIN.epoch:
            return
        before = (base.epoch, base.roll)
    path = segment_path(*before)
    if look.filesystem.exists(path):
        report.problems.append(
            f"{path} offset 0: its first frame is not what was written; what comes up to lsn {route.start.lsn} is lost"
        )
    elif not any(each.lsn >= route.start.lsn for each in look.beginnings()):
        report.problems.append(f"{path} is missing, and no checkpoint holds what came up to lsn {route.start.lsn}")


def _check_padding(filesystem: FileSystem, step: Step, report: Verification) -> None:
    """Between a frame and the next block there are zeros; no checksum covers them."""
    path, offset = place_of(step)
    written = offset + len(step.found.raw)
    if written == step.found.end:
        return
    handle = filesystem.open(path)
    try:
        padding = filesystem.read(handle, written, step.found.end - written)
    finally:
        filesystem.close(handle)
    if padding.strip(b"\0"):
        at = written + next(i for i, byte in enumerate(padding) if byte)
        report.problems.append(
            f"{path} offset {at}: padding behind the frame at lsn {step.found.frame.first_lsn} is not zero; "
            "its messages are whole"
        )


async def _check_end(look: Inspection, last: Step, report: Verification) -> None:
    """Behind the last frame there is nothing, or what a torn write left."""
    path, offset = segment_path(last.after.epoch, last.after.roll), last.found.end
    if last.found.frame.kind == FrameKind.ROLL or not _has_bytes(look.filesystem, path, offset):
        return
    await asyncio.sleep(SETTLE_S)
    route = look.reader.routes.find(look.view.head, last.after.lsn)
    try:
        now = next(iter(deque(look.reader.walk(route, judge=False), maxlen=1)), None)
    except DataCorrupt as error:
        report.problems.append(str(error))
        return
    if now is not None and (now.found.end != offset or now.after.epoch != last.after.epoch):
        report.notes.append("the log grew while it was read")
        return
    lsn = last.after.lsn + 1
    text = f"{path} offset {offset}: bytes that are no whole frame stand where lsn {lsn} would begin"
    _, damage = look.reader.find_end(look.view.head, last.after.lsn)
    if report.confirmed_lsn > last.after.lsn:
        report.problems.append(f"{text}, but lsn {report.confirmed_lsn} is confirmed")
    elif damage:
        report.problems.append(damage)
    else:
        report.problems.append(f"{text}: a write that a crash tore (the next primary passes it over), or a flipped bit")


def _witnesses(look: Inspection) -> list[Sighting]:
    """Find what is known of confirmed places outside the log, and concerns it."""
    seen = confirmed_elsewhere(look.config.directory, look.config.replica, instance=look.config.instance)
    if look.view.confirmed is not None:
        seen.append(Sighting(look.view.confirmed, "lock store"))
    owner = _owner(look)
    return [each for each in seen if concerns(each.point, owner)]


def _owner(look: Inspection) -> Owner:
    adoption = read_adoption(look.config.directory)
    record = adoption.apply(look.record)
    return Owner(record.service_id, record.incarnation, adoption.former_incarnations)


def _check_witnesses(look: Inspection, seen: list[Sighting], last: Step, report: Verification) -> None:
    """The log passes through each place that is known to be confirmed."""
    owner = _owner(look)
    for each in seen:
        report.witnesses.append(f"lsn {each.point.lsn}, {each.where}")
        try:
            compared = check_point(
                each,
                owner,
                end_lsn=last.after.lsn,
                epoch=last.after.epoch,
                chain_at=lambda lsn: look.reader.chain_at(look.view.head, lsn),
            )
        except DataCorrupt as error:
            report.problems.append(str(error))
        else:
            if not compared:
                report.notes.append(f"lsn {each.point.lsn} ({each.where}) lies below what the log still holds")


def _has_bytes(filesystem: FileSystem, path: str, offset: int) -> bool:
    handle = filesystem.open(path)
    try:
        size = filesystem.size(handle)
        while offset < size:
            data = filesystem.read(handle, offset, min(256 * BLOCK, size - offset))
            if data.strip(b"\0"):
                return True
            offset += len(data) or BLOCK
    finally:
        filesystem.close(handle)
    return False


def _check_checkpoints(look: Inspection, chains: dict[int, bytes], report: Verification) -> None:
    for each in look.checkpoints.names(announced_only=False):
        try:
            _check_checkpoint(look, each, chains, report)
        except FileNotFoundError:
            continue  # collected meanwhile
        except (DataCorrupt, OSError) as error:
            report.problems.append(f"{CHECKPOINT_FOLDER}/{each.name}: {error}")


def _check_checkpoint(look: Inspection, each: CheckpointName, chains: dict[int, bytes], report: Verification) -> None:
    handle = look.filesystem.open(f"{CHECKPOINT_FOLDER}/{each.name}")
    try:
        head, _ = codec.verify(lambda offset, size: look.filesystem.read(handle, offset, size))
    finally:
        look.filesystem.close(handle)
    if (head.lsn, head.chain) != (each.lsn, each.chain):
        raise CorruptCheckpoint(f"it holds lsn {head.lsn}, chain {head.chain.hex()}")
    if each.lsn in chains and chains[each.lsn] != each.chain:
        raise CorruptCheckpoint(
            f"at lsn {each.lsn} the log's chain hash is {chains[each.lsn].hex()}: it belongs to another history"
        )
    report.checkpoints.append(each.name)


async def _run_again(config: ReplicaConfig, report: Verification) -> None:
    try:
        result = await replay(config, ReplayOrder(oldest=True))
    except UpgradeRequired as error:
        report.notes.append(f"nothing was run again: {error.message}")
        return
    except DeathlessError as error:
        report.problems.append(str(error))
        return
    report.executed_from = result.started_at
    report.executed_through = result.lsn
    report.digest = result.digest
    report.notes += result.notes
