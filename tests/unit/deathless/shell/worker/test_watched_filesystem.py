"""Calls that may wait for the storage are marked in the page."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from deathless.shell.link.status_page import CALLS, STORAGE, Page
from deathless.shell.worker.watched_filesystem import WatchedFileSystem


def test_each_call_of_the_file_system_is_marked_while_it_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Page(str(tmp_path / "page"), fresh=True)
    fs = WatchedFileSystem(str(tmp_path), page)
    seen: list[int] = []
    real = os.stat

    def stat(path: str) -> os.stat_result:
        seen.append(page.cells[CALLS] % 2)
        return real(path)

    monkeypatch.setattr(os, "stat", stat)
    assert not fs.exists("a")
    monkeypatch.undo()
    assert seen == [1]
    handle = fs.create("a")
    fs.allocate(handle, 0, 8192)
    fs.write(handle, 0, b"bytes")
    fs.sync(handle)
    assert fs.read(handle, 0, 5) == b"bytes"
    fs.close(handle)
    fs.link("a", "b")
    fs.rename("b", "c")
    fs.close(fs.open("c"))
    fs.unlink("c")
    fs.sync_folder("")
    assert fs.listing("") == ["a", "page"]
    with pytest.raises(FileExistsError):
        fs.create("a")
    assert page.cells[CALLS] == 2 * 15


@pytest.mark.parametrize(
    ("flags", "files", "free", "cell"),
    [(0, 100, 5, 0), (os.ST_RDONLY, 100, 5, 1), (0, 100, 0, 2), (0, 0, 0, 0)],
    ids=["well", "read-only", "without inodes", "that counts no inodes"],
)
def test_what_keeps_a_file_system_from_taking_anything_new_is_in_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: int, files: int, free: int, cell: int
) -> None:
    page = Page(str(tmp_path / "page"), fresh=True)
    fs = WatchedFileSystem(str(tmp_path), page)
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=flags, f_files=files, f_favail=free))
    fs.look()
    assert page.cells[STORAGE] == cell
