"""The agent's command leaves a report whatever happens, and refuses what makes no sense."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from deathless.base.errors import InvalidArgument
from deathless_operator.cli.drill_agent import command
from deathless_operator.plan.drill.reports import AgentReport, read_report

UID = "2f1c5f9e-8a53-4b8e-9a0e-0123456789ab"


def test_pod_that_is_not_here_is_reported(tmp_path: Path) -> None:
    message = tmp_path / "message"
    words = [f"--pod-uid={UID}", "--fault=ProcessKill", f"--report={message}"]
    assert CliRunner().invoke(command, words).exit_code == 0
    report = read_report(message.read_text(), AgentReport)
    assert report is not None
    assert (report.began, report.touched) == (0.0, 0)
    assert "no process of pod" in report.problem


@pytest.mark.parametrize("words", [["--pod-uid=", "--fault=Freeze"], [f"--pod-uid={UID}", "--fault=Partition"]])
def test_order_that_makes_no_sense_is_refused(words: list[str], tmp_path: Path) -> None:
    done = CliRunner().invoke(command, [*words, f"--report={tmp_path / 'message'}"])
    assert isinstance(done.exception, InvalidArgument)


def test_fault_must_be_one_that_an_agent_does() -> None:
    assert CliRunner().invoke(command, [f"--pod-uid={UID}", "--fault=PodDelete"]).exit_code == 2
