"""What handlers await in unusual ways: they end with an error, or come back as they were; never wait for nothing."""

import sys
from collections.abc import AsyncIterator, Generator
from datetime import timedelta

import msgspec
import pytest
from tests.unit.deathless.execution.messaging_bench import Hub

from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context
from deathless.execution.turn.operations import Operation, Waitable

SECOND = timedelta(seconds=1)
lent: list[Operation[object]] = []


class State(msgspec.Struct):
    seen: list[str] = []


service = Service("svc", state=State)


class Raw:
    def __init__(self, what: Waitable[object]) -> None:
        self.what = what

    def __await__(self) -> Generator[Waitable[object], None, None]:
        yield self.what


@service.handler
async def awaits_what_is_done(state: State, ctx: Context) -> None:
    timer = ctx.timer(after=SECOND)
    await timer
    await Raw(timer)


@service.handler
async def lends(state: State, ctx: Context) -> None:
    lent.append(ctx.timer(after=SECOND))
    await ctx.promise(int)


@service.handler
async def gathers_borrowed(state: State, ctx: Context, how: str) -> None:
    own = ctx.promise(int)
    if how == "gather":
        await ctx.gather(own, lent[0])
    else:
        await ctx.race(own, lent[0])


@service.handler
async def gathers_coroutines(state: State, ctx: Context) -> None:
    async def one() -> int:
        return 1

    made = one()
    try:
        await ctx.gather(made)  # type: ignore[call-overload]  # what a checker would find
    finally:
        made.close()


async def steps(state: State, ctx: Context) -> AsyncIterator[int]:
    try:
        for number in range(3):
            await ctx.timer(after=SECOND)
            yield number
    finally:
        state.seen.append("closed")


@service.handler
async def breaks_off(state: State, ctx: Context) -> int:
    async for number in steps(state, ctx):
        if number == 1:
            break
    state.seen.append("behind")
    await ctx.promise(int)
    return 0


@service.handler
async def comprehends(state: State, ctx: Context) -> list[int]:
    operations = [ctx.call("svc", key, "length", result=int) for key in "bcd"]
    given = [await operation for operation in operations]
    return given + [number async for number in steps(state, ctx)]


@service.handler
def length(state: State, ctx: Context) -> int:
    return len(state.seen)


@pytest.fixture
def hub() -> Hub:
    lent.clear()
    return Hub(service)


def test_yielding_what_is_done_is_no_await(hub: Hub) -> None:
    invocation = hub.begin("awaits_what_is_done")
    hub.tick()
    assert hub.failure(invocation) == "DL3023 InvalidAwait"


@pytest.mark.parametrize("how", ["gather", "race"])
def test_operations_of_others_are_not_waited_for_among_own_ones(hub: Hub, how: str) -> None:
    hub.begin("lends", "a")
    assert hub.fail("gathers_borrowed", "b", how=how).type == "InvalidAwait"


def test_gathering_what_is_no_operation_says_so(hub: Hub) -> None:
    assert hub.fail("gathers_coroutines").type == "InvalidAwait"


def test_generator_that_is_left_ends_in_its_turn_whatever_hooks_are_set() -> None:
    def run(hooked: bool) -> list[object]:
        hub = Hub(service)
        kept: list[object] = []
        before = sys.get_asyncgen_hooks()
        if hooked:
            sys.set_asyncgen_hooks(firstiter=kept.append, finalizer=kept.append)
        try:
            hub.begin("breaks_off")
            hub.settle()
        finally:
            sys.set_asyncgen_hooks(*before)
        return [hub.value_of(), len(kept)]

    assert run(True) == run(False) == [{"seen": ["closed", "behind"]}, 0]


def test_generators_and_comprehensions_come_back(hub: Hub) -> None:
    invocation = hub.begin("comprehends")
    while hub.own or hub.executor.due().first_us:
        hub.restart()
        if not hub.deliver():
            hub.tick()
    assert hub.result(invocation) == [0, 0, 0, 0, 1, 2]
