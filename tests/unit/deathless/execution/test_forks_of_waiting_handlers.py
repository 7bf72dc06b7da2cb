"""A fork waits for nobody: who sent it waits for nothing, and its chain ends where it arrives."""

from datetime import timedelta

import msgspec
from tests.unit.deathless.execution.messaging_bench import Hub

from deathless.codec.messages import decode
from deathless.codec.peer_messages import Sender, decode_body
from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context

SECOND = timedelta(seconds=1)


class State(msgspec.Struct):
    count: int = 0


service = Service("svc", state=State)


@service.handler
def add(state: State, ctx: Context) -> int:
    state.count += 1
    return state.count


@service.handler
async def forks_to_itself(state: State, ctx: Context) -> None:
    ctx.fork("svc", ctx.key, "add")
    await ctx.timer(after=SECOND)


@service.handler
async def asks(state: State, ctx: Context, key: str) -> int:
    return await ctx.call("svc", key, "add", result=int)


@service.handler
async def has_it_asked(state: State, ctx: Context) -> None:
    ctx.fork("svc", "b", "asks", {"key": ctx.key})
    await ctx.timer(after=SECOND)


@service.handler
async def ticks(state: State, ctx: Context, left: int) -> None:
    await ctx.timer(after=SECOND)
    state.count += 1
    if left:
        ctx.fork("svc", ctx.key, "ticks", {"left": left - 1})


def test_fork_to_a_key_that_its_sender_holds_runs_when_that_is_free() -> None:
    hub = Hub(service)
    hub.begin("forks_to_itself")
    hub.settle()
    assert hub.value_of() == {"count": 1}


def test_call_of_a_forked_handler_into_the_key_of_who_forked_it_is_no_cycle() -> None:
    hub = Hub(service)
    hub.begin("has_it_asked")
    hub.settle()
    assert hub.value_of() == {"count": 1}
    assert hub.waiting() == {}


def test_chain_of_forks_that_fork_does_not_grow() -> None:
    hub = Hub(service)
    hub.begin("ticks", left=5)
    lengths: list[int] = []
    while hub.executor.due().first_us:
        hub.tick()
        lengths += [len(decode_body(Sender, decode(message).idempotency_key).chain) for message in hub.own]
        hub.deliver()
    assert hub.value_of() == {"count": 6}
    assert lengths == [1] * 5
