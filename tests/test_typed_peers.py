"""Types of calls, of rows, and of migrations, are known to each checker that authors use: mypy, pyrefly and pyright.

Each sample has good lines and wrong ones, which carry a comment that silences the first two. Without these each
checker must find an error in every wrong line, and none elsewhere. Pyright is run as basedpyright, its fork, with
pyright's own strict rules and no others.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
SAMPLES = {"typed_peers.py": 17, "typed_changes.py": 9, "typed_foreign.py": 14}  # with how many wrong lines
SILENCER = "  # type: ignore"


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a tool of this environment; it finds errors."""
    tool, *arguments = command
    environment = os.environ | {"NO_COLOR": "1"}
    done = subprocess.run(
        [BIN / tool, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done


def mypy(path: Path) -> set[int]:
    """Lines with errors."""
    done = run("mypy", "--no-incremental", str(path))
    return {int(line) for line in re.findall(rf"{path.name}:(\d+): error:", done.stdout)}


def pyrefly(path: Path) -> set[int]:
    """Lines with errors."""
    done = run("pyrefly", "check", "--config", "pyproject.toml", "--output-format", "json", str(path))
    return {error["line"] for error in json.loads(done.stdout)["errors"]}


def pyright(path: Path) -> set[int]:
    """Lines with errors, counted from 1."""
    settings = {
        "include": [path.name],
        "extraPaths": [str(ROOT / "runtime")],
        "pythonVersion": "3.11",
        "typeCheckingMode": "strict",
    }
    config = path.with_name("pyrightconfig.json")
    config.write_text(json.dumps(settings))
    done = run("basedpyright", "--project", str(config), "--pythonpath", sys.executable, "--outputjson")
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] == 1
    return {each["range"]["start"]["line"] + 1 for each in found["generalDiagnostics"]}


@pytest.mark.parametrize("checker", [mypy, pyrefly, pyright])
@pytest.mark.parametrize("name", SAMPLES)
def test_wrong_lines_are_refused_and_no_others(tmp_path: Path, name: str, checker: Callable[[Path], set[int]]) -> None:
    sample = ROOT / "tests/samples" / name
    lines = sample.read_text().splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if SILENCER in line}
    assert len(wrong) == SAMPLES[name]
    bare = tmp_path / name
    bare.write_text("\n".join(line.partition(SILENCER)[0] for line in lines) + "\n")
    assert checker(bare) == wrong
