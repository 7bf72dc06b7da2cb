"""Services that the tests of `deathless.testing` run."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta

from deathless import CallFailed, Cancelled, Context, Map, OutcomeUnknown, Service, Struct, field

unsteady = itertools.count(1)


class Shelf(Struct):
    """State of one key."""

    count: int = 0
    ticks: list[str] = []  # noqa: RUF012  a Struct copies its defaults
    items: Map[str, int] = field(default_factory=Map)


shelf = Service("shelf", state=Shelf)


@shelf.handler
def put(shelf: Shelf, ctx: Context, count: int) -> int:
    """Add."""
    shelf.count += count
    return shelf.count


@shelf.handler
def label(shelf: Shelf, ctx: Context, name: str) -> None:
    """Keep an item of a map."""
    shelf.items[name] = shelf.count


@shelf.query
def count(shelf: Shelf) -> int:
    """Give how many there are."""
    return shelf.count


@shelf.schedule("* * * * *", key="clock")
@shelf.handler
def tick(shelf: Shelf, ctx: Context, tick: datetime) -> None:
    """Run each minute; when it ran is the last thing kept."""
    shelf.count += 1
    shelf.ticks = [ctx.now.isoformat()]


@shelf.handler
async def rest(shelf: Shelf, ctx: Context, hours: int) -> str:
    """Wait, unless it is cancelled."""
    try:
        await ctx.timer(after=timedelta(hours=hours))
    except Cancelled:
        return "cancelled"
    return ctx.now.isoformat()


@shelf.activity(attempts_max=3, first_delay=10.0, timeout=60.0)
def weigh(grams: int) -> int:
    """Not run by any test."""
    raise AssertionError(grams)


@shelf.activity(at_most_once=True, name="post_once")
def post(text: str) -> str:
    """Not run by any test either."""
    raise AssertionError(text)


@shelf.handler
async def weighed(shelf: Shelf, ctx: Context, grams: int) -> str:
    """Ask an activity that is tried again."""
    try:
        return f"weighs {await ctx.run(weigh, grams)}"
    except CallFailed as error:
        return error.message


@shelf.handler
async def posted(shelf: Shelf, ctx: Context, text: str) -> str:
    """Ask an activity that runs at most once."""
    try:
        return await ctx.run(post, text)
    except OutcomeUnknown:
        return "unknown"


@shelf.handler
async def told(shelf: Shelf, ctx: Context, text: str) -> str:
    """Send to two services that are not under test."""
    ctx.fork("ledger", ctx.key, "line", {"text": text})
    try:
        return await ctx.call("mail", ctx.key, "send", {"text": text}, result=str)
    except CallFailed as error:
        return f"{error.failure_code} {error.message}"


@shelf.handler
def fail(shelf: Shelf, ctx: Context) -> None:
    """Have a bug."""
    raise ZeroDivisionError("by nothing")


@shelf.handler
def wobble(shelf: Shelf, ctx: Context) -> int:
    """Give another number each time it runs: not deterministic."""
    shelf.count = next(unsteady)
    return shelf.count
