"""A promised reply whose value ends the process is no reply (I5)."""

import msgspec
import pytest
from tests.unit.deathless.execution.messaging_bench import Hub

from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context


class State(msgspec.Struct):
    count: int = 0


class Greedy(msgspec.Struct):
    number: int = 0

    def __post_init__(self) -> None:
        if self.number:
            raise MemoryError


service = Service("svc", state=State)


@service.handler
def later(state: State, ctx: Context) -> Greedy:
    ctx.reply_later()
    return Greedy()


@service.handler
def settle(state: State, ctx: Context, promise: str, number: int) -> None:
    ctx.complete(promise, {"number": number})


def test_value_of_a_promised_reply_that_ends_the_process_is_no_reply() -> None:
    hub = Hub(service)
    invocation = hub.begin("later")
    with pytest.raises(MemoryError):
        hub.send("settle", "b", promise=f"{invocation}.0", number=1)
    assert hub.results == {}
