"""A service of the process tests whose keys send to each other: `crossing`, run with several shards."""

from __future__ import annotations

from deathless import Context, Service, Struct


class Ledger(Struct):
    """What a key sent and what came to it, in order."""

    sent: list[str] = []  # noqa: RUF012 - a Struct copies its defaults
    totals: list[int] = []  # noqa: RUF012
    came: list[str] = []  # noqa: RUF012


crossing = Service("crossing", state=Ledger)


@crossing.handler(shared=True)
def note(ledger: Ledger, ctx: Context, tag: str) -> int:
    """Remember a tag; also between the turns of a handler that waits, since keys call each other both ways."""
    ledger.came.append(tag)
    return len(ledger.came)


@crossing.handler
def fork(ledger: Ledger, ctx: Context, to: str, tag: str) -> int:
    """Send a tag and go on."""
    ledger.sent.append(tag)
    ctx.fork("crossing", to, "note", {"tag": tag})
    return len(ledger.sent)


@crossing.handler
async def call(ledger: Ledger, ctx: Context, to: str, tag: str) -> int:
    """Send a tag and wait for the count of tags there."""
    ledger.sent.append(tag)
    total = await ctx.call("crossing", to, "note", {"tag": tag}, result=int)
    ledger.totals.append(total)
    return total


@crossing.handler
async def wait(ledger: Ledger, ctx: Context) -> int:
    """Wait for somebody who never comes."""
    return await ctx.promise(int)


@crossing.query
def look(ledger: Ledger) -> Ledger:
    """Everything."""
    return ledger
