r"""Rehearses an upgrade: a service's own log is run by the former code and by the new one, and what differs is told.

    log --frames--> former code --what it did--> new code           differences, by handler
                                            \--> new code again     with another hash seed: is it a function?

Where the new code takes all states as they are, the log's own digests are asked first (digest_run): two processes of
the new code run it, and as long as they give what was logged, there is nothing that the former code could add. At the
first difference the run is made again from its beginning by both codes, which say what differs. So it is at the first
turn that asks for what no digest stands for, such as a timer.

The run begins at the oldest place that is whole (a checkpoint, or the log's beginning) behind the last upgrade, so that
one code wrote all of it. The processes are children of this one and nobody's else (rehearsal_child); one frame is under
way at a time, so memory holds the states of three processes and no log. In a pod the former code is served by a
container of the image that wrote the log (shell.upgrade.former_server). A run ends where the log does, or follows it as
it grows (live_log).

Guarantees: nothing is written into the service's folder, no lock is taken, nobody is sent anything; what is begun ends
with this process, and leaves nothing. Does not: import the author's code; run queries; judge (execution.rehearsal).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import IO, Final, cast

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import CorruptCheckpoint, DeathlessError, InvalidArgument, LockUnavailable
from deathless.codec.frames import ORIGIN, Frame
from deathless.codec.untrusted import read_msgpack
from deathless.core.client.events import error_of
from deathless.engine.ports import ServiceRecord
from deathless.execution.interface.misfit import Misfit, Tally
from deathless.execution.rehearsal.findings import ENDED, NOT_DETERMINISTIC, Coverage, Difference, Findings, merged
from deathless.execution.rehearsal.steps import Did, Step, decode_trace, named_in
from deathless.shell.lock_stores.inspection import Inspection, inspect
from deathless.shell.operate.replay import frames_between, survey
from deathless.shell.operate.upgrading.live_log import Followed, Following, LiveLog, Source
from deathless.shell.operate.upgrading.rehearsal_child import (
    COUNT_BYTES,
    MODULE,
    NOTE_BYTES,
    PRINT_BYTES,
    Found,
    Orders,
    Ready,
    Word,
)
from deathless.shell.service_code.former_command import former_command
from deathless.shell.service_code.import_trial import try_import
from deathless.shell.service_code.separate_process import LongWait, ended_process, import_wait
from deathless.shell.upgrade.former_link import AGAIN_S, CONNECT_S, PREAMBLE, Use
from deathless.shell.upgrade.packets import PLACE, Failed, Reader, frame_body, packet

READ_BYTES: Final = 1 << 20
MODE: Final = 0o660  # of the file that is passed: containers of a pod may have users of their own, in one group
AHEAD: Final = 4
"""So many frames are under way where nobody waits for what comes of one before the next is run."""
CLOSED: Final = "it has closed its end"
END_S: Final = 2.0  # a process that is killed is gone by then
TURNS_S: Final = 120.0
"""The turns of one frame end within this; a worker would be ended after a turn of `turnMaxS`, 10 s."""
ASK_S: Final = 5.0  # a lock store that has not answered by then is asked again
Told = Callable[[str], object]


class Rehearsed(msgspec.Struct, kw_only=True):
    """What came of it."""

    from_version: int
    to_version: int
    same_code: bool = False  # it is the code that serves
    fingerprint: str = ""  # of the new code, hexadecimal
    by_digests: bool = False  # compared with the log's own digests, and not with the former code beside it
    started_at: int = 0  # lsn of the checkpoint that it began with; 0: the beginning
    lsn: int = 0  # of the last message
    messages: int = 0
    seconds: float = 0.0
    differences: list[Difference] = []  # declared ones as well
    misfits: list[Misfit] = []
    notes: list[Misfit] = []
    coverage: list[Coverage] = []
    followed: Followed | None = None  # None: it ended where the log did
    shard: int = 0  # whose log it was; where there were several, the first
    of: int = 1  # how many shards the service has
    shards: list[Rehearsed] = []  # what came of each; empty: it was one alone

    @property
    def undeclared(self) -> list[Difference]:
        """What nobody says is meant."""
        return [each for each in self.differences if not each.declared]

    @property
    def passed(self) -> bool:
        """Nothing is in the way."""
        return not (self.undeclared or self.misfits)

    @property
    def cut_short(self) -> str:
        """Why the log could not be followed for the time that was asked for; empty: it was, or nobody asked for it."""
        return self.followed.ended if self.followed is not None and not self.followed.interrupted else ""

    @property
    def not_covered(self) -> list[str]:
        """Handlers of which no turn was compared."""
        return [each.handler for each in self.coverage if not each.turns]

    @property
    def per_second(self) -> int:
        """How many messages were run in a second."""
        return int(self.messages / self.seconds) if self.seconds else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Which part of the log is run.

    Attributes:
        start: lsn at or below which it begins; None: as early as it may.
        messages: how many are run, to the end of their frame; None: all.
        following: how long the log is followed as it grows; None: the run ends where the log does.
        side_by_side: both codes run from the start, also where the log's digests would do.
    """

    start: int | None = None
    messages: int | None = None
    following: Following | None = None
    side_by_side: bool = False


NEWEST: Final = 1 << 62
"""As a window's start: the newest checkpoint that there is."""


def rehearse(
    looks: Sequence[Inspection],
    module: str,
    environment: Mapping[str, str],
    window: Window,
    told: Told = str,
    former: str = "",
    done: list[Rehearsed] | None = None,
) -> Rehearsed:
    """Rehearse an upgrade, shard by shard.

    Args:
        looks: of each shard.
        module: of the new code, absolute where it is a file.
        environment: of the processes, the whole of it.
        window: which part of the log.
        told: is told how far it is.
        former: Unix socket at which the former code is served (shell.upgrade.former_server); empty: the copy that is
            kept with the log runs, in a process of ours.
        done: what came of each shard is appended, also where a later one raises.

    Raises, naming the shard where there are several: InvalidArgument where the log is empty, or nothing whole is left
    to begin with, or what does not grow is to be followed; FormerCodeMissing; what the codes raise when they are
    loaded; CodeEndedProcess, ImportNotEnded for either code; Diverged where the former code does not give what it gave.
    """
    try_import(module, ".", environment)
    runs = [] if done is None else done
    for look in looks:
        if not (runs and window.following is not None and window.following.stopped()):
            where = f"shard {look.config.shard}: " if len(looks) > 1 else ""
            try:
                run = _Run(look, module, environment, window, partial(_tell_where, told, where), former).run()
            except DeathlessError as error:
                if not where:
                    raise
                raise type(error)(f"{where}{error.message}", remedy=error.advice) from error
            run.shard, run.of = look.config.shard, look.config.shards
            runs.append(run)
    if len(looks) == 1:
        return runs[0]
    misfits, notes, coverage = Tally(), Tally(), dict[str, Coverage]()
    for each in runs:
        misfits.extend(each.misfits)
        notes.extend(each.notes)
        for one in each.coverage:
            all_ = coverage.setdefault(one.handler, Coverage(one.handler))
            all_.turns += one.turns
            all_.left_out += one.left_out
    return msgspec.structs.replace(
        runs[0],
        shards=[*runs],
        same_code=all(each.same_code for each in runs),
        by_digests=all(each.by_digests for each in runs),
        messages=sum(each.messages for each in runs),
        seconds=sum(each.seconds for each in runs),
        lsn=max(each.lsn for each in runs),
        differences=merged(each.differences for each in runs),
        misfits=misfits.misfits(),
        notes=notes.misfits(),
        coverage=list(coverage.values()),
        followed=_all_followed([each.followed for each in runs if each.followed is not None]),
    )


def _tell_where(told: Told, where: str, how_far: str) -> None:
    told(f"{where}{how_far}")


def _all_followed(shards: Sequence[Followed]) -> Followed | None:
    """Give how much was compared of the logs of several shards; None: they were not followed."""
    if not shards:
        return None
    return Followed(
        seconds=sum(each.seconds for each in shards),
        caught_up=all(each.caught_up for each in shards),
        messages=sum(each.messages for each in shards),
        compared=sum(each.compared for each in shards),
        behind_max=max(each.behind_max for each in shards),
        interrupted=any(each.interrupted for each in shards),
        ended="; ".join(filter(None, (each.ended for each in shards))),
    )


# ---- where it begins -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Start:
    place: bytes  # of a checkpoint; empty: the beginning
    lsn: int
    to: int
    chain: bytes = ORIGIN.chain  # behind the message at `lsn`


def start_of(look: Inspection, fingerprint: bytes, start: int | None) -> _Start:
    """Give where a run begins: at the oldest whole place, or at the newest one at or below `start`.

    Raises: InvalidArgument.
    """
    found = survey(look, {fingerprint})
    floor = max(found.floor, found.code_floor)
    to = found.confirmed
    beginning = found.first == 0 and floor == 0
    if start is None and beginning:
        return _Start(b"", 0, to)
    last = to if start is None else min(start, to)
    # Announced or not: the first one of a generation is not, and of each it is seen that its place is confirmed.
    usable = [each for each in look.checkpoints.names(announced_only=False) if floor <= each.lsn <= last]
    for each in usable if start is not None else reversed(usable):
        if found.chains.get(each.lsn) != each.chain:
            continue
        with contextlib.suppress(CorruptCheckpoint, FileNotFoundError):
            if look.checkpoints.read_back(each.name).fingerprint == fingerprint:
                return _Start(PLACE.pack(each.lsn, each.chain), int(each.lsn), to, each.chain)
    if beginning:
        return _Start(b"", 0, to)
    where = "" if start in (None, NEWEST) else f"at or below lsn {start} "
    raise InvalidArgument(
        f"there is no whole checkpoint {where}to begin with, behind lsn {floor}, where the code that serves began",
        remedy="`deathless checkpoint take` takes one; what comes behind it can be rehearsed",
    )


def head_of(config: ReplicaConfig) -> int:
    """Ask the lock store for the head. Raises: LockUnavailable; as `inspect`."""

    async def ask() -> int:
        return (await asyncio.wait_for(inspect(config), ASK_S)).view.head

    try:
        return asyncio.run(ask())
    except TimeoutError:
        raise LockUnavailable(f"no answer within {ASK_S:g} s") from None


# ---- one shard -------------------------------------------------------------------------------------------------


class ChildEnded(Exception):
    """A process is gone, and did not say why."""


class Side:
    """The way to one of the processes.

    Args:
        line: the socket to it.

    Attributes:
        says_import: it says IMPORTED.
    """

    says_import = True

    def __init__(self, line: socket.socket) -> None:
        self._socket = line
        self._reader = Reader()
        self._packets: Iterator[tuple[int, bytes]] = iter(())
        self._silent = ""  # why it was ended

    def say(self, word: Word, body: bytes = b"") -> None:
        """Tell it something; one that is gone, or reads nothing for as long as turns may take, is found when heard."""
        if self._silent:
            return
        self._socket.settimeout(TURNS_S)
        try:
            self._socket.sendall(packet(word, body))
        except TimeoutError:
            self._give_up(TURNS_S)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def hear_import(self, code: str) -> None:
        """Wait until it has imported the author's code of that name, as `ask` waits.

        Raises: ImportNotEnded; CodeEndedProcess; the error that it tells of.
        """
        if self.says_import:
            _heard(self, Word.IMPORTED, code, long=import_wait(code))

    def hear(self, word: Word, within_s: float | None = None, long: LongWait | None = None) -> bytes:
        """Give its next answer; one that says nothing for that long is ended.

        Raises: ChildEnded; the error that it tells of; as `long`.
        """
        if self._silent:
            raise ChildEnded
        self._socket.settimeout(within_s)
        while True:
            for said, body in self._packets:
                if said == Word.FAILED:
                    failed = read_msgpack(body, Failed)
                    raise error_of(failed.code, failed.text)
                assert said == word, "questions are answered in order"
                return body
            while long is not None and not wait([self._socket], long.left_s):
                long.passed()
            try:
                piece = self._socket.recv(READ_BYTES)
            except TimeoutError:
                self._give_up(within_s or 0.0)
                raise ChildEnded from None
            except ConnectionResetError:
                piece = b""
            if not piece:
                raise ChildEnded
            self._packets = self._reader.feed(piece)

    def _give_up(self, after_s: float) -> None:
        """End one whose turns do not end."""
        self.kill()
        self._silent = f"nothing ended for {after_s:g} s"

    def kill(self) -> None:
        """End it at once."""
        self._socket.close()

    @property
    def silent(self) -> str:
        """Why it was ended from here; empty: it was not."""
        return self._silent

    def status(self) -> int | None:
        """Give the status with which it ended, negative for a signal; None: nobody here knows."""
        return None

    def ended(self) -> str:
        """Say how it ended."""
        status = None if self._silent else self.status()
        if status is None:
            return self._silent or CLOSED
        return f"it was ended by signal {-status}" if status < 0 else f"it ended with status {status}"

    def close(self) -> None:
        """End it."""
        self._socket.close()


class Served(Side):
    """A process of the former code in another container of the pod, started by its former server.

    Args:
        path: of the server's socket.
        hash_seed: PYTHONHASHSEED of the process.

    Raises: InvalidArgument where nobody serves there.
    """

    says_import = False  # one of an image of before does not know that word

    def __init__(self, path: str, hash_seed: int) -> None:
        deadline = time.monotonic() + CONNECT_S
        while True:
            line = socket.socket(socket.AF_UNIX)
            try:
                line.connect(path)
                line.sendall(PREAMBLE.pack(hash_seed, Use.REHEARSAL))
            except OSError as error:
                line.close()
                if time.monotonic() > deadline:
                    raise InvalidArgument(
                        f"nobody serves the former code at {path} after {CONNECT_S:g} s: {error}",
                        remedy="see the log of the container `former`",
                    ) from error
                time.sleep(AGAIN_S)
            else:
                super().__init__(line)
                return


class Child(Side):
    """A process of ours.

    Args:
        interpreter: that runs it.
        environment: the whole of it.
        file: through which what a code holds is passed.
    """

    def __init__(self, interpreter: str, environment: Mapping[str, str], file: int) -> None:
        ours, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                [interpreter, "-m", MODULE, str(theirs.fileno()), str(file)],
                pass_fds=(theirs.fileno(), file),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr,
                process_group=0,  # Ctrl-C is for this process, which ends them or gives a verdict
            )
        except OSError as error:
            ours.close()
            raise InvalidArgument(f"{interpreter} can't be started: {error}") from error
        finally:
            theirs.close()
        super().__init__(ours)

    def kill(self) -> None:
        """See Side."""
        self._process.kill()

    def status(self) -> int | None:
        """See Side."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(END_S)
        return None

    def close(self) -> None:
        """See Side."""
        self._socket.close()
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)


class _Part:
    """The part of a log that ends where the log did when it was looked at, or before."""

    def __init__(self, look: Inspection, start: _Start, messages: int | None) -> None:
        self.over = False
        self._frames = frames_between(look, start.lsn, start.to)
        self._left = start.to - start.lsn if messages is None else messages  # nothing more is given below 1
        self._behind = self._left

    def ready(self) -> Frame | None:
        """See LiveLog."""
        frame = next(self._frames, None) if self._left > 0 else None
        if frame is None:
            self.over = True
        else:
            self._left -= frame.count
        return frame

    def pause(self) -> None:
        """See LiveLog: it is over before anybody waits."""

    def stop(self, why: str) -> None:
        """See LiveLog."""
        del why
        self.over = True

    def compared(self, frame: Frame) -> None:
        """See LiveLog."""
        self._behind -= frame.count

    def behind(self) -> int:
        """See LiveLog."""
        return max(self._behind, 0)


class _Run:
    """The rehearsal of one shard."""

    def __init__(
        self, look: Inspection, module: str, environment: Mapping[str, str], window: Window, told: Told, former: str
    ) -> None:
        self._former = former
        self._look = look
        self._module = module
        self._environment = environment
        self._window = window
        self._told = told
        self._findings = Findings()
        self._messages = 0
        self._lsn = 0
        self._told_found = 0  # differences that the new code has told of, which nobody declares

    def run(self) -> Rehearsed:
        """Do it. Raises: see rehearse."""
        following = self._window.following
        if following is not None:
            if self._look.known_confirmed:
                raise InvalidArgument("an exported log does not grow", remedy="`deathless upgrade rehearse` runs it")
            self._look = asyncio.run(inspect(self._look.config))  # another shard may have been followed meanwhile
        look = self._look
        if not look.view.head:
            raise InvalidArgument("the log is empty: there is nothing to rehearse with")
        fingerprint = bytes(look.reader.routes.cut(look.view.head).fingerprint)
        start = start_of(look, fingerprint, self._window.start)
        config, record = look.config, look.record
        new_config = msgspec.structs.replace(config, module=self._module, code="", upgrade=None)
        if following is None and not self._window.side_by_side:
            orders = _orders(new_config, record, fingerprint, former=False, place=start.place, digests=True)
            same = self._by_digests(orders, start, self._seeds(record))
            if same is not None:
                return same
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(_passed(named=bool(self._former)))
            first, second = self._seeds(record)
            former, code = self._begin_former(fingerprint, first, file, start.place)
            stack.callback(former.close)
            former.hear_import(code)
            _heard(former, Word.READY, code, long=_whole(code))
            news: list[Side] = []
            for environment in (first, second):
                news.append(Child(sys.executable, environment, file.fileno()))
                stack.callback(news[-1].close)
            for at, each in enumerate(news):
                each.say(Word.BEGIN, _orders(new_config, record, fingerprint, former=False, notes=at == 0))
            for each in news:
                each.hear_import(self._module)
            ready, _ = [
                read_msgpack(_heard(each, Word.READY, self._module, long=_whole(self._module)), Ready) for each in news
            ]
            begun = time.monotonic()
            result = Rehearsed(
                from_version=ready.from_version,
                to_version=ready.to_version,
                same_code=ready.same_code,
                fingerprint=ready.fingerprint,
                started_at=start.lsn,
                lsn=start.lsn,
                misfits=ready.misfits,
                notes=ready.notes,
            )
            if ready.runs:
                log = self._log(start)
                found = self._compare(former, code, news, log, file)
                if isinstance(log, LiveLog):
                    result.followed = log.followed()
                result.differences = merged((found.differences, self._findings.differences()))
                result.coverage = found.coverage
                result.misfits = _once(ready.misfits, found.misfits)
                result.messages, result.lsn = self._messages, self._lsn or start.lsn
                result.seconds = time.monotonic() - begun
            return result

    def _by_digests(self, orders: bytes, start: _Start, environments: Iterable[Mapping[str, str]]) -> Rehearsed | None:
        """Have the new code alone run the log, twice, and compare with its digests.

        Returns: None where anything differs, or can't be said like this: both codes say what it is.
        Raises: what its import raises.
        """
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(_passed(named=False))
            news: list[Side] = []
            for environment in environments:
                news.append(Child(sys.executable, environment, file.fileno()))
                stack.callback(news[-1].close)
            for each in news:
                each.say(Word.BEGIN, orders)
            for each in news:
                each.hear_import(self._module)
            with contextlib.suppress(ChildEnded, DeathlessError):
                return self._compare_digests(news, start)
        return None

    def _compare_digests(self, news: list[Side], start: _Start) -> Rehearsed | None:
        """Run the log by them, which are imported. Raises: ChildEnded, DeathlessError. Returns: see `_by_digests`."""
        ready, _ = [read_msgpack(each.hear(Word.READY, long=_whole(self._module)), Ready) for each in news]
        begun = time.monotonic()
        if not (ready.runs and ready.compatible) or ready.misfits:
            return None
        result = Rehearsed(
            from_version=ready.from_version,
            to_version=ready.to_version,
            same_code=ready.same_code,
            fingerprint=ready.fingerprint,
            by_digests=True,
            started_at=start.lsn,
            lsn=start.lsn,
            notes=ready.notes,
        )
        log = _Part(self._look, start, self._window.messages)
        asked = deque[Frame]()
        while True:
            frame = log.ready()
            if frame is not None:
                body = frame_body(frame)
                for each in news:
                    each.say(Word.APPLY, body)
                asked.append(frame)
            if not asked:
                break
            if frame is None or len(asked) > AHEAD:
                done = asked.popleft()
                for each in news:
                    each.hear(Word.SAME, TURNS_S)
                result.messages += done.count
                result.lsn = int(done.last_lsn)
                log.compared(done)
                self._told(f"{result.messages:,} of {result.messages + log.behind():,} messages are compared")
        news[0].say(Word.FINISH)
        found = read_msgpack(news[0].hear(Word.FOUND, long=_whole(self._module)), Found)
        result.coverage, result.misfits = found.coverage, found.misfits
        result.seconds = time.monotonic() - begun
        return result

    def _begin_former(
        self, fingerprint: bytes, environment: Mapping[str, str], file: IO[bytes], place: bytes
    ) -> tuple[Side, str]:
        """Have a process of the former code begin; gives it, and what the code is called. Raises: as `rehearse`."""
        config, record = self._look.config, self._look.record
        if self._former:
            module = config.module
            former: Side = Served(self._former, record.hash_seed)
            orders = _orders(config, record, fingerprint, former=True, place=place, path=str(file.name))
        else:
            interpreter, folder, module = former_command(config.directory, fingerprint)
            config = msgspec.structs.replace(config, module=module, code=folder.name, upgrade=None)
            former = Child(interpreter, environment, file.fileno())
            orders = _orders(config, record, fingerprint, former=True, place=place)
        former.say(Word.BEGIN, orders)
        return former, f"{module} (the former code)"

    def _seeds(self, record: ServiceRecord) -> tuple[dict[str, str], dict[str, str]]:
        """Give the environments of the processes: as workers have it, and with another hash seed."""
        base = {**self._environment, "TZ": "UTC", "LC_ALL": "C.UTF-8"}
        other = 1 if record.hash_seed != 1 else 2
        return base | {"PYTHONHASHSEED": str(record.hash_seed)}, base | {"PYTHONHASHSEED": str(other)}

    def _compare(self, former: Side, code: str, news: list[Side], log: LiveLog | _Part, file: IO[bytes]) -> Found:
        """Run the log by all of them, `code` being the former one; gives what was found.

        That is all up to the end, or up to where the new code ended.
        """
        frame = self._next(former, log)
        while frame is not None:
            did = _heard(former, Word.DID, code, TURNS_S)
            ahead = self._ready(former, log)  # it runs while the new code runs this one
            for each in news:
                each.say(Word.STEPS, did)
            try:
                judged = [each.hear(Word.JUDGED, TURNS_S) for each in news]
            except ChildEnded:
                self._died(news, did, file)
                log.stop("the process of the new code ended")
                return Found([], [], [])
            prints = [each[COUNT_BYTES:] for each in judged]
            if prints[0] != prints[1]:
                self._not_deterministic(prints, did)
            self._told_found = int.from_bytes(judged[0][:COUNT_BYTES], "little")
            self._messages += frame.count
            self._lsn = int(frame.last_lsn)
            log.compared(frame)
            self._tell(log)
            frame = ahead or self._next(former, log)
        former.say(Word.GIVE)
        _heard(former, Word.GIVEN, code, long=_whole(code))
        news[0].say(Word.FINISH)
        return read_msgpack(_heard(news[0], Word.FOUND, self._module, long=_whole(self._module)), Found)

    def _next(self, former: Side, log: LiveLog | _Part) -> Frame | None:
        """Wait for the next frame, and have the former code run it; None: it is over."""
        while (frame := self._ready(former, log)) is None and not log.over:
            self._tell(log)
            log.pause()
        return frame

    def _ready(self, former: Side, log: LiveLog | _Part) -> Frame | None:
        frame = log.ready()
        if frame is not None:
            former.say(Word.APPLY, frame_body(frame))
        return frame

    def _tell(self, log: LiveLog | _Part) -> None:
        """Tell how far it is."""
        behind = log.behind()
        done = f"{self._messages:,} of {self._messages + behind:,} messages are compared"
        if not isinstance(log, LiveLog):
            self._told(done)
        else:
            found = self._told_found + len(self._findings.differences())
            stage = "following" if log.caught_up else "catching up"
            self._told(f"{stage}: {done}, {behind:,} behind; differences so far: {found}")

    def _log(self, start: _Start) -> LiveLog | _Part:
        """Give the part of the log that is run."""
        look, following = self._look, self._window.following
        if following is None:
            return _Part(look, start, self._window.messages)
        source = Source(fs=look.filesystem, head_of=lambda: head_of(look.config))
        return LiveLog(source, look.view.head, start.lsn, start.chain, following)

    def _died(self, news: list[Side], did: bytes, file: IO[bytes]) -> None:
        """Tell of a process of the new code that ended in these steps."""
        trace = decode_trace(did)
        lsn = int.from_bytes(os.pread(file.fileno(), NOTE_BYTES, 0), "little")
        step = next((each for each in trace if each[0].lsn == lsn), trace[0])
        handler, key = _named(*step)
        found = next((said for each in news if not (said := each.ended()).startswith("it has")), "it is gone")
        self._findings.add(Difference(ENDED, handler, step[0].lsn, key, "it goes on", found))

    def _not_deterministic(self, prints: list[bytes], did: bytes) -> None:
        """Tell of the steps in which two runs of the new code did something else."""
        for at, step in enumerate(decode_trace(did)):
            cut = slice(at * PRINT_BYTES, (at + 1) * PRINT_BYTES)
            if prints[0][cut] != prints[1][cut]:
                handler, key = _named(*step)
                self._findings.add(Difference(NOT_DETERMINISTIC, handler, step[0].lsn, key))


def _passed(*, named: bool) -> IO[bytes]:
    """Give the file through which what a code holds is passed; one with a name is for another container."""
    if not named:
        return tempfile.TemporaryFile()
    file = tempfile.NamedTemporaryFile(prefix="rehearsal-")  # noqa: SIM115 - who calls closes it
    Path(file.name).chmod(MODE)
    return cast("IO[bytes]", file)


def _orders(
    config: ReplicaConfig,
    record: ServiceRecord,
    fingerprint: bytes,
    *,
    former: bool,
    place: bytes = b"",
    notes: bool = False,
    path: str = "",
    digests: bool = False,
) -> bytes:
    orders = Orders(former, msgspec.json.encode(config), record.seed, fingerprint, place, notes, path, digests)
    return msgspec.msgpack.encode(orders)


def _whole(code: str) -> LongWait:
    """Wait for what may take as long as the state is large."""
    return LongWait(f"the work of {code} on the whole state", ends=False)


def _heard(child: Side, word: Word, code: str, within_s: float | None = None, long: LongWait | None = None) -> bytes:
    """Give an answer of a process that must not end, of the code of that name.

    Raises: CodeEndedProcess; InvalidArgument where its turns do not end; what it tells of.
    """
    try:
        return child.hear(word, within_s, long)
    except ChildEnded:
        if child.silent:
            raise InvalidArgument(f"the process that ran {code} was ended: {child.silent}") from None
        raise ended_process(code, child.status()) from None


def _named(step: Step, did: Did) -> tuple[str, str]:
    """Give handler and key of a step, for people."""
    handler, key = named_in(step, did)
    return handler, key.decode(errors="backslashreplace")[:100]


def _once(first: list[Misfit], last: list[Misfit]) -> list[Misfit]:
    """Give what did not fit where a run began, or where it ended; each thing once, as it was at the end."""
    known = {(each.word, each.subject) for each in last}
    return [*last, *(each for each in first if (each.word, each.subject) not in known)]
