"""A report is left for the operator and for people, and one way failing does not stop the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from deathless_operator.drill.leave import leave
from deathless_operator.plan.drill.reports import AgentReport, read_report


def test_report_is_left_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = AgentReport(fault="Freeze", began=1.5, ended=2.5, touched=3)
    leave(report, str(tmp_path / "message"))
    assert read_report((tmp_path / "message").read_text(), AgentReport) == report
    assert read_report(capsys.readouterr().out, AgentReport) == report


def test_file_that_cannot_be_written_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    leave(AgentReport(fault="Freeze"), str(tmp_path / "no" / "such" / "folder"))
    assert "Freeze" in capsys.readouterr().out
