"""Runs a log again in a fresh process and gives the state at an lsn: for `deathless replay` and `log verify`.

    tool --(order)--> python -m deathless.shell.operate.replay, hash seed of the service --(result on a pipe)--> tool

The fresh process is started as a worker is: same hash seed, zone and locale, same code, nothing left over from
whatever the tool has imported. Where the run may begin (I6): at the first message, if the log still has it, or at a
checkpoint; never below the last Rebased record's checkpoint, nor among messages that other code wrote. A run that ends
before an upgrade is one by the code of before, of which a copy is kept with the log.

Guarantees: every message run is compared with the digest that its primary logged; the first difference is Diverged with
lsn, handler and key; a note says where other code asks for what no digest stands for. Does not: write to the service's
directory, answer anybody. May import execution, engine, codec and base.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import (
    CodeEndedProcess,
    CorruptCheckpoint,
    CorruptFrame,
    DeathlessError,
    Diverged,
    ImportNotEnded,
    InvalidArgument,
    UpgradeRequired,
)
from deathless.codec.frames import Frame, FrameKind, Run, decode_data
from deathless.codec.map_entries import owner_of, show_key
from deathless.codec.messages import BEGINNING, U64, Kind, decode
from deathless.codec.snapshot import Snapshot
from deathless.codec.untrusted import read_msgpack
from deathless.codec.wire import ReplyError, decode_struct
from deathless.core.client.events import error_of
from deathless.core.replica.fork_cut import ForkPlace
from deathless.engine.log.route import decode_cut
from deathless.engine.log.segment_scan import segment_path
from deathless.engine.shard.assembly import open_shard
from deathless.engine.shard.shard import Shard, cut_runs
from deathless.execution.author.service import Service
from deathless.execution.executor import HandlerExecutor, Hide, nothing_hidden
from deathless.execution.rehearsal.undigested import Undigested, undigested_in
from deathless.shell.lock_stores.inspection import Inspection, inspect
from deathless.shell.operate.debugger import LEFT, Debugger, Stops
from deathless.shell.operate.forking.in_replay import ForkOrder, place_behind, write_checkpoint
from deathless.shell.operate.log_generations import cut_at, loadable
from deathless.shell.process.turn_guards import TurnGuards
from deathless.shell.service_code.code_record import what_differs
from deathless.shell.service_code.description import Description
from deathless.shell.service_code.fingerprint import describe
from deathless.shell.service_code.former_command import former_command
from deathless.shell.service_code.kept_code import former_spellings, node_name
from deathless.shell.service_code.loading import load_configured
from deathless.shell.service_code.separate_process import LongWait, ended_process, import_wait

MODULE: Final = "deathless.shell.operate.replay"
KEYS_MAX: Final = 100_000  # keys told of one state
MISFITS_SHOWN_MAX: Final = 100  # handlers that the code does not fit, told one by one
CHANGED_SHOWN: Final = 3  # keys that a divergence shows
SHOWN_MAX: Final = 300  # characters of a value there
PIECE_BYTES: Final = 1 << 16  # of a result, read at once
IMPORTED: Final = b"\xc1"  # stands before a result once the code is imported; no msgpack begins with it
NOT_COMPARED: Final = "not compared, for no digest stands for it (`deathless upgrade rehearse` compares it):"
"""Begins a note of a run of other code."""


class ReplayOrder(msgspec.Struct, kw_only=True):
    """What to run and what to tell."""

    start: int | None = (
        None  # lsn of the state to begin (and to compare) with; None: the newest checkpoint that may be used
    )
    to: int | None = None  # last message; None: the last confirmed one
    oldest: bool = False  # begin as early as the log allows, whatever `start` says
    tell: str = "nothing"  # nothing | state | diff (what changed since `start`)
    key: str | None = None  # tell of this key alone
    any_code: bool = False  # run code that did not write the log: a what-if
    written_by: bytes = b""  # the same, of what code with this fingerprint wrote, and nothing before that
    recent: int | None = None  # begin at or below the last so many messages; None: as `start` says
    seconds: float | None = None  # no frame is begun after so long, and what was run is told; None: however long
    turns_s: int | None = None  # the process is ended where the turns of one frame take longer; None: however long
    declared_from: int | None = None  # what the code declares as changed since this version ends the run, as no error
    folder: str = "."  # what the module's path is relative to
    peers: list[str] | None = None  # tell, behind each frame, how far the service had got with these; None: do not
    fork: ForkOrder | None = None  # write a forked service's checkpoint at the end
    stops: Stops | None = None  # where Python's debugger stops, on the tool's terminal; None: nowhere


class Change(msgspec.Struct):
    """One key whose state differs; None: it is not there."""

    key: str
    before: object
    after: object


class ReplayResult(msgspec.Struct, kw_only=True, rename="camel", tag="result"):
    """What came out."""

    started_at: int  # lsn of the checkpoint the run began with; 0: the beginning
    base: int  # lsn of the state that `diff` compares with
    lsn: int
    messages: int  # run
    keys: int
    chain: str
    digest: str
    time_us: int
    seconds: float
    state: dict[str, object] = {}
    changes: list[Change] = []
    notes: list[str] = []
    places: list[ForkPlace] = []


class _Failure(msgspec.Struct, tag="failure"):
    code: str
    message: str
    lsn: int = 0  # of a difference, and what follows as well
    handler: str = ""
    key: str = ""
    messages: int = 0


class _Work(msgspec.Struct):
    """What the fresh process reads first."""

    config: ReplicaConfig
    order: ReplayOrder
    result_fd: int


class ReplayEnded(CodeEndedProcess):
    """The process that ran the log ended and gave no result: its code ended it, or it ran out of memory."""


class LogDiffers(Diverged):
    """The run met its first difference.

    Attributes:
        lsn: of the message that gave something else; 0: not known.
        handler: whose turn it was, or the first of several; empty: not known.
        key: of that turn.
        messages: that were run before it and gave the same.
    """

    handler = ""
    key = ""
    messages = 0


class ReplayLeft(Exception):
    """The user left the debugger before the end: there is no result."""


# ---- the tool's side -----------------------------------------------------------------------------------------


async def replay(config: ReplicaConfig, order: ReplayOrder) -> ReplayResult:
    """Run in a fresh process, as long as the log takes; who has enough of it cancels.

    An import that lasts is bounded as `ask` does it, but with the debugger, in which somebody may stand there.

    Raises: LogDiffers, CorruptFrame, UpgradeRequired, FormerCodeMissing, InvalidArgument, ReplayEnded, InvalidService,
    ImportNotEnded, as `inspect`; ReplayLeft when its user left the debugger.
    """
    look = await inspect(config)
    interpreter, config = _code_for(look, config, order)
    ours, theirs = os.pipe()
    work = _handed(msgspec.json.encode(_Work(config, order, theirs)))
    try:
        process = await asyncio.create_subprocess_exec(
            interpreter,
            "-m",
            MODULE,
            str(work),
            stdin=asyncio.subprocess.DEVNULL if order.stops is None else None,
            stdout=sys.stderr if order.stops is None else None,
            pass_fds=(theirs, work),
            env=_environment(look.record.hash_seed, order.folder),
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
        os.close(work)
    importing = import_wait(config.module, bounded=order.stops is None)
    try:
        _, told = await asyncio.gather(process.wait(), _read_all(ours, importing))
    except ImportNotEnded:
        process.kill()
        await process.wait()
        raise
    except asyncio.CancelledError:
        # Killed, and not waited for.
        process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001  a Process can't be closed otherwise
        raise
    if not told and process.returncode == LEFT:
        raise ReplayLeft
    if not told and order.turns_s is not None and process.returncode == -signal.SIGALRM:
        raise ReplayEnded(
            f"the turns of one frame have not ended within {order.turns_s} s", remedy="see where a handler never ends"
        )
    if not told:
        raise ReplayEnded(ended_process(config.module, process.returncode).message)
    result: ReplayResult | _Failure = msgspec.msgpack.decode(told, type=ReplayResult | _Failure)
    if isinstance(result, _Failure):
        raise _error_of(result)
    return result


def _error_of(failure: _Failure) -> DeathlessError:
    if failure.code != Diverged.code:
        return error_of(failure.code, failure.message)
    error = LogDiffers(failure.message)
    error.lsn, error.handler, error.key = failure.lsn, failure.handler, failure.key
    error.messages = failure.messages
    return error


def _code_for(look: Inspection, config: ReplicaConfig, order: ReplayOrder) -> tuple[str, ReplicaConfig]:
    """Give the interpreter, and the config with the code that wrote the end of the run.

    That is the config's own, but where the run ends before an upgrade: then it is the copy that is kept of the former.
    Raises: FormerCodeMissing where there is none; DataCorrupt errors, OSError.
    """
    if order.to is None or order.any_code or not look.view.head:
        return sys.executable, config
    cut = cut_at(look, order.to)
    if cut is None or cut.generation == look.reader.routes.cut(look.view.head).generation:
        return sys.executable, config
    interpreter, folder, module = former_command(config.directory, cut.fingerprint)
    return interpreter, msgspec.structs.replace(config, code=folder.name, module=module)


def _handed(data: bytes) -> int:
    """Give a descriptor from which a process that gets it reads these bytes."""
    descriptor = os.memfd_create("deathless-replay.json")
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


async def _read_all(descriptor: int, importing: LongWait) -> bytes:
    """Give the result. Raises: ImportNotEnded.

    In the loop: a thread would keep who is interrupted until every process has closed the other end.
    """
    reader = asyncio.StreamReader()
    with os.fdopen(descriptor, "rb") as pipe:
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, pipe)
        told = bytearray()
        try:
            while True:
                try:
                    async with asyncio.timeout(importing.left_s):
                        piece = await reader.read(PIECE_BYTES)
                except TimeoutError:
                    importing.passed()
                    continue
                importing.over()
                if not piece:
                    return bytes(told).removeprefix(IMPORTED)
                told += piece
        finally:
            transport.close()


def _environment(hash_seed: int, folder: str) -> dict[str, str]:
    """As a supervisor starts a worker."""
    path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, "PYTHONHASHSEED": str(hash_seed), "TZ": "UTC", "LC_ALL": "C.UTF-8", "PYTHONPATH": path}


# ---- the fresh process ---------------------------------------------------------------------------------------


def main() -> int:
    """Do the work that stands behind the descriptor given; the result goes to the pipe named in it."""
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        work = msgspec.json.decode(file.read(), type=_Work)
    # Before the author's code is imported. A debugger needs what turns may not do.
    hide = TurnGuards(None) if work.order.stops is None else nothing_hidden
    try:
        answer: object = run(work.config, work.order, hide, lambda: os.write(work.result_fd, IMPORTED))
    except LogDiffers as error:
        answer = _Failure(error.code, error.message, error.lsn, error.handler, error.key, error.messages)
    except DeathlessError as error:
        answer = _Failure(error.code, error.message)
    with os.fdopen(work.result_fd, "wb") as pipe:
        pipe.write(msgspec.msgpack.encode(answer, enc_hook=str))  # of a state, whatever its keys are
    return 0


def run(
    config: ReplicaConfig,
    order: ReplayOrder,
    hide: Hide = nothing_hidden,
    imported: Callable[[], object] = lambda: None,
) -> ReplayResult:
    """Run the log in this process, `hide` called around turns, `imported` behind the import. Raises: as `replay`."""
    begun = time.monotonic()
    look = asyncio.run(inspect(config))
    service = load_configured(config, order.folder)
    imported()
    limits = config.make_limits()
    make = Undigested if order.any_code else HandlerExecutor
    shard = open_shard(service, limits, look.record.seed, sharding=config.sharding, hide=hide, make=make)
    executor, place = shard.executor, shard.place
    notes: list[str] = []
    parts = describe(service, limits, config.sharding)
    plan = _plan(look, order, parts, notes)
    plan.turns_s, plan.until = order.turns_s, None if order.seconds is None else begun + order.seconds
    if plan.snapshot is not None:
        shard.restore(plan.snapshot, same_code=plan.snapshot.fingerprint in parts.spellings)
        notes += _misfits(shard)
    elif look.view.head:
        place.begin_with(look.reader.routes.cut(look.view.head))  # a fork's checkpoint is of its cut's generation
    before: dict[bytes, bytes] | None = dict(executor.state()) if place.lsn >= plan.base else None
    places: list[ForkPlace] = []

    def note() -> None:
        if order.peers is not None:
            places.append(place_behind(shard, order.peers))

    note()
    debugger = None
    if order.stops is not None:
        specs = (*service.specs.values(), *service.inputs.values())
        debugger = Debugger({spec.name: spec.function for spec in specs}, order.stops)
    try:
        with contextlib.nullcontext() if debugger is None else debugger.whole():
            ran, before = _run_all(look, shard, plan, before, debugger, note)
    except Diverged as error:
        _end_after(None)
        declared = _declared(look, service, error.lsn, order.declared_from)
        if not declared:
            again = open_shard(service, limits, look.record.seed, sharding=config.sharding, hide=hide)
            begun_at = plan.snapshot.lsn if plan.snapshot is not None else 0
            if order.seconds is None or time.monotonic() - begun < order.seconds / 2:  # it is run up to there again
                error = explained(look, again, plan, error)
            raise _located(look, error, begun_at) from None
        notes.append(declared)
        plan.until = None  # it ended for another reason
        ran = place.lsn - (plan.snapshot.lsn if plan.snapshot is not None else 0)
    if look.view.head and look.reader.routes.cut(look.view.head).fingerprint not in parts.spellings:
        notes += [f"{NOT_COMPARED} {handler} asks for {what}" for handler, what in undigested_in(executor).items()]
    if plan.until is not None and place.lsn < plan.to:
        notes.append(f"the run ends at lsn {place.lsn} of {plan.to}, after {order.seconds:g} s")
    if order.fork is not None:
        write_checkpoint(shard, order.fork)
    started = plan.snapshot.lsn if plan.snapshot is not None else 0
    result = ReplayResult(
        started_at=started,
        base=plan.base,
        lsn=place.lsn,
        messages=ran,
        keys=executor.count(),
        chain=place.chain.hex(),
        digest=place.digest.hex(),
        time_us=place.time_us,
        seconds=time.monotonic() - begun,
        notes=notes,
        places=places,
    )
    _tell(result, order, before or {}, executor.state())
    return result


def _located(look: Inspection, error: Diverged, begun_at: int) -> LogDiffers:
    """Give a difference with handler, key, and how many messages were run before it."""
    found = LogDiffers(error.message)
    found.lsn = error.lsn
    if error.lsn:
        found.messages = error.lsn - 1 - begun_at
        frame = next(frames_between(look, error.lsn - 1, error.lsn), None)
        at = None if frame is None else _message_at(frame, error.lsn)
        if at is not None:
            message = decode(at[1])
            found.handler, found.key = message.method.decode(errors="replace"), show_key(message.key)
    return found


def _declared(look: Inspection, service: Service, lsn: int, before: int | None) -> str:
    """Say what the code declares as changed of the handler that the message at `lsn` is for; empty: nothing."""
    if not lsn or before is None:
        return ""
    frame = next(frames_between(look, lsn - 1, lsn), None)
    found = None if frame is None else _message_at(frame, lsn)
    if found is None or found[1][0] not in BEGINNING:
        return ""
    name = decode(found[1]).method.decode(errors="replace")
    declared = service.declared.changed(name, before)
    if not declared:
        return ""
    told = ", ".join(f"{aspect}: {why}" for aspect, why in sorted(declared.items()))
    return f"the run ends at lsn {lsn}, where {name} does what is declared as changed ({told})"


def _message_at(frame: Frame, lsn: int) -> tuple[Run, bytes] | None:
    """Give a message of a frame, and the run of that one alone; None: it is not in it."""
    at = int(frame.first_lsn)
    for run, messages in cut_runs(decode_data(frame)):
        if at <= lsn < at + run.count:
            return run._replace(first_seq=run.first_seq + lsn - at, count=1), messages[lsn - at]
        at += run.count
    return None


def _misfits(shard: Shard) -> list[str]:
    """Say what of a checkpoint of other code does not fit this one."""
    executor = shard.executor
    if not isinstance(executor, HandlerExecutor):
        return []
    misfits = executor.restoration.misfits()
    notes = [f"held: {misfit.code}: {misfit}" for misfit in misfits[:MISFITS_SHOWN_MAX]]
    if len(misfits) > MISFITS_SHOWN_MAX:
        notes.append(f"{len(misfits)} handlers are held in all, because the code does not fit them")
    changes = [change for change in executor.restoration.schedule_changes() if change.kind != "new"]
    notes += [f"schedule {one.name} is {one.kind}: was {one.before}, is {one.now or 'none'}" for one in changes]
    return notes


def _run_all(
    look: Inspection,
    shard: Shard,
    plan: _Plan,
    before: dict[bytes, bytes] | None,
    debugger: Debugger | None,
    note: Callable[[], None],
) -> tuple[int, dict[bytes, bytes] | None]:
    """Run what the plan says, `note` called behind each frame; gives how many messages, and the state at its base.

    Raises: Diverged.
    """
    executor, place = shard.executor, shard.place
    ran = 0
    for frame in frames_between(look, place.lsn, plan.to):
        if plan.until is not None and time.monotonic() > plan.until:
            break
        _end_after(plan.turns_s)
        for stop in sorted({plan.base, plan.to, *(debugger.looks if debugger is not None else ())}):
            if place.lsn < stop < frame.last_lsn:
                # A look in the middle of a frame: that part is run alone, the rest afterwards.
                with _watched(debugger, place.lsn + 1):
                    ran += _apply_part(shard, frame, place.lsn, stop)
                if before is None and place.lsn >= plan.base:
                    before = dict(executor.state())
        if place.lsn < plan.to:
            with _watched(debugger, place.lsn + 1):
                ran += _apply_rest(shard, frame)
            note()
        if before is None and place.lsn >= plan.base:
            before = dict(executor.state())
    _end_after(None)
    return ran, before


def _end_after(seconds: int | None) -> None:
    """Have the kernel end this process after so long, unless this is called again before; None: it goes on.

    Whatever a handler does, it can't keep the kernel from it.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(seconds or 0)


def _watched(debugger: Debugger | None, lsn: int) -> contextlib.AbstractContextManager[None]:
    """Watch the messages from `lsn` on, which are run in one piece, where the debugger is to stop at that one."""
    return contextlib.nullcontext() if debugger is None else debugger.at_lsn(lsn)


@dataclass(slots=True)
class _Plan:
    snapshot: Snapshot | None  # None: from the beginning
    base: int
    to: int
    until: float | None = None  # monotonic seconds; no frame is begun later. None: all are run
    turns_s: int | None = None  # see ReplayOrder


def _plan(look: Inspection, order: ReplayOrder, code: Description, notes: list[str]) -> _Plan:
    """Decide where to begin. Raises: InvalidArgument, UpgradeRequired, DataCorrupt."""
    mine = {order.written_by} if order.written_by else code.spellings | former_spellings(look.config.directory, code)
    found = survey(look, mine, order.to)
    to = found.confirmed if order.to is None else order.to
    if to > found.confirmed:
        raise InvalidArgument(f"--to {to} is above the last confirmed message, lsn {found.confirmed}")
    begin = order.start if order.recent is None else max(0, to - order.recent)
    floor = 0
    if not order.any_code:
        floor = found.code_floor
        if found.foreign_head:
            told = what_differs(look.config.directory, found.foreign_head, code, node_name())
            raise UpgradeRequired(
                f"the code, interpreter or libraries are not those that wrote the log{': ' if told else ''}{told}",
                remedy="--any-code runs it nevertheless",
            )
    floor = max(floor, found.floor)
    wanted = to if begin is None else min(begin, to)
    oldest = order.oldest
    if wanted < floor:  # what is asked for lies where no run may begin: as near to it as may be
        wanted, oldest = to, True
    snapshot = _load(look, floor, wanted, oldest=oldest, beginning=found.first == 0 and floor == 0)
    base = snapshot.lsn if snapshot is not None else 0
    if begin is not None and order.recent is None and not order.oldest:
        base = max(base, begin)
        if begin < floor:
            notes.append(
                f"the run begins at the checkpoint at lsn {base}: what lies below was written by other code, or rebased"
            )
    if order.any_code and found.foreign_head:
        notes.append("this code did not write the log")
    return _Plan(snapshot, base, to)


@dataclass(slots=True)
class Survey:
    """What a first look along the chain shows."""

    first: int = 0  # lsn before the oldest message that is still there
    confirmed: int = 0
    floor: int = 0  # no run crosses it: lsn that the last Rebased record names, or that of the last Upgraded record
    code_floor: int = 0  # messages up to here were written by other code
    foreign_head: bytes = b""  # fingerprint of the head's code where that is another
    chains: dict[int, bytes] = field(default_factory=dict)  # chain hash at each lsn at which a checkpoint stands


def survey(look: Inspection, spellings: Collection[bytes], to: int | None = None) -> Survey:
    """Look along the chain.

    Args:
        look: whose log it is.
        spellings: fingerprints that mean the code that shall run.
        to: last message that it shall run, so that it does not matter who wrote what follows; None: all of it.

    Raises: DataCorrupt errors, OSError.
    """
    found = Survey()
    places = {each.lsn for each in look.checkpoints.names(announced_only=False)}
    if not look.view.head:
        return found
    route = look.whole_route()
    found.first, found.confirmed = route.start.lsn, max(route.confirmed, look.known_confirmed)
    found.chains[route.start.lsn] = route.start.chain
    foreign = b""
    for step in look.steps(route):
        frame = step.found.frame
        found.confirmed = max(found.confirmed, frame.confirmed_lsn)
        if frame.kind == FrameKind.CUT:
            cut = decode_cut(frame, segment_path(step.after.epoch, step.after.roll))
            if to is not None and cut.base.lsn >= to and step.after.epoch != route.start.epoch:
                continue
            if foreign:
                found.code_floor = cut.base.lsn
            foreign = b"" if cut.fingerprint in spellings else cut.fingerprint
        elif frame.kind == FrameKind.DATA:
            found.floor = max(found.floor, _floor_in(frame, to))
            if frame.last_lsn in places:
                found.chains[frame.last_lsn] = frame.chain
    found.foreign_head = foreign
    return found


def _floor_in(frame: Frame, to: int | None) -> int:
    """Lsn of the checkpoint that a Rebased record of this frame names, or of an Upgraded record; 0: it has neither.

    An Upgraded record above `to` is not counted: nothing is run across it.
    """
    named, lsn = 0, int(frame.first_lsn)
    for run, messages in cut_runs(decode_data(frame)):
        for at, message in enumerate(messages if run.session == 0 else ()):
            if message[0] == Kind.REBASED:
                (named,) = U64.unpack(decode(message).args)
            elif message[0] == Kind.UPGRADED and (to is None or lsn + at <= to):
                named = lsn + at
        lsn += run.count
    return named


def _load(look: Inspection, floor: int, wanted: int, *, oldest: bool, beginning: bool) -> Snapshot | None:
    """Load the checkpoint to begin with; None: the log's beginning. Raises: InvalidArgument when there is neither."""
    if beginning and (oldest or wanted == 0):
        return None
    usable = [each for each in loadable(look) if floor <= each.lsn <= wanted]
    for each in reversed(usable) if oldest else usable:
        try:
            return look.checkpoints.load(each.name)
        except (CorruptCheckpoint, FileNotFoundError):
            continue
    if beginning:
        return None
    why = f"behind lsn {floor}, where a run may begin" if floor else "and the log no longer begins at 0"
    raise InvalidArgument(
        f"there is no checkpoint at or below lsn {wanted}, {why}",
        remedy="`deathless checkpoint ls` shows from where a run may begin",
    )


def frames_between(look: Inspection, lsn: int, to: int) -> Iterator[Frame]:
    """Give the DATA frames that hold messages in (lsn, to]."""
    if lsn >= to:
        return
    for step in look.steps(look.reader.routes.find(look.view.head, lsn)):
        frame = step.found.frame
        if frame.kind == FrameKind.DATA and frame.last_lsn > lsn:
            if frame.first_lsn > to:
                return
            yield frame


def _apply_rest(shard: Shard, frame: Frame) -> int:
    """Run a frame, or what is left of it; gives how many messages."""
    left = frame.last_lsn - shard.place.lsn
    if left == frame.count:
        shard.apply(frame)
    else:
        _apply_part(shard, frame, shard.place.lsn, frame.last_lsn)
        # The rolling digest is closed once for each frame: run in pieces, a frame gives another one.
        shard.place.chain, shard.place.digest = frame.chain, decode_data(frame).digest
    return left


def _apply_part(shard: Shard, frame: Frame, after: int, through: int) -> int:
    """Run the messages of a frame in (after, through]; compares their digests, not the frame's rolling one.

    Raises: Diverged.
    """
    data = decode_data(frame)
    first, last = after + 1 - frame.first_lsn, through + 1 - frame.first_lsn
    runs = []
    at = 0
    for run, messages in cut_runs(data):
        low, high = max(first - at, 0), min(last - at, run.count)
        if low < high:
            part = run._replace(first_seq=run.first_seq + low, count=high - low, acked=run.acked)
            runs.append((part, messages[low:high]))
        at += run.count
    executed = shard.execute(runs)
    given = decode_data(frame._replace(payload=executed.payload, count=executed.count)).digests
    for offset, (a, b) in enumerate(zip(given, data.digests[first:last], strict=True)):
        if a != b:
            error = Diverged(f"lsn {after + 1 + offset} gave another state or reply")
            error.lsn = after + 1 + offset
            raise error
    return executed.count


# ---- what differs --------------------------------------------------------------------------------------------


def explained(look: Inspection, shard: Shard, plan: _Plan, error: Diverged) -> Diverged:
    """Give a divergence with what the message gives here and, as far as it is known, what it gave then.

    The log holds checksums of states and replies alone. So what it gave then is read from the first checkpoint behind
    it, which may hold what later messages made of it.

    Args:
        look: whose log it is.
        shard: an empty one of the same service.
        plan: of the run that met the difference.
        error: the difference.
    """
    if not error.lsn:
        return error
    if plan.snapshot is not None:
        shard.restore(plan.snapshot)
    executor, place = shard.executor, shard.place
    frame = None
    for frame in frames_between(look, place.lsn, error.lsn):
        if frame.last_lsn < error.lsn:
            _apply_rest(shard, frame)
    if frame is None or not frame.first_lsn <= error.lsn <= frame.last_lsn:
        return error
    if place.lsn < error.lsn - 1:
        _apply_part(shard, frame, place.lsn, error.lsn - 1)
    before = dict(executor.state())
    replies = _run_one(shard, frame, error.lsn)
    after = executor.state()
    changed = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
    told = [f"here it replies {_shown(reply)}" for reply in replies[:1]]
    told += [f"here {show_key(key)} becomes {_json(after.get(key))}" for key in changed[:CHANGED_SHOWN]]
    told += _then(look, error.lsn, changed[:CHANGED_SHOWN])
    found = Diverged(f"{error.message}: {'; '.join(told)}" if told else error.message)
    found.lsn = error.lsn
    return found


def _run_one(shard: Shard, frame: Frame, lsn: int) -> Sequence[bytes]:
    """Run one message of a frame; gives its replies."""
    found = _message_at(frame, lsn)
    results = [] if found is None else shard.execute([(found[0], (found[1],))]).results
    return results[0].replies if results else ()


def _then(look: Inspection, lsn: int, keys: Sequence[bytes]) -> list[str]:
    """Say what the first checkpoint behind a message holds under these keys."""
    behind = [each for each in loadable(look) if each.lsn >= lsn]
    for each in sorted(behind, key=lambda name: name.lsn):
        try:
            state = look.checkpoints.load(each.name).state
        except (CorruptCheckpoint, FileNotFoundError):
            continue
        return [f"the checkpoint at lsn {each.lsn} has {show_key(key)} as {_json(state.get(key))}" for key in keys]
    return []


def _shown(reply: bytes) -> str:
    """Give a reply for people."""
    if reply[:1] == b"\0":
        return _json(reply[1:])
    try:
        told = decode_struct(ReplyError, reply[1:])
    except CorruptFrame:
        return "that its result comes later"
    return f"{told.code} {told.type}: {told.text}"


def _json(encoded: bytes | None) -> str:
    text = msgspec.json.encode(_plain(encoded), enc_hook=str).decode()
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


def _tell(result: ReplayResult, order: ReplayOrder, before: dict[bytes, bytes], after: dict[bytes, bytes]) -> None:
    """Put what was asked for into the result."""
    if order.tell == "nothing":
        return
    keys = sorted({*before, *after}) if order.tell == "diff" else sorted(after)
    if order.key is not None:
        keys = [key for key in keys if owner_of(key) == order.key.encode()]
    if order.tell == "diff":
        keys = [key for key in keys if before.get(key) != after.get(key)]
    if len(keys) > KEYS_MAX:
        result.notes.append(f"only the first {KEYS_MAX} of {len(keys)} keys are told")
    for key in keys[:KEYS_MAX]:
        name = show_key(key)
        if order.tell == "diff":
            result.changes.append(Change(name, _plain(before.get(key)), _plain(after.get(key))))
        else:
            result.state[name] = _plain(after.get(key))


def _plain(encoded: bytes | None) -> object:
    return None if encoded is None else read_msgpack(encoded, object)


if __name__ == "__main__":
    sys.exit(main())
