"""A copied directory is told from the one that it was copied from; one that moved is no copy."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from deathless.base.errors import CopiedDirectory
from deathless.base.safeguards import Safeguards
from deathless.codec.untrusted import read_json
from deathless.core.access.place import Place
from deathless.shell.directory import place
from deathless.shell.directory.members import Member, read_members, write_member
from deathless.shell.directory.place import (
    FILE,
    check_place,
    find_place,
    fits,
    keep_place,
    read_place,
    spot_of,
    write_place,
)

pytestmark = pytest.mark.usefixtures("counting")


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inodes count, wherever the tests' folder lies."""
    monkeypatch.setattr(place, "filesystem_type", lambda _path: "ext4")


@pytest.fixture
def original(tmp_path: Path) -> Path:
    """A directory that a service was started in."""
    folder = tmp_path / "job"
    (folder / "replicas" / "r0").mkdir(parents=True)
    keep_place(str(folder))
    return folder


COPIES: dict[str, Callable[[Path, Path], object]] = {
    "cp -a": lambda a, b: subprocess.run(["cp", "-a", str(a), str(b)], check=True),
    "cp -al": lambda a, b: subprocess.run(["cp", "-al", str(a), str(b)], check=True),
    "copytree": shutil.copytree,
    "tar": lambda a, b: subprocess.run(f"mkdir {b} && tar -C {a} -cf - . | tar -C {b} -xf -", shell=True, check=True),
}


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_is_told_and_the_original_is_not(original: Path, how: str) -> None:
    copy = original.parent / "copy"
    COPIES[how](original, copy)
    with pytest.raises(CopiedDirectory, match=f"a copy of {original}.*which stands there too"):
        keep_place(str(copy))
    with pytest.raises(CopiedDirectory):
        check_place(str(copy))
    check_place(str(original))


def test_the_process_that_runs_the_original_is_named(original: Path) -> None:
    copy = original.parent / "copy"
    lock = original / "replicas" / "r0" / "supervisor.lock"
    with lock.open("w") as held:
        held.write(f"{os.getpid()}\n")
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)
        shutil.copytree(original, copy)
        with pytest.raises(CopiedDirectory, match=f"which runs .process {os.getpid()}."):
            check_place(str(copy))


def test_a_copy_whose_original_is_gone_says_so(original: Path) -> None:
    copy = original.parent / "copy"
    shutil.copytree(original, copy)
    shutil.rmtree(original)
    with pytest.raises(CopiedDirectory, match="which is not there now"):
        check_place(str(copy))


def test_a_backup_put_back_in_place_is_the_witnesses_business(original: Path) -> None:
    copy = original.parent / "copy"
    shutil.copytree(original, copy)
    shutil.rmtree(original)
    shutil.copytree(copy, original)
    check_place(str(original))
    place.keep_place(str(original))
    found = place.find_place(str(original))
    assert found is not None
    assert place.fits(str(original), found), "its own copies are told again"


def test_a_copy_from_another_machine_says_so(original: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = original.parent / "copy"
    shutil.copytree(original, copy)
    monkeypatch.setattr(place, "_machine", lambda: "another")
    with pytest.raises(CopiedDirectory, match="on another machine"):
        check_place(str(copy))


def test_a_directory_that_was_moved_is_none_and_learns_its_path(original: Path) -> None:
    moved = original.parent / "moved"
    original.rename(moved)
    check_place(str(moved))
    installation = read_place(str(moved))
    keep_place(str(moved))
    kept = read_place(str(moved))
    assert kept is not None
    assert installation is not None
    assert (kept.path, kept.installation) == (str(moved), installation.installation)


def test_changed_owners_and_modes_are_no_copy(original: Path) -> None:
    for path in (original, original / "replicas", original / FILE):
        path.chmod(0o700)
    check_place(str(original))


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_a_file_that_cannot_be_read_is_written_anew(original: Path, text: str) -> None:
    (original / FILE).write_text(text)
    check_place(str(original))
    keep_place(str(original))
    found = find_place(str(original))
    assert found is not None
    assert fits(str(original), found)


@pytest.mark.parametrize("kind", ["overlay", "tmpfs", "nfs4"])
def test_a_file_system_that_numbers_as_it_likes_only_warns(
    original: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = original.parent / "copy"
    shutil.copytree(original, copy)
    monkeypatch.setattr(place, "filesystem_type", lambda _path: kind)
    check_place(str(copy))
    keep_place(str(copy))
    found = find_place(str(copy))
    assert found is not None
    assert fits(str(copy), found), "it fits from now on"


def test_a_file_system_without_births_is_judged_by_inodes(original: Path) -> None:
    found = find_place(str(original))
    assert found is not None
    bare = msgspec.structs.replace(found.place, file=msgspec.structs.replace(found.place.file, birth=""))
    assert fits(str(original), found._replace(place=bare))


def test_a_kernel_without_statx_gives_the_inode(original: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_args, **_kwargs: object())
    assert spot_of(original).inode == original.stat().st_ino
    assert not spot_of(original).birth


def test_a_folder_that_lacks_its_replicas_does_not_fit(original: Path) -> None:
    found = find_place(str(original))
    assert found is not None
    shutil.rmtree(original / "replicas")
    assert not fits(str(original), found)


def test_a_file_that_another_replica_replaces_meanwhile_is_judged_as_it_was_read(
    original: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replicas that see the directory through mounts of their own start at once, and a client looks."""
    seen = original.parent / "seen"
    seen.symlink_to(original)

    def replaced(data: bytes, kind: type[Place]) -> Place:
        read = read_json(data, kind)
        write_place(str(original))
        return read

    monkeypatch.setattr(place, "read_json", replaced)
    monkeypatch.setattr(os.path, "realpath", lambda _path: str(seen))
    check_place(str(seen))


def test_addresses_in_a_copy_are_not_read(original: Path) -> None:
    write_member(str(original), Member("r0", "127.0.0.1:1"))
    copy = original.parent / "copy"
    shutil.copytree(original, copy)
    assert set(read_members(str(original))) == {"r0"}
    with pytest.raises(CopiedDirectory):
        read_members(str(copy))


def test_without_the_safeguard_a_copy_passes_for_the_original(original: Path) -> None:
    copy = original.parent / "copy"
    shutil.copytree(original, copy)
    check_place(str(copy), Safeguards(check_place=False))


def test_a_directory_adopted_has_an_installation_of_its_own(original: Path) -> None:
    before = read_place(str(original))
    after = write_place(str(original))
    assert before is not None
    assert after.installation != before.installation
