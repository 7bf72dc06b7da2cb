"""Every crash point of the file store (design 0003, "How it is shown").

A scenario runs on a simulated disk. Before each call that changes something, and after the last, the power is cut:
each unsynced block is kept, undone or torn, each unsynced name kept or undone, several times by another chance. Then
another replica takes over. It must find everything released, and must be able to go on.

The same enumeration with one safeguard off must find a loss: that is what shows that it looks where losses are.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from deathless.base.errors import DeathlessError
from deathless.engine.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.simulation.models.log_driver import LogDriver
from deathless.simulation.world.disk import CHANGES, SimDisk, SimFileSystem


class Crash(BaseException):
    """The power is cut here; not an Exception, so nothing handles it."""


class CrashPoint:
    """Counts the calls that change something and cuts the power before one of them."""

    def __init__(self, at: int | None) -> None:
        self.at = at
        self.count = 0
        self.armed = False

    def __call__(self, operation: str, path: str, moment: str) -> None:
        if not self.armed or moment != "before" or operation not in CHANGES:
            return
        if self.count == self.at:
            raise Crash(f"{operation} {path}")
        self.count += 1


Scenario = Callable[["World"], None]


class World:
    """One disk, what the outside has seen, and a crash point that the scenario arms."""

    def __init__(self, at: int | None, safeguards: Safeguards, seed: int = 0) -> None:
        self.disk = SimDisk(random.Random(seed))
        self.point = CrashPoint(at)
        self.released: list[bytes] = []
        self.safeguards = safeguards
        self.drivers = 0

    def driver(self, *, fresh: bool = True) -> LogDriver:
        self.drivers += 1
        name = f"r{self.drivers}"
        fs: SimFileSystem = self.disk.view(name, self.point if fresh else lambda *_: None)
        return LogDriver(fs, name, self.released, safeguards=self.safeguards)


def first_start(world: World) -> None:
    world.point.armed = True
    primary = world.driver()
    primary.start()
    primary.take_over()


def appends(world: World) -> None:
    primary = world.driver()
    primary.start()
    primary.take_over()
    world.point.armed = True
    for number in range(3):
        primary.call(b"a%d" % number, b"b" * 5000)
    primary.idle()
    primary.call(b"behind the idle frame")


def rolls(world: World) -> None:
    primary = world.driver()
    primary.start()
    primary.take_over()
    for number in range(5):
        primary.call(b"%d" % number * 3000)
    world.point.armed = True
    for number in range(8):
        primary.call(b"%d" % number * 3000)
    assert primary.log.reserve(8192)


def takeovers(world: World) -> None:
    """A second primary copies a frame that was written and not confirmed; a third takes over from it."""
    primary = world.driver()
    primary.start()
    primary.take_over()
    primary.call(b"confirmed")
    primary.call(b"confirmed too")
    primary.call_unsynced(b"written, not confirmed")
    world.point.armed = True
    for _ in range(2):
        successor = world.driver()
        successor.start()
        successor.take_over()
        successor.call(b"served")
        successor.call_unsynced(b"again not confirmed" * 300)


def collection(world: World) -> None:
    primary = world.driver()
    primary.start()
    primary.take_over()
    reader = world.driver()
    reader.start()
    world.point.armed = True
    for number in range(3):
        for _ in range(4):
            primary.call(b"%d" % number * 5000)
        primary.checkpoint(reader)
        primary.collect()
    successor = world.driver()
    successor.start()
    successor.take_over()
    successor.call(b"x" * 4000)
    successor.checkpoint(reader)
    successor.collect()


def late_collection(world: World) -> None:
    """Only the last collection is cut short: the log that a broken checkpoint would need is gone by then."""
    primary = world.driver()
    primary.start()
    primary.take_over()
    for number in range(3):
        for _ in range(4):
            primary.call(b"%d" % number * 5000)
        primary.checkpoint()
    world.point.armed = True
    primary.collect()
    primary.call(b"x")


SCENARIOS: list[Scenario] = [first_start, appends, rolls, takeovers, collection]
CHANCES = 3  # power cuts with other chance at each point


def crashes(scenario: Scenario, safeguards: Safeguards) -> Iterator[World]:
    """Give the world as it is at each crash point, power not yet cut."""
    at = 0
    while True:
        world = World(at, safeguards)
        try:
            scenario(world)
        except Crash:
            yield world
            at += 1
            continue
        yield world
        return


def recover(world: World, seed: int) -> None:
    """Cut the power on a copy of the disk and take over there, twice."""
    disk = copy.deepcopy(world.disk)
    disk.rng = random.Random(seed)
    disk.cut_power()
    released = list(world.released)
    for name in ("s1", "s2"):
        successor = LogDriver(disk.view(name), name, released, safeguards=world.safeguards)
        successor.start()
        successor.take_over()
        successor.check()
        assert successor.call(name.encode())
        disk.cut_power()
    follower = LogDriver(disk.view("f"), "f", released, safeguards=world.safeguards)
    follower.start()
    follower.follow()
    assert follower.applied == released[: len(follower.applied)]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_power_cut_at_any_point_loses_nothing_released_and_recovery_goes_on(scenario: Scenario) -> None:
    points = 0
    for world in crashes(scenario, ALL_SAFEGUARDS):
        points += 1
        for seed in range(CHANCES):
            recover(world, seed)
    assert points >= 20, "the scenario has crash points"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_killed_process_at_any_point_loses_nothing_released(scenario: Scenario) -> None:
    for world in crashes(scenario, ALL_SAFEGUARDS):
        world.point.armed = False
        successor = world.driver()
        successor.start()
        successor.take_over()
        successor.check()
        assert successor.call(b"goes on")


@pytest.mark.parametrize(
    ("safeguard", "scenario"),
    [
        ("sync_before_release", appends),
        ("sync_copies", takeovers),
        ("cut_at_confirmed", takeovers),
        ("sync_folder", takeovers),
        ("roll_file_first", rolls),
        ("sync_roll", rolls),
        ("sync_checkpoint", late_collection),
    ],
)
def test_without_this_safeguard_a_crash_point_loses_something(safeguard: str, scenario: Scenario) -> None:
    safeguards = replace(ALL_SAFEGUARDS, **{safeguard: False})
    for world in crashes(scenario, safeguards):
        for seed in range(5 * CHANCES):
            try:
                recover(world, seed)
            except (AssertionError, DeathlessError):
                return
    pytest.fail(f"no crash point needs {safeguard}")
