"""The next step of a roll, case by case; `test_plan` shows whole rolls."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.deathless_operator.plan.plan_world import World, running, set_ready

from deathless_operator.model import names
from deathless_operator.plan.service.rollout import Step, decide_size, next_step

NEW = "another-template"


def step(world: World, template: str = NEW) -> Step:
    """The next step towards a template."""
    snapshot = world.snapshot()
    assert snapshot.resource.spec is not None
    return next_step(snapshot, snapshot.resource.spec, template, world.size())


def make_current(world: World, *pods: str) -> None:
    """Pods are of the new template."""
    for name in pods:
        world.pods[name]["metadata"]["labels"][names.LABEL_TEMPLATE] = NEW


def crash(world: World, name: str) -> None:
    """A pod can't start."""
    set_ready(world.pods[name], ready=False)
    world.pods[name]["status"]["containerStatuses"] = [
        {"name": "replica", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    ]


def deleted(found: Step) -> str | None:
    """The pod that is deleted."""
    return found.delete.name if found.delete else None


def test_nothing_is_rolled_when_all_are_current() -> None:
    world = running()
    assert step(world, world.template()) == Step()


def test_highest_follower_goes_first_and_the_primary_last() -> None:
    world = running()
    assert deleted(step(world)) == "bank-2"
    make_current(world, "bank-2", "bank-1")
    assert deleted(step(world)) == "bank-0"
    assert step(world).delete.grace_s is None, "politely"  # type: ignore[union-attr]


def test_broken_pod_goes_first_though_another_is_not_ready() -> None:
    world = running()
    make_current(world, "bank-2")
    set_ready(world.pods["bank-2"], ready=False)
    assert step(world).waits == "bank-2 to become ready"
    crash(world, "bank-1")
    assert deleted(step(world)) == "bank-1"


def test_broken_primary_is_replaced_too() -> None:
    world = running()
    crash(world, "bank-0")
    assert deleted(step(world)) == "bank-0"


def test_replica_that_came_back_catches_up_before_the_next_goes() -> None:
    world = running()
    make_current(world, "bank-2")
    set_ready(world.pods["bank-2"], ready=False)
    set_ready(world.pods["bank-2"], ready=True, at=world.now)
    assert (step(world).waits, step(world).requeue_s) == ("bank-2 to catch up", 1.0)
    world.pass_time(2)
    assert deleted(step(world)) == "bank-1"
    world.epoch = 0
    world._say("bank-2", world.pods["bank-2"], "standby")
    assert step(world).waits == "bank-2 to catch up", "it does not tell the primary's epoch"
    world.pass_time(8)
    assert deleted(step(world)) == "bank-1"


def test_silent_follower_goes_before_a_serving_one() -> None:
    world = running()
    set_ready(world.pods["bank-1"], ready=False)
    assert deleted(step(world)) == "bank-1"


def test_silent_primary_is_waited_for() -> None:
    world = running()
    set_ready(world.pods["bank-0"], ready=False)
    assert (deleted(step(world)), step(world).waits) == (None, "bank-0 to become ready, or another primary")


@pytest.mark.parametrize("change", ["missing", "going"])
def test_pod_that_is_away_is_waited_for(change: str) -> None:
    world = running()
    if change == "missing":
        del world.pods["bank-1"]
    else:
        world.pods["bank-1"]["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    assert (deleted(step(world)), step(world).waits) == (None, "bank-1 to come back")


def test_roll_waits_for_somebody_to_lead() -> None:
    world = running()
    world.pods["bank-0"]["metadata"]["labels"].pop(names.LABEL_ROLE)
    assert step(world).waits == "a primary"


@pytest.mark.parametrize("leads", [True, False])
def test_lone_replica_is_replaced(leads: bool) -> None:
    world = running({"replicas": 1})
    if not leads:
        world.pods["bank-0"]["metadata"]["labels"].pop(names.LABEL_ROLE)
    assert deleted(step(world)) == "bank-0"
    set_ready(world.pods["bank-0"], ready=False)
    assert deleted(step(world)) == "bank-0"


def test_primary_stays_while_everybody_else_is_fenced() -> None:
    world = running()
    make_current(world, "bank-1", "bank-2")
    world.annotations[names.FENCED_ANNOTATION] = "r1,r2"
    for name in ("bank-1", "bank-2"):
        set_ready(world.pods[name], ready=False)
    assert step(world).waits == "a replica that can take over from bank-0"
    set_ready(world.pods["bank-1"], ready=True)
    assert deleted(step(world)) == "bank-0", "a fenced replica is not waited for"


def test_size_is_left_while_pods_of_before_end() -> None:
    world = running()
    world.edit(replicas=1)
    world.operate()
    world.pods["bank-3"] = world.pods["bank-2"] | {"metadata": world.pods["bank-2"]["metadata"] | {"name": "bank-3"}}
    snapshot = world.snapshot()
    assert snapshot.resource.spec is not None
    size = decide_size(snapshot, snapshot.resource.spec, 3)
    assert (size.replicas, size.waits) == (3, "bank-3 to end")


def adopt(world: World, base: str = "bank") -> dict[str, Any]:
    """A pod of `kubectl deathless adopt` runs; gives it."""
    labels = names.labels("bank") | {names.LABEL_NAME: "deathless-adopt", names.LABEL_PURPOSE: names.PURPOSE_ADOPT}
    world.make_pod(names.adopt_pod(base), {"metadata": {"labels": labels}, "spec": {}})
    pod: dict[str, Any] = world.pods[names.adopt_pod(base)]
    pod["status"]["phase"] = "Running"
    return pod


def suspended(**spec: object) -> World:
    """A world in which the service was stopped."""
    world = running(dict(spec))
    world.edit(suspend=True)
    world.settle()
    assert not world.pods
    return world


@pytest.mark.parametrize("end", ["Succeeded", "Failed", "gone"])
def test_no_replica_is_started_beside_a_pod_that_adopts_and_all_are_once_it_has_ended(end: str) -> None:
    world = suspended()
    pod = adopt(world)
    world.settle()
    assert world.condition("Ready")["reason"] == "Suspended", "as long as nobody goes on, nothing waits"
    world.edit(suspend=False)
    world.told.clear()
    world.settle()
    assert (sorted(world.replicas()), world.size()) == ([], 0)
    progressing, ready = world.condition("Progressing"), world.condition("Ready")
    assert (progressing["status"], progressing["reason"], ready["reason"]) == ("True", "Adopting", "Adopting")
    for told in (progressing, ready):
        assert "bank-adopt to end" in told["message"]
        assert "`kubectl -n prod delete pod bank-adopt`" in told["message"]
    assert world.told.count("Adopting") == 1
    if end == "gone":
        del world.pods["bank-adopt"]
    else:
        pod["status"]["phase"] = end
    world.settle()
    assert (world.status["ready"], world.condition("Ready")["status"]) == ("3/3", "True")


@pytest.mark.parametrize("phase", ["Pending", "Unknown"])
def test_pod_that_adopts_and_is_going_or_has_not_begun_is_waited_for(phase: str) -> None:
    world = suspended()
    pod = adopt(world)
    pod["status"]["phase"] = phase
    pod["metadata"]["deletionTimestamp"] = "2027-01-01T00:00:00Z"
    world.edit(suspend=False)
    world.operate()
    assert world.size() == 0


def test_no_shard_is_started_beside_a_pod_that_adopts_another_ones_log() -> None:
    world = suspended(shards=2)
    adopt(world, "bank-s1")
    world.edit(suspend=False)
    world.settle()
    assert not world.replicas()
    assert "bank-s1-adopt to end" in world.condition("Ready")["message"]


def test_stateful_set_that_is_made_beside_a_pod_that_adopts_has_no_pods() -> None:
    world = suspended()
    adopt(world)
    del world.children["StatefulSet", "bank"]
    world.edit(suspend=False)
    world.settle()
    assert (world.stateful_set() is not None, world.size()) == (True, 0)


def test_replicas_that_serve_beside_a_pod_that_adopts_go_on_and_none_is_made_anew() -> None:
    world = running()
    adopt(world)
    before = {name: pod["metadata"]["uid"] for name, pod in world.replicas().items()}
    world.edit(replicas=5, resources={"requests": {"cpu": "1"}})
    world.settle()
    assert {name: pod["metadata"]["uid"] for name, pod in world.replicas().items()} == before
    world.edit(replicas=3)
    world.settle()
    assert {name: pod["metadata"]["uid"] for name, pod in world.replicas().items()} == before
    assert world.condition("Available")["status"] == "True"
    world.edit(suspend=True)
    world.settle()
    assert not world.replicas()
