"""A service that takes rows in, and one that publishes rows."""

from __future__ import annotations

from deathless import Context, Service, Struct


class Total(Struct):
    """State of one key."""

    count: int = 0
    sum: int = 0


class Reading(Struct):
    """A row that comes in."""

    sensor: str
    value: int
    note: str = ""


class Numbered(Struct):
    """A row that is published."""

    number: int
    text: str
    part: float


intake = Service("intake", state=Total)


@intake.input("rows")
def take(total: Total, ctx: Context, row: Reading) -> None:
    """Add a row up."""
    total.count += 1
    total.sum += row.value


@intake.handler
def add(total: Total, ctx: Context, value: int, note: str) -> int:
    """Do the same for a client's call."""
    total.count += 1
    total.sum += value
    return total.count


@intake.query
def look(total: Total) -> tuple[int, int]:
    """Give how many rows there were, and their sum."""
    return total.count, total.sum


publisher = Service("publisher", state=Total)
rows = publisher.topic("rows", Numbered)


@publisher.handler
def publish(total: Total, ctx: Context, count: int) -> int:
    """Publish rows that go on with those of before; gives the number of the last one."""
    for _ in range(count):
        total.count += 1
        ctx.emit(rows, Numbered(total.count, f"LH{total.count % 9999}", total.count / 2))
    return total.count
