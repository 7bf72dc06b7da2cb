"""When too much is suspended (I10)."""

from __future__ import annotations

import pytest

from deathless.base.limits import Limits
from deathless.codec.peer_messages import Crowd
from deathless.core.crowd import crowded

LIMITS = Limits(waiting_messages_max=3, invocations_max=10, suspended_bytes_max=100)


@pytest.mark.parametrize(
    ("crowd", "twice", "limit"),
    [
        (Crowd(3, 3, 0), Crowd(6, 6, 0), "waiting_messages_max"),
        (Crowd(13, 0, 0), Crowd(26, 0, 0), "invocations_max"),
        (Crowd(1, 1, 100), Crowd(1, 1, 200), "suspended_bytes_max"),
    ],
)
def test_i10_each_maximum_is_named_where_it_is_reached(crowd: Crowd, twice: Crowd, limit: str) -> None:
    assert f"limits.{limit}" in crowded(crowd, LIMITS)
    assert crowded(crowd, LIMITS, 2) == ""
    assert f"limits.{limit}" in crowded(twice, LIMITS, 2)
    assert crowded(Crowd(*(max(0, each - 1) for each in crowd)), LIMITS) == ""
