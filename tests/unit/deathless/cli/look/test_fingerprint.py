"""`deathless fingerprint`: one line for people, JSON for tools, and the termination file for an operator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deathless.cli.main import main

MODULE = str(Path(__file__).parents[4] / "process" / "bank_fake.py") + ":bank"


def test_fingerprint_is_printed_and_left_in_the_termination_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    word = tmp_path / "word"
    assert main(["fingerprint", MODULE, "--termination-file", str(word)]) == 0
    printed = capsys.readouterr().out.strip()
    assert len(bytes.fromhex(printed)) == 16
    assert json.loads(word.read_text())["fingerprint"] == printed
    assert main(["fingerprint", MODULE, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["fingerprint"] == printed


def test_error_is_left_there_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    word = tmp_path / "word"
    config = str(tmp_path / "no.json")
    assert main(["fingerprint", "--config", config, "--termination-file", str(word)]) == 78
    assert word.read_text().startswith("DL3001 ")
    assert "DL3001" in capsys.readouterr().err
