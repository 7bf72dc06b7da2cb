"""What is told about LiveUpgrades; how a service comes there stands in `test_asked_for`."""

from __future__ import annotations

import msgspec
from tests.unit.deathless_operator.plan.plan_world import World, running
from tests.unit.deathless_operator.plan.service.upgrading.test_asked_for import MAJOR, ROUNDS, asked, until_phase

from deathless_operator.model.live_upgrade import LiveUpgradeStatus
from deathless_operator.plan.service.upgrading.progress import tell_waiting


def conditions(world: World, name: str = "second") -> dict[str, str]:
    """The conditions of a LiveUpgrade as they were told last."""
    return {each["type"]: each["status"] for each in world.upgrade(name)["conditions"]}


def test_phases_come_in_their_order_and_each_is_an_event() -> None:
    world = asked()
    world.settle(ROUNDS)
    told = [each for each in world.told if each.startswith("Upgrade")]
    order = ["UpgradeChecking", "UpgradePreparing", "UpgradeUpgrading", "UpgradeSucceeded"]
    assert [each for each in told if each in order] == order


def test_conditions_follow_the_phase_and_their_times_move_with_them_alone() -> None:
    world = asked(action="Hold")
    until_phase(world, "second", "Preparing")
    assert conditions(world) == {"Progressing": "True", "Ready": "False", "Succeeded": "Unknown"}
    since = {each["type"]: each["lastTransitionTime"] for each in world.upgrade("second")["conditions"]}
    until_phase(world, "second", "Ready")
    assert conditions(world) == {"Progressing": "True", "Ready": "True", "Succeeded": "Unknown"}
    later = {each["type"]: each["lastTransitionTime"] for each in world.upgrade("second")["conditions"]}
    assert later["Progressing"] == since["Progressing"]
    assert later["Ready"] > since["Ready"]
    world.order("second", "Abort")
    world.settle(ROUNDS)
    assert conditions(world) == {"Progressing": "False", "Ready": "False", "Succeeded": "False"}


def test_times_of_begin_and_end_are_told_once() -> None:
    world = asked()
    until_phase(world, "second", "Preparing")
    began = world.upgrade("second")["startTime"]
    assert "completionTime" not in world.upgrade("second")
    world.settle(ROUNDS)
    ended = world.upgrade("second")["completionTime"]
    world.pass_time(100)
    world.settle(ROUNDS)
    told = world.upgrade("second")
    assert (told["startTime"], told["completionTime"]) == (began, ended)
    assert began < ended


def test_success_is_told_only_once_the_stateful_set_holds_the_code() -> None:
    world = asked()
    for _ in range(ROUNDS):
        plan = world.plan()
        if any(told.status.phase == "Succeeded" for told in plan.upgrades):
            break
        world.operate()
        world.others_work()
    noted = world.children["StatefulSet", "bank"]["metadata"]["annotations"]
    assert (noted["deathless.dev/image"], world.log_code) == ("bank:major", MAJOR)
    del world.live_upgrades["second"]
    world.settle(ROUNDS)
    assert world.log_code == MAJOR


def test_of_a_service_about_which_nothing_is_decided_every_open_one_waits() -> None:
    world = running()
    world.ask("second", "bank:other")
    world.ask("third", "bank:other")
    world.annotations["deathless.dev/paused"] = "true"
    world.operate()
    assert [world.upgrade(name)["reason"] for name in ("second", "third")] == ["ServiceWaits"] * 2
    found = world.snapshot().live_upgrades
    back = LiveUpgradeStatus(phase="BackingOut")
    ended = LiveUpgradeStatus(phase="Succeeded")
    told = tell_waiting((msgspec.structs.replace(found[0], status=back),), "ServiceWaits", "why", world.now)
    assert told[0].status.phase == "BackingOut", "one that goes back is no new one"
    assert tell_waiting((msgspec.structs.replace(found[0], status=ended),), "x", "y", world.now) == ()
