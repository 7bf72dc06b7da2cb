"""A program that served is started again at once; one that fails at the start waits longer each time."""

from __future__ import annotations

import pytest

from deathless.foreign.starts import AGAIN_MAX_S, AGAIN_MIN_S, CALM_S, Starts


def test_program_that_is_killed_each_few_seconds_while_it_serves_never_waits_longer() -> None:
    starts, now = Starts(), 0.0
    for _ in range(20):
        starts.began()
        starts.serves(now)
        starts.serves(now + 1.0)  # said again
        now += CALM_S
        starts.ended(now, failed=True)
        assert starts.pause_s == AGAIN_MIN_S
        assert not starts.keeps_failing
    assert starts.count == 20


@pytest.mark.parametrize("loads_s", [0.0, 300.0])
def test_program_that_dies_as_soon_as_it_is_loaded_waits_longer_each_time(loads_s: float) -> None:
    starts, now = Starts(), 0.0
    pauses = []
    for _ in range(10):
        starts.began()
        now += loads_s
        starts.serves(now)
        now += CALM_S / 2
        starts.ended(now, failed=True)
        pauses.append(starts.pause_s)
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (AGAIN_MIN_S, AGAIN_MAX_S), "however long it takes to load"


def test_time_that_it_does_not_serve_does_not_count() -> None:
    starts = Starts()
    for now in (0.0, 1000.0):
        starts.began()
        starts.ended(now + 500.0, failed=True)
    assert starts.pause_s == 2 * AGAIN_MIN_S
    assert starts.keeps_failing


def test_end_in_order_is_followed_by_no_pause() -> None:
    starts = Starts()
    starts.began()
    starts.ended(0.0, failed=True)
    starts.began()
    starts.ended(0.0, failed=False)
    assert starts.pause_s == 0.0
