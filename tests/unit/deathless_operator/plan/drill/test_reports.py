"""Reports fit into a termination message and are read again, or are none."""

from __future__ import annotations

import pytest

from deathless_operator.plan.drill.reports import (
    MESSAGE_BYTES_MAX,
    AgentReport,
    RunnerReport,
    encode_report,
    read_report,
)


def test_report_is_read_again() -> None:
    runner = RunnerReport(run="ns/d/r", verdict="Failed", reason="Lost", lost=2, warm_at=1.5)
    agent = AgentReport(fault="Freeze", began=1.0, ended=2.0, touched=3)
    assert read_report(encode_report(runner).decode(), RunnerReport) == runner
    assert read_report(encode_report(agent).decode(), AgentReport) == agent


@pytest.mark.parametrize("letter", ["x", "\u00e4", '"'])
def test_text_that_is_too_long_is_cut(letter: str) -> None:
    runner = encode_report(RunnerReport(run="r", verdict="Passed", reason="x", message=letter * 9000))
    agent = encode_report(AgentReport(fault="Freeze", problem=letter * 9000))
    assert max(len(runner), len(agent)) <= MESSAGE_BYTES_MAX
    assert read_report(runner.decode(), RunnerReport) is not None
    assert read_report(agent.decode(), AgentReport) is not None


@pytest.mark.parametrize("message", ["", "Killed", "{}", '{"run": 1}', '{"verdict": "Splendid", "run": "r"}', "\ud800"])
def test_what_is_no_report_is_none(message: str) -> None:
    assert read_report(message, RunnerReport) is None
