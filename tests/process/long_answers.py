"""A service of the process tests whose answers are long: `archive`."""

from __future__ import annotations

from datetime import timedelta

from deathless import Context, Service, Struct


class Shelf(Struct):
    """How often something was taken from it."""

    taken: int = 0


archive = Service("archive", state=Shelf)


@archive.handler
def take(shelf: Shelf, ctx: Context, size: int) -> str:
    """Give so many letters."""
    shelf.taken += 1
    return "x" * size


@archive.handler
async def order(shelf: Shelf, ctx: Context, size: int) -> str:
    """Give them as the result of a handler that waits."""
    shelf.taken += 1
    await ctx.timer(after=timedelta(seconds=1))
    return "x" * size


@archive.query
def look(shelf: Shelf, size: int) -> str:
    """Give them as the answer of a query."""
    return "x" * size


@archive.query
def taken(shelf: Shelf) -> int:
    """How often."""
    return shelf.taken
