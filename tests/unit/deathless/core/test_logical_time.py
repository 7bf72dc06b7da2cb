"""Logical time follows the wall clock, never goes back, and never leaves a timer behind."""

from __future__ import annotations

import pytest

from deathless.base.limits import Limits
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.core.logical_time import LOOK_AGAIN_S, LogicalTime

WALL_US = 1_700_000_000_000_000
LIMITS = Limits(clock_step_us=1000, time_jump_max_s=1)


def time_of(due_us: int = 0, *, us: int = WALL_US, safeguards: Safeguards = ALL_SAFEGUARDS) -> LogicalTime:
    return LogicalTime(limits=LIMITS, safeguards=safeguards, time_us=us, now=100.0, due_us=lambda: due_us)


@pytest.mark.parametrize(
    ("clock_us", "expected"),
    [
        (WALL_US - 5, WALL_US),
        (WALL_US, WALL_US),
        (WALL_US + 5, WALL_US + 5),
        (WALL_US + 5_000_000, WALL_US + 1_000_000),
    ],
)
def test_it_never_goes_back_and_jumps_by_a_bounded_step(clock_us: int, expected: int) -> None:
    assert time_of().next_us(clock_us) == expected


def test_the_first_time_ever_is_the_clocks_and_an_unbounded_one_jumps() -> None:
    assert time_of(us=0).next_us(WALL_US) == WALL_US
    assert time_of(safeguards=Safeguards(bound_time_jumps=False)).next_us(WALL_US + 10**10) == WALL_US + 10**10


def test_a_frame_says_so_when_time_moved_by_a_step() -> None:
    time = time_of()
    assert not time.stale(WALL_US + 999)
    assert time.stale(WALL_US + 1000)
    time.moved(WALL_US + 1000, 101.0)
    time.moved(WALL_US + 500, 102.0)
    assert time.us == WALL_US + 1000


def test_nothing_is_due_where_nothing_waits() -> None:
    time = time_of()
    assert not time.due(WALL_US + 10**9)
    assert time.due_at(100.0, WALL_US) is None


def test_what_waits_is_due_when_the_clock_or_the_log_is_there() -> None:
    time = time_of(WALL_US + 500_000)
    assert not time.due(WALL_US + 499_999)
    assert time.due(WALL_US + 500_000)
    assert time.due_at(100.0, WALL_US) == pytest.approx(100.5)
    assert time.due_at(100.0, WALL_US + 600_000) == 100.0 + LOOK_AGAIN_S
    time.moved(WALL_US + 700_000, 101.0)
    assert time.due(WALL_US)


def test_a_clock_that_is_behind_stands_still_unless_something_waits() -> None:
    assert time_of().clock_us(110.0, WALL_US - 10**9) == WALL_US - 10**9
    waited_for = time_of(WALL_US + 1)
    assert waited_for.clock_us(110.0, WALL_US - 10**9) == WALL_US + 5_000_000
    assert waited_for.clock_us(110.0, WALL_US + 3) == WALL_US + 3
