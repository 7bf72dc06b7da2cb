"""`deathless init`: what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deathless.cli.main import main


def test_a_project_is_written_below_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "bank"]) == 0
    assert "deathless up" in capsys.readouterr().out
    assert (tmp_path / "bank" / "test_service.py").is_file()
    assert main(["init", "bank"]) == 64
    assert "bank is there already" in capsys.readouterr().err


def test_programs_are_told_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "bank", "--folder", str(tmp_path / "new"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["service"] == "bank"
    assert told["folder"] == str(tmp_path / "new")
    assert "service.yaml" in told["files"]
