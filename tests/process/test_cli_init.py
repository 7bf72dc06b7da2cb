"""`deathless init`: what it writes passes its own test, and runs as processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from cli_tool import Bank, run


def test_a_new_project_passes_its_test_and_runs(tmp_path: Path) -> None:
    folder = tmp_path / "bank"
    told = run("init", "bank", "--json", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["folder"] == "bank"
    tests = [sys.executable, "-W", "ignore", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio"]
    done = subprocess.run(tests, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout
    with Project(folder) as project:
        project.up()
        assert project.run("call", "add", "--key", "main", "--arg", "amount=5").stdout.strip() == "5"
        assert project.run("query", "total", "--key", "main").stdout.strip() == "5"
        project.down()


class Project(Bank):
    """A service in a folder that is there already, under the name of its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = folder / "service.yaml"
        self.directory = folder / ".deathless" / folder.name
        self._started: list[subprocess.Popen[str]] = []
