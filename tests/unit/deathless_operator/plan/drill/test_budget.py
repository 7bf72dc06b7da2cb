"""What was spent is counted over the whole window, whatever history keeps, and takes a bounded room."""

from __future__ import annotations

import random

import msgspec
import pytest
from tests.unit.deathless_operator.plan.drill_world import START, World, make_spec

from deathless_operator.model.drill import SPENT_MAX, DrillRun, DrillSpec, DrillSpent, DrillStatus
from deathless_operator.plan.drill.budget import SHARES, spent_in_window
from deathless_operator.plan.drill.guard import refusal
from deathless_operator.plan.drill.outcome import show_moment, with_run

DAY = 86_400.0
MONTH = 30 * DAY


def over(status: DrillStatus, spec: DrillSpec, at: float, seconds: float | None) -> DrillStatus:
    """A run has ended."""
    run = DrillRun(id="r", verdict="Passed", completion_time=show_moment(at), unavailable_seconds=seconds)
    return with_run(status, run, spec, at)


def why(spec: DrillSpec, status: DrillStatus, now: float) -> str:
    """Why no run may begin."""
    world = World(spec, now=now, status=status)
    found = refusal(world.snapshot(), world.spec, world.settings)
    return found.reason if found is not None else ""


@pytest.mark.parametrize("limit", [0, 1, 5, 50])
def test_daily_drill_spends_its_budget_whatever_history_keeps(limit: int) -> None:
    spec = make_spec(
        abortIf={"unavailableBudgetSeconds": 10.0}, successfulRunsHistoryLimit=limit, failedRunsHistoryLimit=limit
    )
    status, began = DrillStatus(), 0
    for day in range(90):
        if not why(spec, status, START + day * DAY):
            began += 1
            status = over(status, spec, START + day * DAY + 60, 1.0)
    assert began == 30, "ten of each thirty days"
    assert len(status.history) == min(limit, 30)


@pytest.mark.parametrize("seed", range(20))
def test_spent_is_never_too_low_and_too_high_by_less_than_one_share(seed: int) -> None:
    chance = random.Random(seed)
    window = chance.choice([60, 3600, int(MONTH), 31_536_000])
    spec = make_spec(abortIf={"unavailableBudgetSeconds": 1.0, "budgetWindowSeconds": window})
    status, now = DrillStatus(), START
    runs: list[tuple[float, float]] = []
    for _ in range(400):
        now += chance.choice([0.0, 0.001, window / 500, window / 40, window * 1.5 * chance.random() ** 4])
        cost = chance.choice([None, 0.0, chance.randint(1, 9000) / 1000])
        status = over(status, spec, now, cost)
        runs.append((now, cost or 0.0))
        now += chance.choice([0.0, window / 100])
        told = spent_in_window(status, now, window)
        true, most = (
            sum(seconds for at, seconds in runs if at >= now - window - longer) for longer in (-0.002, window / SHARES)
        )
        assert true - 1e-6 <= told <= most + 1e-6
        assert len(status.spent) <= SPENT_MAX
    assert "Z" in msgspec.json.encode(status).decode()


def test_run_counts_until_it_has_left_the_window() -> None:
    spec = make_spec(abortIf={"unavailableBudgetSeconds": 1.0})
    status = over(DrillStatus(), spec, START, 1.0)
    assert why(spec, status, START + MONTH) == "BudgetSpent"
    assert why(spec, status, START + MONTH + 1) == ""
    assert over(status, spec, START + MONTH + 1, 0.5).spent == (
        DrillSpent(until=show_moment(START + MONTH + 1), seconds=0.5),
    )


def test_runs_of_one_day_are_one_entry_of_a_window_of_thirty_days() -> None:
    spec, status, noon = make_spec(), DrillStatus(), START - START % DAY + DAY / 2
    for minute in range(5):
        status = over(status, spec, noon + 60 * minute, 0.25)
    assert status.spent == (DrillSpent(until=show_moment(noon + 240), seconds=1.25),)
    assert len(over(status, spec, noon + DAY, 0.25).spent) == 2


def test_run_that_cost_nothing_leaves_no_entry() -> None:
    assert over(over(DrillStatus(), make_spec(), START, None), make_spec(), START, 0.0).spent == ()


def test_run_without_its_runners_word_costs_all_the_time_since_its_fault() -> None:
    spec = make_spec(abortIf={"unavailableBudgetSeconds": 3.0})
    for fault_time, cost in ((show_moment(START - 3), 3.0), (show_moment(START + 5), 0.0), ("", 0.0)):
        run = DrillRun(id="r", verdict="Aborted", fault_time=fault_time, completion_time=show_moment(START))
        status = with_run(DrillStatus(), run, spec, START)
        assert spent_in_window(status, START, MONTH) == cost
        assert why(spec, status, START + 60) == ("BudgetSpent" if cost else "")


@pytest.mark.parametrize(("ends", "verdict"), [("deadline", "Aborted"), ("no report", "Inconclusive")])
def test_run_that_ends_without_a_report_is_paid_for(ends: str, verdict: str) -> None:
    world = World(make_spec("PodDelete", abortIf={"unavailableBudgetSeconds": 1.0}))
    world.to_fault()
    world.look_until("Healing")
    if ends == "deadline":
        world.now += 900
    else:
        world.now += 20
        world.end("bank-drill", "killed", phase="Failed")
    world.look()
    assert (world.phase, world.status.verdict) == ("", verdict)
    assert spent_in_window(world.status, world.now, MONTH) >= 20


def test_run_that_an_unreadable_spec_ends_is_paid_for_and_nothing_is_forgotten() -> None:
    world = World(make_spec("PodDelete"))
    earlier = tuple(DrillSpent(until=show_moment(START - ago * DAY), seconds=1.0) for ago in range(SPENT_MAX))
    world.status = DrillStatus(spent=earlier)
    world.to_fault()
    world.look_until("Healing")
    world.now += 20
    world.spec = make_spec("PodDelete", schedule="never")
    world.look()
    assert world.status.last is not None
    assert (world.phase, world.status.last.reason) == ("", "InvalidSpec")
    assert len(world.status.spent) == SPENT_MAX
    assert spent_in_window(world.status, world.now, 400 * DAY) >= SPENT_MAX + 20


def test_status_of_before_counts_by_its_history_and_is_taken_over() -> None:
    spec = make_spec(abortIf={"unavailableBudgetSeconds": 3.0}, successfulRunsHistoryLimit=1)
    old = DrillStatus(
        history=tuple(
            DrillRun(
                id=str(ago),
                verdict="Passed",
                completion_time=show_moment(START - ago * DAY),
                unavailable_seconds=1.0,
            )
            for ago in (1, 2, 31)
        )
    )
    assert why(spec, old, START) == ""
    now = over(old, spec, START, 1.0)
    assert [entry.until for entry in now.spent] == [show_moment(START - ago * DAY) for ago in range(3)]
    assert (len(now.history), why(spec, now, START + 60)) == (1, "BudgetSpent")


def test_runs_that_a_broken_clock_dated_ahead_are_put_together_and_count() -> None:
    spec, status = make_spec(), DrillStatus()
    for day in range(60, 0, -1):
        run = DrillRun(id="r", completion_time=show_moment(START + day * DAY), unavailable_seconds=1.0)
        status = with_run(status, run, spec, START)
    assert len(status.spent) == SPENT_MAX
    assert spent_in_window(status, START, MONTH) == 60.0


def test_entry_without_a_time_is_forgotten() -> None:
    broken = DrillStatus(spent=(DrillSpent(until="once", seconds=5.0),))
    assert spent_in_window(broken, START, MONTH) == 0.0
    assert over(broken, make_spec(), START, None).spent == ()
