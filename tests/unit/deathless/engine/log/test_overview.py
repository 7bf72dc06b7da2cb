"""What tools see of the log folder, and openings above the lock's head."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from deathless.base.errors import CorruptFrame, StoreOlderThanLog
from deathless.codec.frames import BLOCK, FrameKind
from deathless.engine.log.overview import describe, describe_segment, frames_of, newest_opening, opening_of
from deathless.engine.log.segment_scan import segment_path
from deathless.engine.safeguards import ALL_SAFEGUARDS
from deathless.simulation.models.log_driver import LogDriver
from deathless.simulation.world.disk import SimDisk


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(random.Random(1))


def primary(disk: SimDisk, name: str = "r0", released: list[bytes] | None = None) -> LogDriver:
    driver = LogDriver(disk.view(name), name, [] if released is None else released)
    driver.start()
    driver.take_over()
    return driver


def test_segments_are_described_as_they_stand(disk: SimDisk) -> None:
    first = primary(disk)
    for number in range(14):
        first.call(b"x" * 3000, b"%d" % number)
    first.idle()
    infos = list(describe(disk.view("x")))
    assert [(info.epoch, info.roll) for info in infos] == [(1, 0), (1, 1), (1, 2)]
    assert infos[0].cut is not None
    assert infos[0].opening is not None
    assert infos[0].rolled_to == 1
    assert infos[1].cut is None
    assert sum(info.messages for info in infos) == 28
    assert [info.first_lsn for info in infos][1:] == [info.last_lsn + 1 for info in infos][:-1]
    assert infos[-1].confirmed_lsn == 28
    assert all(info.problem is None and info.used <= info.size for info in infos)


def test_a_rotten_segment_is_described_up_to_the_bad_frame(disk: SimDisk) -> None:
    first = primary(disk)
    for _ in range(3):
        first.call(b"x")
    disk.flip_bit(segment_path(1, 0), 3 * BLOCK + 150)
    [info] = describe(disk.view("x"))
    assert info.last_lsn == 1
    assert info.problem is not None
    assert f"offset {3 * BLOCK}" in info.problem
    assert "lsn 2" in info.problem


def test_raw_frames_of_a_file_are_given_in_order_whatever_cuts_say(disk: SimDisk) -> None:
    old = primary(disk)
    old.call(b"one")
    primary(disk, "r1")
    old.call_unsynced(b"late")
    old.log.sync()
    kinds = [found.frame.kind for found in frames_of(disk.view("x"), 1, 0)]
    assert kinds == [FrameKind.CUT, FrameKind.OPENING, FrameKind.DATA, FrameKind.DATA]
    disk.flip_bit(segment_path(1, 0), BLOCK + 8)
    with pytest.raises(CorruptFrame):
        list(frames_of(disk.view("x"), 1, 0))


def test_an_empty_or_absent_folder_shows_nothing(disk: SimDisk) -> None:
    fs = disk.view("x")
    assert list(describe(fs)) == []
    assert newest_opening(fs) is None
    assert opening_of(fs, 3) is None
    with pytest.raises(FileNotFoundError):
        describe_segment(fs, 1, 0)


def test_files_collected_while_they_are_listed_are_left_out(disk: SimDisk) -> None:
    primary(disk)
    stale = disk.view("x")
    stale.stale = True
    stale.listing("log")
    disk.view("y").unlink(segment_path(1, 0))
    assert list(describe(stale)) == []


def test_the_newest_opening_is_found_behind_copies_and_above_what_is_known(disk: SimDisk) -> None:
    first = primary(disk)
    first.call(b"one")
    first.call_unsynced(b"copied" * 1000)
    primary(disk, "r1")
    fs = disk.view("x")
    found = newest_opening(fs)
    assert found is not None
    assert (found[0], found[1].confirmed_lsn, found[1].previous_head) == (2, 2, 1)
    assert newest_opening(fs, above=2) is None
    assert newest_opening(fs, above=1) == found


def test_names_are_probed_where_a_listing_is_stale(disk: SimDisk) -> None:
    primary(disk)
    stale = disk.view("x")
    stale.stale = True
    stale.listing("log")
    primary(disk, "r1")
    assert newest_opening(stale, above=1) is None
    assert newest_opening(stale, above=1, probe_through=2) is not None


def test_a_lock_store_older_than_the_log_refuses_to_start(disk: SimDisk) -> None:
    """The lock's names are those of a backup; the log is not."""
    released: list[bytes] = []
    first = primary(disk, "r0", released)
    first.call(b"one")
    second = primary(disk, "r1", released)
    second.call(b"two")
    fs = disk.view("backup")
    for name in ("epoch.2", "head.2"):
        fs.unlink(f"lock/{name}")
    third = LogDriver(disk.view("r2"), "r2", released)
    third.start()
    with pytest.raises(StoreOlderThanLog):
        third.take_over()
    blind = LogDriver(disk.view("r3"), "r3", released, safeguards=replace(ALL_SAFEGUARDS, refuse_older_store=False))
    blind.start()
    with pytest.raises(StoreOlderThanLog, match="was given before"):
        blind.take_over()


def test_without_the_opening_check_a_restored_store_loses_what_was_released(disk: SimDisk) -> None:
    released: list[bytes] = []
    primary(disk, "r0", released).call(b"one")
    second = primary(disk, "r1", released)
    second.call(b"two")
    fs = disk.view("backup")
    for name in ("epoch.2", "head.2"):
        fs.unlink(f"lock/{name}")
    blind = LogDriver(disk.view("r3"), "r3", released, safeguards=replace(ALL_SAFEGUARDS, refuse_older_store=False))
    blind.start()
    lock = blind.lock
    assert lock.take("r9", b"n", lock.view()) is not None, "epoch 2 is given a second time and its owner dies"
    blind.take_over()
    with pytest.raises(AssertionError, match="released was lost"):
        blind.check()
