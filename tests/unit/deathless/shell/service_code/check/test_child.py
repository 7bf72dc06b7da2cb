"""One process of a check, run here without being one."""

import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from deathless.codec.messages import Kind, encode
from deathless.shell.service_code.check import child as check_runner
from deathless.shell.service_code.check.calls import Call
from deathless.shell.service_code.check.child import RUNNER, Job, Outcome, deeper, run

TEXT = """
import sys, time
print("imported")
from deathless import Context, Service, Struct
class State(Struct):
    n: int = 0
counter = Service("counter", state=State, single={single})
@counter.handler
def add(state: State, ctx: Context) -> int:
    state.n += 1
    print("added")
    return state.n
@counter.handler
def die(state: State, ctx: Context) -> None:
    raise MemoryError(3)
@counter.handler
def clock(state: State, ctx: Context) -> list[float]:
    return [time.time(), time.time_ns() / 1e9, time.monotonic(), time.perf_counter()]
"""


def job_of(tmp_path: Path, *methods: str, single: bool = False, name: str = "counter_of_runner") -> Job:
    (tmp_path / f"{name}.py").write_text(TEXT.format(single=single))
    calls = [
        Call(lsn, lsn * 10, encode(Kind.CALL, method=method.encode(), key=b"k", args=b"\x80"))
        for lsn, method in enumerate(methods, 1)
    ]
    return Job(f"{name}.py", str(tmp_path), bytes(32), calls)


def test_steps_tell_digest_reply_and_state(tmp_path: Path) -> None:
    outcome = run(job_of(tmp_path, "add", "add"))
    assert [step.reply for step in outcome.steps] == [b"\x00\x01", b"\x00\x02"]
    assert [msgspec.msgpack.decode(step.state) for step in outcome.steps] == [{"n": 1}, {"n": 2}]
    assert outcome.death == ""


def test_run_may_begin_at_a_cut_with_the_state_left_there(tmp_path: Path) -> None:
    job = job_of(tmp_path, "add", "add", "add")
    job.cut = 2
    whole = run(job)
    assert whole.state_at_cut == {b"k": whole.steps[1].state}
    job.begin, job.state = 2, whole.state_at_cut
    assert run(job).steps == whole.steps[2:]


def test_death_ends_the_run_and_is_told(tmp_path: Path) -> None:
    outcome = run(job_of(tmp_path, "add", "die", "add"))
    assert len(outcome.steps) == 1
    assert outcome.death == "MemoryError: 3"


def test_service_of_one_object_shows_its_state(tmp_path: Path) -> None:
    (step,) = run(job_of(tmp_path, "add", single=True, name="single_of_runner")).steps
    assert msgspec.msgpack.decode(step.state) == {"n": 1}


def test_depth_makes_no_difference(tmp_path: Path) -> None:
    job = job_of(tmp_path, "add")
    assert deeper(50, job) == run(job)


def test_clock_is_shifted_by_whole_seconds_and_nanoseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("time", "monotonic", "perf_counter", "process_time"):
        monkeypatch.setattr(time, name, lambda: 5.0)
        monkeypatch.setattr(time, f"{name}_ns", lambda: 5_000_000_001)
    check_runner._shift_clock(100.5)
    assert (time.time(), time.perf_counter()) == (105.5, 105.5)
    assert time.time_ns() == 105_500_000_001


def test_process_keeps_what_handlers_print_out_of_its_answer(tmp_path: Path) -> None:
    job = job_of(tmp_path, "add", "clock")
    job.depth, job.clock_shift_s, job.collect_always = 20, 1e6, True
    done = subprocess.run(
        [sys.executable, "-m", RUNNER],
        input=msgspec.msgpack.encode(job),
        capture_output=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    outcome = msgspec.msgpack.decode(done.stdout, type=Outcome)
    assert outcome.steps[0].reply == b"\x00\x01"
    assert done.stderr.split() == [b"imported", b"added"]


SCHEDULED = """
from datetime import datetime, timedelta
from deathless import Context, Service, Struct
class State(Struct):
    ticks: list[str] = []
clock = Service("clock", state=State)
@clock.schedule("0 * * * *", key="k", missed="all")
def hourly(state: State, ctx: Context, tick: datetime) -> None:
    state.ticks.append(str(tick))
@clock.handler
async def wait(state: State, ctx: Context) -> None:
    await ctx.timer(after=timedelta(hours=2))
@clock.handler
def look(state: State, ctx: Context) -> list[str]:
    return state.ticks
"""


def test_ticks_that_fall_between_calls_come_and_others_do_not(tmp_path: Path) -> None:
    (tmp_path / "clock_of_runner.py").write_text(SCHEDULED)
    methods = ("wait", "look", "wait", "look")
    calls = [
        Call(lsn, 3_600_000_000 * lsn, encode(Kind.CALL, method=method.encode(), key=b"k", args=b"\x80"))
        for lsn, method in enumerate(methods, 1)
    ]
    job = Job("clock_of_runner.py", str(tmp_path), bytes(32), calls, cut=2)
    whole = run(job)
    assert [len(msgspec.msgpack.decode(step.reply[1:]) or ()) for step in whole.steps] == [0, 0, 0, 2]
    assert whole.suspended_at_cut
    job.begin, job.state, job.suspended = 2, whole.state_at_cut, whole.suspended_at_cut
    assert run(job).steps == whole.steps[2:]


WAITING = """
import time
from datetime import timedelta
from deathless import Cancelled, Context, Service, Struct
class State(Struct):
    n: int = 0
shop = Service("shop", state=State)
@shop.activity
def charge(cents: int) -> float:
    return time.time()
@shop.handler
def add(state: State, ctx: Context, by: int = 1) -> int:
    state.n += by
    return state.n
@shop.handler
async def talk(state: State, ctx: Context) -> int:
    state.n += await ctx.call("shop", "other", "add", {"by": 5}, result=int)
    await ctx.timer(after=timedelta(days=9))
    return state.n
@shop.handler
async def pay(state: State, ctx: Context) -> str:
    try:
        await ctx.run(charge, 5)
    except Cancelled:
        state.n += 100
    return "cancelled"
@shop.handler
async def stubborn(state: State, ctx: Context) -> None:
    while True:
        try:
            await ctx.promise(int)
        except Cancelled:
            state.n += 1
@shop.handler
async def chatter(state: State, ctx: Context) -> None:
    while True:
        await ctx.timer(after=timedelta(seconds=1))
@shop.handler
async def leak(state: State, ctx: Context) -> float:
    await ctx.timer(after=timedelta(seconds=1))
    state.n = time.time_ns()
    await ctx.promise(int)
    return 0
"""


def waiting_job(tmp_path: Path, *methods: str) -> Job:
    job = job_of(tmp_path, *methods)
    (tmp_path / "shop_of_runner.py").write_text(WAITING)
    job.target = "shop_of_runner.py"
    return job


def test_handler_that_waits_goes_on_until_it_has_a_reply(tmp_path: Path) -> None:
    outcome = run(waiting_job(tmp_path, "talk", "pay", "add"))
    assert [step.reply for step in outcome.steps] == [b"\x00\x05", b"\x00\xa9cancelled", b"\x00\x6a"]


def test_handler_that_would_wait_for_ever_is_ended_and_its_key_is_free(tmp_path: Path) -> None:
    outcome = run(waiting_job(tmp_path, "stubborn", "chatter", "add"))
    assert [step.reply[0] for step in outcome.steps] == [1, 1, 0]


def test_later_turns_are_part_of_the_digest(tmp_path: Path) -> None:
    job = waiting_job(tmp_path, "leak")
    assert run(job).steps[0].digest != run(job).steps[0].digest
    job = waiting_job(tmp_path, "talk")
    assert run(job) == run(job)
