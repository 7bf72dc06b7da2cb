"""lab/etcd.py: builds once, never hands out half a binary, and says in one line when Go is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "lab" / "etcd.py"
VERSION = "9.9.9"


def run(cache: Path, search_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the tool with a cache and a search path of its own."""
    return subprocess.run(
        [sys.executable, str(TOOL), "--version", VERSION, *arguments],
        env={"XDG_CACHE_HOME": str(cache), "PATH": str(search_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def put_go(folder: Path, script: str) -> Path:
    """Put a stand-in for the Go client into a folder."""
    folder.mkdir()
    go = folder / "go"
    go.write_text(f"#!/bin/sh\n{script}\n")
    go.chmod(0o755)
    return folder


def binary(cache: Path) -> Path:
    return cache / "deathless" / f"etcd-{VERSION}" / "etcd"


def test_missing_go_is_told_in_one_plain_line(tmp_path: Path) -> None:
    done = run(tmp_path / "cache", tmp_path / "nothing")
    assert done.returncode == 3
    assert done.stdout.startswith("etcd tests left out: no Go")
    assert (done.stdout.count("\n"), done.stderr) == (1, "")


def test_binary_that_is_there_is_used_and_needs_no_go(tmp_path: Path) -> None:
    ready = binary(tmp_path)
    ready.parent.mkdir(parents=True)
    ready.write_text("etcd")
    ready.chmod(0o755)
    done = run(tmp_path, tmp_path / "nothing")
    assert (done.returncode, done.stdout) == (0, f"{ready}\n")


def test_build_ends_with_the_binary_and_nothing_else_in_the_cache(tmp_path: Path) -> None:
    go = put_go(tmp_path / "bin", 'case "$1" in build) echo etcd > etcd; /bin/chmod 755 etcd;; esac')
    done = run(tmp_path, go)
    assert (done.returncode, done.stdout) == (0, f"{binary(tmp_path)}\n")
    assert list(binary(tmp_path).parent.iterdir()) == [binary(tmp_path)]


def test_build_that_fails_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    go = put_go(tmp_path / "bin", 'case "$1" in build) echo half > etcd; echo no space >&2; exit 1;; esac')
    done = run(tmp_path, go)
    assert (done.returncode, done.stdout) == (1, "")
    assert "no space" in done.stderr
    assert list(binary(tmp_path).parent.iterdir()) == []


def test_path_is_told_without_building(tmp_path: Path) -> None:
    done = run(tmp_path, tmp_path / "nothing", "--where")
    assert (done.returncode, done.stdout) == (0, f"{binary(tmp_path)}\n")
    assert not binary(tmp_path).parent.exists()
