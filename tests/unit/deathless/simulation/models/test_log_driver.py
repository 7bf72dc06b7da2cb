"""The reduced replica keeps the order of section 5, and its oracle sees a loss."""

from __future__ import annotations

import random

import pytest

from deathless.base.errors import Deposed, LockUnavailable, LogTruncated
from deathless.simulation.models.log_driver import LogDriver
from deathless.simulation.world.disk import SimDisk


def started(disk: SimDisk, name: str, released: list[bytes]) -> LogDriver:
    driver = LogDriver(disk.view(name), name, released)
    driver.start()
    return driver


def test_a_takeover_carries_out_the_steps_of_section_5_in_their_order() -> None:
    disk = SimDisk(random.Random(1))
    first = started(disk, "r0", [])
    first.take_over()
    first.call(b"one")
    steps: list[str] = []

    def note(operation: str, path: str, moment: str) -> None:
        if moment == "before" and operation in {"link", "write", "sync", "open"}:
            steps.append(f"{operation} {path}")

    second = LogDriver(disk.view("r1", note), "r1", first.released)
    second.start()
    steps.clear()
    second.take_over()
    file, old = "log/e000000000002.r000000.seg", "log/e000000000001.r000000.seg"
    order = [
        "link lock/epoch.2",
        "link seal/000000000001",
        f"open {old}",
        f"write {file}",
        f"sync {file}",
        "link lock/head.2",
    ]
    place = 0
    for step in order:
        place = steps.index(step, place)
    assert steps.count(f"write {file}") == 2, "cut and copies, then the opening frame"
    assert steps.index("link lock/head.2") < len(steps) - 1 - steps[::-1].index(f"sync {file}")


def test_the_oracle_sees_a_message_that_was_released_and_lost() -> None:
    disk = SimDisk(random.Random(1))
    driver = started(disk, "r0", [])
    driver.take_over()
    driver.call(b"one")
    driver.check()
    driver.applied = [b"other"]
    with pytest.raises(AssertionError, match="released was lost"):
        driver.check()


def test_a_deposed_driver_stops_and_a_slower_one_is_told() -> None:
    disk = SimDisk(random.Random(1))
    released: list[bytes] = []
    first = started(disk, "r0", released)
    first.take_over()
    second = started(disk, "r1", released)
    disk.fail("link", "lock/epoch.2", number=17)
    with pytest.raises(LockUnavailable):
        second.take_over()
    second.take_over()
    with pytest.raises(Deposed):
        first.call(b"late")


def test_what_another_replica_knows_confirmed_must_be_in_the_log() -> None:
    disk = SimDisk(random.Random(1))
    first = started(disk, "r0", [])
    first.take_over()
    first.call(b"one")
    with pytest.raises(LogTruncated):
        started(disk, "r1", []).take_over(known_confirmed=2)


def test_a_full_disk_refuses_a_call_and_nothing_else() -> None:
    disk = SimDisk(random.Random(1))
    first = started(disk, "r0", [])
    first.take_over()
    first.call(b"one")
    disk.capacity_bytes = disk.used_bytes()
    while first.call(b"x" * 3000):
        pass
    first.idle()
    second = started(disk, "r1", first.released)
    follower = started(disk, "r2", [])
    follower.follow()
    assert follower.applied == first.released
    disk.capacity_bytes = None
    second.take_over()
    second.check()
    assert second.call(b"goes on")
