"""Packages are installed by the package manager, which starts nothing; what this machine lacks for that is said."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from lab import debian

PROGRAM = """#!/bin/sh
echo "$DEBIAN_FRONTEND $*" >> "$SAID"
test -x "$POLICY" && echo "nothing starts" >> "$SAID"
exit $FAILS
"""


@pytest.fixture(name="said")
def manager_of_this_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package manager that notes what it is asked for."""
    program, said, policy = tmp_path / "apt-get", tmp_path / "said", tmp_path / "policy"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(debian, "POLICY", policy)
    for name, value in {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SAID": said, "POLICY": policy, "FAILS": 0}.items():
        monkeypatch.setenv(name, str(value))
    return said


def test_packages_are_installed_and_nothing_of_them_starts(said: Path) -> None:
    debian.install("maven", "gcc")
    told = said.read_text().splitlines()
    assert [line.rpartition("-qq ")[2] for line in told[::2]] == [
        "update",
        "install -y --no-install-recommends maven gcc",
    ]
    assert told[1::2] == ["nothing starts"] * 2
    assert told[0].startswith("noninteractive ")
    assert not debian.POLICY.exists()


def test_somebodys_own_policy_stays(said: Path) -> None:
    debian.POLICY.write_text("theirs")
    debian.install("gcc")
    assert debian.POLICY.read_text() == "theirs"


def test_a_failure_is_told_and_leaves_no_policy(said: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAILS", "100")
    with pytest.raises(subprocess.CalledProcessError):
        debian.install("gcc")
    assert not debian.POLICY.exists()


def test_without_rights_or_the_manager_it_says_for_want_of_what(said: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(debian.CannotInstall, match=r"^without root this machine can't install gcc$"):
        debian.install("gcc")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(debian.CannotInstall, match=r"^without apt-get this machine can't install maven, gcc$"):
        debian.install("maven", "gcc")
    assert not said.exists()
