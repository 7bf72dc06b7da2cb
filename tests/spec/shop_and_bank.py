"""The two services of the spec tests: a shop that pays at a bank, in every way in which a service can send.

Whatever is done twice, in another order or computed again shows: every reply holds a random number and counts what
was there before, lists are in the order in which things came.
"""

from __future__ import annotations

from datetime import timedelta

from deathless import CallFailed, Context, OutcomeUnknown, Service, Struct


class Cart(Struct):
    """What was paid, and what the bank said of it."""

    paid: list[int] = []  # noqa: RUF012 - a Struct copies its defaults
    heard: list[int] = []  # noqa: RUF012 - as above
    steps: list[str] = []  # noqa: RUF012 - as above


class Till(Struct):
    """What was booked, in order, and how often somebody asked."""

    booked: list[int] = []  # noqa: RUF012 - as above
    asked: int = 0


shop = Service("shop", state=Cart)
bank = Service("bank", state=Till)


@shop.handler
def pay(cart: Cart, ctx: Context, n: int) -> list[int]:
    """Send the amount to the bank; the reply can't be computed again."""
    cart.paid.append(n)
    ctx.fork("bank", "till", "book", {"n": n, "at_us": ctx.now_us})
    return [n, len(cart.paid), ctx.random.randint(0, 1 << 30), ctx.now_us]


@shop.handler
def refuse(cart: Cart, ctx: Context) -> None:
    """Change, send, fail: nothing of it may be seen anywhere."""
    cart.paid.append(-1)
    ctx.fork("bank", "till", "book", {"n": -1, "at_us": 0})
    raise ValueError("no")


@shop.handler
def hear(cart: Cart, ctx: Context, n: int) -> None:
    """The bank booked an amount."""
    cart.heard.append(n)
    ctx.fork("shop", "echo", "note", {"n": n})


@shop.handler
def note(cart: Cart, ctx: Context, n: int) -> None:
    """Of a message to ourselves."""
    cart.heard.append(n)


@shop.query
def look(cart: Cart) -> Cart:
    """Everything."""
    return cart


@shop.activity(first_delay=0.0)
def print_receipt(total: int) -> int:
    """At least once; run by the town, see there."""
    return total


@shop.activity(at_most_once=True)
def ring() -> int:
    """At most once; as above."""
    return 0


@shop.handler
async def settle(cart: Cart, ctx: Context) -> list[int]:
    """Ask the bank, then touch the world outside in both ways."""
    total = await ctx.call("bank", "till", "total", result=int)
    printed = await ctx.run(print_receipt, total)
    try:
        cart.steps.append(f"rang {await ctx.run(ring)}")
    except OutcomeUnknown:
        cart.steps.append("nobody knows")
    return [total, printed, ctx.random.randint(0, 1 << 30)]


@shop.handler
async def subscribe(cart: Cart, ctx: Context, weeks: int) -> list[int]:
    """Draw on the bank each week; where it refuses, book everything back and end."""
    totals: list[int] = []
    for week in range(1, weeks + 1):
        await ctx.timer(after=timedelta(weeks=1))
        try:
            totals.append(await ctx.call("bank", "till", "draw", {"n": week}, result=int))
        except CallFailed:
            for drawn in range(len(totals), 0, -1):
                ctx.fork("bank", "till", "book", {"n": -drawn, "at_us": 0})
            break
        cart.steps.append(f"week {week}")
    return totals


@bank.handler
def book(till: Till, ctx: Context, n: int, at_us: int) -> None:
    """Book, and say so to the shop."""
    till.booked.append(n)
    ctx.fork("shop", "cart", "hear", {"n": n})


@bank.handler
def draw(till: Till, ctx: Context, n: int) -> int:
    """Book what fits, and give what there is; the fifth does not fit."""
    if n == 5:
        raise ValueError("no more")
    till.booked.append(n)
    return sum(till.booked)


@bank.handler
def total(till: Till, ctx: Context) -> int:
    """What was booked, and a trace of having been asked."""
    till.asked += 1
    return 1000 * till.asked + sum(till.booked)
