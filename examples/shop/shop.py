"""The shop: an order is a saga over stock and payments, which no kill -9 of any of the three leaves half done."""

from datetime import timedelta
from typing import Protocol

from deathless import CallFailed, Context, DeathlessError, Operation, Service, Struct, peer

LARGE = 50_000  # cents; from here on a person decides
PATIENCE = timedelta(hours=1)


class Stock(Protocol):
    """What we call of service `stock`, by article."""

    def hold(self, order: str, count: int) -> Operation[int]:
        """Set some aside."""
        ...

    def release(self, order: str) -> Operation[None]:
        """Put them back."""
        ...


class Payments(Protocol):
    """What we call of service `payments`, by customer."""

    def charge(self, order: str, cents: int) -> Operation[str]:
        """Have the bank pay; gives its receipt."""
        ...


stock = peer(Stock, "stock")
payments = peer(Payments, "payments")


class Order(Struct):
    """State of one order; its key is the order's number."""

    status: str = "none"
    receipt: str = ""
    decision: str = ""  # id of the promise that `decide` completes, while a person has to


shop = Service("shop", state=Order)


@shop.handler
async def place(order: Order, ctx: Context, article: str, count: int, customer: str, cents: int) -> str:
    """Hold the article, have a large order approved, charge the customer; otherwise put everything back."""
    order.status = "holding"
    try:
        await stock.call(ctx, article).hold(ctx.key, count)
    except CallFailed as error:
        order.status = f"refused: {error.message}"
        return order.status
    try:
        if cents >= LARGE and not await approved(order, ctx):
            order.status = "rejected"
        else:
            order.status = "charging"
            order.receipt = await payments.call(ctx, customer).charge(ctx.key, cents)
            order.status = "sent"
    except DeathlessError as error:  # also when an operator cancels the order
        order.status = f"failed: {error.message}"
    if order.status != "sent":
        await stock.call(ctx, article).release(ctx.key)
    return order.status


async def approved(order: Order, ctx: Context) -> bool:
    """Wait until a person decides; after an hour the answer is no."""
    decision = ctx.promise(bool)
    order.decision, order.status = decision.id, "waiting for a decision"
    first = await ctx.race(decision, ctx.timer(after=PATIENCE), cancel_losers=True)
    order.decision = ""
    return first is decision and decision.result()


@shop.handler(shared=True)
def decide(order: Order, ctx: Context, yes: bool) -> str:
    """Approve or reject a large order, while `place` waits for it."""
    if not order.decision:
        return f"order {ctx.key} waits for no decision"
    ctx.complete(order.decision, yes)
    return "decided"


@shop.query
def status(order: Order) -> str:
    """Give how far an order is."""
    return order.status


@shop.query
def receipt(order: Order) -> str:
    """Give what payments answered when the order was paid; empty: it was not."""
    return order.receipt
