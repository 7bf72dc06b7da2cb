"""The verdict on the program and the till finds what is planted, and finds nothing where nothing is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from examples.foreign.orders.verdict import Entry, Placed, judge, read_entries

BOOK = """\
0 alice 700 1 1 1 0 1 0
1 bob 50 1 1 1 0 1 1"""


class World:
    """A run of two orders; the second one was given back."""

    def __init__(self) -> None:
        self.placed = [Placed(0, "alice", 700, given_back=False), Placed(1, "bob", 50, given_back=True)]
        self.program = read_entries(BOOK)
        self.till = {"alice": [(0, 700)], "bob": [(1, 50), (1, -50)]}

    def wrong(self) -> list[str]:
        return judge(self.placed, self.program, self.till)

    def change(self, **fields: Any) -> None:
        """Give the program's entry of the first order another number."""
        self.program[0] = self.program[0]._replace(**fields)


PROGRAM, TILL = "book of the program", "book of the till"
FAULTS: dict[str, tuple[Callable[[World], object], str, str]] = {
    "order lost by the program": (lambda world: world.program.pop(), PROGRAM, "missing"),
    "order placed twice": (lambda world: world.change(placed=2), PROGRAM, "too much"),
    "call to itself lost": (lambda world: world.change(counted=0), PROGRAM, "missing"),
    "call to itself doubled": (lambda world: world.change(counted=2), PROGRAM, "too much"),
    "answer doubled": (lambda world: world.change(paid=2), PROGRAM, "too much"),
    "answer is an error": (lambda world: world.change(paid=0, failed=1), PROGRAM, "too much"),
    "receipt lost": (lambda world: world.change(receipts=0), PROGRAM, "missing"),
    "receipt doubled": (lambda world: world.change(receipts=2), PROGRAM, "too much"),
    "question nobody asked": (lambda world: world.change(refunds=1), PROGRAM, "too much"),
    "other cents": (lambda world: world.change(cents=701), PROGRAM, "too much"),
    "order nobody placed": (
        lambda world: world.program.append(Entry(2, "-", 0, 0, 1, 0, 0, 0, 0)),
        PROGRAM,
        "too much",
    ),
    "payment lost": (lambda world: world.till["alice"].clear(), TILL, "missing"),
    "payment doubled": (lambda world: world.till["alice"].append((0, 700)), TILL, "too much"),
    "payment of another": (lambda world: world.till["alice"].append((1, 50)), TILL, "too much"),
    "money back twice": (lambda world: world.till["bob"].append((1, -50)), TILL, "too much"),
    "money back lost": (lambda world: world.till["bob"].pop(), TILL, "missing"),
}


def test_run_in_which_all_agrees_has_nothing_wrong() -> None:
    assert World().wrong() == []


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_difference_is_found(fault: str) -> None:
    world = World()
    plant, where, what = FAULTS[fault]
    plant(world)
    assert any(line.startswith(where) and what in line for line in world.wrong()), world.wrong()
