"""What of the real file system the conformance suite can't ask: its type, its probe, odd calls of the kernel."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from deathless.base.errors import StorageUnfit
from deathless.engine.ports import Handle
from deathless.shell.disk.filesystem import (
    LOCAL_TYPES,
    RealFileSystem,
    check_local,
    filesystem_type,
    mounts,
    on_local_mounts,
    probe_storage,
)
from deathless.simulation.world.disk import SimDisk, SimFileSystem

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:25 / /mnt/share rw,relatime - nfs4 server:/export rw
31 22 0:26 / /mnt/share/inner rw - tmpfs tmpfs rw
32 22 0:27 / /mnt/with\\040blank rw - fuse.bindfs bindfs rw
33 22 0:28 / /mnt/covered rw - cifs a rw
34 22 0:29 / /mnt/covered rw - xfs b rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/data", "ext4"),
        ("/mnt/share", "nfs4"),
        ("/mnt/share/deeper", "nfs4"),
        ("/mnt/shared", "ext4"),
        ("/mnt/share/inner/x", "tmpfs"),
        ("/mnt/with blank/x", "fuse.bindfs"),
        ("/mnt/covered", "xfs"),
    ],
)
def test_the_innermost_mount_names_the_type(path: str, kind: str) -> None:
    assert filesystem_type(path, MOUNTS) == kind


def test_without_a_fitting_mount_the_type_is_unknown() -> None:
    assert filesystem_type("/x", "") == "unknown"
    assert not on_local_mounts("/x", mounts(""))


@pytest.mark.parametrize(
    ("path", "local"),
    [
        ("/data", True),
        ("/mnt/shared", True),
        ("/mnt/share/deeper", False),
        ("/mnt/share/inner/x", False),  # the way there leads through the share
        ("/mnt/with blank/x", False),
    ],
)
def test_a_way_is_local_where_every_mount_on_it_is(path: str, local: bool) -> None:
    assert on_local_mounts(path, mounts(MOUNTS)) is local


def test_the_seal_fence_is_refused_where_another_machine_may_link() -> None:
    for path in ("/mnt/share", "/mnt/with blank"):
        with pytest.raises(StorageUnfit, match="fence seal on a file system of type"):
            check_local(path, mountinfo=MOUNTS)
        assert check_local(path, mountinfo=MOUNTS, allow_any=True) not in LOCAL_TYPES
    assert check_local("/data", mountinfo=MOUNTS) == "ext4"


def test_the_kernels_own_table_is_read(tmp_path: Path) -> None:
    assert filesystem_type(tmp_path) != "unknown"


def test_the_probe_passes_where_the_log_may_stand_and_leaves_nothing(tmp_path: Path) -> None:
    for _ in range(2):
        probe_storage(RealFileSystem(tmp_path), "r0")
    assert list((tmp_path / "probe").iterdir()) == []


def test_leftovers_of_a_killed_probe_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "probe").mkdir()
    for name in ("r0.first", "r0.second"):
        (tmp_path / "probe" / name).touch()
    probe_storage(RealFileSystem(tmp_path), "r0")


class Lax(SimFileSystem):
    """Does not keep one promise."""

    broken = ""

    def create(self, path: str) -> Handle:
        if self.broken == "create" and path in self.made:
            return self.open(path)
        self.made.add(path)
        return super().create(path)

    def link(self, source: str, target: str) -> None:
        if self.broken == "link" and self.disk.view("x").exists(target):
            return
        super().link(source, target)

    def exists(self, path: str) -> bool:
        return self.broken != "exists" and super().exists(path)

    def read(self, handle: Handle, offset: int, size: int) -> bytes:
        return bytes(size) if self.broken == "read" else super().read(handle, offset, size)

    made: set[str] = set()  # noqa: RUF012 each test has its own class


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        ("create", "create files exclusively"),
        ("link", "link exclusively"),
        ("exists", "show a name"),
        ("read", "return what was written"),
    ],
)
def test_the_probe_says_no_where_a_promise_is_not_kept(broken: str, text: str) -> None:
    fs = Lax(SimDisk(random.Random(1)), "r0")
    fs.broken, fs.made = broken, set()
    with pytest.raises(StorageUnfit, match=text):
        probe_storage(fs, "r0")


def test_a_call_that_the_directory_lacks_is_named_and_a_full_disk_is_not() -> None:
    for operation in ("link", "sync", "allocate"):
        disk = SimDisk(random.Random(1))
        disk.fail(operation, number=errno.EOPNOTSUPP)
        with pytest.raises(StorageUnfit, match="not supported"):
            probe_storage(disk.view("r0"), "r0")
    for operation in ("create", "write", "allocate"):
        disk = SimDisk(random.Random(1))
        disk.fail(operation, number=errno.ENOSPC)
        probe_storage(disk.view("r0"), "r0")
    disk = SimDisk(random.Random(1))
    disk.fail("create", number=errno.EACCES)
    with pytest.raises(PermissionError):
        probe_storage(disk.view("r0"), "r0")


def test_a_path_never_leaves_the_directory(tmp_path: Path) -> None:
    fs = RealFileSystem(tmp_path)
    for path in ("/etc/passwd", "../x", "a/../../x"):
        with pytest.raises(AssertionError):
            fs.exists(path)


def test_the_root_must_be_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for root in (tmp_path / "absent", tmp_path / "file"):
        with pytest.raises(NotADirectoryError):
            RealFileSystem(root)


def test_short_writes_and_reads_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal or a nearly full disk may make the kernel take or give less than asked."""
    pwrite, pread = os.pwrite, os.pread
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: pwrite(fd, bytes(data)[:3], offset))
    monkeypatch.setattr(os, "pread", lambda fd, size, offset: pread(fd, min(size, 4), offset))
    fs = RealFileSystem(tmp_path)
    handle = fs.create("a")
    fs.write(handle, 0, b"0123456789")
    assert fs.read(handle, 0, 100) == b"0123456789"
    assert fs.read(handle, 2, 5) == b"23456"


def test_errors_on_descriptors_name_the_file(tmp_path: Path) -> None:
    fs = RealFileSystem(tmp_path)
    fs.close(fs.create("a"))
    handle = fs.open("a")
    changes: list[Callable[[], None]] = [lambda: fs.write(handle, 0, b"x"), lambda: fs.allocate(handle, 0, 1)]
    for use in changes:
        with pytest.raises(OSError, match="Bad file descriptor") as caught:
            use()
        assert caught.value.filename == str(tmp_path / "a")
    os.close(handle)
    for also in (lambda: fs.read(handle, 0, 1), lambda: fs.sync(handle), lambda: fs.size(handle)):
        with pytest.raises(OSError, match="Bad file descriptor"):
            also()


def test_an_answer_that_is_neither_yes_nor_no_is_raised(tmp_path: Path) -> None:
    fs = RealFileSystem(tmp_path)
    fs.close(fs.create("file"))
    with pytest.raises(NotADirectoryError):
        fs.exists("file/below")
