"""What the directory lock does beyond the port: exact names, crashes, full disks, stale views."""

from __future__ import annotations

import errno
import random
from dataclasses import replace

import pytest

from deathless.base.errors import ForeignDirectory, LockUnavailable, LogTruncated
from deathless.engine.lock.directory_lock import DirectoryLock
from deathless.engine.ports import Holder, LockView
from deathless.engine.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.simulation.models.log_driver import RECORD
from deathless.simulation.world.disk import SimDisk, SimFileSystem

BLIND = replace(ALL_SAFEGUARDS, probe_names=False)


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(random.Random(1))


def lock_on(disk: SimDisk, name: str, safeguards: Safeguards = ALL_SAFEGUARDS) -> DirectoryLock:
    return lock_over(disk.view(name), name, safeguards)


def lock_over(fs: SimFileSystem, name: str, safeguards: Safeguards = ALL_SAFEGUARDS) -> DirectoryLock:
    lock = DirectoryLock(fs, process=name, fresh_store_id=f"drawn by {name}", safeguards=safeguards)
    lock.prepare()
    lock.create_service(RECORD)
    return lock


def taken(lock: DirectoryLock, name: str) -> Holder:
    holder = lock.take(name, name.encode(), lock.view())
    assert holder is not None
    return holder


def test_looking_creates_nothing(disk: SimDisk) -> None:
    fs = disk.view("r0")
    view = DirectoryLock(fs, process="r0", fresh_store_id="id").view()
    assert view == LockView(None, 0, 0, None, 0, "")
    assert fs.listing("") == []


def test_the_first_process_gives_the_store_its_id(disk: SimDisk) -> None:
    first, second = lock_on(disk, "r0"), lock_on(disk, "r1")
    assert first.view().store_id == second.view().store_id == "drawn by r0"


def test_a_stale_listing_hides_no_epoch_and_no_head(disk: SimDisk) -> None:
    stale_view = disk.view("r0")
    lock_on(disk, "r9")
    stale_view.stale = True
    stale_view.listing("lock")
    other = lock_on(disk, "r1")
    for _ in range(3):
        assert other.set_head(taken(other, "r1")) is not None
    seen = DirectoryLock(stale_view, process="r0", fresh_store_id="x").view()
    assert (seen.epoch, seen.head) == (3, 3)
    blind = DirectoryLock(stale_view, process="r0", fresh_store_id="x", safeguards=BLIND).view()
    assert (blind.epoch, blind.head) == (0, 0)


def test_a_head_set_after_the_look_makes_the_take_fail_once(disk: SimDisk) -> None:
    """Its owner would otherwise continue from an older head than the one that may have released."""
    first = lock_on(disk, "r0")
    holder = taken(first, "r0")
    second = lock_on(disk, "r1")
    seen = second.view()
    assert first.set_head(holder) is not None
    assert second.take("r1", b"n", seen) is None
    again = second.take("r1", b"n", second.view())
    assert again is not None


def test_a_head_linked_between_the_look_and_the_link_is_noticed(disk: SimDisk) -> None:
    first = lock_on(disk, "r0")
    holder = taken(first, "r0")
    moved: list[int | None] = []

    def between(operation: str, path: str, moment: str) -> None:
        if (operation, path, moment) == ("link", "lock/epoch.2", "before"):
            moved.append(first.set_head(holder))

    second = lock_over(disk.view("r1", between), "r1")
    assert second.take("r1", b"n", second.view()) is None
    assert moved[0] is not None


def test_a_deposed_holder_that_links_head_late_is_told_so(disk: SimDisk) -> None:
    """It looks for its successor after the link: one that read the older head is found there."""
    for guarded in (True, False):
        disk = SimDisk(random.Random(1))
        second: list[DirectoryLock] = []
        views: list[LockView] = []

        def between(
            operation: str,
            path: str,
            moment: str,
            second: list[DirectoryLock] = second,
            views: list[LockView] = views,
        ) -> None:
            if (operation, path, moment) == ("link", "lock/head.1", "before"):
                taken(second[0], "r1")
                views.append(second[0].view())

        first = lock_over(disk.view("r0", between), "r0", replace(ALL_SAFEGUARDS, guard_head=guarded))
        holder = taken(first, "r0")
        second.append(lock_on(disk, "r1"))
        assert (first.set_head(holder) is None) is guarded
        assert views[0].head == 0


def test_an_overwritten_name_would_give_the_lock_to_two(disk: SimDisk) -> None:
    """Without exclusive links both takers of one look believe that they were first."""
    for exclusive in (True, False):
        disk = SimDisk(random.Random(1))
        safeguards = replace(ALL_SAFEGUARDS, exclusive_links=exclusive)
        first, second = lock_on(disk, "r0", safeguards), lock_on(disk, "r1", safeguards)
        seen = second.view()
        winners = [first.take("r0", b"0", seen), second.take("r1", b"1", seen)]
        assert (None in winners) is exclusive


def test_a_power_cut_takes_nothing_back_that_was_told(disk: SimDisk) -> None:
    for seed in range(6):
        disk = SimDisk(random.Random(seed))
        lock = lock_on(disk, "r0")
        holder = taken(lock, "r0")
        revision = lock.set_head(holder)
        assert lock.go_live(holder)
        disk.cut_power()
        view = DirectoryLock(disk.view("r1"), process="r1", fresh_store_id="x").view()
        assert (view.epoch, view.head, view.holder) == (1, 1, holder)
        assert view.service is not None
        assert view.service.live
        assert revision is not None
        assert view.revision > revision
        lock = DirectoryLock(disk.view("r0"), process="r0", fresh_store_id="x")
        lock.release(holder)
        disk.cut_power()
        assert DirectoryLock(disk.view("r2"), process="r2", fresh_store_id="x").view().holder is None


def test_without_the_folder_sync_a_power_cut_gives_an_epoch_twice() -> None:
    lost = 0
    for seed in range(8):
        disk = SimDisk(random.Random(seed))
        lock = lock_on(disk, "r0", replace(ALL_SAFEGUARDS, sync_folder=False))
        taken(lock, "r0")
        disk.cut_power()
        lost += DirectoryLock(disk.view("r1"), process="r1", fresh_store_id="x").view().epoch == 0
    assert lost > 0


def test_a_take_fits_on_a_full_disk(disk: SimDisk) -> None:
    lock = lock_on(disk, "r0")
    disk.capacity_bytes = disk.used_bytes()
    holder = taken(lock, "r0")
    assert lock.set_head(holder) is not None
    lock.release(holder)
    assert lock.view().holder is None


def test_a_full_disk_without_a_block_aside_is_no_answer(disk: SimDisk) -> None:
    lock = lock_on(disk, "r0")
    disk.view("x").unlink("lock/reserve.r0")
    disk.capacity_bytes = disk.used_bytes()
    with pytest.raises(LockUnavailable):
        lock.take("r0", b"n", lock.view())
    lock.prepare()
    disk.capacity_bytes = None
    taken(lock, "r0")


def test_an_error_while_looking_is_no_answer_and_never_a_no(disk: SimDisk) -> None:
    lock = lock_on(disk, "r0")
    holder = taken(lock, "r0")
    disk.fail("exists", "lock/epoch.2", number=errno.ESTALE)
    with pytest.raises(LockUnavailable):
        lock.owns(holder)
    assert lock.owns(holder)


@pytest.mark.parametrize("operation", ["sync", "sync_folder"])
def test_an_error_while_syncing_is_raised_as_it_is(disk: SimDisk, operation: str) -> None:
    lock = lock_on(disk, "r0")
    disk.fail(operation, "lock")
    with pytest.raises(OSError, match="Input/output"):
        lock.take("r0", b"n", lock.view())


def test_temporary_names_of_a_killed_process_do_no_harm(disk: SimDisk) -> None:
    lock = lock_on(disk, "r0")
    fs = disk.view("r0")
    for number in range(1, 9):
        handle = fs.create(f"lock/t.r1.{number}")
        fs.write(handle, 0, b"half")
    fs.close(fs.create("lock/t.r1.drawn.1"))
    taken(lock_on(disk, "r1"), "r1")
    assert lock.view().epoch == 1
    assert [name for name in fs.listing("lock") if name.startswith("t.")] == []


def test_foreign_content_is_refused(disk: SimDisk) -> None:
    fs = disk.view("x")
    fs.make_folder("lock")
    fs.write(fs.create("lock/epoch.1"), 0, b"\xc1")
    with pytest.raises(ForeignDirectory, match=r"lock/epoch\.1"):
        lock_on(disk, "r0").view()


def test_a_service_file_that_vanished_is_an_error(disk: SimDisk) -> None:
    lock = lock_on(disk, "r0")
    holder = taken(lock, "r0")
    disk.view("x").unlink("lock/service.creating")
    with pytest.raises(LogTruncated):
        lock.go_live(holder)


def test_one_process_may_look_and_take_many_times(disk: SimDisk) -> None:
    lock = lock_on(disk, "r0")
    revisions = [lock.view().revision]
    for number in range(1, 30):
        holder = taken(lock, "r0")
        assert holder.epoch == number
        revisions.append(lock.view().revision)
        if number % 3:
            lock.set_head(holder)
            revisions.append(lock.view().revision)
        if number % 2:
            lock.release(holder)
            revisions.append(lock.view().revision)
    assert revisions == sorted(set(revisions)), "grows with every change"
