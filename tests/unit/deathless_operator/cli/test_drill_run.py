"""The runner's command leaves a report whatever happens, and exits with 0: a failed drill is no failed pod."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from deathless.base.errors import InvalidArgument
from deathless.base.shards import shard_of
from deathless_operator.cli.drill_run import command, draw_series
from deathless_operator.plan.drill.reports import RunnerReport, read_report

WORDS = ["--run=ns/d/r", "--service=bank", "--ready-port=0", "--warm=0.1", "--deadline=1"]


def run(folder: Path, *words: str) -> RunnerReport:
    message = folder / "message"
    done = CliRunner().invoke(command, [*WORDS, f"--report={message}", *words])
    assert done.exit_code == 0, done.output
    report = read_report(message.read_text(), RunnerReport)
    assert report is not None
    assert read_report(done.stdout, RunnerReport) == report
    return report


def test_service_that_is_not_there_aborts_the_run(tmp_path: Path) -> None:
    report = run(tmp_path, "--url=http://127.0.0.1:1")
    assert (report.run, report.verdict, report.reason) == ("ns/d/r", "Aborted", "NotWarm")


def test_certificates_that_cannot_be_read_abort_the_run(tmp_path: Path) -> None:
    report = run(tmp_path, "--url=https://127.0.0.1:1", f"--tls={tmp_path / 'none'}")
    assert report.verdict == "Aborted"
    assert "could not begin" in report.message


def test_calls_of_a_drill_go_to_the_shard_that_is_hit() -> None:
    assert {shard_of(draw_series(2, 3).encode(), 3) for _ in range(20)} == {2}
    with pytest.raises(InvalidArgument):
        draw_series(3, 3)
