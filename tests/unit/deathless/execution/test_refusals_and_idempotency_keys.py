"""A refusal is no reply: the key it came with can be tried again; what was accepted is not refused later."""

from collections.abc import Mapping
from datetime import timedelta

import msgspec
from tests.unit.deathless.execution.messaging_bench import Hub, error

from deathless.base.limits import Limits
from deathless.codec.messages import Kind, encode
from deathless.codec.peer_messages import Order, Sender, encode_body
from deathless.codec.wire import accepted_reply
from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context


class State(msgspec.Struct):
    count: int = 0


service = Service("svc", state=State)


@service.handler
async def nap(state: State, ctx: Context) -> int:
    await ctx.timer(after=timedelta(seconds=1))
    state.count += 1
    return state.count


@service.handler
def later(state: State, ctx: Context) -> int:
    state.count += 1
    ctx.reply_later()
    return 0


@service.handler(keys=("one",))
def several(states: Mapping[str, State], ctx: Context, one: str) -> int:
    states[one].count += 1
    ctx.reply_later()
    return 0


def fork(method: str, key: str) -> bytes:
    envelope = encode_body(Sender())
    return encode(Kind.FORK, method=method.encode(), key=key.encode(), idempotency_key=envelope, args=b"\x80")


def test_refused_later_reply_is_not_what_an_idempotency_key_stands_for() -> None:
    hub = Hub(service, Limits(invocations_max=1, key_queue_max=1))
    hub.begin(
        "nap",
        "a",
    )
    assert error(hub.send("later", "b", b"key")).code == "DL1002"
    hub.settle()
    assert hub.send("later", "b", b"key") == accepted_reply(hub.lsn)
    assert hub.value_of("b") == {"count": 1}


def test_refused_later_reply_is_not_remembered_while_no_key_is_held() -> None:
    hub = Hub(service, Limits(invocations_max=1, key_queue_max=1))
    hub.begin("later", "a")
    assert error(hub.send("later", "b", b"key")).code == "DL1002"
    hub.record(Order("kill", 1))
    assert hub.send("later", "b", b"key") == accepted_reply(hub.lsn)


def test_what_was_accepted_is_not_refused_when_its_key_is_free() -> None:
    hub = Hub(service, Limits(invocations_max=2, key_queue_max=1))
    hub.begin("nap", "a")
    waiting = hub.begin("nap", "a")
    hub.receive(fork("nap", "b"), fork("nap", "c"), fork("nap", "d"))
    hub.settle()
    assert hub.result(waiting) == 2


def test_later_reply_that_was_accepted_is_not_refused_when_its_key_is_free() -> None:
    hub = Hub(service, Limits(invocations_max=2, key_queue_max=1))
    hub.begin("nap", "a")
    waiting = hub.begin("later", "a")
    hub.receive(fork("nap", "b"), fork("nap", "c"), fork("nap", "d"))
    hub.settle()
    assert waiting not in hub.results
    assert hub.executor.holds(waiting)


def test_refused_later_reply_of_several_keys_is_not_remembered() -> None:
    hub = Hub(service, Limits(invocations_max=1, key_queue_max=1))
    hub.begin("later", "a")
    assert error(hub.send("several", "x", b"key", one="b")).code == "DL1002"
    hub.record(Order("kill", 1))
    assert hub.send("several", "x", b"key", one="b") == accepted_reply(hub.lsn)
    assert hub.value_of("b") == {"count": 1}
