"""When a child is started again: at once after a long or orderly run, else after a pause that doubles up to a cap."""

from __future__ import annotations

from deathless.core.supervisor.restarts import AT_ONCE_S, RESTART_MAX_S, RESTART_MIN_S, STABLE_S, Restarts


def test_failing_child_waits_longer_each_time_up_to_a_cap() -> None:
    child, waited = Restarts(), []
    for _ in range(10):
        child.ended(0.0, at_once=False)
        waited.append(child.delay_s)
    assert waited[:3] == [RESTART_MIN_S, 2 * RESTART_MIN_S, 4 * RESTART_MIN_S]
    assert waited[-1] == child.start_at == RESTART_MAX_S


def test_long_run_or_an_orderly_end_of_a_fair_one_is_followed_at_once() -> None:
    for ran_s, at_once, waits in ((STABLE_S, False, False), (AT_ONCE_S, True, False), (AT_ONCE_S, False, True)):
        child = Restarts()
        child.ended(ran_s, at_once=at_once)
        assert (child.delay_s > 0) == waits
        assert (child.runs, child.suspended) == (False, False)
