"""Typed calls and rows, as an author writes them: good lines, and wrong ones, which a checker refuses.

Checked three times over by tests/test_typed_peers.py, which takes the comments of the wrong lines away first and wants
an error in each of them, and in no other. Nothing of this is run.
"""

from datetime import timedelta
from typing import Protocol, assert_type

from deathless import Context, Operation, Service, Struct, Topic, peer


class Item(Struct):
    """State of one article."""

    count: int = 0


class Receipt(Struct):
    """What an order gives."""

    number: str
    cents: int


stock_service = Service("stock", state=Item)


@stock_service.handler
def take(item: Item, ctx: Context, count: int, *, force: bool = False) -> int:
    """Take some."""
    return count


@stock_service.handler
async def order(item: Item, ctx: Context, count: int) -> Receipt:
    """Order more."""
    return Receipt(ctx.key, count)


class Stock(Protocol):
    """The same service, where only its shape is known."""

    def take(self, count: int, *, force: bool = False) -> Operation[int]:
        """Take some."""
        ...

    async def order(self, count: int) -> Receipt:
        """Order more."""
        ...


class Sold(Struct):
    """A row."""

    article: str
    cents: int


shop = Service("shop", state=Item)
sales = shop.topic("sales", Sold)
by_handlers = peer(stock_service)
by_protocol = peer(Stock, "stock")


@shop.activity
def charge(card: str, cents: int) -> float:
    """Ask a bank."""
    return cents / 100


@shop.handler
async def good(item: Item, ctx: Context) -> None:
    """Replies have the types that the other side says."""
    assert_type(await by_handlers.call(ctx, "apples", take, 2, force=True), int)
    assert_type(await by_handlers.call(ctx, "apples", order, count=3), Receipt)
    assert_type(await by_handlers.within(timedelta(seconds=5)).call(ctx, "apples", take, 2), int)
    by_handlers.fork(ctx, "pears", take, count=1)
    assert_type(await by_protocol.call(ctx, "apples").take(2, force=True), int)
    assert_type(await by_protocol.call(ctx, "apples", timedelta(seconds=5)).order(3), Receipt)
    by_protocol.fork(ctx, "pears").take(count=1)
    assert_type(await ctx.run(charge, "card", cents=5), float)
    assert_type(await ctx.call("stock", "apples", "take", {"count": 1}, result=int), int)
    call, timer = by_handlers.call(ctx, "apples", take, 2), ctx.timer(after=timedelta(seconds=1))
    assert_type(await ctx.gather(call, timer), tuple[int, None])
    assert_type((await by_handlers.call(ctx, "apples", order, 3)).cents, int)
    assert_type(sales, Topic[Sold])
    ctx.emit(sales, Sold("apples", 5))


@shop.handler
async def wrong(item: Item, ctx: Context) -> None:
    """One mistake in each statement."""
    by_handlers.call(ctx, "apples", take, "2")  # type: ignore[call-overload]  # pyrefly: ignore
    by_handlers.call(ctx, "apples", take)  # type: ignore[call-overload]  # pyrefly: ignore
    by_handlers.call(ctx, "apples", take, 2, True)  # type: ignore[call-overload]  # pyrefly: ignore
    by_handlers.call(ctx, "apples", take, 2, urgent=True)  # type: ignore[arg-type, call-arg]  # pyrefly: ignore
    by_handlers.fork(ctx, "apples", take, count="1")  # type: ignore[arg-type]  # pyrefly: ignore
    by_handlers.call(ctx, 7, take, 2)  # type: ignore[call-overload]  # pyrefly: ignore
    by_protocol.call(ctx, "apples").take("2")  # type: ignore[arg-type]  # pyrefly: ignore
    by_protocol.call(ctx, "apples").take()  # type: ignore[call-arg]  # pyrefly: ignore
    by_protocol.call(ctx, "apples").sell(2)  # type: ignore[attr-defined]  # pyrefly: ignore
    by_protocol.fork(ctx, "apples").take(1, 2, 3)  # type: ignore[arg-type, call-arg]  # pyrefly: ignore
    ctx.run(charge, "card", cents="5")  # type: ignore[arg-type]  # pyrefly: ignore
    item.count = await by_handlers.call(ctx, "apples", order, 3)  # type: ignore[call-overload]  # pyrefly: ignore
    item.count = await by_protocol.call(ctx, "apples").order(3)  # type: ignore[assignment]  # pyrefly: ignore
    item.count = (await by_handlers.call(ctx, "apples", order, 3)).total  # type: ignore[attr-defined]  # pyrefly: ignore
    ctx.emit(sales, Receipt("apples", 5))  # type: ignore[misc]  # pyrefly: ignore
    ctx.emit("sales", Sold("apples", 5))  # type: ignore[arg-type]  # pyrefly: ignore
    shop.topic("numbers", int)  # type: ignore[type-var]  # pyrefly: ignore
