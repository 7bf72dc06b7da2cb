"""Names that change hands: one that stays where it can't be removed, and a file that is left with one name."""

from __future__ import annotations

import errno
import random

import pytest

from deathless.engine.file_names import keep_only, remove_name
from deathless.simulation.world.disk import SimDisk


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk(random.Random(1))
    fs = disk.view("x")
    for folder in ("own", "log"):
        fs.make_folder(folder)
    fs.close(fs.create("own/a"))
    return disk


def test_name_is_removed_whether_it_stands_or_not(disk: SimDisk) -> None:
    fs = disk.view("x")
    for _ in range(2):
        remove_name(fs, "own/a")
        assert not fs.exists("own/a")


def test_name_stays_on_a_volume_that_is_read_only_and_other_errors_are_raised(disk: SimDisk) -> None:
    fs = disk.view("x")
    disk.fail("unlink", number=errno.EROFS)
    remove_name(fs, "own/a")
    assert fs.exists("own/a")
    disk.fail("unlink", number=errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        remove_name(fs, "own/a")


def test_file_keeps_one_name_also_behind_a_power_cut(disk: SimDisk) -> None:
    for seed in range(8):
        disk.rng = random.Random(seed)
        fs = disk.view(f"x{seed}")
        if not fs.exists("own/a"):
            fs.close(fs.create("own/a"))
        fs.link("own/a", f"log/{seed}")
        fs.write(keep_only(fs, f"log/{seed}", "own/a"), 0, b"frame")
        disk.cut_power()
        assert not disk.view("again").exists("own/a")


def test_name_that_somebody_else_took_away_is_no_error_and_a_sync_that_fails_is(disk: SimDisk) -> None:
    fs = disk.view("x")
    fs.link("own/a", "log/a")
    fs.unlink("own/a")
    fs.close(keep_only(fs, "log/a", "own/a"))
    disk.fail("sync_folder", "own")
    with pytest.raises(OSError, match="Input/output"):
        keep_only(fs, "log/a", "own/a")
