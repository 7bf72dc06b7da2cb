"""The order of writes and syncs, what a full disk is, and that an error ends the writer."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from deathless.base.errors import Closed, Internal, OutOfSpace, StorageReadOnly, StoreOlderThanLog
from deathless.codec.frames import BLOCK, ORIGIN, FrameKind
from deathless.engine.log.overview import frames_of
from deathless.engine.log.prepared import PreparedSegment
from deathless.engine.log.segment_scan import segment_path
from deathless.engine.log.segment_writer import GROW_MIN, SegmentWriter
from deathless.engine.log.spare import Spare
from deathless.engine.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.simulation.models.log_driver import LIMITS, data_payload
from deathless.simulation.world.disk import CHANGES, SimDisk

SPARE = LIMITS.spare_bytes


class Bench:
    """A writer on a disk that notes every change."""

    def __init__(
        self, capacity: int | None = None, safeguards: Safeguards = ALL_SAFEGUARDS, *, spare: int = SPARE
    ) -> None:
        self.disk = SimDisk(random.Random(1), capacity_bytes=capacity)
        self.calls: list[str] = []
        self.fs = self.disk.view("r0", self._note)
        self.fs.make_folder("log")
        self.spare = Spare(self.fs, "r0", spare)
        self.writer = SegmentWriter(self.fs, LIMITS, self.spare, safeguards)
        self.lsn = 0

    def _note(self, operation: str, path: str, moment: str) -> None:
        if moment == "before" and operation in CHANGES:
            self.calls.append(f"{operation} {path.rpartition('/')[2]}")

    def begin(self, epoch: int = 1) -> None:
        self.spare.prepare()
        self.writer.begin(epoch, b"cut", ORIGIN, [], 7)

    def data(self, size: int = 10) -> None:
        self.writer.append(
            FrameKind.DATA,
            data_payload(self.lsn, (b"x" * size,)),
            first_lsn=self.lsn + 1,
            count=1,
            confirmed_lsn=self.lsn,
        )
        self.lsn += 1

    def synced_data(self, size: int = 10) -> None:
        self.data(size)
        self.writer.sync()

    def control(self) -> None:
        self.writer.append(FrameKind.CONFIRM, b"c", first_lsn=self.lsn + 1, count=0, confirmed_lsn=self.lsn)


def test_an_epochs_first_file_is_durable_before_anything_follows_and_leaves_the_spare_alone() -> None:
    bench = Bench()
    bench.spare.prepare()
    bench.calls.clear()
    bench.begin()
    name = "e000000000001.r000000.seg"
    assert bench.calls == [f"create {name}", f"allocate {name}", f"write {name}", f"sync {name}", "sync_folder log"]
    assert bench.fs.size(bench.fs.open(segment_path(1, 0))) < SPARE
    assert bench.spare.ready


def test_an_epochs_first_file_is_the_spare_where_there_is_no_other_room_and_what_it_does_not_need_is_given_back() -> (
    None
):
    bench = Bench(spare=2 * SPARE)
    bench.spare.prepare()
    bench.disk.capacity_bytes = bench.disk.used_bytes()
    bench.calls.clear()
    bench.begin()
    name = "e000000000001.r000000.seg"
    made = [f"create {name}", f"unlink {name}", f"link {name}", "unlink spare", "sync_folder r0", f"truncate {name}"]
    assert [call for call in bench.calls if not call.startswith(("allocate", "make_folder"))][: len(made)] == made
    assert bench.calls[-3:] == [f"write {name}", f"sync {name}", "sync_folder log"]
    assert bench.fs.exists("replicas/r0/spare"), "what a takeover takes that has nothing to copy"
    assert not bench.spare.ready
    assert not bench.writer.reserve(BLOCK), "without a whole spare nothing is admitted"


def test_a_roll_makes_the_next_file_durable_before_the_roll_frame_says_so() -> None:
    bench = Bench()
    bench.begin()
    for _ in range(3):
        bench.writer.reserve(5000)
        bench.synced_data(4000)
    bench.calls.clear()
    assert bench.writer.reserve(5000)
    old, new = "e000000000001.r000000.seg", "e000000000001.r000001.seg"
    assert bench.calls == [
        f"create {new}",
        f"allocate {new}",
        f"sync {new}",
        "sync_folder log",
        f"write {old}",
        f"sync {old}",
        f"truncate {old}",
    ]


def test_frames_begin_on_block_boundaries_and_are_synced_through_one_descriptor() -> None:
    bench = Bench()
    bench.begin()
    bench.writer.reserve(2 * BLOCK)
    bench.calls.clear()
    bench.data(5000)
    bench.writer.sync()
    name = "e000000000001.r000000.seg"
    assert bench.calls == [f"write {name}", f"sync {name}"]


def test_the_next_frame_is_written_only_after_the_sync_of_the_one_before() -> None:
    bench = Bench()
    bench.begin()
    bench.writer.reserve(BLOCK)
    bench.data()
    with pytest.raises(Internal):
        bench.control()


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_an_error_closes_the_writer_for_ever(operation: str) -> None:
    bench = Bench()
    bench.begin()
    bench.writer.reserve(BLOCK)
    bench.disk.fail(operation, "log/")
    with pytest.raises(OSError, match="Input/output"):
        bench.synced_data()
    for use in (bench.control, bench.writer.sync, lambda: bench.writer.reserve(1), lambda: bench.begin(2)):
        with pytest.raises(Closed):
            use()


def test_without_fail_stop_a_writer_would_go_on_after_a_lost_sync() -> None:
    bench = Bench(safeguards=replace(ALL_SAFEGUARDS, fail_stop=False))
    bench.begin()
    bench.writer.reserve(BLOCK)
    bench.data()
    bench.disk.fail("sync", "log/")
    with pytest.raises(OSError, match="Input/output"):
        bench.writer.sync()
    bench.writer.sync()  # "succeeds", and the frame may be gone


@pytest.mark.parametrize("operation", ["allocate", "create", "sync_folder", "write", "sync"])
def test_an_error_in_a_roll_closes_the_writer(operation: str) -> None:
    bench = Bench()
    bench.begin()
    with pytest.raises(OSError, match="Input/output"):  # noqa: PT012 frames until one rolls
        while True:
            bench.writer.reserve(5000)
            bench.synced_data(4000)
            if bench.lsn == 3:
                bench.disk.fail(operation, "log" if operation == "sync_folder" else "log/e000000000001.r")
    with pytest.raises(Closed):
        bench.writer.reserve(1)


def fill(bench: Bench) -> int:
    """Call until the disk is full; gives how many calls fitted."""
    count = 0
    while bench.writer.reserve(5000):
        bench.synced_data(4000)
        count += 1
    return count


@pytest.mark.parametrize("capacity", [2 * SPARE + 6 * BLOCK, 3 * SPARE, 4 * SPARE + BLOCK])
def test_a_full_disk_refuses_room_leaves_nothing_behind_and_goes_on_when_there_is_space_again(capacity: int) -> None:
    bench = Bench(capacity)
    bench.begin()
    assert fill(bench) > 0
    before = bench.disk.used_bytes()
    assert not bench.writer.reserve(5000)
    assert bench.disk.used_bytes() == before
    assert bench.spare.ready, "the next takeover has its space"
    bench.control()
    bench.writer.sync()
    bench.disk.capacity_bytes = None
    assert bench.writer.reserve(5000)
    bench.synced_data(4000)


def take_over(bench: Bench) -> None:
    """One takeover after the other, each with cut, opening frame and a closing one."""
    bench.writer.close()
    bench.begin(bench.writer.epoch + 1)
    bench.control()
    bench.writer.sync()


def full(safeguards: Safeguards = ALL_SAFEGUARDS) -> Bench:
    """A writer with its spare on a disk that others have filled."""
    bench = Bench(safeguards=safeguards, spare=2 * SPARE)
    bench.begin()
    bench.spare.prepare()
    bench.disk.capacity_bytes = bench.disk.used_bytes()
    return bench


def test_takeovers_fit_on_a_full_disk_one_after_the_other_but_take_nothing_new() -> None:
    bench = full()
    for _ in range(3):
        take_over(bench)
        assert not bench.writer.reserve(BLOCK), "there is no whole spare for the takeover after this one"


def test_without_giving_back_the_second_takeover_on_a_full_disk_finds_no_room() -> None:
    bench = full(replace(ALL_SAFEGUARDS, give_back_space=False))
    take_over(bench)
    with pytest.raises(OutOfSpace):
        take_over(bench)


def test_without_keeping_a_spare_the_last_room_goes_to_messages() -> None:
    bench = Bench(2 * SPARE, replace(ALL_SAFEGUARDS, keep_spare=False))
    bench.writer.begin(1, b"cut", ORIGIN, [], 7)
    assert fill(bench) > 0
    assert not bench.spare.prepare()


@pytest.mark.parametrize("frames", [0, 1, 40])
def test_epochs_that_follow_each_other_keep_no_more_space_than_twice_what_they_wrote(frames: int) -> None:
    bench = Bench()
    limits = replace(LIMITS, allocate_bytes=1 << 20, segment_bytes_max=1 << 24)
    bench.writer = SegmentWriter(bench.fs, limits, bench.spare)
    bench.begin()
    bench.writer.reserve(BLOCK)
    before = bench.disk.used_bytes()
    for epoch in range(2, 22):
        bench.writer = SegmentWriter(bench.fs, limits, bench.spare)  # each process was killed: nothing was closed
        bench.writer.begin(epoch, b"cut", msgspec.structs.replace(ORIGIN, lsn=bench.lsn), [], 7)
        for _ in range(frames):
            bench.writer.reserve(BLOCK)
            bench.synced_data()
    wrote = 20 * (frames + 3) * BLOCK
    assert bench.disk.used_bytes() - before <= 2 * wrote + 20 * GROW_MIN


def test_an_epoch_that_ends_in_order_gives_back_all_that_it_did_not_write() -> None:
    bench = Bench()
    bench.begin()
    bench.writer.reserve(BLOCK)
    bench.synced_data()
    bench.writer.close()
    assert bench.fs.size(bench.fs.open(segment_path(1, 0))) == 2 * BLOCK


def test_no_space_for_the_cut_leaves_nothing_behind() -> None:
    bench = Bench(BLOCK)
    with pytest.raises(OutOfSpace):
        bench.begin()
    assert bench.fs.listing("log") == []
    bench.disk.capacity_bytes = None
    bench.begin()


def test_data_without_a_reservation_finds_no_room_and_writes_nothing() -> None:
    bench = Bench()
    bench.begin()
    with pytest.raises(OutOfSpace):
        bench.data(SPARE)
    bench.lsn = 0
    bench.writer.reserve(BLOCK)
    bench.data()


def test_control_frames_need_no_reservation() -> None:
    bench = Bench()
    bench.begin()
    for _ in range(3 * SPARE // BLOCK):
        bench.control()
        bench.writer.sync()


def test_an_epoch_given_twice_is_found_by_its_file() -> None:
    bench = Bench()
    bench.begin(5)
    again = SegmentWriter(bench.fs, LIMITS, Spare(bench.fs, "r1", SPARE))
    with pytest.raises(StoreOlderThanLog):
        again.begin(5, b"cut", ORIGIN, [], 7)


def test_a_later_epoch_may_begin_after_an_orderly_close_and_an_earlier_one_never() -> None:
    bench = Bench()
    bench.begin(2)
    with pytest.raises(Closed):
        bench.begin(3)
    bench.writer.close()
    bench.writer.close()
    with pytest.raises(Closed):
        bench.control()
    with pytest.raises(Closed):
        bench.begin(2)
    bench.begin(3)


@pytest.mark.parametrize(
    "wrong",
    [
        {"first_lsn": 2},
        {"count": 0},
        {"confirmed_lsn": 1},
        {"kind": FrameKind.CONFIRM},
    ],
)
def test_a_frame_that_does_not_continue_the_log_is_our_bug(wrong: dict[str, int]) -> None:
    bench = Bench()
    bench.begin()
    bench.writer.reserve(BLOCK)
    right = {"kind": int(FrameKind.DATA), "first_lsn": 1, "count": 1, "confirmed_lsn": 0} | wrong
    kind = right.pop("kind")
    with pytest.raises(Internal):
        bench.writer.append(kind, data_payload(0, (b"x",)), **right)


def test_what_is_confirmed_by_a_header_counts_only_once_it_is_synced() -> None:
    bench = Bench()
    bench.begin()
    bench.writer.reserve(BLOCK)
    bench.data()
    bench.writer.sync()
    bench.control()
    assert bench.writer.confirmed == 0
    bench.writer.sync()
    assert bench.writer.confirmed == 1


def test_a_read_only_volume_refuses_a_beginning_and_room_and_leaves_nothing_behind() -> None:
    bench = Bench()
    bench.spare.prepare()
    for operation in ("create", "link"):
        bench.disk.fail(operation, "log/", number=errno.EROFS)
    with pytest.raises(StorageReadOnly):
        bench.begin()
    assert bench.fs.listing("log") == []
    bench.begin()
    bench.disk.fail("allocate", "log/", number=errno.EROFS, count=2)
    assert not bench.writer.reserve(100 * BLOCK)
    assert bench.writer.reserve(BLOCK)


def test_an_error_of_the_file_system_that_says_neither_full_nor_read_only_is_raised_by_begin() -> None:
    bench = Bench()
    bench.spare.prepare()
    bench.disk.fail("create", "log/")
    with pytest.raises(OSError, match="Input/output"):
        bench.begin()


# ---- files that are filled ahead of time -------------------------------------------------------------------------


class Filled(Bench):
    """A writer whose next file is made ahead of time, when told to."""

    SIZE = 8 * BLOCK

    def __init__(self, capacity: int | None = None) -> None:
        super().__init__(capacity)
        self.fs.make_folder("replicas/r0")
        self.orders: list[tuple[str, int, Callable[[bool], None]]] = []
        self.prepared = PreparedSegment(self.fs, "r0", self.SIZE, self, "1")
        limits = replace(LIMITS, segment_bytes_max=1 << 20)
        self.writer = SegmentWriter(self.fs, limits, self.spare, prepared=self.prepared)
        self.begin()

    def make(self, path: str, size: int, done: Callable[[bool], None]) -> None:
        self.orders.append((path, size, done))

    def finish(self) -> None:
        path, size, done = self.orders.pop()
        handle = self.fs.create(path)
        self.fs.write(handle, 0, bytes(size))
        self.fs.sync(handle)
        self.fs.close(handle)
        done(True)

    def frame(self) -> None:
        """One frame of a block, with its reservation."""
        assert self.writer.reserve(BLOCK)
        self.synced_data()

    def frames(self, count: int) -> None:
        for _ in range(count):
            self.frame()


def test_next_file_is_ordered_once_the_epoch_has_written_as_much_and_is_rolled_to_when_it_is_there() -> None:
    bench = Filled()
    bench.frames(7)  # behind the cut
    assert not bench.orders
    bench.frame()
    assert len(bench.orders) == 1
    bench.frames(3)
    assert bench.writer.roll == 0
    bench.finish()
    bench.frame()
    assert bench.writer.roll == 1
    found = [scanned.frame for roll in (0, 1) for scanned in frames_of(bench.fs, 1, roll)]
    assert [frame.first_lsn for frame in found if frame.kind == FrameKind.DATA] == list(range(1, bench.lsn + 1))
    assert bench.fs.size(bench.fs.open(segment_path(1, 1))) == Filled.SIZE
    assert not bench.fs.listing("replicas/r0") or "prepared.1" not in bench.fs.listing("replicas/r0")


def test_frames_that_fit_into_what_was_filled_allocate_nothing_and_the_one_after_is_ordered_at_half() -> None:
    bench = Filled()
    bench.frames(8)
    bench.finish()
    bench.frame()
    bench.calls.clear()
    for _ in range(Filled.SIZE // BLOCK // 2 - 2):
        bench.frame()
    assert not bench.orders
    bench.frame()
    assert len(bench.orders) == 1
    assert not [call for call in bench.calls if call.startswith("allocate")]


def test_file_grows_as_any_other_behind_what_was_filled_until_there_is_the_next() -> None:
    bench = Filled()
    bench.frames(8)
    bench.finish()
    bench.frames(10)
    assert bench.writer.roll == 1
    assert bench.fs.size(bench.fs.open(segment_path(1, 1))) > Filled.SIZE
    bench.finish()
    bench.frame()
    assert bench.writer.roll == 2


def test_frame_that_a_filled_file_would_not_hold_is_no_reason_to_roll() -> None:
    bench = Filled()
    bench.frames(8)
    bench.finish()
    assert bench.writer.reserve(Filled.SIZE)
    bench.synced_data(Filled.SIZE - 2 * BLOCK)
    assert bench.writer.roll == 0
    assert bench.prepared.ready


def test_full_disk_takes_the_space_of_what_was_made_ahead_of_time() -> None:
    bench = Filled()
    bench.frames(8)
    bench.finish()
    bench.disk.capacity_bytes = bench.disk.used_bytes()
    assert bench.writer.reserve(Filled.SIZE)  # more than a filled file holds, so this one has to grow
    assert not bench.prepared.ready


def test_epoch_that_begins_anew_counts_from_its_beginning() -> None:
    bench = Filled()
    bench.frames(8)
    bench.orders.pop()[2](False)
    bench.writer.close()
    again = SegmentWriter(bench.fs, LIMITS, bench.spare, prepared=PreparedSegment(bench.fs, "r0", 1 << 15, bench, "2"))
    again.begin(2, b"cut", ORIGIN, [], 7)
    assert again.reserve(BLOCK)
    assert not bench.orders


def test_error_while_the_filled_file_is_linked_ends_the_writer() -> None:
    bench = Filled()
    bench.frames(8)
    bench.finish()
    bench.disk.fail("link", number=errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        bench.writer.reserve(BLOCK)
    assert not bench.writer.open
