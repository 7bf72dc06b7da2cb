"""The last word stands whole, short enough for Kubernetes, and never costs anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from deathless.shell.supervisor.termination_message import BYTES_MAX, leave_word


def test_last_word_replaces_the_one_before_in_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("a longer word that stood before")
    inode = path.stat().st_ino
    leave_word(str(path), "DL4007 half (mount the right volume)")
    assert (path.read_text(), path.stat().st_ino) == ("DL4007 half (mount the right volume)", inode)


def test_last_word_is_cut_to_what_is_shown(tmp_path: Path) -> None:
    leave_word(str(tmp_path / "log"), "x" * 2 * BYTES_MAX)
    assert (tmp_path / "log").stat().st_size == BYTES_MAX


@pytest.mark.parametrize("path", ["", "no/such/folder/log"])
def test_nowhere_to_leave_it_is_no_failure(path: str) -> None:
    leave_word(path, "text")
