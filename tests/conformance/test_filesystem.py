"""What the engine asks of a `FileSystem`, asked of the real one and of the simulated one."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from deathless.engine.ports import FileSystem, Handle
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.simulation.world.disk import SimDisk

Views = Callable[[], FileSystem]
"""Gives one more view of the same directory, as another process would have it."""


@pytest.fixture(params=["real", "direct", "simulated"])
def views(request: pytest.FixtureRequest, tmp_path: Path) -> Views:
    disk = SimDisk(random.Random(1))
    made: dict[str, Views] = {
        "real": lambda: RealFileSystem(tmp_path),
        "direct": lambda: RealFileSystem(tmp_path, bypass_cache=True),
        "simulated": lambda: disk.view("r0"),
    }
    return made[request.param]


@pytest.fixture
def fs(views: Views) -> FileSystem:
    return views()


def write_file(fs: FileSystem, path: str, data: bytes) -> None:
    handle = fs.create(path)
    fs.write(handle, 0, data)
    fs.sync(handle)
    fs.close(handle)


def read_file(fs: FileSystem, path: str) -> bytes:
    handle = fs.open(path)
    try:
        return fs.read(handle, 0, fs.size(handle))
    finally:
        fs.close(handle)


def test_what_was_written_is_read_through_any_descriptor(views: Views) -> None:
    fs, other = views(), views()
    handle = fs.create("a")
    fs.write(handle, 0, b"hello")
    fs.write(handle, 3, b"p me")
    assert fs.read(handle, 0, 100) == b"help me"
    fs.sync(handle)
    assert read_file(other, "a") == b"help me"
    assert fs.size(handle) == 7
    fs.close(handle)


def test_create_is_exclusive(fs: FileSystem) -> None:
    write_file(fs, "a", b"1")
    with pytest.raises(FileExistsError):
        fs.create("a")
    assert read_file(fs, "a") == b"1"


def test_an_absent_file_is_not_opened(fs: FileSystem) -> None:
    for write in (False, True):
        with pytest.raises(FileNotFoundError):
            fs.open("a", write=write)
    with pytest.raises(FileNotFoundError):
        fs.create("folder/a")


def test_an_existing_file_is_opened_for_writing_without_losing_what_it_holds(fs: FileSystem) -> None:
    write_file(fs, "a", b"abc")
    handle = fs.open("a", write=True)
    fs.write(handle, 1, b"X")
    fs.sync(handle)
    assert fs.read(handle, 0, 3) == b"aXc"
    fs.close(handle)


@pytest.mark.parametrize(
    ("offset", "size"), [(0, 0), (0, 1), (4095, 2), (4096, 4096), (5, 9000), (8999, 10), (9000, 5), (50_000, 5)]
)
def test_reads_are_short_only_at_the_end(fs: FileSystem, offset: int, size: int) -> None:
    data = bytes(range(250)) * 36
    write_file(fs, "a", data)
    handle = fs.open("a")
    assert fs.read(handle, offset, size) == data[offset : offset + size]
    fs.close(handle)


def test_a_gap_reads_as_zeros(fs: FileSystem) -> None:
    handle = fs.create("a")
    fs.write(handle, 10_000, b"x")
    assert fs.read(handle, 0, 20_000) == bytes(10_000) + b"x"
    fs.close(handle)


def test_allocated_space_reads_as_zeros_and_keeps_what_is_there(fs: FileSystem) -> None:
    handle = fs.create("a")
    fs.write(handle, 0, b"kept")
    fs.allocate(handle, 0, 8192)
    fs.allocate(handle, 8192, 4096)
    assert fs.size(handle) == 12_288
    assert fs.read(handle, 0, 20_000) == b"kept" + bytes(12_284)
    fs.allocate(handle, 0, 10)
    assert fs.size(handle) == 12_288
    fs.close(handle)


def test_a_closed_handle_is_refused(fs: FileSystem) -> None:
    handle = fs.create("a")
    fs.close(handle)
    with pytest.raises(OSError, match="Bad file descriptor"):
        fs.close(handle)


def test_links_are_exclusive_and_share_the_file(fs: FileSystem) -> None:
    write_file(fs, "a", b"1")
    write_file(fs, "b", b"2")
    with pytest.raises(FileExistsError):
        fs.link("a", "b")
    assert read_file(fs, "b") == b"2"
    fs.link("a", "c")
    handle = fs.open("a", write=True)
    fs.write(handle, 0, b"3")
    fs.close(handle)
    assert read_file(fs, "c") == b"3"
    fs.unlink("a")
    assert (fs.exists("a"), read_file(fs, "c")) == (False, b"3")
    with pytest.raises(FileNotFoundError):
        fs.link("absent", "d")


def test_an_open_file_outlives_its_name(fs: FileSystem) -> None:
    write_file(fs, "a", b"1")
    handle = fs.open("a")
    fs.unlink("a")
    assert fs.read(handle, 0, 1) == b"1"
    fs.close(handle)
    with pytest.raises(FileNotFoundError):
        fs.unlink("a")


def test_rename_replaces_what_stands_under_the_name(fs: FileSystem) -> None:
    write_file(fs, "a", b"1")
    write_file(fs, "b", b"2")
    fs.rename("a", "b")
    assert (fs.exists("a"), read_file(fs, "b")) == (False, b"1")
    with pytest.raises(FileNotFoundError):
        fs.rename("a", "b")


def test_folders_are_made_with_their_parents_and_listed_sorted(fs: FileSystem) -> None:
    fs.make_folder("x/y/z")
    fs.make_folder("x/y")
    for name in ("b", "a", "c"):
        write_file(fs, f"x/{name}", b"")
    fs.sync_folder("x")
    assert fs.listing("x") == ["a", "b", "c", "y"]
    assert fs.exists("x/y/z")
    for missing in (fs.listing, fs.sync_folder):
        with pytest.raises(FileNotFoundError):
            missing("absent")
    with pytest.raises(FileExistsError):
        fs.make_folder("x/a")


def test_names_linked_by_another_are_seen(views: Views) -> None:
    fs, other = views(), views()
    assert not fs.exists("a")
    write_file(other, "a", b"1")
    assert fs.exists("a")
    assert fs.listing("") == ["a"]


def test_errors_name_the_file(fs: FileSystem) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        fs.open("some/name")
    assert str(caught.value.filename).endswith("some/name")
    assert caught.value.errno == errno.ENOENT


def test_handles_of_one_file_are_independent(fs: FileSystem) -> None:
    write_file(fs, "a", b"abc")
    handles: list[Handle] = [fs.open("a") for _ in range(3)]
    fs.close(handles[0])
    assert fs.read(handles[1], 1, 1) == fs.read(handles[2], 1, 1) == b"b"
    for handle in handles[1:]:
        fs.close(handle)
