"""A verdict is the runner's, seen together with what the fault did; history keeps what the spec says."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from tests.unit.deathless_operator.plan.drill_world import START, World, make_spec, replica

from deathless_operator.model.drill import DrillRun, DrillStatus
from deathless_operator.model.status import Condition
from deathless_operator.plan.drill.outcome import judged, kept, show_moment, told, with_conditions, with_run
from deathless_operator.plan.drill.reports import RunnerReport

RUN = DrillRun(
    id="r", phase="Healing", fault_time=show_moment(START + 10), healed_time=show_moment(START + 11), epoch_before=4
)
PASSED = RunnerReport(run="ns/d/r", verdict="Passed", reason="NothingLost", ended_at=START + 20, calls=5, answered=5)


def test_run_that_passed_tells_its_figures() -> None:
    world = World(make_spec(), now=START + 10)
    world.take_over(1)
    target = world.snapshot().target
    found = judged(RUN, msgspec.structs.replace(PASSED, unavailable_seconds=0.61), target, START + 21)
    assert (found.verdict, found.unavailable_seconds, found.takeover_seconds) == ("Passed", 0.61, 0.4)
    assert (found.epoch_before, found.epoch_after) == (4, 5)
    assert (found.phase, found.completion_time) == ("Judged", show_moment(START + 21))


def test_nobody_took_over_is_no_takeover_time() -> None:
    target = World(make_spec()).snapshot().target
    assert judged(RUN, PASSED, target, START + 21).takeover_seconds is None


@pytest.mark.parametrize(
    ("run", "report", "verdict", "reason"),
    [
        (RUN, None, "Inconclusive", "NoReport"),
        (msgspec.structs.replace(RUN, reason="AgentFailed"), PASSED, "Inconclusive", "AgentFailed"),
        (msgspec.structs.replace(RUN, fault_time=""), PASSED, "Inconclusive", "NoFault"),
        (msgspec.structs.replace(RUN, healed_time=""), PASSED, "Inconclusive", "FaultOutsideCalls"),
        (
            msgspec.structs.replace(RUN, healed_time=show_moment(START + 99)),
            PASSED,
            "Inconclusive",
            "FaultOutsideCalls",
        ),
        (RUN, msgspec.structs.replace(PASSED, verdict="Failed", reason="Unavailable"), "Failed", "Unavailable"),
        (
            msgspec.structs.replace(RUN, fault_time="", reason="AgentFailed"),
            msgspec.structs.replace(PASSED, verdict="Failed", reason="Lost", lost=1),
            "Failed",
            "Lost",
        ),
        (
            msgspec.structs.replace(RUN, fault_time=""),
            msgspec.structs.replace(PASSED, verdict="Aborted", reason="NotWarm"),
            "Aborted",
            "NotWarm",
        ),
    ],
)
def test_verdict_takes_the_fault_into_account(
    run: DrillRun, report: RunnerReport | None, verdict: str, reason: str
) -> None:
    found = judged(run, report, None, START + 100)
    assert (found.verdict, found.reason) == (verdict, reason)


def test_history_keeps_the_latest_of_each_sort() -> None:
    spec = make_spec(successfulRunsHistoryLimit=1, failedRunsHistoryLimit=2)
    runs = [DrillRun(id=str(i), verdict=v) for i, v in enumerate(("Failed", "Passed", "Passed", "Aborted", "Failed"))]  # type: ignore[arg-type]
    assert [run.id for run in kept(runs, spec)] == ["0", "1", "3"]


def test_run_that_is_over_stands_in_the_status() -> None:
    run = msgspec.structs.replace(RUN, verdict="Failed", reason="Lost", calls_sent=9, calls_lost=1)
    status = with_run(DrillStatus(active=RUN, runs_failed=1), run, make_spec(), START)
    assert (status.active, status.last, status.history) == (None, run, (run,))
    assert (status.verdict, status.calls_lost, status.runs_failed, status.runs_passed) == ("Failed", 1, 2, 0)


def test_run_without_calls_claims_nothing_about_them() -> None:
    status = with_run(DrillStatus(), DrillRun(id="r", verdict="Aborted"), make_spec(), START)
    assert status.calls_lost is None


def test_event_warns_of_what_did_not_pass() -> None:
    resource = World(make_spec()).resource()
    assert told(resource, msgspec.structs.replace(RUN, verdict="Passed")).type == "Normal"
    assert told(resource, msgspec.structs.replace(RUN, verdict="Failed")).type == "Warning"


def test_transition_time_moves_with_the_status_alone() -> None:
    first = with_conditions(DrillStatus(), [Condition(type="Running", status="True", reason="A")], 1, START)
    same = with_conditions(first, [Condition(type="Running", status="True", reason="B")], 2, START + 5)
    other = with_conditions(same, [Condition(type="Running", status="False", reason="C")], 2, START + 9)
    times = [status.conditions[0].last_transition_time for status in (first, same, other)]
    assert times == [show_moment(START), show_moment(START), show_moment(START + 9)]
    assert same.conditions[0].observed_generation == same.observed_generation == 2


def test_replica_without_an_announcement_leads_nobody() -> None:
    world = World(make_spec())
    world.replicas = [replace(replica(0, "primary"), announced=None)]
    assert judged(RUN, PASSED, world.snapshot().target, START + 21).epoch_after == 0
