"""What killed replicas leave in memory goes with their test, and nobody else's does."""

from __future__ import annotations

from pathlib import Path

from left_pages import remove_pages_below

from deathless.shell.link.status_page import open_page


def test_pages_of_replicas_below_a_folder_are_removed_and_no_others(tmp_path: Path) -> None:
    memory = tmp_path / "memory"
    for folder in (memory, tmp_path / "ours" / "data", tmp_path / "theirs"):
        folder.mkdir(parents=True)
    open_page(str(tmp_path / "ours" / "data"), "r0", memory=str(memory))
    theirs = open_page(str(tmp_path / "theirs"), "r0", memory=str(memory))
    (memory / "deathless-short").write_bytes(b"x")
    remove_pages_below(tmp_path / "ours", str(memory))
    assert sorted(path.name for path in memory.iterdir()) == sorted([Path(theirs.path).name, "deathless-short"])
