"""The order of writes and syncs, what a full disk is, and that an error ends the writer."""

from __future__ import annotations

import errno
import random
from dataclasses import replace

import pytest

from deathless.base.errors import Closed, Internal, OutOfSpace, StoreOlderThanLog
from deathless.codec.frames import BLOCK, ORIGIN, FrameKind
from deathless.engine.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.engine.segment_scan import segment_path
from deathless.engine.segment_writer import SegmentWriter
from deathless.engine.spare import Spare
from deathless.simulation.disk import CHANGES, SimDisk
from deathless.simulation.log_driver import LIMITS, data_payload

SPARE = LIMITS.spare_bytes


class Bench:
    """A writer on a disk that notes every change."""

    def __init__(self, capacity: int | None = None, safeguards: Safeguards = ALL_SAFEGUARDS) -> None:
        self.disk = SimDisk(random.Random(1), capacity_bytes=capacity)
        self.calls: list[str] = []
        self.fs = self.disk.view("r0", self._note)
        self.fs.make_folder("log")
        self.spare = Spare(self.fs, "r0", SPARE)
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


def test_an_epochs_first_file_is_the_spare_and_durable_before_anything_follows() -> None:
    bench = Bench()
    bench.spare.prepare()
    bench.calls.clear()
    bench.begin()
    name = "e000000000001.r000000.seg"
    assert bench.calls == [
        f"link {name}",
        "unlink spare",
        "sync_folder r0",
        f"write {name}",
        f"sync {name}",
        "sync_folder log",
    ]
    assert bench.fs.size(bench.fs.open(segment_path(1, 0))) == SPARE


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


def test_a_takeover_fits_on_a_full_disk_and_opens_but_takes_nothing_new() -> None:
    bench = Bench(2 * SPARE)
    bench.begin()
    bench.spare.prepare()
    assert bench.disk.free_bytes() == 0
    bench.writer.close()
    bench.begin(2)
    bench.control()
    bench.writer.sync()
    assert not bench.writer.reserve(BLOCK), "there is no spare for the takeover after this one"
    careless = replace(ALL_SAFEGUARDS, keep_spare=False)
    other = SegmentWriter(bench.fs, LIMITS, bench.spare, careless)
    bench.disk.capacity_bytes = 3 * SPARE
    other.begin(3, b"cut", ORIGIN, [], 7)
    assert other.reserve(BLOCK)
    assert not bench.spare.ready


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


def test_an_error_of_the_file_system_other_than_no_space_is_raised_by_begin() -> None:
    bench = Bench()
    bench.spare.prepare()
    bench.disk.fail("link", "log/", number=errno.EROFS)
    with pytest.raises(OSError, match="Read-only"):
        bench.begin()
