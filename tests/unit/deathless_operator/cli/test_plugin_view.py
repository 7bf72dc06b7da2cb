"""What the plugin prints reads the same on a terminal and in a file."""

from __future__ import annotations

import pytest

from deathless_operator.cli import plugin_view as view
from deathless_operator.model.drill import DrillRun, DrillStatus
from deathless_operator.model.status import Condition, ServiceStatus


def test_conditions_worth_a_look_are_those_that_are_not_as_they_should_be() -> None:
    ready = Condition(type="Ready", status="True", reason="X")
    degraded = Condition(type="Degraded", status="True", reason="X")
    fine = Condition(type="Degraded", status="False", reason="X")
    assert [view.is_bad(one) for one in (ready, degraded, fine)] == [False, True, False]
    assert len(view.condition_rows((ready, degraded), 0.0, every=False)) == 1
    assert len(view.condition_rows((ready, degraded), 0.0, every=True)) == 2


@pytest.mark.parametrize(
    ("passed", "shown"), [(5, "5s"), (119, "119s"), (121, "2m"), (3 * 3600, "3h"), (5 * 86400, "5d"), (-9, "0s")]
)
def test_age_is_told_in_the_largest_unit_that_fits_twice(passed: int, shown: str) -> None:
    assert view.age("1970-01-02T00:00:00Z", 86400.0 + passed) == shown


def test_time_that_is_none_has_no_age() -> None:
    assert view.age("", 1.0) == ""


def test_summary_tells_why_a_service_is_not_ready() -> None:
    told = Condition(type="Ready", status="False", reason="NoPrimary", message="nobody leads")
    text = view.summary("bank", ServiceStatus(replicas=3, ready_replicas=1, conditions=(told,)))
    assert text == "bank: not Ready: nobody leads; 1 of 3 replicas are ready"


def test_drill_that_runs_shows_its_phase_and_the_last_one_its_verdict() -> None:
    status = DrillStatus(active=DrillRun(id="b", phase="Fault"), last=DrillRun(id="a", verdict="Passed"))
    assert [row[3] for row in view.run_rows("nightly", status)] == ["(Fault)", "Passed"]


def test_verdict_without_calls_claims_nothing_about_them() -> None:
    assert view.verdict_lines(DrillRun(id="a", verdict="Aborted", message="not ready")) == ["Aborted: not ready"]


def test_table_has_a_line_per_row_and_no_boxes(capsys: pytest.CaptureFixture[str]) -> None:
    view.console().print(view.table(("a", "epoch"), [("x", 4), (None, None)]))
    assert capsys.readouterr().out.split() == ["A", "EPOCH", "x", "4", "-", "-"]
