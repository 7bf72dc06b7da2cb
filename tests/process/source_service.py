"""A service of the process tests that takes rows from outside: each key remembers the rows that came for it."""

from __future__ import annotations

from deathless import Context, Service, Struct


class Column(Struct):
    """What came, in order."""

    numbers: list[int] = []  # noqa: RUF012 - a Struct copies its defaults


class Row(Struct):
    """One row."""

    key: str
    number: int


taker = Service("taker", state=Column)


@taker.input("numbers")
def take(column: Column, ctx: Context, row: Row) -> None:
    """Remember a number; none is negative."""
    if row.number < 0:
        raise ValueError("negative")
    column.numbers.append(row.number)


@taker.query
def size(column: Column) -> int:
    """Give how many there are."""
    return len(column.numbers)


@taker.query
def look(column: Column) -> list[int]:
    """Give all."""
    return column.numbers
