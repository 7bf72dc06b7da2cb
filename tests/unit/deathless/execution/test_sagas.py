"""Handlers that go on where another one ended: `ctx.continue_with`."""

from datetime import timedelta

import msgspec
import pytest
from tests.unit.deathless.execution.messaging_bench import Hub, kinds

from deathless.base.limits import Limits
from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context


class State(msgspec.Struct):
    count: int = 0


service = Service("svc", state=State)


@service.handler
def add(state: State, ctx: Context) -> int:
    state.count += 1
    return state.count


@service.handler
async def nap(state: State, ctx: Context) -> int:
    state.count += 1
    await ctx.timer(after=timedelta(seconds=1))
    state.count += 10
    return state.count


@service.handler
async def at_once(state: State, ctx: Context) -> int:
    state.count += 1
    return state.count


@service.handler(shared=True)
async def watches(state: State, ctx: Context) -> None: ...


@service.handler
async def saga(state: State, ctx: Context, rounds: int) -> int:
    await ctx.timer(after=timedelta(seconds=1))
    state.count += 1
    if rounds:
        ctx.call("other", "x", "forgotten")
        ctx.continue_with("saga", {"rounds": rounds - 1})
        return 0
    return state.count


@service.handler
async def turns_to(state: State, ctx: Context, method: str) -> int:
    state.count += 1
    ctx.continue_with(method)
    return 0


@pytest.fixture
def hub() -> Hub:
    return Hub(service)


def test_saga_goes_on_under_one_id(hub: Hub) -> None:
    invocation = hub.begin("saga", rounds=2)
    waiting = hub.begin("add")
    for _ in range(2):
        hub.tick()
        assert len(hub.executor.suspended()) == 2
        hub.restart()
    assert waiting not in hub.results
    hub.tick()
    assert hub.result(invocation) == 3
    assert hub.result(waiting) == 4
    assert kinds([message for _, message in hub.sent]) == ["REQUEST", "CANCEL"] * 2


def test_maximum_of_operations_is_for_each_part_of_a_saga() -> None:
    hub = Hub(service, Limits(operations_max=3))
    invocation = hub.begin("saga", rounds=5)
    hub.tick()
    hub.settle()
    assert hub.result(invocation) == 6


def test_saga_may_go_on_in_its_first_turn(hub: Hub) -> None:
    assert hub.call("turns_to", method="at_once") == 2
    invocation = hub.begin("turns_to", method="nap")
    hub.tick()
    assert hub.result(invocation) == 14


@pytest.mark.parametrize("method", ["add", "watches", "nothing"])
def test_saga_goes_on_with_a_handler_of_its_kind_alone(hub: Hub, method: str) -> None:
    assert hub.fail("turns_to", method=method).code == "DL3004"
    assert hub.value_of() == {"count": 1}
    assert hub.waiting() == {}
