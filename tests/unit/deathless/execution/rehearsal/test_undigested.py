"""What turns ask for and no digest stands for is noted, and nothing else is; and digests are those of any executor."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.deathless.execution.executor_bench import SEED
from tests.unit.deathless.execution.rehearsal.rehearsed import LIMITS, Log

from deathless import Context, Service, Struct
from deathless.engine.shard.assembly import open_shard
from deathless.execution.executor import HandlerExecutor
from deathless.execution.rehearsal.undigested import Undigested, undigested_in


class Door(Struct):
    """A state."""

    opened: int = 0


def doors(**changes: Any) -> Service:
    """Give code whose handlers ask for what leaves no bytes behind; `changes` say what it asks for otherwise."""
    told: dict[str, Any] = {"wait": 3600, "value": "yes", "keeps": True, "times": 1, "asks": "a promise", **changes}
    service = Service("bank", state=Door)

    @service.handler
    async def rings(state: Door, ctx: Context) -> None:
        await ctx.timer(after=timedelta(seconds=told["wait"]))

    @service.handler
    async def asks(state: Door, ctx: Context) -> None:
        await (ctx.promise(str) if told["asks"] == "a promise" else ctx.timer(after=timedelta(days=300)))

    @service.handler
    async def both(state: Door, ctx: Context) -> None:
        await ctx.gather(ctx.promise(str), ctx.call("other", "x", "y", {}))

    @service.handler
    def gives(state: Door, ctx: Context, promise: str) -> None:
        ctx.complete(promise, told["value"])

    @service.handler
    async def leaves(state: Door, ctx: Context) -> None:
        call, timer = ctx.call("other", "x", "y", {}), ctx.timer(after=timedelta(days=300))
        if not told["keeps"]:
            timer.cancel()
        await call

    @service.handler
    async def goes_on(state: Door, ctx: Context) -> None:
        ctx.continue_with("holds", {"times": told["times"]})

    @service.handler
    async def holds(state: Door, ctx: Context, times: int) -> None:
        await ctx.call("other", "x", "y", {})

    @service.handler
    async def talks(state: Door, ctx: Context) -> None:
        state.opened += 1
        ctx.fork("log", "x", "note", {"opened": state.opened})
        await ctx.call("other", "x", "y", {})

    return service


def log_of(*handlers: str) -> Log:
    """Give a log in which these handlers were called; `gives` completes the promise of `both`."""
    log = Log(doors())
    for at, name in enumerate(handlers):
        if name == "gives":
            log.call("gives", "giver", promise=f"{log.shard.place.lsn}.1")
        else:
            log.call(name, f"key{at}")
    return log


@pytest.mark.parametrize(
    ("changes", "handlers"),
    [
        ({"wait": 60}, ["rings"]),
        ({"asks": "a timer"}, ["asks"]),
        ({"value": "no"}, ["both", "gives"]),
        ({"keeps": False}, ["leaves"]),
        ({"times": 2}, ["goes_on"]),
    ],
)
def test_code_that_asks_otherwise_gives_the_same_digests_and_is_not_believed(
    changes: dict[str, Any], handlers: list[str]
) -> None:
    log = log_of(*handlers)
    assert f"CallsDiffer:{handlers[-1]}" in log.found(doors(**changes)).words
    assert log.same_by_digests(doors(**changes), HandlerExecutor)
    assert not log.same_by_digests(doors(**changes))


def test_what_leaves_bytes_behind_is_believed() -> None:
    log = log_of("talks", "holds")
    log.call("holds", "key9", times=3)
    assert log.same_by_digests(doors(wait=60, value="no"))


def test_each_handler_is_named_with_what_it_asked_for_first() -> None:
    shard = open_shard(doors(), LIMITS, SEED, make=Undigested)
    log = log_of("rings", "asks", "both", "gives", "goes_on", "talks")
    log.replayed(shard)
    assert undigested_in(shard.executor) == {
        "rings": "a timer",
        "asks": "a promise",
        "both": "a promise",
        "gives": "a promise to be completed",
        "goes_on": "another handler to go on",
    }
    assert undigested_in(log.shard.executor) == {}
