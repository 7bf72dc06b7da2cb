"""The launchers' names lead to the two tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from deathless.cli.ambrosia.entry import main


@pytest.mark.parametrize(("name", "word"), [("Ambrosia", "RegisterInstance"), ("ImmortalCoordinator", "--port")])
def test_each_tool_is_found_by_its_name(
    tmp_path: Path, name: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, str(tmp_path), "--help"]) == 0
    assert word in capsys.readouterr().out
