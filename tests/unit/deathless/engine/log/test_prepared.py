"""Segments that are filled ahead of time: never one file under two names, and never a file that is not whole."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from deathless.codec.frames import BLOCK
from deathless.engine.log.prepared import PreparedSegment
from deathless.engine.ports import FileSystem
from deathless.simulation.world.disk import SimDisk

SIZE = 4 * BLOCK


class Maker:
    """Fills files when it is told to."""

    def __init__(self, fs: FileSystem) -> None:
        self.fs = fs
        self.orders: list[tuple[str, int, Callable[[bool], None]]] = []

    def make(self, path: str, size: int, done: Callable[[bool], None]) -> None:
        self.orders.append((path, size, done))

    def finish(self, *, good: bool = True) -> None:
        path, size, done = self.orders.pop()
        if good:
            handle = self.fs.create(path)
            self.fs.write(handle, 0, bytes(size))
            self.fs.sync(handle)
        done(good)


class Bench:
    """One process's prepared segment, and its helper."""

    def __init__(self, disk: SimDisk, nonce: str = "1") -> None:
        self.fs = disk.view(f"process {nonce}")
        self.fs.make_folder("log")
        self.fs.make_folder("replicas/r0")
        self.maker = Maker(self.fs)
        self.prepared = PreparedSegment(self.fs, "r0", SIZE, self.maker, nonce)
        self.prepared.clear()

    def ready(self) -> Bench:
        self.prepared.order(SIZE)
        self.maker.finish()
        assert self.prepared.ready
        return self

    def names(self) -> list[str]:
        return self.fs.listing("replicas/r0")


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(random.Random(1))


def test_file_that_was_filled_becomes_the_segment_and_its_own_name_is_gone(disk: SimDisk) -> None:
    bench = Bench(disk).ready()
    assert bench.names() == ["prepared.1"]
    handle = bench.prepared.link_as("log/a")
    assert handle is not None
    assert (bench.fs.size(handle), bench.names(), bench.prepared.ready) == (SIZE, [], False)
    assert bench.prepared.link_as("log/b") is None


def test_one_is_made_at_a_time_and_only_a_whole_one_counts(disk: SimDisk) -> None:
    bench = Bench(disk)
    for _ in range(3):
        bench.prepared.order(SIZE)
    assert [(path, size) for path, size, _ in bench.maker.orders] == [("replicas/r0/prepared.1.new", SIZE)]
    bench.fs.create("replicas/r0/prepared.1.new")  # a part of it
    assert bench.prepared.link_as("log/a") is None
    bench.maker.finish(good=False)
    assert (bench.prepared.ready, bench.names()) == (False, [])


def test_one_that_could_not_be_made_is_ordered_again_once_as_much_was_written_and_not_before(disk: SimDisk) -> None:
    bench = Bench(disk)
    bench.prepared.order(SIZE)
    bench.maker.finish(good=False)
    bench.prepared.order(2 * SIZE - 1)
    assert not bench.maker.orders
    bench.prepared.order(2 * SIZE)
    assert bench.maker.orders


def test_without_a_maker_there_is_never_one(disk: SimDisk) -> None:
    fs = disk.view("x")
    fs.make_folder("replicas/r0")
    prepared = PreparedSegment(fs, "r0", SIZE, None, "")
    prepared.order(1 << 40)
    assert not prepared.ready
    assert prepared.link_as("log/a") is None
    assert not prepared.free()


def test_crash_between_the_link_and_the_unlink_never_makes_one_file_two_segments(disk: SimDisk) -> None:
    """The file's own name may come back after a power cut; the next process takes it away and uses another."""
    for seed in range(8):
        disk.rng = random.Random(seed)
        bench = Bench(disk, f"a{seed}").ready()
        disk.fail("sync_folder", "replicas")
        with pytest.raises(OSError, match="Input/output"):
            bench.prepared.link_as(f"log/a{seed}")
        disk.cut_power()
        again = Bench(disk, f"b{seed}")
        assert again.names() == []
        assert again.ready().prepared.link_as(f"log/b{seed}") is not None
        if again.fs.exists(f"log/a{seed}"):
            assert disk.inode(f"log/a{seed}") is not disk.inode(f"log/b{seed}")


def test_process_whose_file_a_later_one_took_away_goes_on_without(disk: SimDisk) -> None:
    old = Bench(disk, "old").ready()
    Bench(disk, "new")
    assert old.prepared.link_as("log/a") is None
    assert not old.fs.exists("log/a")
    old.ready()
    assert old.prepared.link_as("log/a") is not None


def test_file_that_was_taken_away_while_it_was_made_is_no_error(disk: SimDisk) -> None:
    old = Bench(disk, "old")
    old.prepared.order(SIZE)
    path, _, done = old.maker.orders.pop()
    old.fs.create(path)
    Bench(disk, "new")
    done(True)
    assert not old.prepared.ready


def test_helper_of_a_former_process_that_was_frozen_writes_to_no_file_of_ours(disk: SimDisk) -> None:
    """It thaws with its file open, or makes one under its own name: ours has another."""
    old = Bench(disk, "old")
    old.prepared.order(SIZE)
    handle = old.fs.create(old.maker.orders[0][0])
    new = Bench(disk, "new").ready()
    segment = new.prepared.link_as("log/a")
    assert segment is not None
    new.fs.write(segment, 0, b"frame")
    old.fs.write(handle, 0, bytes(SIZE))
    assert new.fs.read(segment, 0, 5) == b"frame"
    assert {path for path, _, _ in old.maker.orders}.isdisjoint({"replicas/r0/prepared.new.new"})


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_where_there_is_no_room_for_the_name_the_file_is_given_up(disk: SimDisk, number: int) -> None:
    bench = Bench(disk).ready()
    disk.fail("link", "log", number=number)
    assert bench.prepared.link_as("log/a") is None
    assert (bench.prepared.ready, bench.names()) == (False, [])


@pytest.mark.parametrize("operation", ["link", "rename", "unlink"])
def test_other_errors_are_raised(disk: SimDisk, operation: str) -> None:
    bench = Bench(disk)
    bench.prepared.order(SIZE)
    disk.fail(operation, number=errno.EIO)

    def use() -> None:
        bench.maker.finish()
        bench.prepared.link_as("log/a")

    with pytest.raises(OSError, match="Input/output"):
        use()


def test_volume_that_is_read_only_just_now_keeps_what_a_former_process_left(disk: SimDisk) -> None:
    Bench(disk, "old").ready()
    disk.fail("unlink", number=errno.EROFS)
    new = Bench(disk, "new")
    assert new.names() == ["prepared.old"]


def test_its_space_is_given_back_once(disk: SimDisk) -> None:
    bench = Bench(disk).ready()
    assert bench.prepared.free()
    assert bench.names() == []
    assert not bench.prepared.free()
