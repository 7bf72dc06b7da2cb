"""Points at which a process can be killed."""

from __future__ import annotations

from typing import cast

import pytest

from deathless.base.errors import InvalidArgument
from deathless.testing.loop import Killed
from deathless.testing.moments import MOMENTS, Moment, Point, Points


def counting(kill_at: int = 0) -> Points:
    points = Points(kill_at)
    points.counting = True
    return points


def test_a_point_that_is_reached_twice_has_two_numbers() -> None:
    points = counting(kill_at=2)
    points.reached("bank", "turn")
    with pytest.raises(Killed):
        points.reached("bank", "turn", "why")
    assert points.killed == [Point(2, "bank", "turn", "why")]
    assert str(points.killed[0]) == "point 2: bank, turn (why)"


def test_nothing_is_counted_before_the_environment_is_ready() -> None:
    points = Points(1)
    points.reached("bank", "turn")
    assert points.count == 0


def test_an_order_counts_points_of_its_name_and_service() -> None:
    points = counting()
    points.order("bank", "synced", 2)
    points.reached("bank", "synced")
    points.reached("bank", "turn")
    points.reached("shop", "synced")
    points.reached("bank", "synced", named=False)
    assert points.outstanding == [("bank", "synced", 1)]
    with pytest.raises(Killed):
        points.reached("bank", "synced")
    assert points.outstanding == []


def test_an_order_for_no_point_is_refused() -> None:
    points = counting()
    with pytest.raises(InvalidArgument, match="no point"):
        points.order("bank", cast("Moment", "lunch"), 1)
    with pytest.raises(InvalidArgument, match="at least 1"):
        points.order("bank", MOMENTS[0], 0)
