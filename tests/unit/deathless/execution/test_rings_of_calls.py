"""Calls that come back to a key which waits for them, also as one of several keys."""

from collections.abc import Mapping
from datetime import timedelta

import msgspec
import pytest
from tests.unit.deathless.execution.messaging_bench import Hub

from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context


class State(msgspec.Struct):
    count: int = 0


service = Service("svc", state=State)


@service.handler
async def nap(state: State, ctx: Context) -> None:
    await ctx.timer(after=timedelta(seconds=1))


@service.handler(keys=("one", "two"))
def both(states: Mapping[str, State], ctx: Context, one: str, two: str) -> None:
    for state in states.values():
        state.count += 1


@service.handler
async def asks_both(state: State, ctx: Context, one: str, two: str) -> None:
    await ctx.call("svc", one, "both", {"one": one, "two": two}, result=type(None))


@pytest.mark.parametrize(("one", "two"), [("a", "b"), ("b", "a")])
@pytest.mark.parametrize("busy", [True, False])
def test_call_of_several_keys_one_of_which_waits_for_it_fails_at_once(one: str, two: str, busy: bool) -> None:
    hub = Hub(service)
    if busy:
        hub.begin("nap", "b")
    invocation = hub.begin("asks_both", "a", one=one, two=two)
    hub.settle()
    assert hub.failure(invocation) == "DL3021 CallCycle"
    assert hub.waiting() == {}
