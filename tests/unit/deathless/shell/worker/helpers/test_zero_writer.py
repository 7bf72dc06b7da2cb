"""The process that fills segments: whole files alone count, what stood is not touched, and it ends with its input."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deathless.shell.worker.helpers import zero_writer


class Process:
    """One that runs, and the socket on which it is spoken to."""

    def __init__(self, folder: Path) -> None:
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(30)
        words = [sys.executable, "-I", "-S", zero_writer.__file__, str(folder / "measured")]
        self.process: subprocess.Popen[bytes] = subprocess.Popen(words, stdin=theirs.fileno())
        theirs.close()
        self.lines = self.socket.makefile("rb")
        self.measured = self.lines.readline()

    def make(self, path: Path, size: int) -> bytes:
        self.socket.sendall(b"%d %s\n" % (size, os.fsencode(path)))
        return self.lines.readline()

    def close(self) -> int:
        """End its input; gives its exit code."""
        self.lines.close()
        self.socket.close()
        return self.process.wait(30)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path)
    yield process
    process.close()


def test_it_measures_first_and_leaves_nothing_of_that(process: Process, tmp_path: Path) -> None:
    growing, filled = map(int, process.measured.split())
    assert growing > 0
    assert filled > 0
    assert os.listdir(tmp_path) == []


def test_file_is_made_with_all_its_bytes_and_a_name_with_blanks(process: Process, tmp_path: Path) -> None:
    for name, size in (("a", 1 << 20), ("b c é", zero_writer.STEP_BYTES + 4096)):
        assert process.make(tmp_path / name, size) == b"1\n"
        assert (tmp_path / name).read_bytes() == bytes(size)
        assert os.stat(tmp_path / name).st_blocks * 512 >= size


def test_file_that_stood_before_is_not_touched(process: Process, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"frames")
    assert process.make(tmp_path / "a", 4096) == b"0\n"
    assert (tmp_path / "a").read_bytes() == b"frames"
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    assert process.make(tmp_path / "link", 4096) == b"0\n"
    assert not (tmp_path / "elsewhere").exists()


def test_order_that_cannot_be_carried_out_is_told_and_the_next_one_is(process: Process, tmp_path: Path) -> None:
    assert process.make(tmp_path / "none" / "a", 4096) == b"0\n"
    assert process.make(tmp_path / "a", 4096) == b"1\n"


def test_it_ends_with_its_input_also_while_it_writes(process: Process, tmp_path: Path) -> None:
    process.socket.sendall(b"%d %s\n" % (1 << 30, os.fsencode(tmp_path / "large")))
    while not (tmp_path / "large").exists():
        os.sched_yield()
    assert process.close() == 0
    assert os.listdir(tmp_path) == []


def test_folder_that_takes_no_file_is_measured_as_nothing(tmp_path: Path) -> None:
    assert zero_writer.measure(str(tmp_path / "none" / "a")) == (0, 0)


def test_error_while_it_fills_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, size: int) -> bool:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(zero_writer, "fill", full)
    assert not zero_writer.make(str(tmp_path / "a"), 4096)
    assert os.listdir(tmp_path) == []
