"""A LiveUpgrade that names a Rehearsal begins once that has passed."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.deathless_operator.plan.plan_world import World, running
from tests.unit.deathless_operator.plan.service.upgrading.test_asked_for import OTHER, ROUNDS

FORMER = "aa" * 16
PASSED = {"phase": "Succeeded", "verdict": "Passed", "image": "bank:1", "result": {"fingerprint": OTHER}}
BEFORE_IT_SAID = {"phase": "Succeeded", "verdict": "Passed", "image": "bank:1", "result": {}}
"""By an image of a release that did not tell the fingerprint."""


def rehearse(world: World, status: dict[str, Any], **spec: Any) -> None:
    """A Rehearsal stands there, and is so far."""
    world.rehearsals["first"] = {
        "metadata": {"name": "first", "namespace": "prod", "uid": "r"},
        "spec": {"serviceRef": {"name": "bank"}, "image": "bank:other", **spec},
        "status": status,
    }


def waiting(**more: Any) -> World:
    """A service whose LiveUpgrade names a Rehearsal."""
    world = running(more)
    world.ask("second", "bank:other", rehearsal="first")
    world.settle(ROUNDS)
    return world


@pytest.mark.parametrize(
    ("status", "spec", "told"),
    [
        ({}, {}, "Rehearsal first has not ended: it has not begun"),
        ({"phase": "Running", "message": "pod x runs the log"}, {}, "has not ended: pod x runs the log"),
        ({"phase": "Failed", "verdict": "Failed", "message": "ReplyDiffers: deposit"}, {}, "ReplyDiffers: deposit"),
        ({"phase": "Failed", "verdict": "Inconclusive", "message": "PodLost"}, {}, "did not pass: PodLost"),
        (PASSED | {"image": "bank:0"}, {}, "ran the log by bank:0, and bank:1 serves"),
        (PASSED, {"image": "bank:2"}, "is of image bank:2, and spec.to.image is bank:other"),
        (PASSED, {"module": "vault:vault"}, "is of module vault:vault, and the upgrade is to bank:bank"),
        (PASSED, {"serviceRef": {"name": "ledger"}}, "is of service ledger"),
        (
            PASSED | {"result": {"fingerprint": "cc" * 16}},
            {},
            f"ran other code (cccccccccccc) than bank:other with bank:bank and spec.limits ({OTHER[:12]})",
        ),
        (PASSED, {"colour": "red"}, "can't be read: spec"),
    ],
)
def test_nothing_is_begun_without_a_rehearsal_that_passed(
    status: dict[str, Any], spec: dict[str, Any], told: str
) -> None:
    world = waiting()
    rehearse(world, status, **spec)
    world.settle(ROUNDS)
    upgrade = world.upgrade("second")
    assert (upgrade["phase"], world.log_code, len(world.replicas())) == ("Pending", FORMER, 3)
    assert told in upgrade["message"]
    rehearse(world, PASSED)
    world.settle(ROUNDS)
    assert (world.upgrade("second")["phase"], world.log_code) == ("Succeeded", OTHER)


def test_one_that_does_not_say_which_code_it_ran_is_believed_for_its_image() -> None:
    world = waiting()
    rehearse(world, BEFORE_IT_SAID)
    world.settle(ROUNDS)
    assert (world.upgrade("second")["phase"], world.log_code) == ("Succeeded", OTHER)


def test_a_rehearsal_without_a_module_is_of_the_module_that_serves() -> None:
    world = running({})
    world.ask("second", "bank:other", rehearsal="first", to={"image": "bank:other", "module": "vault:vault"})
    rehearse(world, BEFORE_IT_SAID)
    world.settle(ROUNDS)
    upgrade = world.upgrade("second")
    assert (upgrade["phase"], world.log_code) == ("Pending", FORMER)
    assert "is of module bank:bank, and the upgrade is to vault:vault" in upgrade["message"]


def test_a_rehearsal_that_is_not_there_is_told() -> None:
    told = waiting().upgrade("second")
    assert told["phase"] == "Pending"
    assert "there is no Rehearsal first in this namespace" in told["message"]


def test_it_may_go_once_a_shard_runs_the_new_code() -> None:
    world = waiting(shards=2, replicas=2)
    rehearse(world, PASSED)
    for _ in range(ROUNDS):
        world.operate()
        world.others_work()
        if any(each.get("completionTime") for each in world.upgrade("second").get("shards", ())):
            break
    world.rehearsals.clear()
    world.settle(3 * ROUNDS)
    assert set(world.log_codes.values()) == {OTHER}


def test_going_back_asks_for_no_rehearsal() -> None:
    world = waiting()
    rehearse(world, PASSED)
    world.settle(ROUNDS)
    world.rehearsals.clear()
    world.order("second", "BackOut")
    world.settle(ROUNDS)
    assert (world.upgrade("second")["phase"], world.log_code) == ("BackedOut", FORMER)
