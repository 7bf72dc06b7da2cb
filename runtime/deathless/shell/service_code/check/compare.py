"""`deathless check`, the part that runs: the same calls in processes that differ in one thing each, digests compared.

A handler whose result depends on anything but state, context and arguments gives another digest in one of them; which
process it was names the cause. One process also starts from the state that the first one had half way: memory beside
the state shows there, as it would after a takeover.

Guarantees: the first difference of each process is found, with handler and lsn; what could not be decided in the time
there was is said. Does not: prove that there is none; it saw the calls it was given.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from deathless.base.errors import InvalidService
from deathless.codec.messages import decode
from deathless.codec.wire import ReplyError, Status
from deathless.execution.values.failure import bounded
from deathless.shell.process.reaping import end_all
from deathless.shell.service_code.check.calls import Call
from deathless.shell.service_code.check.child import ALL_DONE, RUNNER, Job, Outcome, Step

PROCESSES_MAX: Final = 2
CALL_MAX_S: Final = 1.0
ALL_MAX_S: Final = 120.0
LOOK_S: Final = 0.05  # between two looks at a process that runs
IDLE: Final = 5.0  # so many times as long a call may take that uses no processor
SLOWED: Final = 10.0  # so many times as long a call may take in a process that is slowed down, as by collecting garbage
PROGRESS: Final = "progress-of-deathless-check"
_SEED: Final = bytes(range(32))


Told = Callable[[str], object]
"""Is told how far it is, in a few words."""


def untold(_how_far: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """In what a process differs from the first one."""

    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    elsewhere: bool = False  # in another folder
    depth: int = 0
    clock_shift_s: float = 0.0
    collect_always: bool = False
    from_cut: bool = False


FACTORS: Final = (
    Factor(name="nothing but the moment and memory addresses"),
    Factor(name="hash seed", environment={"PYTHONHASHSEED": "4242"}),
    Factor(name="time zone", environment={"TZ": "XYZ-14"}),
    Factor(
        name="locale",
        environment={"LC_ALL": "POSIX", "LANG": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    ),
    Factor(name="stack depth", depth=300),
    Factor(name="working directory", elsewhere=True),
    Factor(
        name="environment",
        environment={"HOME": "/nonexistent", "USER": "nobody", "HOSTNAME": "elsewhere", "PWD": "/", "LINES": "7"}
        | {f"NOISE_{number}": "x" * number for number in range(40)},
    ),
    Factor(name="clock", clock_shift_s=3_456_789.5),
    Factor(name="garbage collection", collect_always=True),
    Factor(name="restart from a checkpoint", from_cut=True),
)
_BASE: Final = {
    "PYTHONHASHSEED": "1",
    "TZ": "UTC",
    "LC_ALL": "C.UTF-8",
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
}


class Difference(NamedTuple):
    """A call that gave something else in another process."""

    handler: str
    lsn: int
    factor: str  # in what the process differed
    before: str  # what the first process gave
    after: str  # what the other gave


class Comparison(NamedTuple):
    """What running the calls has shown."""

    # The first one of each process, but each handler once: the first process explains it.
    differences: list[Difference]
    failing: dict[str, str]  # handlers all of whose calls failed, with the last failure: nothing was learned about them
    undecided: list[str]  # a sentence for each thing that could not be decided in the time there was
    calls: int  # how many were run to their end in the first process


class Patience(NamedTuple):
    """How long running the calls may take, in seconds."""

    call_s: float = CALL_MAX_S  # one call in the first process; SLOWED times as long in the others
    all_s: float = ALL_MAX_S  # everything


def compare_processes(
    target: str,
    calls: Sequence[Call],
    *,
    folder: str = ".",
    factors: Iterable[Factor] = FACTORS,
    patience: Patience | None = None,
    told: Told = untold,
) -> Comparison:
    """Run calls in one process, then in one for each factor, and compare.

    A call that takes too long is left out, and so are those of its handler behind it: by running alone it can't be told
    whether a handler would ever come to an end.

    Args:
        target: as for `load_service`.
        calls: in the order of the log.
        folder: where the service is loaded from.
        factors: in what the processes differ.
        patience: how long it may take; None: as long as `Patience` says.
        told: is told how far it is.

    Raises: InvalidService when the service can't be loaded.
    """
    folder = os.path.realpath(folder)
    patience = patience or Patience()
    ends_at = time.monotonic() + patience.all_s
    factors = tuple(factors)
    quick, first, undecided = _run_first(target, folder, calls, patience, ends_at, told)
    if first.death:
        return Comparison([_death(quick, first, "first")], {}, undecided, len(first.steps))
    run = quick[: len(first.steps)]
    told(f"1 of {1 + len(factors)} processes has run the calls")
    by_handler: dict[str, Difference] = {}
    with ThreadPoolExecutor(PROCESSES_MAX) as pool:
        jobs = [(factor, _job(target, folder, run, first, factor)) for factor in factors]
        watch = Watch(SLOWED * patience.call_s, ends_at)
        outcomes = [(factor, job, pool.submit(_run, job, factor, watch)) for factor, job in jobs]
        for done, (factor, job, outcome) in enumerate(outcomes, 2):
            found = _compare(run, job.begin, first, outcome.result(), factor.name)
            if found is not None:
                by_handler.setdefault(found.handler, found)
            if (at := outcome.result().given_up_at) is not None:
                undecided.append(f"what differs by {factor.name}, from call {run[at].lsn} of {_handler(run[at])} on")
            told(f"{done} of {1 + len(factors)} processes have run the calls")
    return Comparison(list(by_handler.values()), _failing(run, first), undecided, len(run))


def _run_first(
    target: str, folder: str, calls: Sequence[Call], patience: Patience, ends_at: float, told: Told
) -> tuple[list[Call], Outcome, list[str]]:
    """Run the calls in the process that all others are compared with.

    Returns: the calls without those that took too long, what they gave, and what is left undecided by that.
    """
    left = list(calls)
    undecided: list[str] = []
    while True:
        job = Job(target, folder, _SEED, left, cut=len(left) // 2)
        outcome = _run(job, Factor(name="first"), Watch(patience.call_s, ends_at))
        at = outcome.given_up_at
        if at is None:
            break
        if time.monotonic() > ends_at:
            return left, Outcome([]), [f"anything: the calls take longer than {patience.all_s:g} s"]
        name = _handler(left[at])
        told(f"a call of {name} takes longer than {patience.call_s:g} s; the rest of its calls are left out")
        undecided.append(
            f"{name}: a call took longer than {patience.call_s:g} s, so the rest of its calls were left out"
        )
        left = [call for index, call in enumerate(left) if index < at or _handler(call) != name]
    return left, outcome, undecided


def _failing(calls: Sequence[Call], first: Outcome) -> dict[str, str]:
    good: set[str] = set()
    failed: dict[str, str] = {}
    for call, step in zip(calls, first.steps, strict=False):
        name = _handler(call)
        if step.reply[0] == Status.OK:
            good.add(name)
        else:
            failed[name] = _reply_text(step.reply)
    return {name: text for name, text in failed.items() if name not in good}


def _job(target: str, folder: str, calls: Sequence[Call], first: Outcome, factor: Factor) -> Job:
    cut = len(calls) // 2 if factor.from_cut else 0
    return Job(
        target,
        folder,
        _SEED,
        list(calls),
        begin=cut,
        state=first.state_at_cut if factor.from_cut else {},
        suspended=first.suspended_at_cut if factor.from_cut else [],
        depth=factor.depth,
        clock_shift_s=factor.clock_shift_s,
        collect_always=factor.collect_always,
    )


class Watch:
    """Looks at a process that runs calls until it has ended, and ends it when a call or everything takes too long.

    A process is watched from outside, since what loops in C hears no signal. A call takes the processor's seconds, so
    that a busy machine makes none slow; one that waits for something else may take IDLE times as long.

    Args:
        call_s: seconds that one call may take.
        ends_at: by the monotonic clock; all must have run by then.
    """

    def __init__(self, call_s: float, ends_at: float) -> None:
        self._call_s = call_s
        self._ends_at = ends_at

    def run(self, process: subprocess.Popen[bytes], progress: str) -> bool:
        """Wait for the process; gives whether it ended by itself."""
        index, since, worked = b"", time.monotonic(), 0.0
        while True:
            try:
                process.wait(LOOK_S)
            except subprocess.TimeoutExpired:
                now, working = time.monotonic(), _worked_s(process.pid)
                begun = _begun(progress)
                if begun != index:
                    index, since, worked = begun, now, working
                slow = working - worked > self._call_s or now - since > IDLE * self._call_s
                if now < self._ends_at and not (slow and begun not in (b"", ALL_DONE)):
                    continue
                end_all([process])
                return False
            else:
                return True


def _worked_s(pid: int) -> float:
    """Give the seconds of processor that a process has used; 0: it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _begun(progress: str) -> bytes:
    """Give the index of the call that was begun last, as it is written; empty: none was."""
    try:
        return Path(progress).read_bytes()
    except FileNotFoundError:
        return b""


def _run(job: Job, factor: Factor, watch: Watch) -> Outcome:
    environment = {**os.environ, **_BASE, **factor.environment}
    environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(path) for path in sys.path if path)
    with tempfile.TemporaryDirectory(prefix="deathless-check-") as elsewhere, ExitStack() as files:
        job.progress = os.path.join(elsewhere, PROGRESS)
        work = files.enter_context(tempfile.TemporaryFile())  # files and no pipes: nobody has to read them meanwhile
        work.write(msgspec.msgpack.encode(job))
        work.seek(0)
        gave, said = (files.enter_context(tempfile.TemporaryFile()) for _ in range(2))
        process = subprocess.Popen(
            [sys.executable, "-m", RUNNER],
            stdin=work,
            stdout=gave,
            stderr=said,
            env=environment,
            cwd=elsewhere if factor.elsewhere else job.folder,
        )
        ended = watch.run(process, job.progress)
        begun = _begun(job.progress)
        if not ended:
            return Outcome([], given_up_at=int.from_bytes(begun, "little") if begun else job.begin)
        gave.seek(0)
        said.seek(0)
        output, text = gave.read(), said.read()
    status = process.returncode
    if status and begun not in (b"", ALL_DONE):
        how = f"status {status}" if status > 0 else f"signal {-status}"
        return Outcome([], death=how, death_at=int.from_bytes(begun, "little"))
    if status or not output:
        told = text.decode(errors="replace").strip()[-2000:]
        raise InvalidService(f"a process that ran the calls ended with status {status} ({factor.name}): {told}")
    return msgspec.msgpack.decode(output, type=Outcome)


def _compare(calls: Sequence[Call], begin: int, first: Outcome, other: Outcome, factor: str) -> Difference | None:
    for index, (before, after) in enumerate(zip(first.steps[begin:], other.steps, strict=False), begin):
        if before.digest != after.digest:
            what = (_reply_text(before.reply), _reply_text(after.reply))
            if before.reply == after.reply:
                what = (f"state {_state_text(before)}", f"state {_state_text(after)}")
            return Difference(_handler(calls[index]), calls[index].lsn, factor, *what)
    if other.death:
        return _death(calls, other, factor)
    return None


def _death(calls: Sequence[Call], outcome: Outcome, factor: str) -> Difference:
    call = calls[outcome.death_at]
    return Difference(_handler(call), call.lsn, factor, "a reply", f"the end of the process: {outcome.death}")


def _handler(call: Call) -> str:
    return decode(call.message).method.decode(errors="replace")


def _state_text(step: Step) -> str:
    return _value_text(step.state) if step.state else "(none)"


def _value_text(encoded: bytes) -> str:
    try:
        return bounded(repr(msgspec.msgpack.decode(encoded)), 200)
    except msgspec.MsgspecError:
        return f"{len(encoded)} bytes"


def _reply_text(reply: bytes) -> str:
    if reply[0] == Status.OK:
        return _value_text(reply[1:])
    error = msgspec.msgpack.decode(reply[1:], type=ReplyError)
    return bounded(f"{error.code} {error.type}: {error.text}", 200)
