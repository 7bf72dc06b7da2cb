"""Two services that talk: `asker` forks to `answerer` and calls it, and waits for timers and an activity."""

from __future__ import annotations

from datetime import timedelta

from deathless import Context, Service, Struct


class Count(Struct):
    """State of one key."""

    count: int = 0


answerer = Service("answerer", state=Count)


@answerer.handler
def take(count: Count, ctx: Context, note: bytes) -> int:
    """Count one message; the note only fills the arguments up."""
    count.count += 1
    return count.count


@answerer.query
def taken(count: Count) -> int:
    """Say how many came."""
    return count.count


asker = Service("asker", state=Count)


@asker.handler
def burst(count: Count, ctx: Context, messages: int, size: int) -> None:
    """Fork so many messages to the key of this name."""
    note = bytes(size)
    count.count += messages
    for _ in range(messages):
        ctx.fork("answerer", ctx.key, "take", {"note": note})


@asker.handler
async def chat(count: Count, ctx: Context, calls: int, size: int) -> int:
    """Call so often, one call at a time; gives the last reply."""
    note = bytes(size)
    last = 0
    for _ in range(calls):
        last = await ctx.call("answerer", ctx.key, "take", {"note": note}, result=int)
    count.count += calls
    return last


@asker.handler
async def nap(count: Count, ctx: Context, timers: int, until_us: int, apart_us: int) -> list[int]:
    """Wait for so many timers, `apart_us` apart from each other; gives how late each turn was, microseconds."""
    due = [until_us + number * apart_us for number in range(timers)]
    pending = [ctx.timer(after=timedelta(microseconds=max(at - ctx.now_us, 0))) for at in due]
    late = []
    for at, timer in zip(due, pending, strict=True):
        await timer
        late.append(ctx.now_us - at)
    return late


@asker.activity
def nothing(number: int) -> int:
    """The shortest activity."""
    return number


@asker.handler
async def step(count: Count, ctx: Context, number: int) -> int:
    """One durable step outside, then the reply."""
    done = await ctx.run(nothing, number)
    count.count += 1
    return done


@asker.query
def asked(count: Count) -> int:
    """Say how far it is."""
    return count.count
