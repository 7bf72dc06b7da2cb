"""`deathless check`: findings with file and line, an exit code that says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deathless.cli.main import main

LEAK = '''"""A service with a leak."""
import random
from deathless import Context, Service, Struct
class State(Struct):
    n: int = 0
leak = Service("leak", state=State)
@leak.handler
def roll(state: State, ctx: Context) -> float:
    return random.random()
'''


def test_leak_is_named_by_file_and_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "leak_service.py"
    path.write_text(LEAK)
    assert main(["check", "--no-run", f"{path}:leak"]) == 1
    assert f"{path}:9: random" in capsys.readouterr().out
    assert main(["check", "--no-run", "--json", f"{path}:leak"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["clean"], told["findings"][0]["line"], told["findings"][0]["handlers"]) == (False, 9, ["roll"])


def test_clean_service_of_a_manifest_gives_nought(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "clean_service.py").write_text(LEAK.replace("random.random()", "ctx.random.random()"))
    (tmp_path / "service.yaml").write_text(
        "apiVersion: deathless.dev/v1alpha1\nkind: DeathlessService\nmetadata: {name: leak}\n"
        "spec: {module: 'clean_service.py:leak'}\n"
    )
    assert main(["check", "--no-run", "-f", str(tmp_path / "service.yaml")]) == 0
    assert capsys.readouterr().out == "note: the log's volume must have 96Mi at least\nclean; nothing was run\n"


def test_module_that_is_not_there_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "nowhere.py:x"]) == 78
    assert "DL3013" in capsys.readouterr().err
