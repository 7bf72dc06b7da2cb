"""The state of a handler that waits: its type, its birth, and that it comes back."""

from dataclasses import dataclass, field
from datetime import timedelta

import msgspec
from tests.unit.deathless.execution.messaging_bench import Hub

from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context

SECOND = timedelta(seconds=1)


class State(msgspec.Struct):
    seen: list[str] = []


@dataclass
class Point:
    x: int = 0
    log: list[str] = field(default_factory=list)


def test_state_may_be_a_dataclass() -> None:
    points = Service("points", state=Point)

    @points.handler(shared=True)
    async def move(point: Point, ctx: Context) -> int:
        point.x += 1
        await ctx.timer(after=SECOND)
        point.x += 10
        return point.x

    @points.handler
    def reset(point: Point, ctx: Context, x: int) -> None:
        point.x = x

    hub = Hub(points)
    invocation = hub.begin("move")
    hub.call("reset", x=50)
    hub.restart()
    hub.tick()
    assert hub.result(invocation) == 60


def test_birth_is_part_of_the_first_turn() -> None:
    born = Service("born", state=State)

    @born.birth
    def birth(state: State, ctx: Context) -> None:
        state.seen.append(ctx.uuid())
        if ctx.key == "bad":
            raise ValueError("unborn")

    @born.handler
    async def wait(state: State, ctx: Context) -> list[str]:
        state.seen.append(ctx.uuid())
        await ctx.timer(after=SECOND)
        return state.seen

    hub = Hub(born)
    assert hub.fail("wait", "bad").text == "unborn"
    invocation = hub.begin("wait")
    before = hub.value_of()
    hub.restart()
    hub.tick()
    assert isinstance(before, dict)
    assert hub.result(invocation) == before["seen"]
