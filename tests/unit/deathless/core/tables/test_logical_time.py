"""The times of a shard: age and elapsed go by what passes, time follows the wall clock, and none goes back."""

from __future__ import annotations

import random

import pytest

from deathless.base.limits import Limits
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.base.times import BUILT_US, NEVER, Due, Times
from deathless.core.tables.logical_time import (
    BELIEVE_S,
    FOLLOW_US,
    JUMP_MAX_US,
    LOOK_AGAIN_S,
    Anchor,
    LogicalTime,
    gap_us,
)

SECOND, DAY = 1_000_000, 86_400_000_000
WALL_US = BUILT_US + DAY
LIMITS = Limits(clock_step_us=1000)


class Bench:
    """A primary's times, with the clocks in our hands."""

    def __init__(
        self,
        *,
        times: Times = Times.at(WALL_US),  # noqa: B008  a tuple
        gap_us: int = 0,
        wall_us: int = WALL_US,
        safeguards: Safeguards = ALL_SAFEGUARDS,
    ) -> None:
        self.now, self.wall_us = 100.0, wall_us
        self.logical = LogicalTime(
            limits=LIMITS,
            safeguards=safeguards,
            times=times,
            gap_us=gap_us,
            now=100.0,
            wall_us=wall_us,
        )

    def draw(self) -> Times:
        return self.logical.draw(self.now, self.wall_us)

    def record(self, seconds: float = 0.0) -> Times:
        """Let so much pass on all clocks, and log a record."""
        self.now += seconds
        self.wall_us += round(seconds * SECOND)
        times = self.draw()
        self.logical.moved(self.logical.times.later(times))
        return times


def test_first_record_of_a_shard_says_the_wall_clock() -> None:
    assert Bench(times=Times()).record() == Times.at(WALL_US)


@pytest.mark.parametrize("seconds", [0.001, 60.0, 14 * 3600.0, 60 * 86400.0])
def test_one_record_moves_all_counters_by_what_passed_however_long_nobody_called(seconds: float) -> None:
    assert Bench().record(seconds) == Times.at(WALL_US + round(seconds * SECOND))


@pytest.mark.parametrize("step_us", [2 * SECOND, 300_000 * SECOND, -300_000 * SECOND])
@pytest.mark.parametrize("records", [1, 400])
def test_step_of_the_wall_clock_moves_neither_age_nor_elapsed(step_us: int, records: int) -> None:
    bench = Bench()
    bench.wall_us += step_us
    for _ in range(records):
        bench.record(0.01)
    passed_us = records * 10_000
    times = bench.logical.times
    assert (times.age_us, times.elapsed_us) == (WALL_US + passed_us, WALL_US + passed_us)
    assert times.time_us <= WALL_US + passed_us


def test_without_age_without_clock_a_step_that_was_believed_ages_everything() -> None:
    bench = Bench(safeguards=Safeguards(age_without_clock=False))
    bench.wall_us += 300_000 * SECOND
    bench.record(1)
    bench.record(BELIEVE_S)
    assert bench.logical.times.age_us > WALL_US + 300_000 * SECOND


def test_step_ahead_is_believed_once_it_has_stood_and_not_before() -> None:
    bench = Bench()
    bench.wall_us += 7200 * SECOND
    bench.record(1)
    assert bench.logical.stepped_us(bench.now, bench.wall_us) == 7200 * SECOND
    bench.record(BELIEVE_S - 1)
    assert bench.logical.times.time_us == WALL_US + round(BELIEVE_S) * SECOND
    bench.record(1)
    assert bench.logical.times.time_us == bench.wall_us
    assert bench.logical.stepped_us(bench.now, bench.wall_us) == 0


def test_without_believe_late_a_step_is_followed_at_once() -> None:
    bench = Bench(safeguards=Safeguards(believe_late=False))
    bench.wall_us += 7200 * SECOND
    assert bench.record().time_us == bench.wall_us


def test_step_there_and_back_leaves_nothing() -> None:
    bench = Bench()
    bench.wall_us += 7200 * SECOND
    bench.record(BELIEVE_S / 2)
    bench.wall_us -= 7200 * SECOND
    bench.record(BELIEVE_S / 2)
    bench.record(BELIEVE_S)
    assert bench.logical.times == Times.at(bench.wall_us)


def test_clock_that_creeps_ahead_by_less_than_a_step_gains_one_step_at_most_while_it_goes_on() -> None:
    bench = Bench()
    for _ in range(100):
        bench.wall_us += FOLLOW_US * 9 // 10
        bench.record(0.01)
    assert bench.logical.times.time_us <= WALL_US + SECOND + FOLLOW_US


def test_clock_behind_is_waited_for_at_half_speed_and_time_never_goes_back() -> None:
    bench = Bench()
    bench.wall_us -= 3600 * SECOND
    assert bench.logical.stepped_us(bench.now, bench.wall_us) == -3600 * SECOND
    assert bench.record(10).time_us == WALL_US + 5 * SECOND
    bench.record(7190)
    assert bench.logical.times.time_us == WALL_US + 3600 * SECOND == bench.wall_us
    assert bench.record(10).time_us == bench.wall_us


@pytest.mark.parametrize(
    ("time_us", "followed"), [(WALL_US, False), (BUILT_US - DAY, True)], ids=["a real time", "a clock never set"]
)
def test_clock_beyond_the_longest_jump_is_believed_only_where_time_was_none(time_us: int, followed: bool) -> None:
    bench = Bench(times=Times.at(time_us), wall_us=time_us)
    bench.wall_us = WALL_US + JUMP_MAX_US + 2 * DAY
    bench.record(1)
    bench.record(BELIEVE_S)
    assert (bench.logical.times.time_us == bench.wall_us) == followed


def test_primary_that_begins_beside_its_wall_clock_believes_it_late() -> None:
    bench = Bench(wall_us=WALL_US + 3600 * SECOND)
    assert bench.record(1).time_us == WALL_US + SECOND
    bench.record(BELIEVE_S - 1)
    assert bench.logical.times.time_us == bench.wall_us


def test_gap_and_sleep_count_for_waiting_and_not_for_forgetting() -> None:
    bench = Bench(gap_us=3600 * SECOND, wall_us=WALL_US + 3600 * SECOND)
    assert bench.logical.elapsed_us(bench.now) == WALL_US + 3600 * SECOND
    bench.logical.slept(60 * SECOND)
    bench.wall_us += 60 * SECOND
    gone_us = 3661 * SECOND
    assert bench.record(1) == Times(WALL_US + gone_us, WALL_US + gone_us, WALL_US + SECOND, WALL_US + gone_us)
    assert bench.record(1).elapsed_us == WALL_US + gone_us + SECOND, "each counts once"
    assert bench.logical.stepped_us(bench.now, bench.wall_us) == 0


def test_sleep_between_drawing_a_record_and_its_log_is_not_lost() -> None:
    bench = Bench()
    bench.now += 1
    times = bench.draw()
    bench.logical.slept(60 * SECOND)
    bench.logical.moved(times)
    assert bench.draw().elapsed_us == WALL_US + 61 * SECOND


def test_frame_without_a_time_record_moves_nothing() -> None:
    bench = Bench()
    bench.now += 0.0005
    assert not bench.logical.stale(bench.draw())
    bench.logical.moved(bench.logical.times)
    bench.now += 0.0005
    assert bench.logical.stale(bench.draw())


@pytest.mark.parametrize("due", [Due(elapsed_us=WALL_US + 10 * SECOND), Due(time_us=WALL_US + 10 * SECOND)])
def test_record_is_due_when_its_counter_is_there(due: Due) -> None:
    bench = Bench()
    times = bench.draw()
    assert not due.reached(times)
    assert bench.logical.due_at(100.0, times, due) == pytest.approx(110.0)
    bench.record(10)
    assert due.reached(bench.draw())
    assert bench.logical.due_at(110.0, bench.draw(), due) == 110.0 + LOOK_AGAIN_S


def test_nothing_is_due_where_nothing_waits() -> None:
    bench = Bench()
    assert bench.logical.due_at(100.0, bench.draw(), NEVER) is None
    assert not NEVER.reached(bench.draw())


def test_timer_by_a_moment_is_looked_at_again_when_the_clock_may_be_believed() -> None:
    bench, due = Bench(), Due(time_us=WALL_US + 7200 * SECOND)
    bench.wall_us += 7200 * SECOND
    assert bench.logical.due_at(100.0, bench.draw(), due) == pytest.approx(100.0 + BELIEVE_S)


@pytest.mark.parametrize(
    ("anchor", "boot_s", "wall_s", "expected_s"),
    [
        (Anchor(WALL_US, 50 * SECOND), 60, 999, 10),  # heard the last record itself
        (Anchor(WALL_US - 4000 * SECOND, 50 * SECOND), 4060, 999, 10),  # an earlier one: others have led since
        (Anchor(WALL_US - 4000 * SECOND, 50 * SECOND), 60, 999, 0),
        (None, 60, 999, 999),
        (None, 60, -5, 0),
        (None, 60, 500 * 86400, 400 * 86400),
    ],
)
def test_gap_is_told_by_our_own_clock_where_it_can(
    anchor: Anchor | None, boot_s: int, wall_s: int, expected_s: int
) -> None:
    wall_us, boot_us = WALL_US + wall_s * SECOND, boot_s * SECOND
    found = gap_us(Times.at(WALL_US), anchor, boot_us=boot_us, wall_us=wall_us, safeguards=ALL_SAFEGUARDS)
    assert found == expected_s * SECOND


def test_without_gap_by_own_clock_a_takeover_believes_its_wall_clock() -> None:
    off = Safeguards(gap_by_own_clock=False)
    anchor = Anchor(WALL_US, 0)
    assert gap_us(Times.at(WALL_US), anchor, boot_us=1, wall_us=WALL_US + DAY, safeguards=off) == DAY


def test_new_shard_has_no_gap() -> None:
    assert gap_us(Times(), None, boot_us=1, wall_us=WALL_US, safeguards=ALL_SAFEGUARDS) == 0


@pytest.mark.parametrize("seed", range(50))
def test_whatever_the_clocks_do_age_and_elapsed_are_what_passed_and_time_is_bounded_by_them(seed: int) -> None:
    chance = random.Random(seed)
    bench = Bench()
    begun = bench.now
    slept_us = believed_us = 0
    for _ in range(300):
        match chance.randrange(6):
            case 0:
                bench.wall_us += chance.choice([-1, 1]) * chance.choice(
                    [SECOND // 2, 5 * SECOND, 3600 * SECOND, 30 * DAY]
                )
            case 1:
                us = chance.randrange(3600 * SECOND)
                slept_us += us
                bench.wall_us += us
                bench.logical.slept(us)
        before = bench.logical.times
        times = bench.record(chance.choice([0.001, 1.0, 100.0, 400.0, 10 * 3600.0]))
        assert all(now >= then for now, then in zip(times[:3], before[:3], strict=True)), "no counter goes back"
        passed_us = round((bench.now - begun) * SECOND)
        assert times.age_us == pytest.approx(WALL_US + passed_us, abs=300)
        assert times.elapsed_us == pytest.approx(WALL_US + passed_us + slept_us, abs=300)
        believed_us += max(0, (times.time_us - before.time_us) - (times.elapsed_us - before.elapsed_us))
        assert times.time_us <= times.elapsed_us + believed_us
