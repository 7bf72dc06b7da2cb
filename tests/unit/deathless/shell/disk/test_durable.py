"""Small files that last: whole, named in every error, and nothing left beside them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from deathless.shell.disk.durable import closing_file, link_file, naming, replace_file, sync_folder


def test_an_error_of_a_descriptor_is_given_the_files_name(tmp_path: Path) -> None:
    closed = os.open(tmp_path / "x", os.O_CREAT | os.O_RDWR)
    os.close(closed)
    with pytest.raises(OSError, match="log/x") as told, naming("log/x"):
        os.fsync(closed)
    assert (told.value.errno, told.value.filename) == (errno.EBADF, "log/x")
    with pytest.raises(FileNotFoundError, match="elsewhere"), naming("log/x"):
        os.stat("elsewhere")
    with pytest.raises(OSError, match="the spool is full") as ours, naming("log/x"):
        raise OSError("the spool is full")
    assert ours.value.filename is None


def test_a_descriptor_is_closed_whatever_is_raised(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "x", os.O_CREAT | os.O_RDWR)
    with pytest.raises(OSError, match="x"), closing_file(descriptor, tmp_path / "x"):
        os.pread(descriptor, 1, -1)
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        os.fstat(descriptor)


def test_a_file_is_replaced_whole_and_linked_once(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    assert link_file(path, b"first") is True
    assert link_file(path, b"second") is False
    assert path.read_bytes() == b"first"
    replace_file(path, b"third")
    assert path.read_bytes() == b"third"
    assert list(tmp_path.iterdir()) == [path]


def test_what_could_not_be_put_in_its_place_leaves_nothing_behind(tmp_path: Path) -> None:
    place = tmp_path / "folder"
    (place / "full").mkdir(parents=True)
    with pytest.raises(OSError, match="folder"):
        replace_file(place, b"a folder stands here")
    assert list(tmp_path.iterdir()) == [place]
    with pytest.raises(FileNotFoundError, match="nowhere"):
        sync_folder(tmp_path / "nowhere")
