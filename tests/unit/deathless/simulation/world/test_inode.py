"""What a power cut leaves of a file that was cut to a shorter one."""

from __future__ import annotations

import random

from deathless.simulation.world.inode import BLOCK, Inode


def written() -> Inode:
    inode = Inode()
    inode.write(0, b"a" * BLOCK + b"b" * BLOCK)
    inode.sync()
    return inode


def test_a_cut_file_has_its_beginning_and_takes_no_more_room() -> None:
    inode = written()
    inode.truncate(BLOCK)
    assert (inode.read(0, 3 * BLOCK), inode.size, inode.room) == (b"a" * BLOCK, BLOCK, BLOCK)
    inode.truncate(5 * BLOCK)
    assert inode.size == BLOCK, "it gives back, and never grows"


def test_a_cut_that_was_not_synced_may_be_undone_by_a_power_cut() -> None:
    sizes = set()
    for seed in range(20):
        inode = written()
        inode.truncate(BLOCK)
        inode.cut_power(random.Random(seed))
        sizes.add(inode.size)
        assert inode.read(0, BLOCK) == b"a" * BLOCK
    assert min(sizes) == BLOCK < max(sizes)


def test_a_cut_that_was_synced_stands() -> None:
    inode = written()
    inode.truncate(BLOCK)
    inode.sync()
    inode.cut_power(random.Random(1))
    assert inode.size == BLOCK
