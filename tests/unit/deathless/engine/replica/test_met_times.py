"""What is remembered of a log's times: of this boot, and not of each record."""

from __future__ import annotations

from deathless.core.tables.logical_time import Anchor
from deathless.engine.replica.met_times import ANCHOR_US, MetTimes


class Clock:
    """The boot's clock, and what is noted by it."""

    def __init__(self, noted: Anchor | None = None) -> None:
        self.noted = noted
        self.now_us = 7_000_000

    def now(self) -> float:
        raise AssertionError("the steady clock stands still while the machine sleeps")

    def wall_us(self) -> int:
        raise AssertionError("a wall clock may be set")

    def boot_us(self) -> int:
        return self.now_us

    def anchor(self) -> Anchor | None:
        return self.noted

    def note_anchor(self, anchor: Anchor) -> None:
        self.noted = anchor


def test_it_begins_with_what_an_earlier_process_noted_on_this_boot() -> None:
    assert MetTimes(Clock()).anchor is None
    assert MetTimes(Clock(Anchor(5, 6))).anchor == Anchor(5, 6)


def test_first_record_is_noted_and_then_one_after_so_long() -> None:
    clock = Clock()
    met = MetTimes(clock)
    noted = []
    for elapsed_us in (0, 1, ANCHOR_US - 1, ANCHOR_US, ANCHOR_US + 1, 3 * ANCHOR_US):
        clock.now_us += 10
        met.met(elapsed_us)
        noted.append(clock.noted)
        assert met.anchor == clock.noted
    first, second, third = (
        Anchor(0, 7_000_010),
        Anchor(ANCHOR_US, 7_000_040),
        Anchor(3 * ANCHOR_US, 7_000_060),
    )
    assert noted == [first, first, first, second, second, third]
