"""Garbage of a worker: the young is collected often, everything only when much more is held than was left."""

from __future__ import annotations

import gc
import sys

import pytest

from deathless.shell.process.garbage import GROWTH_MIN, YOUNG_TICKS, Garbage

ALL = 2


pytestmark = pytest.mark.usefixtures("collector")


class Heap:
    """What is held, and which collections there were."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.blocks = 10_000_000
        self.collected: list[int] = []
        monkeypatch.setattr(sys, "getallocatedblocks", lambda: self.blocks)
        monkeypatch.setattr(gc, "collect", self._collect)

    def _collect(self, generation: int = ALL) -> int:
        self.collected.append(generation)
        return 0


def look(garbage: Garbage) -> None:
    """Until it looks once."""
    for _ in range(YOUNG_TICKS):
        garbage.tick()


def test_what_is_old_is_looked_at_only_when_much_more_is_held_than_was_left(monkeypatch: pytest.MonkeyPatch) -> None:
    heap = Heap(monkeypatch)
    garbage = Garbage()
    assert heap.collected == [ALL]
    for held in (14_999_999, 15_000_000, 22_499_999, 22_500_000):
        heap.blocks = held
        look(garbage)
    assert heap.collected == [ALL, 1, ALL, 1, ALL]
    heap.blocks = 1
    for _ in range(1000):
        look(garbage)
    assert heap.collected.count(ALL) == 3, "time alone is no reason"


def test_a_small_process_may_grow_by_more_than_its_half(monkeypatch: pytest.MonkeyPatch) -> None:
    heap = Heap(monkeypatch)
    heap.blocks = 300_000
    garbage = Garbage()
    heap.blocks = 300_000 + GROWTH_MIN - 1
    look(garbage)
    assert heap.collected == [ALL, 1]
    heap.blocks += 1
    look(garbage)
    assert heap.collected == [ALL, 1, ALL]


def test_between_two_looks_nothing_is_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    heap = Heap(monkeypatch)
    garbage = Garbage()
    for _ in range(YOUNG_TICKS - 1):
        garbage.tick()
    assert heap.collected == [ALL]
    assert not gc.isenabled()
    garbage.tick()
    assert heap.collected == [ALL, 1]


def test_old_garbage_that_goes_in_circles_is_freed_when_enough_of_it_is_there() -> None:
    garbage = Garbage()
    freed: list[int] = []

    class Link:
        def __init__(self, number: int) -> None:
            self.itself = self
            self.number = number

        def __del__(self) -> None:
            freed.append(self.number)

    links = [Link(0)]
    look(garbage)
    look(garbage)  # it is old by now
    del links[:]
    look(garbage)
    assert not freed
    garbage._due = 0
    look(garbage)
    assert freed == [0]
