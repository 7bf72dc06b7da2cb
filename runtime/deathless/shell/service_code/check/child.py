"""One process of `deathless check`: runs calls and gives their digests. Started by check_dynamic, never by hand.

The job comes on standard input, the outcome goes to standard output, both as msgpack; what handlers print goes to
standard error. This process is told to differ from its siblings in one thing (stack depth, clock, garbage
collection; hash seed, zone, locale, folder and environment are set from outside), so it imports as little as it can.
"""

from __future__ import annotations

import gc
import os
import sys
import time
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from deathless.shell.service_code.check.calls import Call

if TYPE_CHECKING:
    from deathless.execution.executor import HandlerExecutor

RUNNER = "deathless.shell.service_code.check.child"


class Job(msgspec.Struct, array_like=True):
    """What to run, and in what way to differ."""

    target: str
    folder: str
    seed: bytes
    calls: list[Call]
    begin: int = 0  # calls before this index are not run; `state` and `suspended` are what they left
    state: dict[bytes, bytes] = {}
    suspended: list[bytes] = []
    cut: int = 0  # the state before this index is wanted
    depth: int = 0  # frames to put below the executor
    clock_shift_s: float = 0.0
    collect_always: bool = False
    progress: str = ""  # file that holds the index of the call being run, u64; empty: none


class Step(msgspec.Struct, array_like=True):
    """Outcome of one call."""

    digest: int
    reply: bytes
    state: bytes  # of the key addressed, cut short


class Outcome(msgspec.Struct, array_like=True):
    """Outcome of a job."""

    steps: list[Step]
    state_at_cut: dict[bytes, bytes] = {}
    suspended_at_cut: list[bytes] = []
    death: str = ""  # how a handler ended the process; empty: it did not
    death_at: int = 0  # index of the call in which it did
    given_up_at: int | None = None  # index of the call that took too long; None: all have run


STATE_SHOWN_MAX = 2000
ROUNDS_MAX = 100  # of messages, timers and cancellations behind one call
LSN_STEP = 1 << 20  # lsns of those, between the calls'
PROGRESS_BYTES = 8
ALL_DONE = b"\xff" * PROGRESS_BYTES  # in place of an index: no call is being run any more


def run(job: Job) -> Outcome:
    """Load the service and run the calls."""
    from deathless.base.limits import Limits  # noqa: PLC0415  after the clock was shifted
    from deathless.base.times import Times  # noqa: PLC0415  as above
    from deathless.codec.messages import decode  # noqa: PLC0415  as above
    from deathless.execution.executor import HandlerExecutor  # noqa: PLC0415  as above
    from deathless.execution.turn.running import PAGE_BYTES, Cells  # noqa: PLC0415  as above
    from deathless.execution.values.key_table import NoKeys  # noqa: PLC0415  as above
    from deathless.shell.service_code.loading import load_service  # noqa: PLC0415  as above

    service = load_service(job.target, job.folder)
    executor = HandlerExecutor(service, Limits(), job.seed, NoKeys(), Cells(bytearray(PAGE_BYTES)))
    executor.restore(job.state, job.suspended)
    outcome = Outcome([])
    progress = os.open(job.progress or os.devnull, os.O_WRONLY | os.O_CREAT, 0o600)
    for index in range(job.begin, len(job.calls)):
        if index == job.cut:
            outcome.state_at_cut, outcome.suspended_at_cut = dict(executor.state()), executor.suspended()
        call = job.calls[index]
        os.write(progress, index.to_bytes(PROGRESS_BYTES, "little"))
        os.lseek(progress, 0, os.SEEK_SET)
        try:
            executor.moved(Times.at(call.now_us))
            replies, digests = executor.execute(call.session, call.seq, call.lsn, call.now_us, [call.message])
            reply, caused = carry_on(executor, call.lsn, call.now_us, replies[0])
        except BaseException as error:  # noqa: BLE001  what ends a worker is what we look for
            outcome.death = f"{type(error).__name__}: {error}"[:STATE_SHOWN_MAX]
            outcome.death_at = index
            break
        key = b"" if service.single else decode(call.message).key
        state = executor.state().get(key, b"")[:STATE_SHOWN_MAX]
        outcome.steps.append(Step(zlib.crc32(caused, digests[0]), reply[:STATE_SHOWN_MAX], state))
    else:
        os.write(progress, ALL_DONE)
    os.close(progress)
    return outcome


def carry_on(executor: HandlerExecutor, lsn: int, now_us: int, reply: bytes) -> tuple[bytes, bytes]:
    """Let handlers that wait go on: their messages to their own service arrive, their timers fire.

    What waits for other services, or for activities, waits in vain; so it is cancelled, and ended where that is not
    enough.

    Returns: the reply in the end, and what stands for all that was written on the way.
    """
    from deathless.base.times import Times  # noqa: PLC0415  after the clock was shifted
    from deathless.codec.peer_messages import SELF, Order  # noqa: PLC0415  as above

    at = lsn * LSN_STEP
    cancelled: set[int] = set()
    for _ in range(ROUNDS_MAX):
        outputs = executor.take_outputs()
        reply = dict(outputs.results).get(lsn, reply) if outputs is not None else reply
        own = [message for target, message in outputs.messages if target == SELF] if outputs is not None else []
        at += len(own) + 1
        if own:
            executor.execute_peer(SELF, at, at - len(own), now_us, own)
        elif (
            due_us := executor.timers_due().first_us
        ):  # ticks of schedules go on for ever; those that fall before come too
            now_us = max(now_us, due_us)
            executor.advance(at, Times.at(now_us))
        elif waiting := executor.invocations():
            first = waiting[0].invocation
            executor.order(at, now_us, Order("kill" if first in cancelled else "cancel", first))
            cancelled.add(first)
        else:
            break
    for still in executor.invocations():
        executor.order(at, now_us, Order("kill", still.invocation))
    if (outputs := executor.take_outputs()) is not None:
        reply = dict(outputs.results).get(lsn, reply)
    return reply, executor.rolling_update()


def _shift_clock(shift_s: float) -> None:
    """Let the functions of `time` tell another time."""

    def shifted(name: str, scale: float) -> Callable[[], float]:
        real: Callable[[], float] = getattr(time, name)
        # Whole nanoseconds stay whole.
        shift = int(shift_s * scale) if scale > 1 else shift_s
        return lambda: real() + shift

    for name in ("time", "monotonic", "perf_counter", "process_time"):
        setattr(time, name, shifted(name, 1))
        setattr(time, f"{name}_ns", shifted(f"{name}_ns", 1e9))


def deeper(frames: int, job: Job) -> Outcome:
    """Run the job `frames` frames further down."""
    return deeper(frames - 1, job) if frames else run(job)


def main() -> None:
    """Read a job, run it, write the outcome."""
    job = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Job)
    out = os.dup(1)
    os.dup2(2, 1)
    if job.clock_shift_s:
        _shift_clock(job.clock_shift_s)
    if job.collect_always:
        gc.set_threshold(1, 1, 1)
    else:
        gc.disable()
    with open(out, "wb") as stream:
        stream.write(msgspec.msgpack.encode(deeper(job.depth, job)))


if __name__ == "__main__":
    main()
