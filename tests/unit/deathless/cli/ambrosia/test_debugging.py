"""`Ambrosia DebugInstance`: what it needs, and its fatal errors; tests/process has it with programs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.deathless.foreign.recorded import checkpoint

from deathless.cli.ambrosia.debugging import Shown
from deathless.cli.ambrosia.registrations import DATA
from deathless.cli.ambrosia.tool import main
from deathless.foreign.replay import ReplayReport

REPORT = ReplayReport(
    checkpoint=0, end=3, rows=3, messages=1, outputs=1, beyond=0, refused=0, upgraded=False, differs=None
)


def debug(folder: Path, *more: str) -> int:
    return main(folder, ["DebugInstance", "-i=counter", "-rp=1000", "-sp=1001", f"-l={folder}", *more])


def test_log_and_checkpoint_that_are_not_there_are_told_by_their_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert debug(tmp_path) == 1
    assert capsys.readouterr().out.startswith(f"FATAL ERROR 3: no log is in {tmp_path / DATA / 'counter'}")
    (tmp_path / DATA / "counter").mkdir(parents=True)
    assert debug(tmp_path) == 1
    assert capsys.readouterr().out.startswith("FATAL ERROR 2: DL4020 there is no checkpoint 1")


def test_checkpoint_of_another_version_is_a_mismatch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / DATA / "counter").mkdir(parents=True)
    checkpoint(tmp_path / DATA / "counter", 0, b"", version=3)
    assert debug(tmp_path) == 1
    told = capsys.readouterr().out
    assert told.startswith("FATAL ERROR 1: DL3150 Version mismatch on process start: Expected 0 was: 3")
    assert told.endswith("KILLING WORKER:\n")


@pytest.mark.parametrize("more", [["-c=0"], ["-c=x"], ["-cv=-1"], ["-tu=perhaps"], ["-i=No!"], ["-rp=0"]])
def test_arguments_that_are_wrong_give_the_reason_and_the_usage(
    tmp_path: Path, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert debug(tmp_path, *more) == 1
    told = capsys.readouterr().out
    assert told.startswith("Invalid arguments: ")
    assert "Usage: Ambrosia DebugInstance" in told


def test_end_of_the_log_is_told_behind_the_comparison(capsys: pytest.CaptureFixture[str]) -> None:
    shown = Shown()
    shown.ready()
    shown.ran(REPORT)
    assert shown.equal is True
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == [
        "Ready ...",
        "equal",
        "End of the log",
    ]
