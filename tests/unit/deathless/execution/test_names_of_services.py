"""What a handler may send to: names of services alone, for a name leads to a folder and a list of peers."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.deathless.execution.messaging_bench import Hub, error

from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context


class State(msgspec.Struct):
    count: int = 0


service = Service("shop", state=State)


@service.handler
def tell(state: State, ctx: Context, whom: str) -> None:
    ctx.fork(whom, "key", "method")


@pytest.mark.parametrize("whom", ["", "../other", "a/b", "x" * 41, "Shop", "\ud7ff"])
def test_a_message_to_what_is_no_name_of_a_service_fails_its_turn(whom: str) -> None:
    hub = Hub(service)
    assert error(hub.send("tell", "a", whom=whom)).type == "InvalidUse"
    assert hub.sent == []


def test_one_to_a_name_goes_out() -> None:
    hub = Hub(service)
    hub.send("tell", "a", whom="x" * 40)
    assert len(hub.sent) == 1
