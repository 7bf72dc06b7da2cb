"""The simulated disk loses what was not synced, keeps what was, and does both the same way for the same seed."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.simulation.world.disk import SimDisk
from deathless.simulation.world.inode import BLOCK, SECTOR

SEEDS = range(60)


def disk_of(seed: int) -> SimDisk:
    return SimDisk(random.Random(seed))


def content(disk: SimDisk, path: str) -> bytes:
    inode = disk.inode(path)
    return inode.read(0, inode.size)


def test_what_is_synced_with_its_folder_survives_every_power_cut() -> None:
    for seed in SEEDS:
        disk = disk_of(seed)
        fs = disk.view("r0")
        handle = fs.create("a")
        fs.write(handle, 0, b"kept" * 3000)
        fs.sync(handle)
        fs.sync_folder("")
        fs.write(handle, 2 * BLOCK, b"may go" * 3000)
        disk.cut_power()
        assert content(disk, "a")[: 2 * BLOCK] == (b"kept" * 3000)[: 2 * BLOCK]


def test_a_process_crash_loses_only_handles() -> None:
    disk = disk_of(1)
    fs = disk.view("r0")
    handle = fs.create("a")
    fs.write(handle, 0, b"in the page cache")
    fs.crash()
    assert content(disk, "a") == b"in the page cache"
    with pytest.raises(OSError, match="Bad file descriptor"):
        fs.read(handle, 0, 1)


def test_a_power_cut_keeps_undoes_and_tears_unsynced_blocks_and_names() -> None:
    seen = set()
    for seed in SEEDS:
        disk = disk_of(seed)
        fs = disk.view("r0")
        fs.close(fs.create("old"))
        fs.sync_folder("")
        handle = fs.create("a")
        fs.write(handle, 0, b"1" * BLOCK)
        fs.unlink("old")
        disk.cut_power()
        seen.add("old came back" if fs.exists("old") else "old is gone")
        if not fs.exists("a"):
            seen.add("name lost")
            continue
        data = content(disk, "a").ljust(BLOCK, b"\0")
        sectors = {data[at : at + SECTOR] for at in range(0, BLOCK, SECTOR)}
        if len(data.strip(b"\0")) == BLOCK:
            seen.add("kept")
        elif len(sectors) == 2:
            seen.add("torn")
        elif not data.strip(b"\0"):
            seen.add("undone")
    assert seen >= {"old came back", "old is gone", "name lost", "kept", "torn", "undone"}


def test_handles_from_before_a_power_cut_are_dead() -> None:
    disk = disk_of(1)
    fs = disk.view("r0")
    handle = fs.create("a")
    disk.cut_power()
    with pytest.raises(OSError, match="Bad file descriptor"):
        fs.write(handle, 0, b"x")


@given(
    writes=st.lists(st.tuples(st.integers(0, 3 * BLOCK), st.binary(max_size=2 * BLOCK)), max_size=8),
    cut=st.integers(0, 8),
    seed=st.integers(0, 99),
)
def test_the_file_is_what_an_array_of_bytes_would_be(writes: list[tuple[int, bytes]], cut: int, seed: int) -> None:
    disk = disk_of(seed)
    fs = disk.view("r0")
    handle = fs.create("a")
    model = bytearray()
    for number, (offset, data) in enumerate(writes):
        if number == cut:
            fs.sync(handle)
            fs.sync_folder("")
        if data:
            model.extend(bytes(max(0, offset + len(data) - len(model))))
            model[offset : offset + len(data)] = data
        fs.write(handle, offset, data)
    assert fs.read(handle, 0, 1 << 20).rstrip(b"\0") == bytes(model).rstrip(b"\0")
    fs.sync(handle)
    fs.sync_folder("")
    before = content(disk, "a")
    disk.cut_power()
    assert content(disk, "a") == before


def test_the_same_seed_gives_the_same_loss() -> None:
    def run(seed: int) -> list[bytes]:
        disk = disk_of(seed)
        fs = disk.view("r0")
        for name in ("a", "b", "c"):
            handle = fs.create(name)
            fs.write(handle, 0, random.Random(name).randbytes(5 * BLOCK))
        disk.cut_power()
        return [content(disk, name) for name in fs.listing("")]

    assert run(7) == run(7)
    assert any(run(7) != run(seed) for seed in range(7))


def test_space_is_refused_before_anything_changes_and_freed_with_the_name() -> None:
    disk = SimDisk(random.Random(1), capacity_bytes=4 * BLOCK)
    fs = disk.view("r0")
    handle = fs.create("a")
    fs.allocate(handle, 0, 3 * BLOCK)
    fs.write(handle, 0, b"x" * 3 * BLOCK)
    other = fs.create("b")
    refusals: list[Callable[[], None]] = [
        lambda: fs.write(other, 0, b"x" * 2 * BLOCK),
        lambda: fs.allocate(other, 0, 2 * BLOCK),
    ]
    for refused in refusals:
        with pytest.raises(OSError, match="No space") as caught:
            refused()
        assert caught.value.errno == errno.ENOSPC
    assert fs.size(other) == 0
    fs.link("a", "c")
    fs.unlink("a")
    assert disk.free_bytes() == BLOCK
    fs.unlink("c")
    fs.write(other, 0, b"x" * 4 * BLOCK)


def test_a_planned_error_comes_as_often_as_planned_to_whom_it_was_planned() -> None:
    disk = disk_of(1)
    disk.fail("create", "log/", count=2, view="r0")
    one, other = disk.view("r0"), disk.view("r1")
    one.make_folder("log")
    other.create("log/x")
    one.create("y")
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            one.create("log/a")
    one.create("log/a")
    disk.fail("create", count=100)
    disk.heal()
    one.create("log/b")


def test_a_failed_sync_loses_what_it_was_to_save() -> None:
    lost = 0
    for seed in range(10):
        disk = disk_of(seed)
        fs = disk.view("r0")
        handle = fs.create("a")
        fs.write(handle, 0, b"x" * BLOCK)
        disk.fail("sync")
        with pytest.raises(OSError, match="Input/output"):
            fs.sync(handle)
        fs.sync(handle)
        lost += content(disk, "a") != b"x" * BLOCK
    assert lost > 0


def test_stale_views_keep_absent_names_and_old_listings_until_refreshed() -> None:
    disk = disk_of(1)
    stale, other = disk.view("r0"), disk.view("r1")
    stale.stale = True
    assert (stale.exists("a"), stale.listing("")) == (False, [])
    with pytest.raises(FileNotFoundError):
        stale.open("b")
    for name in ("a", "b", "c"):
        other.close(other.create(name))
    assert (stale.exists("a"), stale.listing(""), stale.exists("c")) == (False, [], True)
    with pytest.raises(FileNotFoundError):
        stale.open("b")
    with pytest.raises(FileExistsError):
        stale.link("c", "a")
    stale.refresh()
    assert (stale.exists("a"), stale.listing("")) == (True, ["a", "b", "c"])


def test_what_a_stale_view_made_itself_it_sees() -> None:
    stale = disk_of(1).view("r0")
    stale.stale = True
    assert not stale.exists("a")
    stale.close(stale.create("a"))
    assert not stale.exists("b")
    stale.link("a", "b")
    assert not stale.exists("c")
    stale.rename("a", "c")
    assert (stale.exists("b"), stale.exists("c"), stale.listing("")) == (True, True, ["b", "c"])


def test_a_dead_view_refuses_everything_and_the_others_go_on() -> None:
    disk = disk_of(1)
    dead, other = disk.view("r0"), disk.view("r1")
    handle = dead.create("a")
    dead.dead = True
    for use in (lambda: dead.exists("a"), lambda: dead.read(handle, 0, 1), lambda: dead.listing("")):
        with pytest.raises(OSError, match="not connected"):
            use()
    assert other.exists("a")


def test_one_bit_flips_and_nothing_else() -> None:
    disk = disk_of(1)
    fs = disk.view("r0")
    handle = fs.create("a")
    fs.write(handle, 0, bytes(3 * BLOCK))
    fs.sync(handle)
    fs.sync_folder("")
    disk.flip_bit("a", BLOCK + 5, 3)
    disk.cut_power()
    assert content(disk, "a") == bytes(BLOCK + 5) + b"\x08" + bytes(2 * BLOCK - 6)


def test_the_gate_sees_every_call_before_and_after() -> None:
    seen: list[tuple[str, str, str]] = []
    fs = disk_of(1).view("r0", lambda *call: seen.append(call))
    handle = fs.create("a")
    fs.write(handle, 0, b"x")
    fs.sync(handle)
    assert seen == [(op, "a", moment) for op in ("create", "write", "sync") for moment in ("before", "after")]


def test_a_read_only_volume_takes_no_change_and_is_read_as_before() -> None:
    disk = SimDisk(random.Random(1))
    view = disk.view("r0")
    view.make_folder("log")
    handle = view.create("log/a")
    view.write(handle, 0, b"x")
    disk.read_only = True
    for change in (
        lambda: view.write(handle, 1, b"y"),
        lambda: view.allocate(handle, 0, 9),
        lambda: view.create("log/b"),
        lambda: view.link("log/a", "log/b"),
        lambda: view.unlink("log/a"),
    ):
        with pytest.raises(OSError, match="Read-only"):
            change()
    assert view.read(handle, 0, 9) == b"x"
    disk.read_only = False
    view.write(handle, 1, b"y")
