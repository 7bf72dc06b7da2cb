"""Checkpoints that a restore of single files left behind: they count for nothing, and let nothing of this log go."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from deathless.base.errors import LogTruncated
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.core.primary.checkpoint_plan import CheckpointPlan
from deathless.engine.log.checkpoint_store import CheckpointStore
from deathless.engine.log.own_history import counted_on_log, foreign
from deathless.simulation.models.log_driver import LIMITS, LogDriver
from deathless.simulation.world.disk import SimDisk


def grown(seed: int, history: bytes, calls: int, every: int) -> tuple[SimDisk, LogDriver]:
    """A directory with a log of so many calls, and a checkpoint after each few; nothing was collected."""
    disk = SimDisk(random.Random(seed))
    driver = LogDriver(disk.view("r0"), "r0", [])
    driver.start()
    driver.take_over()
    for number in range(1, calls + 1):
        assert driver.call(history * 2000 + b"%d" % number)
        if number % every == 0:
            driver.idle()
            driver.checkpoints.verify(written(driver))
    driver.idle()
    return disk, driver


def written(driver: LogDriver) -> str:
    name = driver.checkpoints.write(driver.snapshot())
    driver.checkpoints.announce(name)
    return name


def with_strangers() -> tuple[SimDisk, LogDriver, list[str]]:
    """A log of 30 calls, and two checkpoints of another history: one at the log's end, one beyond it."""
    disk, driver = grown(1, b"ours", 30, 7)
    _, other = grown(2, b"theirs", 35, 5)
    strangers = []
    for each in other.checkpoints.counted()[:2]:
        snapshot = other.checkpoints.load(each.name)
        name = driver.checkpoints.write(snapshot)
        driver.checkpoints.announce(name)
        driver.checkpoints.verify(name)
        strangers.append(name)
    return disk, driver, strangers


def collected(disk: SimDisk, driver: LogDriver, safeguards: Safeguards, *, short: bool) -> None:
    """Let go what the primary's plan lets go."""
    plan = CheckpointPlan(LIMITS)
    plan.found(counted_on_log(disk.view("r0"), driver.checkpoints, driver.epoch, safeguards))
    below = plan.newest if short else plan.floor
    driver.checkpoints.prune(below)
    driver.log.collect(below)


@pytest.mark.parametrize("short", [False, True])
def test_the_log_stays_readable_whatever_checkpoints_stand_beside_it(short: bool) -> None:
    disk, driver, strangers = with_strangers()
    collected(disk, driver, ALL_SAFEGUARDS, short=short)
    driver.checkpoints.remove(strangers)  # what an operator does who is told of them
    again = LogDriver(disk.view("r1"), "r1", driver.released)
    again.start()
    again.follow()
    assert len(again.applied) == 30


@pytest.mark.parametrize("short", [False, True])
def test_without_the_comparison_a_log_is_collected_that_nothing_replaces(short: bool) -> None:
    disk, driver, strangers = with_strangers()
    collected(disk, driver, replace(ALL_SAFEGUARDS, checkpoints_of_this_log=False), short=short)
    driver.checkpoints.remove(strangers)
    again = LogDriver(disk.view("r1"), "r1", driver.released)
    again.start()
    with pytest.raises(LogTruncated):
        again.follow()


def test_those_of_another_history_are_told_from_those_of_this_one_and_from_what_can_not_be_compared() -> None:
    disk, driver, strangers = with_strangers()
    names = driver.checkpoints.names()
    found = foreign(disk.view("x"), driver.epoch, 30, names)
    assert sorted(each.name for each in found) == sorted(strangers)
    driver.log.collect(28)
    old = [each for each in names if each.lsn == 7]
    assert foreign(disk.view("x"), driver.epoch, 30, old) == []
    assert counted_on_log(disk.view("x"), CheckpointStore(disk.view("x"), "x"), driver.epoch)[-1] == 28


def test_a_start_from_a_checkpoint_of_another_history_is_refused() -> None:
    disk, driver, _ = with_strangers()
    again = LogDriver(disk.view("r1"), "r1", [])
    again.start()
    assert len(again.applied) == 35
    with pytest.raises(LogTruncated):
        again.take_over()
    assert driver.log.last_place()
