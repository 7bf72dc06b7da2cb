"""`deathless check`, the part that runs: the same calls in processes that differ in one thing each, digests compared.

A handler whose result depends on anything but state, context and arguments gives another digest in one of them; which
process it was names the cause. One process also starts from the state that the first one had half way: memory beside
the state shows there, as it would after a takeover.

Guarantees: the first difference of each process is found, with handler and lsn. Does not: prove that there is none;
it saw the calls it was given.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from deathless.base.errors import InvalidService
from deathless.codec.messages import decode
from deathless.codec.wire import ReplyError, Status
from deathless.execution.failure import bounded
from deathless.shell.check_calls import Call
from deathless.shell.check_runner import RUNNER, Job, Outcome, Step

PROCESSES_MAX: Final = 2
RUN_MAX_S: Final = 300.0
PROGRESS: Final = "progress-of-deathless-check"
_SEED: Final = bytes(range(32))


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


def compare_processes(
    target: str, calls: Sequence[Call], *, folder: str = ".", factors: Iterable[Factor] = FACTORS
) -> list[Difference]:
    """Run calls in one process, then in one for each factor, and compare.

    Args:
        target: as for `load_service`.
        calls: in the order of the log.
        folder: where the service is loaded from.
        factors: in what the processes differ.

    Returns: the first difference of each process, but each handler once: the factors first named explain it.

    Raises: InvalidService when the service can't be loaded, or running the calls does not come to an end.
    """
    folder = os.path.realpath(folder)
    first = _run(Job(target, folder, _SEED, list(calls), cut=len(calls) // 2), Factor(name="first"))
    if first.death:
        return [_death(calls, first, "first")]
    with ThreadPoolExecutor(PROCESSES_MAX) as pool:
        jobs = [(factor, _job(target, folder, calls, first, factor)) for factor in factors]
        outcomes = [(factor, job, pool.submit(_run, job, factor)) for factor, job in jobs]
        found = [_compare(calls, job.begin, first, outcome.result(), factor.name) for factor, job, outcome in outcomes]
    by_handler: dict[str, Difference] = {}
    for one in found:
        if one is not None:
            by_handler.setdefault(one.handler, one)
    return list(by_handler.values())


def failing_handlers(target: str, calls: Sequence[Call], *, folder: str = ".") -> dict[str, str]:
    """Give the handlers all of whose calls fail, with the last failure: nothing was learned about them."""
    outcome = _run(Job(target, os.path.realpath(folder), _SEED, list(calls)), Factor(name="first"))
    good: set[str] = set()
    failed: dict[str, str] = {}
    for call, step in zip(calls, outcome.steps, strict=False):
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


def _run(job: Job, factor: Factor) -> Outcome:
    environment = {**os.environ, **_BASE, **factor.environment}
    environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(path) for path in sys.path if path)
    with tempfile.TemporaryDirectory(prefix="deathless-check-") as elsewhere:
        job.progress = os.path.join(elsewhere, PROGRESS)
        try:
            done = subprocess.run(
                [sys.executable, "-m", RUNNER],
                input=msgspec.msgpack.encode(job),
                env=environment,
                cwd=elsewhere if factor.elsewhere else job.folder,
                capture_output=True,
                timeout=RUN_MAX_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise InvalidService(
                f"running the calls took more than {RUN_MAX_S:.0f} s (process: {factor.name})"
            ) from None
        begun = Path(job.progress).read_bytes() if os.path.exists(job.progress) else b""
    if done.returncode and begun:
        how = f"status {done.returncode}" if done.returncode > 0 else f"signal {-done.returncode}"
        return Outcome([], death=how, death_at=int.from_bytes(begun, "little"))
    if done.returncode or not done.stdout:
        told = done.stderr.decode(errors="replace").strip()[-2000:]
        raise InvalidService(
            f"a process that ran the calls ended with status {done.returncode} ({factor.name}): {told}"
        )
    return msgspec.msgpack.decode(done.stdout, type=Outcome)


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
