"""The file beside the log: written by a process of its own from the page, never lowered, whole whenever that dies."""

from __future__ import annotations

import errno
import os
import select
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from deathless.codec.witness import Point, encode_slot
from deathless.shell.link.status_page import DURABLE, Page, confirmed_in_files
from deathless.shell.worker.helpers import witness_writer
from deathless.shell.worker.helpers.witness_writer import FILE_SLOTS, WitnessFile, newest

POINT = Point(bytes(range(16)), 77, 3, 1000, bytes(range(16, 32)), 5)


def point(**changes: object) -> bytes:
    return encode_slot(msgspec.structs.replace(POINT, **changes))


def stands(path: Path) -> bytes:
    return newest(path.read_bytes(), FILE_SLOTS)


def test_what_is_newer_is_written_beside_what_stands_and_nothing_is_lowered(tmp_path: Path) -> None:
    file = WitnessFile(str(tmp_path / "confirmed"))
    for lsn in (1000, 1001, 1002):
        file.write(point(lsn=lsn))
        assert stands(tmp_path / "confirmed") == point(lsn=lsn)
    WitnessFile(str(tmp_path / "confirmed")).write(point(lsn=900))
    assert stands(tmp_path / "confirmed") == point(lsn=1002)
    file.write(point(epoch=4, lsn=5))
    assert stands(tmp_path / "confirmed") == point(epoch=4, lsn=5)


def test_a_torn_slot_leaves_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "confirmed"
    file = WitnessFile(str(path))
    file.write(point(lsn=1))
    file.write(point(lsn=2))
    data = bytearray(path.read_bytes())
    data[data.index(point(lsn=2)) + 50] ^= 1
    path.write_bytes(data)
    assert stands(path) == point(lsn=1)


def test_another_incarnation_replaces_what_stood_whatever_its_epoch(tmp_path: Path) -> None:
    file = WitnessFile(str(tmp_path / "confirmed"))
    file.write(point(lsn=1000))
    file.write(point(lsn=1001))
    file.write(point(incarnation=78, epoch=1, lsn=2))
    assert stands(tmp_path / "confirmed") == point(incarnation=78, epoch=1, lsn=2)


def test_the_process_copies_the_page_and_once_more_when_its_starter_ends(tmp_path: Path) -> None:
    page = Page(str(tmp_path / "page"), fresh=True)
    folder = tmp_path / "replicas" / "r0"
    folder.mkdir(parents=True)
    words = [sys.executable, "-I", "-S", witness_writer.__file__, page.path, str(folder / "confirmed"), "3600"]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    page.note_confirmed(POINT)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, b"")
    [found] = confirmed_in_files(str(tmp_path))
    assert (found.point.lsn, found.point.by, found.where) == (1000, "r0", "replicas/r0/confirmed")
    assert page.cells[DURABLE] == 1000


def test_an_error_is_tried_again_and_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page(str(tmp_path / "page"), fresh=True)
    page.note_confirmed(POINT)
    looks = iter([[], [0]])
    monkeypatch.setattr(select, "select", lambda *_: (next(looks), [], []))
    sync = os.fdatasync
    failed: list[int] = []
    synced: list[bytes] = []

    def failing(descriptor: int) -> None:
        if not failed:
            failed.append(descriptor)
            raise OSError(errno.EIO, "bad disk")
        synced.append(os.pread(descriptor, 4096, 0))
        sync(descriptor)

    monkeypatch.setattr(os, "fdatasync", failing)
    witness_writer.run(page.path, str(tmp_path / "confirmed"), 0.0)
    assert failed
    assert synced, "what reads back after a sync that failed may not be on the disk"
    assert stands(tmp_path / "confirmed")[32:48] == point()[32:48]


def test_a_page_that_can_not_be_opened_now_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page(str(tmp_path / "page"), fresh=True)
    page.note_confirmed(POINT)
    looks = iter([[], [0]])
    monkeypatch.setattr(select, "select", lambda *_: (next(looks), [], []))
    errors = iter([OSError(errno.EIO, "bad disk", page.path)])
    opened = os.open

    def failing(path: str, *others: int) -> int:
        for error in errors:
            raise error
        return opened(path, *others)

    monkeypatch.setattr(os, "open", failing)
    witness_writer.run(page.path, str(tmp_path / "confirmed"), 0.0)
    assert stands(tmp_path / "confirmed")[32:48] == point()[32:48]


def test_a_page_that_is_gone_or_a_starter_that_ends_first_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    witness_writer.run(str(tmp_path / "none"), str(tmp_path / "confirmed"), 0.0)
    monkeypatch.setattr(select, "select", lambda *_: ([0], [], []))
    (tmp_path / "page").mkdir()  # no file, so it can't be opened
    witness_writer.run(str(tmp_path / "page"), str(tmp_path / "confirmed"), 0.0)
    assert not (tmp_path / "confirmed").exists()


def test_files_that_say_nothing_are_passed_over(tmp_path: Path) -> None:
    for name, data in (("r0", b""), ("r1", b"x" * 4096)):
        (tmp_path / "replicas" / name).mkdir(parents=True)
        (tmp_path / "replicas" / name / "confirmed").write_bytes(data)
    assert confirmed_in_files(str(tmp_path)) == []
