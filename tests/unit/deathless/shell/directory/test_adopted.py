"""What an operator accepted survives as it was written."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from deathless.base.errors import HalfCopy, OutOfSpace
from deathless.engine.ports import ServiceRecord
from deathless.shell.directory import adopted
from deathless.shell.directory.adopted import FILE, AdoptedCode, Adoption, let_outside_go, read_adoption, write_adoption

RECORD = ServiceRecord("bank", bytes(16), 1, bytes(32), 7, "seal", True)


def test_nothing_was_accepted_where_there_is_no_file(tmp_path: Path) -> None:
    assert read_adoption(str(tmp_path)) == Adoption()
    assert Adoption().apply(RECORD) == RECORD


def test_what_was_written_is_read(tmp_path: Path) -> None:
    adoption = Adoption(code=[AdoptedCode(b"\x01" * 16, 7)], through_epoch=4, fence="etcd", hold_outside=True)
    write_adoption(str(tmp_path), adoption)
    read = read_adoption(str(tmp_path))
    assert read == adoption
    assert read.code_pairs == {(b"\x01" * 16, 7)}
    assert read.apply(RECORD).fence == "etcd"
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


@pytest.mark.parametrize("content", [b"", b"{", b'{"code": 1}'])
def test_file_that_cant_be_read_refuses_the_start(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(HalfCopy):
        read_adoption(str(tmp_path))


def test_the_outside_is_let_go_once_and_nothing_else_is_changed(tmp_path: Path) -> None:
    write_adoption(str(tmp_path), Adoption(through_epoch=4, hold_outside=True))
    assert let_outside_go(str(tmp_path)) is True
    assert read_adoption(str(tmp_path)) == Adoption(through_epoch=4)
    assert let_outside_go(str(tmp_path)) is False


def test_storage_that_takes_nothing_leaves_the_outside_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_adoption(str(tmp_path), Adoption(hold_outside=True))

    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "no space", str(path))

    monkeypatch.setattr(adopted, "replace_file", full)
    with pytest.raises(OutOfSpace):
        let_outside_go(str(tmp_path))
    assert read_adoption(str(tmp_path)).hold_outside
