"""The launchers' names lead to their tools, and scripts that read what these print read the same for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from deathless.cli.ambrosia.arguments import VERBS
from deathless.cli.ambrosia.entry import main

TOOLS = [("Ambrosia", "RegisterInstance"), ("ImmortalCoordinator", "--port"), ("UnsafeDeregisterInstance", "NAME")]
HELP = Path(__file__).with_name("help.txt")


@pytest.mark.parametrize(("name", "word"), TOOLS)
def test_each_tool_is_found_by_its_name(
    tmp_path: Path, name: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, str(tmp_path), "--help"]) == 0
    assert word in capsys.readouterr().out


def test_help_is_what_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of each tool and verb, one behind the other."""
    verbs = [
        ["Ambrosia"],
        *(["Ambrosia", verb] for verb in VERBS),
        ["ImmortalCoordinator"],
        ["UnsafeDeregisterInstance"],
    ]
    for tool, *verb in verbs:
        assert main([tool, str(tmp_path), *verb, "--help"]) == 0
    assert capsys.readouterr().out == HELP.read_text(encoding="utf-8")
