"""Each safeguard of a plan, left out: what it keeps from happening happens.

With all of them the same story ends well, so a test that finds nothing with a switch off would find nothing at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

import pytest
from tests.unit.deathless_operator.plan.plan_world import Broken, World, running
from tests.unit.deathless_operator.plan.service.test_pod_settings import other_store, step, told
from tests.unit.deathless_operator.plan.test_ready_means_served import served_wrongly

from deathless_operator.model import names
from deathless_operator.plan.actions import Target
from deathless_operator.plan.safeguards import ALL_PLAN_SAFEGUARDS, PlanSafeguards


def pods_keep_what_they_mount(world: World) -> None:
    """Another lock store, while pods of the former template are there."""
    world.settle()
    other_store(world)
    seen: dict[str, object] = {}
    for _ in range(12):
        for pod in world.snapshot().pods:
            mounted = {each: told(world)[each] for each in pod.mounts if each in told(world)}
            if seen.setdefault(pod.uid, mounted) != mounted:
                raise Broken(f"{pod.name} mounts something else now")
        step(world)


def nothing_mounted_is_deleted(world: World) -> None:
    """Other settings, which are rolled."""
    world.edit(logLevel="debug")
    world.settle()


def no_pod_is_taken_that_can_not_be_made(world: World) -> None:
    """Other settings, whose ConfigMap is refused."""
    world.refuses = (Target("ConfigMap", "bank-config"),)
    world.edit(logLevel="debug")
    for _ in range(20):
        step(world)
    if ("ConfigMap", world.config_name()) not in world.children:
        raise Broken("pods are made without their settings")


def roll(world: World) -> None:
    """A roll; the world itself looks whether a pod may go."""
    world.edit(resources={"requests": {"cpu": "1"}})
    world.settle()


def ready_is_true(world: World) -> None:
    """A roll that is watched by a pipeline that waits for Ready."""
    world.edit(resources={"requests": {"cpu": "1"}})
    for _ in range(20):
        world.operate()
        if world.condition("Ready")["status"] == "True" and served_wrongly(world):
            raise Broken(f"Ready, but {served_wrongly(world)}")
        step(world)


def others_are_left_alone(world: World) -> None:
    """Another installation looks after the service."""
    world.annotations[names.INSTALLATION_ANNOTATION] = "another"
    world.edit(replicas=4)
    if world.operate().actions:
        raise Broken("two operators write one service")


def upgrade(world: World) -> None:
    """Other code, which ends with that code serving."""
    world.edit(image="bank:other")
    try:
        world.settle(150)
    finally:
        if world.condition("Ready")["reason"] != "AllReplicasReady" or world.size() != 3:
            raise Broken(f"it does not serve by the new code: {world.plan().sentence}")


def upgrade_that_is_made_though_it_is_not_wanted_any_more(world: World) -> None:
    """The spec goes back when the primary has been told, and the upgraders lead before they are taken away."""
    world.edit(image="bank:other")
    while not world.ordered:
        world.operate()
        world.run_controller()
        for name in list(world.pods):
            world.run_kubelet(name)
    world.edit(image="bank:1")
    world.operate()
    world.elect()
    world.settle(150)
    if world.condition("Ready")["reason"] != "AllReplicasReady":
        raise Broken(f"nobody knows what code serves: {world.plan().sentence}")


STORIES: dict[str, Callable[[World], None]] = {
    "settings_by_content": pods_keep_what_they_mount,
    "keep_mounted": nothing_mounted_is_deleted,
    "needs_hold_back": no_pod_is_taken_that_can_not_be_made,
    "roll_one_at_a_time": roll,
    "primary_last": roll,
    "ready_needs_the_spec": ready_is_true,
    "claim_first": others_are_left_alone,
    "upgrade_rolls_nothing": upgrade,
    "upgrade_noted": upgrade_that_is_made_though_it_is_not_wanted_any_more,
    "upgraders_stay": upgrade,
}


def test_every_switch_has_a_story() -> None:
    assert list(STORIES) == [each.name for each in fields(PlanSafeguards)]


@pytest.mark.parametrize("name", STORIES)
def test_safeguard_is_missed_when_it_is_off(name: str) -> None:
    world = running()
    STORIES[name](world)
    broken = running()
    broken.safeguards = replace(ALL_PLAN_SAFEGUARDS, **{name: False})
    with pytest.raises(Broken):
        STORIES[name](broken)
