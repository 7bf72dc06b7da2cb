"""The three counters of a shard, and what is due by them."""

import pytest

from deathless.base.times import Due, Times


def test_no_counter_goes_back_and_the_wall_clock_is_the_last_writers() -> None:
    assert Times(5, 5, 5, 5).later(Times(4, 6, 3, 2)) == Times(5, 6, 5, 2)


def test_what_knows_a_single_clock_is_told_by_its_missing_wall_clock() -> None:
    assert Times.of_version_1(7) == Times(7, 7, 7, 0)
    assert Times.of_version_1(7).single
    assert not Times.at(7).single


@pytest.mark.parametrize(
    ("due", "reached"),
    [
        (Due(), False),
        (Due(elapsed_us=5), True),
        (Due(elapsed_us=6), False),
        (Due(time_us=9), True),
        (Due(time_us=10), False),
        (Due(6, 9), True),
    ],
)
def test_due_is_what_either_counter_has_reached(due: Due, reached: bool) -> None:
    assert due.reached(Times(time_us=9, elapsed_us=5)) == reached


def test_first_of_two_is_the_smaller_that_is_there() -> None:
    assert [Due(3, 2).first_us, Due(0, 2).first_us, Due(3).first_us, Due().first_us] == [2, 2, 3, 0]
