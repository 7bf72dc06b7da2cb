"""Deadlines of calls that were answered long before do not pile up."""

from datetime import timedelta

import msgspec
from tests.unit.deathless.execution.messaging_bench import Hub

from deathless.execution.context import Context
from deathless.execution.service import Service


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


def test_deadlines_of_answered_calls_are_forgotten() -> None:
    hub = Hub(service)
    hub.begin("asks", "c", times=1)
    waiting = hub.own.pop()
    for _ in range(6):
        invocation = hub.begin("asks", times=500)
        hub.deliver()
        assert hub.result(invocation) == 500
    assert len(hub.executor._invocations.tables._due) < 2100
    assert hub.executor.due_us() == 1_000 + 86_400_000_000
    hub.receive(waiting)
    hub.deliver()
    assert hub.executor.due_us() == 0
