"""Typed calls of another service; a type checker reads this file too, and would object to a wrong type."""

from datetime import timedelta
from typing import Protocol, assert_type

import msgspec
import pytest
from tests.unit.deathless.execution.messaging_bench import Hub, kinds, ok

from deathless.base.errors import InvalidService, InvalidUse
from deathless.codec.messages import Kind, decode, encode
from deathless.codec.peer_messages import Reference, Request, Target, decode_body, encode_body
from deathless.execution.author.peer import peer
from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context
from deathless.execution.turn.operations import Operation


class Item(msgspec.Struct):
    count: int = 0


stock_service = Service("stock", state=Item)


@stock_service.handler
def take(item: Item, ctx: Context, count: int, *, force: bool = False) -> int:
    return count


@stock_service.handler
async def order(item: Item, ctx: Context, count: int) -> str:
    return "ordered"


@stock_service.query
def left(item: Item, ctx: Context) -> int:
    return item.count


class Stock(Protocol):
    def take(self, count: int, *, force: bool = False) -> Operation[int]: ...

    async def order(self, count: int) -> str: ...

    def _hidden(self) -> int: ...


class Shop(msgspec.Struct):
    got: list[str] = []


shop = Service("shop", state=Shop)
by_handlers = peer(stock_service)
by_protocol = peer(Stock, "stock")


@shop.activity
def charge(card: str, cents: int) -> float:
    return 1.0


@shop.activity
async def refund(card: str) -> bool:
    return True


@shop.handler
async def buy(state: Shop, ctx: Context, how: str) -> int:
    match how:
        case "handlers":
            first = await by_handlers.within(timedelta(seconds=5)).call(ctx, "apples", take, 2, force=True)
            assert_type(first, int)
            second = await by_handlers.call(ctx, "apples", order, 3)
            assert_type(second, str)
            by_handlers.fork(ctx, "pears", take, count=1)
        case "protocol":
            first = await by_protocol.call(ctx, "apples", timedelta(seconds=5)).take(2, force=True)
            assert_type(first, int)
            second = await by_protocol.call(ctx, "apples").order(3)
            assert_type(second, str)
            by_protocol.fork(ctx, "pears").take(count=1)
        case _:
            return 0
    state.got.append(second)
    return first


@shop.handler
async def types(state: Shop, ctx: Context) -> None:
    """Nothing of this is run: it shows what a checker knows, and refuses."""
    assert_type(await ctx.call("stock", "a", "take", {"count": 1}, result=int), int)
    assert_type(await ctx.call("stock", "a", "take"), object)
    assert_type(await ctx.run(charge, "card", cents=5), float)
    assert_type(await ctx.run(refund, "card"), bool)
    call, timer = by_handlers.call(ctx, "a", take, 2), ctx.timer(after=timedelta(seconds=1))
    assert_type(await ctx.gather(call, timer), tuple[int, None])
    if await ctx.race(call, timer) is call:
        assert_type(call.result(), int)
    by_handlers.call(ctx, "a", take, "2")  # type: ignore[call-overload]  # pyrefly: ignore
    by_protocol.call(ctx, "a").take("2")  # type: ignore[arg-type]  # pyrefly: ignore
    by_protocol.call(ctx, "a").sell(2)  # type: ignore[attr-defined]  # pyrefly: ignore


@shop.handler
def wrong(state: Shop, ctx: Context, how: str) -> None:
    match how:
        case "query":
            by_handlers.fork(ctx, "a", left)
        case "stranger":
            by_handlers.fork(ctx, "a", buy, how="x")
        case "many":
            by_handlers.fork(ctx, "a", take, 1, True, 3)  # type: ignore[call-arg]  # pyrefly: ignore
        case "type":
            by_handlers.fork(ctx, "a", take, "x")  # type: ignore[arg-type]  # pyrefly: ignore
        case "name":
            by_protocol.fork(ctx, "a").sell(1)  # type: ignore[attr-defined]  # pyrefly: ignore
        case "bind":
            by_protocol.fork(ctx, "a").take(1, 2, 3)  # type: ignore[call-arg, arg-type]  # pyrefly: ignore


def answer(hub: Hub, result: object) -> None:
    asked = decode_body(Request, decode(hub.sent[-1][1]).idempotency_key)
    envelope = encode_body(Reference(asked.invocation, asked.operation))
    hub.receive(encode(Kind.RESPONSE, idempotency_key=envelope, args=ok(result)), peer=Target("stock", 0))


@pytest.mark.parametrize("how", ["handlers", "protocol"])
def test_arguments_go_by_name_and_replies_have_their_type(how: str) -> None:
    hub = Hub(shop)
    invocation = hub.begin("buy", how=how)
    asked = decode(hub.sent[-1][1])
    assert (asked.method, asked.key) == (b"take", b"apples")
    assert msgspec.msgpack.decode(asked.args) == {"count": 2, "force": True}
    assert decode_body(Request, asked.idempotency_key).deadline_us == 5_001_000
    answer(hub, 2)
    assert decode(hub.sent[-1][1]).method == b"order"
    answer(hub, "done")
    assert hub.result(invocation) == 2
    assert kinds([message for _, message in hub.sent]) == ["REQUEST", "REQUEST", "FORK"]
    sent = decode(hub.sent[-1][1])
    assert (sent.method, sent.key, msgspec.msgpack.decode(sent.args)) == (b"take", b"pears", {"count": 1})


@pytest.mark.parametrize("how", ["handlers", "protocol"])
def test_reply_of_another_type_fails_the_call(how: str) -> None:
    hub = Hub(shop)
    invocation = hub.begin("buy", how=how)
    answer(hub, "two")
    assert hub.failure(invocation) == "DL3018 CallFailed"


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("query", "InvalidUse"),
        ("stranger", "InvalidUse"),
        ("many", "InvalidUse"),
        ("type", "InvalidUse"),
        ("name", "AttributeError"),
        ("bind", "TypeError"),
    ],
)
def test_what_a_checker_refuses_fails_where_it_is_asked(how: str, kind: str) -> None:
    hub = Hub(shop)
    assert hub.fail("wrong", how=how).type == kind
    assert hub.sent == []


class NoResult(Protocol):
    def take(self, count: int): ...  # type: ignore[no-untyped-def]  # on purpose


class Plain(Protocol):
    def take(self, count: int) -> int: ...


class Unknown(Protocol):
    def take(self, count: int) -> "Operation[Nowhere]": ...  # type: ignore[name-defined]  # noqa: F821  on purpose


@pytest.mark.parametrize("protocol", [NoResult, Plain, Unknown])
def test_protocol_whose_methods_say_too_little_is_refused(protocol: type) -> None:
    with pytest.raises(InvalidService, match="take"):
        peer(protocol, "stock")


def test_use_that_does_not_fit_names_the_field() -> None:
    failed = Hub(shop).fail("wrong", how="type")
    assert failed.code == InvalidUse.code
    assert "$.count" in failed.text


def test_service_that_runs_under_another_name_is_called_by_that() -> None:
    named = peer(stock_service, "stock-2")
    called = [one._target for one in (named, named.within(timedelta(seconds=1)), peer(stock_service))]
    assert called == ["stock-2", "stock-2", "stock"]
