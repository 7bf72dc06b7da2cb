"""Who drives: one agent, by a number that grows; the next one when it is dead, silent or told to go."""

import pytest

from deathless.pipelines import assignment
from deathless.pipelines.assignment import AGENTS_MAX, DEATHS_MAX, FORGET, SILENT, Drivers, report, resign
from deathless.sdk import CallRefused

S = 1_000_000


def test_the_first_to_report_drives_and_keeps_driving() -> None:
    """Whoever comes later waits, warm or not."""
    drivers = Drivers()
    assert report(drivers, "a", S, warm=False).drives
    assert not report(drivers, "b", S, warm=True).drives
    again = report(drivers, "a", 2 * S, warm=True)
    assert (again.drives, again.number) == (True, 1)


def test_a_silent_one_is_replaced_by_a_higher_number() -> None:
    """Its own report comes too late then."""
    drivers = Drivers()
    report(drivers, "a", S, warm=True)
    for _ in range(SILENT - 1):
        assert not report(drivers, "b", S, warm=True).drives
    taken = report(drivers, "b", S, warm=True)
    assert (taken.drives, taken.number) == (True, 2)
    late = report(drivers, "a", S, warm=True)
    assert (late.drives, late.number) == (False, 2)


@pytest.mark.parametrize("step_us", [-3600 * S, 3600 * S])
def test_a_clock_that_is_set_costs_nobody_its_place(step_us: int) -> None:
    """Nor does an outage of the service, after which nobody was heard for long: only reports count."""
    drivers = Drivers()
    report(drivers, "a", 10_000 * S, warm=True)
    for round_ in range(3 * SILENT):
        now_us = 10_000 * S + round_ * step_us
        assert not report(drivers, "b", now_us, warm=True).drives
        assert not report(drivers, "c", now_us, warm=True).drives
        if round_ % (SILENT - 1) == SILENT - 2:
            assert report(drivers, "a", now_us, warm=True).drives


def test_reports_of_several_agents_do_not_add_up() -> None:
    """However many wait, each of them gives the one that drives the same time."""
    drivers = Drivers()
    report(drivers, "a", S, warm=True)
    for _ in range(SILENT - 1):
        for name in ("b", "c", "d", "e"):
            assert not report(drivers, name, S, warm=True).drives
    assert report(drivers, "a", S, warm=True).drives


def test_a_death_that_is_told_is_no_wait() -> None:
    """A warm one drives at its next report; a cold one lets it."""
    drivers = Drivers()
    for name, warm in (("a", True), ("b", False), ("c", True)):
        report(drivers, name, S, warm=warm)
    resign(drivers, "a", 1, progressed=True, ordered=False)
    assert not report(drivers, "b", S + 1, warm=False).drives
    assert not report(drivers, "a", S + 1, warm=False).drives
    assert report(drivers, "c", S + 2, warm=True).number == 2


def test_a_warm_one_that_is_gone_is_not_waited_for() -> None:
    """A cold one drives when it has waited for it."""
    drivers = Drivers()
    report(drivers, "a", S, warm=True)
    report(drivers, "b", S, warm=True)
    resign(drivers, "a", 1, progressed=True, ordered=False)
    told = [report(drivers, "a", S, warm=False).drives for _ in range(SILENT)]
    assert told == [False] * (SILENT - 1) + [True]


def test_a_death_of_another_number_changes_nothing() -> None:
    """What an agent tells of a driver that was replaced before comes late."""
    drivers = Drivers()
    report(drivers, "a", S, warm=True)
    resign(drivers, "a", 0, progressed=False, ordered=False)
    resign(drivers, "b", 1, progressed=False, ordered=False)
    assert (drivers.agent, drivers.deaths) == ("a", 0)


def test_drivers_that_die_without_a_batch_are_given_up() -> None:
    """A batch in between, and an end that was ordered, do not count; resuming forgets them."""
    drivers = Drivers()
    for _ in range(DEATHS_MAX):
        number = report(drivers, "a", S, warm=False).number
        resign(drivers, "a", number, progressed=False, ordered=True)
    for _ in range(DEATHS_MAX):
        number = report(drivers, "a", S, warm=False).number
        resign(drivers, "a", number, progressed=True, ordered=False)
    assert drivers.failed == ""
    for _ in range(DEATHS_MAX):
        number = report(drivers, "a", S, warm=False).number
        resign(drivers, "a", number, progressed=False, ordered=False)
    told = report(drivers, "a", S, warm=True)
    assert not told.drives
    assert f"{DEATHS_MAX} drivers ended" in told.failed
    assignment.suspend(drivers, suspended=False)
    assert report(drivers, "a", S, warm=True).drives


def test_nobody_drives_while_it_is_suspended() -> None:
    """Who drove is told so."""
    drivers = Drivers()
    report(drivers, "a", S, warm=True)
    assignment.suspend(drivers, suspended=True)
    assert not report(drivers, "a", S, warm=True).drives
    assignment.suspend(drivers, suspended=False)
    assert report(drivers, "a", S, warm=True).number == 2


def test_one_that_is_told_to_go_stays_until_another_one_is_warm() -> None:
    """So a planned hand-over costs no cold start."""
    drivers = Drivers()
    report(drivers, "a", S, warm=True)
    report(drivers, "b", S, warm=False)
    drivers.leaving = True
    assert report(drivers, "a", S + 1, warm=True).drives
    report(drivers, "b", S + 2, warm=True)
    assert not report(drivers, "a", S + 3, warm=True).drives
    assert report(drivers, "b", S + 4, warm=True).number == 2
    assert not drivers.leaving


def test_the_newest_driver_says_which_queries_there_are() -> None:
    """An older one changes nothing, and there is a limit."""
    drivers = Drivers()
    report(drivers, "a", S, warm=True)
    assignment.declare(drivers, 1, ["alarms"])
    assignment.declare(drivers, 0, ["others"])
    assert drivers.queries == ["alarms"]
    with pytest.raises(CallRefused, match="at most"):
        assignment.declare(drivers, 1, ["x"] * 257)


def test_agents_that_are_gone_are_forgotten() -> None:
    """What is shown is who reports; there are never more than AGENTS_MAX."""
    drivers = Drivers()
    report(drivers, "a", S, warm=True)
    for _ in range(2 * FORGET + 1):
        report(drivers, "b", S, warm=True)
    assert list(drivers.agents) == ["b"]
    for number in range(AGENTS_MAX + 3):
        report(drivers, str(number), S, warm=False)
    assert list(drivers.agents) == [str(number) for number in range(3, AGENTS_MAX + 3)]
