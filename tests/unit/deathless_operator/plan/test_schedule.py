"""Cron times as functions of `now`, in any zone."""

from __future__ import annotations

import datetime as dt

import pytest

from deathless_operator.plan.schedule import ScheduleError, latest_due, next_due


def at(text: str) -> float:
    return dt.datetime.fromisoformat(text).timestamp()


def test_time_that_is_now_is_due_and_not_next() -> None:
    now = at("2026-03-01T02:00:00+00:00")
    assert latest_due("0 2 * * *", "", now) == now
    assert next_due("0 2 * * *", "", now) == at("2026-03-02T02:00:00+00:00")


def test_of_missed_times_only_the_latest_counts() -> None:
    assert latest_due("*/5 * * * *", "", at("2026-03-01T02:14:59.9+00:00")) == at("2026-03-01T02:10:00+00:00")


def test_zone_of_the_schedule_counts() -> None:
    now = at("2026-01-15T12:00:00+00:00")
    assert next_due("30 3 * * *", "Europe/Berlin", now) == at("2026-01-16T02:30:00+00:00")


def test_hour_that_a_zone_leaves_out_is_no_error() -> None:
    now = at("2026-03-28T12:00:00+00:00")
    found = next_due("30 2 * * *", "Europe/Berlin", now)
    assert found is not None
    assert now < found < now + 2 * 86400


@pytest.mark.parametrize(
    ("schedule", "zone"),
    [("", ""), ("* * * *", ""), ("0 0 * * * *", ""), ("99 * * * *", ""), ("0 2 * * *", "No/Where"), ("0 0 30 2 *", "")],
)
def test_what_cannot_be_understood_is_told(schedule: str, zone: str) -> None:
    with pytest.raises(ScheduleError):
        latest_due(schedule, zone, 0.0)
    with pytest.raises(ScheduleError):
        next_due(schedule, zone, 0.0)
