"""What must come out of the flights: computed from the data alone, in one pass.

Guarantees: a function of the flights. Does not: know how they travel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

LATE_MINUTES = 15  # a departure that is later counts as late


class Flight(NamedTuple):
    """One flight, as it is played."""

    carrier: str
    origin: str
    flight: int
    minutes: int | None  # None: cancelled


class Answers(NamedTuple):
    """What each place must hold; the same type for what it does hold."""

    airports: dict[str, tuple[int, int]]  # origin -> flights, cancelled
    carriers: dict[tuple[str, str], tuple[int, int]]  # (carrier, origin) -> departures, minutes
    late: dict[str, int]  # carrier -> late departures
    facts: tuple[int, int, int]  # rows, different positions, minutes
    published: tuple[int, int, int]  # likewise


def answers(flights: Iterable[Flight]) -> Answers:
    """Give what follows from these flights."""
    every: Counter[str] = Counter()
    cancelled: Counter[str] = Counter()
    departed: Counter[tuple[str, str]] = Counter()
    minutes: Counter[tuple[str, str]] = Counter()
    late: Counter[str] = Counter()
    for each in flights:
        every[each.origin] += 1
        cancelled[each.origin] += each.minutes is None
        if each.minutes is not None:
            departed[each.carrier, each.origin] += 1
            minutes[each.carrier, each.origin] += each.minutes
            late[each.carrier] += each.minutes > LATE_MINUTES
    rows = departed.total()
    table = (rows, rows, sum(minutes.values()))
    return Answers(
        {origin: (every[origin], cancelled[origin]) for origin in every},
        {key: (departed[key], minutes[key]) for key in departed},
        {carrier: late[carrier] for carrier, _ in departed},
        table,
        table,
    )


def differences(wanted: Answers, found: Answers) -> list[str]:
    """Say where something else was found than must be there; empty: nowhere."""
    told = [
        f"{place} {key}: {have.get(key)}, must be {want.get(key)}"
        for place, want, have in (
            ("airports", wanted.airports, found.airports),
            ("carriers", wanted.carriers, found.carriers),
            ("late", wanted.late, found.late),
        )
        for key in sorted({*want, *have}, key=str)
        if want.get(key) != have.get(key)
    ]
    for place, one, other in (("facts", wanted.facts, found.facts), ("published", wanted.published, found.published)):
        if one != other:
            told.append(f"{place}: rows, positions, minutes {other}, must be {one}")
    return told
