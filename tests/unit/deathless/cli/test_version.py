"""Versions of program, formats and packages."""

from __future__ import annotations

import json

import pytest

from deathless.cli.main import main
from deathless.codec.frames import FORMAT_VERSION
from deathless.codec.generations import NEWEST
from deathless.codec.versions import spoken


def test_versions_are_told_to_people_and_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert f"log format {FORMAT_VERSION}, format level {NEWEST}, protocol {spoken()}" in capsys.readouterr().out
    assert main(["version", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["formatLevel"] == NEWEST
    assert (told["logFormat"], told["oldestProtocol"], told["protocol"]) == (FORMAT_VERSION, *spoken())
    assert "msgspec" in told["packages"]
