"""Demos kill processes of their own alone, end them all, and say what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from examples.killing import SHOWN_MAX, end_all, finish, processes_of, wrong_lines

MODULE = "http.server"


def started(folder: Path) -> subprocess.Popen[bytes]:
    """A process that names a folder."""
    command = [sys.executable, "-m", MODULE, "0", "--bind", "127.0.0.1", "--directory", str(folder)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_processes_that_name_our_folder_are_found_and_ended_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "others").mkdir()
    with started(tmp_path / "ours") as ours, started(tmp_path / "others") as others:
        try:
            found = processes_of({MODULE: "server"}, str(tmp_path / "ours"))
            assert found == {"server": [ours.pid]}
            assert processes_of({"json.tool": "server"}, str(tmp_path / "ours")) == {}
            end_all(lambda: [ours.pid] if ours.poll() is None else [])
            assert (ours.poll(), others.poll()) == (-9, None)
        finally:
            ours.kill()
            others.kill()


def test_many_differences_are_counted() -> None:
    many = [f"order {number} stands twice" for number in range(SHOWN_MAX + 3)]
    assert wrong_lines(many) == [*many[:SHOWN_MAX], "and 3 more"]
    assert wrong_lines(many[:SHOWN_MAX]) == many[:SHOWN_MAX]


@pytest.mark.parametrize("passed", [True, False])
def test_logs_are_kept_where_the_verdict_is_bad(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], passed: bool
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    assert finish({"passed": passed}, "text", folder, as_json=True) == (0 if passed else 1)
    told = capsys.readouterr()
    assert json.loads(told.out) == {"passed": passed}
    assert (folder.exists(), str(folder) in told.err) == (not passed, not passed)
