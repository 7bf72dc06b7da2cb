"""Pauses between attempts: what they are, and where they end."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.base.backoff import GROWTHS_MAX, next_pause, pause_after


def test_pauses_double_from_the_first_to_the_longest() -> None:
    assert [pause_after(failures, first_s=0.1, most_s=1.0) for failures in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_pause_that_is_kept_grows_as_one_that_is_counted() -> None:
    pause_s, kept = 0.0, []
    for _ in range(6):
        pause_s = next_pause(pause_s, first_s=0.1, most_s=1.0)
        kept.append(pause_s)
    assert kept == [pause_after(failures, first_s=0.1, most_s=1.0) for failures in range(6)]


def test_first_pause_above_the_longest_is_the_longest() -> None:
    assert next_pause(0.0, first_s=2.0, most_s=1.0) == pause_after(0, first_s=2.0, most_s=1.0) == 1.0


@pytest.mark.parametrize("factor", [1.0, 1.5, 3.0])
def test_factor_is_the_callers(factor: float) -> None:
    assert next_pause(2.0, first_s=1.0, most_s=100.0, factor=factor) == 2.0 * factor
    assert pause_after(2, first_s=1.0, most_s=100.0, factor=factor) == factor * factor


@given(st.floats(0, 1, exclude_max=True))
def test_jitter_leaves_half_of_the_pause_at_least(chance: float) -> None:
    pause_s = pause_after(3, first_s=1.0, most_s=60.0, chance=chance)
    assert 4.0 <= pause_s <= 8.0
    assert pause_after(3, first_s=1.0, most_s=60.0) == 8.0


@given(st.integers(0, 10**9), st.floats(1, 10))
def test_no_number_of_failures_is_too_much(failures: int, factor: float) -> None:
    assert 1.0 <= pause_after(failures, first_s=1.0, most_s=60.0, factor=factor) <= 60.0


def test_pause_without_a_longest_one_grows_on_and_never_overflows() -> None:
    assert pause_after(10, first_s=0.5, most_s=math.inf) == 512.0
    assert math.isfinite(pause_after(GROWTHS_MAX, first_s=1.0, most_s=math.inf))
