"""Judges a run: what customers were told against the book of the program and the book of the Python service.

Each order is to stand in both books, once, with its customer and its cents; the program was told of it by itself, by
the till's answer and by the till's receipt, once each; and each amount that was given back was asked for once and
stands in the till's book once. Nothing else stands in either.

Guarantees: each difference is one line. Does not: wait (the caller lets the services come to rest first).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple, TypeVar

H = TypeVar("H", bound=Hashable)


class Placed(NamedTuple):
    """An order that a customer placed, and whose end was told."""

    number: int
    customer: str
    cents: int
    given_back: bool


class Entry(NamedTuple):
    """A line of the program's book; the counts say how often each thing came."""

    number: int
    customer: str
    cents: int
    placed: int
    counted: int  # by a call of the program to itself
    paid: int  # answers of the till
    failed: int  # answers that are errors
    receipts: int  # calls of the till
    refunds: int  # questions of the till


def read_entries(text: str) -> list[Entry]:
    """Read lines of the program's book."""
    found = []
    for line in text.splitlines():
        number, customer, *counts = line.split()
        found.append(Entry(int(number), customer, *map(int, counts)))
    return found


def judge(
    wanted: Iterable[Placed], program: Iterable[Entry], till: Mapping[str, Iterable[tuple[int, int]]]
) -> list[str]:
    """Give every difference; none: exactly once.

    Args:
        wanted: by what customers were told.
        program: its book.
        till: its book, by customer: order and cents, below 0 where they were given back.
    """
    orders = list(wanted)
    wrong = _differences(
        "book of the program",
        Counter(program),
        Counter(Entry(each.number, each.customer, each.cents, 1, 1, 1, 0, 1, int(each.given_back)) for each in orders),
    )
    paid = [(each.customer, each.number, each.cents) for each in orders]
    paid += [(each.customer, each.number, -each.cents) for each in orders if each.given_back]
    there = Counter((customer, order, cents) for customer, book in till.items() for order, cents in book)
    return wrong + _differences("book of the till", there, Counter(paid))


def _differences(where: str, found: Counter[H], wanted: Counter[H]) -> list[str]:
    lost = [f"{where}: {each} is missing" for each in (wanted - found).elements()]
    return lost + [f"{where}: {each} is too much" for each in (found - wanted).elements()]
