"""A large file written beside a log: all of it arrives, in small pieces, and the writer rests after each."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from deathless.base.errors import Internal
from deathless.shell.disk import background_writer as gentle_files
from deathless.shell.disk.background_writer import BLOCK_BYTES, REST_MAX_S, GentleFileSystem

Written = Callable[[list[int]], bytes]


def pieces(sizes: list[int]) -> list[bytes]:
    return [bytes([n % 251 + 1]) * size for n, size in enumerate(sizes)]


def write_all(fs: GentleFileSystem, sizes: list[int]) -> bytes:
    handle = fs.create("file")
    offset = 0
    for piece in pieces(sizes):
        fs.write(handle, offset, piece)
        offset += len(piece)
    fs.sync(handle)
    fs.close(handle)
    return (Path(fs.root) / "file").read_bytes()


@pytest.mark.parametrize(
    "sizes",
    [[], [1], [4096], [BLOCK_BYTES], [BLOCK_BYTES + 1, 5], [100, 3 * BLOCK_BYTES, 7, BLOCK_BYTES - 107], [999] * 2000],
)
@pytest.mark.parametrize("direct", [True, False])
def test_a_file_holds_what_was_written(
    tmp_path: Path, sizes: list[int], direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not direct:
        monkeypatch.setattr(gentle_files, "_set_direct", refuse)
    assert write_all(GentleFileSystem(tmp_path, rest=lambda _: None), sizes) == b"".join(pieces(sizes))


def refuse(handle: int, *, on: bool) -> None:
    raise OSError(errno.EINVAL, "Invalid argument")


def test_the_writer_rests_after_each_block_for_a_bounded_time(tmp_path: Path) -> None:
    rests: list[float] = []
    write_all(GentleFileSystem(tmp_path, rest=rests.append), [3 * BLOCK_BYTES, 1])
    assert len(rests) == 4
    assert all(0 <= rest <= REST_MAX_S for rest in rests)


def test_without_o_direct_little_waits_in_the_page_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    fdatasync = os.fdatasync

    def count(descriptor: int) -> None:
        synced.append(descriptor)
        fdatasync(descriptor)

    monkeypatch.setattr(os, "fdatasync", count)
    monkeypatch.setattr(gentle_files, "_set_direct", refuse)
    write_all(GentleFileSystem(tmp_path, rest=lambda _: None), [8 * BLOCK_BYTES, 1])
    assert len(synced) == 8 * BLOCK_BYTES // gentle_files.UNSYNCED_BYTES_MAX + 1


def test_a_file_can_be_synced_in_between(tmp_path: Path) -> None:
    fs = GentleFileSystem(tmp_path, rest=lambda _: None)
    handle = fs.create("file")
    fs.write(handle, 0, b"a" * 10)
    fs.sync(handle)
    assert not fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_DIRECT
    fs.write(handle, 10, b"b" * BLOCK_BYTES)
    fs.sync(handle)
    fs.sync(handle)
    fs.close(handle)
    assert (tmp_path / "file").read_bytes() == b"a" * 10 + b"b" * BLOCK_BYTES


def test_a_write_that_is_not_at_the_end_is_our_bug(tmp_path: Path) -> None:
    fs = GentleFileSystem(tmp_path)
    handle = fs.create("file")
    with pytest.raises(Internal, match="ends at 0"):
        fs.write(handle, 1, b"x")
    fs.close(handle)


def test_an_error_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = GentleFileSystem(tmp_path, rest=lambda _: None)
    handle = fs.create("file")

    def full(descriptor: int, data: object, offset: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="file") as caught:
        fs.write(handle, 0, bytes(BLOCK_BYTES))
    assert caught.value.errno == errno.ENOSPC
    fs.close(handle)


def test_files_that_are_read_are_as_ever(tmp_path: Path) -> None:
    fs = GentleFileSystem(tmp_path, rest=lambda _: None)
    write_all(fs, [5])
    handle = fs.open("file")
    assert fs.read(handle, 0, 100) == b"\x01" * 5
    fs.close(handle)
