"""What a message or a record caused is in the digests: states, replies and outputs (I6)."""

from datetime import timedelta

import msgspec
from tests.unit.deathless.execution.messaging_bench import Hub, Target

from deathless.codec.messages import Kind, encode
from deathless.codec.peer_messages import Order, Sender, encode_body
from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context


class State(msgspec.Struct):
    count: int = 0


service = Service("svc", state=State)


@service.activity
def work(number: int) -> int:
    return number


@service.handler
async def echo(state: State, ctx: Context, number: int) -> int:
    return number


@service.handler
def send(state: State, ctx: Context, number: int) -> None:
    ctx.fork("other", "a", "take", {"number": number})


@service.handler
async def begins(state: State, ctx: Context, number: int) -> None:
    await ctx.run(work, number)


@service.handler
async def sends_later(state: State, ctx: Context, number: int) -> None:
    await ctx.timer(after=timedelta(seconds=1))
    ctx.fork("other", "a", "take", {"number": number})


@service.handler
async def tells_later(state: State, ctx: Context, number: int) -> int:
    await ctx.timer(after=timedelta(seconds=1))
    return number


@service.handler
async def stops(state: State, ctx: Context, number: int) -> None:
    running = [ctx.run(work, 1), ctx.run(work, 1)]
    await ctx.timer(after=timedelta(seconds=1))
    running[number].cancel()
    await ctx.promise(int)


def fork(method: str, number: int) -> bytes:
    arguments = msgspec.msgpack.encode({"number": number})
    envelope = encode_body(Sender())
    return encode(Kind.FORK, method=method.encode(), key=b"a", idempotency_key=envelope, args=arguments)


def digest_of(method: str, number: int) -> int:
    return Hub(service).executor.execute_peer(Target("other", 0), 1, 1, 7, [fork(method, number)])[0]


def rolling_of(method: str, number: int) -> bytes:
    """Give what stands for the turn behind the first one."""
    hub = Hub(service)
    hub.begin(method, number=number)
    hub.executor.rolling_update()
    hub.tick()
    return hub.executor.rolling_update()


def test_reply_that_nobody_gets_is_in_the_digest() -> None:
    assert digest_of("echo", 1) != digest_of("echo", 2)


def test_what_is_sent_is_in_the_digest() -> None:
    assert digest_of("send", 1) != digest_of("send", 2)
    assert rolling_of("sends_later", 1) != rolling_of("sends_later", 2)


def test_what_is_begun_and_stopped_is_in_the_digest() -> None:
    assert digest_of("begins", 1) != digest_of("begins", 2)
    assert rolling_of("stops", 0) != rolling_of("stops", 1)


def test_result_that_comes_later_is_in_the_digest_of_what_brought_it() -> None:
    assert rolling_of("tells_later", 1) != rolling_of("tells_later", 2)


def test_order_of_an_operator_is_in_the_rolling_digest_by_what_it_did() -> None:
    hub = Hub(service)
    hub.begin("tells_later", number=1)
    hub.executor.rolling_update()
    nothing = hub.executor.rolling_update()
    hub.record(Order("kill", 1))
    assert hub.executor.rolling_update() != nothing


def test_key_that_is_held_within_a_batch_is_held_for_the_rest_of_it() -> None:
    hub = Hub(service)
    first, second = hub.run([hub.message("tells_later", "a", number=5), hub.message("send", "a", number=1)])
    assert (first[0], second[0]) == (2, 2)
    assert hub.sent == []
    hub.tick()
    assert len(hub.sent) == 1
