"""What waits goes by the counter that it was given for, and deadlines of calls that were answered do not pile up."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from tests.unit.deathless.execution.messaging_bench import Hub

from deathless.base.times import Due, Times
from deathless.codec.messages import Kind, decode, encode
from deathless.codec.peer_messages import Request, decode_body
from deathless.execution.author.service import Service
from deathless.execution.executor import HandlerExecutor
from deathless.execution.turn.context import Context


class State(msgspec.Struct):
    count: int = 0


service = Service("svc", state=State)


@service.handler
def add(state: State, ctx: Context) -> int:
    state.count += 1
    return state.count


@service.handler
async def asks(state: State, ctx: Context, times: int) -> int:
    for _ in range(times):
        await ctx.call("svc", "b", "add", result=int, deadline=timedelta(days=1))
    return times


@service.handler
async def naps(state: State, ctx: Context, after: float = 0.0, at: float = 0.0) -> str:
    if after:
        await ctx.timer(after=timedelta(seconds=after))
        await ctx.timer(after=timedelta(seconds=after))
    else:
        await ctx.timer(at=datetime.fromtimestamp(at, UTC))
    return "awake"


@service.handler
async def waits(state: State, ctx: Context, until: float = 0.0) -> int:
    deadline = datetime.fromtimestamp(until, UTC) if until else timedelta(seconds=10)
    return await ctx.call("other", "b", "add", result=int, deadline=deadline)


SECOND = 1_000_000
BEGIN = Times(time_us=5_000 * SECOND, elapsed_us=1_000 * SECOND, age_us=1, wall_us=1)


def begun(method: str, **arguments: object) -> HandlerExecutor:
    """An executor one handler of which waits, asked at the times BEGIN."""
    hub = Hub(service)
    executor = hub.executor
    executor.moved(BEGIN)
    message = encode(Kind.CALL, method=method.encode(), key=b"a", args=msgspec.msgpack.encode(arguments))
    executor.execute(3, 1, 1, BEGIN.time_us, [message])
    assert len(executor.invocations()) == 1
    return executor


def move(executor: HandlerExecutor, lsn: int, *, time_s: int, elapsed_s: int) -> None:
    """Let the counters go on by so much since BEGIN."""
    executor.advance(
        lsn,
        BEGIN._replace(time_us=BEGIN.time_us + time_s * SECOND, elapsed_us=BEGIN.elapsed_us + elapsed_s * SECOND),
    )


@pytest.mark.parametrize("restarted", [False, True])
def test_timer_by_a_duration_goes_by_what_passed_whatever_logical_time_says(restarted: bool) -> None:
    executor = begun("naps", after=10)
    move(executor, 2, time_s=100_000, elapsed_s=9)
    assert executor.due() == Due(elapsed_us=BEGIN.elapsed_us + 10 * SECOND)
    move(executor, 3, time_s=100_000, elapsed_s=10)
    assert executor.due() == Due(elapsed_us=BEGIN.elapsed_us + 20 * SECOND)
    if restarted:
        state, suspended = dict(executor.state()), executor.suspended()
        executor.restore(state, suspended)
        assert executor.due() == Due(elapsed_us=BEGIN.elapsed_us + 20 * SECOND), "by its journal"
    move(executor, 4, time_s=100_000, elapsed_s=20)
    assert executor.invocations() == []


def test_timer_by_a_moment_goes_by_logical_time() -> None:
    executor = begun("naps", at=5_010)
    move(executor, 2, time_s=9, elapsed_s=100_000)
    assert executor.due() == Due(time_us=BEGIN.time_us + 10 * SECOND)
    move(executor, 3, time_s=10, elapsed_s=100_000)
    assert executor.invocations() == []


@pytest.mark.parametrize(
    ("until", "due"),
    [(0.0, Due(elapsed_us=BEGIN.elapsed_us + 10 * SECOND)), (5_020.0, Due(time_us=BEGIN.time_us + 20 * SECOND))],
    ids=["duration", "moment"],
)
def test_deadline_goes_by_its_counter_and_others_are_told_logical_time(until: float, due: Due) -> None:
    executor = begun("waits", until=until)
    assert executor.due() == due
    outputs = executor.take_outputs()
    assert outputs is not None
    ((_, request),) = outputs.messages
    told = decode_body(Request, decode(request).idempotency_key).deadline_us
    assert told == BEGIN.time_us + (20 if until else 10) * SECOND
    move(executor, 2, time_s=20 if until else 0, elapsed_s=0 if until else 10)
    assert executor.invocations() == []


def test_deadline_of_a_message_to_oneself_is_told_as_elapsed_time() -> None:
    executor = begun("asks", times=1)
    outputs = executor.take_outputs()
    assert outputs is not None
    ((_, request),) = outputs.messages
    assert decode_body(Request, decode(request).idempotency_key).deadline_us == BEGIN.elapsed_us + 86_400 * SECOND


def test_deadlines_of_answered_calls_are_forgotten() -> None:
    hub = Hub(service)
    hub.begin("asks", "c", times=1)
    waiting = hub.own.pop()
    for _ in range(6):
        invocation = hub.begin("asks", times=500)
        hub.deliver()
        assert hub.result(invocation) == 500
    assert len(hub.executor._invocations.tables._by_elapsed.entries) < 2100
    assert hub.executor.due().first_us == 1_000 + 86_400_000_000
    hub.receive(waiting)
    hub.deliver()
    assert hub.executor.due().first_us == 0
