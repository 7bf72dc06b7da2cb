"""A difference met again costs a try, a different one counts against the maximum; neither goes on for ever (I6)."""

from __future__ import annotations

from deathless.core.supervisor.divergences import DIVERGED_S, HOUR_S, PAUSE_MAX_S, TRIES_MAX, Divergences


def test_different_ones_beyond_the_maximum_within_an_hour_stop_the_replica() -> None:
    found = Divergences(3)
    assert [found.met(f"lsn {lsn}", 100.0) is None for lsn in range(4)] == [False, False, False, True]
    assert found.texts == [f"lsn {lsn}" for lsn in range(4)]


def test_the_same_met_again_before_the_checkpoint_stands_is_tried_for_minutes() -> None:
    found = Divergences(3)
    now, pauses = 100.0, []
    while (start := found.met("lsn 7", now)) is not None:
        pauses.append(start - now)
        now = start
    assert pauses[:5] == [DIVERGED_S, 4.0, 8.0, 16.0, PAUSE_MAX_S]
    assert len(pauses) == TRIES_MAX
    assert sum(pauses) > 300


def test_what_was_met_an_hour_ago_is_forgotten() -> None:
    found = Divergences(1)
    assert found.met("lsn 1", 100.0) == 100.0 + DIVERGED_S
    assert found.met("lsn 2", 100.0 + HOUR_S) == 100.0 + HOUR_S + DIVERGED_S
    assert found.met("lsn 3", 101.0 + HOUR_S) is None


def test_an_operator_begins_the_count_anew() -> None:
    found = Divergences(1)
    found.met("lsn 1", 100.0)
    found.clear()
    assert found.texts == []
    assert found.met("lsn 2", 100.0) is not None
