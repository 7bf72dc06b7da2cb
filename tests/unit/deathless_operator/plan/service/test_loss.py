"""Lost nodes and fenced pods; the whole course is in `test_plan`."""

from __future__ import annotations

import json

from tests.unit.deathless_operator.plan.plan_world import World, running, set_ready

from deathless_operator.model import names
from deathless_operator.plan.actions import DeletePod
from deathless_operator.plan.service.loss import FORMER_S, fence, replace_lost


def lost(world: World) -> list[str]:
    """Pods that are force-deleted now."""
    snapshot = world.snapshot()
    assert snapshot.resource.spec is not None
    return sorted(replace_lost(snapshot, snapshot.resource.spec.replace_after_seconds).deleting)


def test_replica_is_replaced_after_the_time_of_the_spec() -> None:
    world = running({"replaceAfterSeconds": 60})
    world.lose_node(world.pods["bank-1"]["spec"]["nodeName"])
    world.pass_time(59)
    assert lost(world) == []
    world.pass_time(1)
    assert lost(world) == ["bank-1"]


def test_two_lost_nodes_of_three_are_both_replaced() -> None:
    world = running()
    for name in ("bank-0", "bank-2"):
        world.lose_node(world.pods[name]["spec"]["nodeName"])
    world.pass_time(30)
    assert lost(world) == ["bank-0", "bank-2"]


def test_node_that_answers_and_is_not_ready_is_not_lost() -> None:
    world = running()
    node = world.nodes[world.pods["bank-0"]["spec"]["nodeName"]]
    node["status"]["conditions"][0]["status"] = "False"
    world.pass_time(1000)
    assert lost(world) == []


def test_pod_without_a_node_cannot_be_lost() -> None:
    world = running()
    world.pods["bank-0"]["spec"].pop("nodeName")
    assert lost(world) == []


def test_lost_pod_that_is_going_is_ended_by_force() -> None:
    world = running()
    world.lose_node(world.pods["bank-0"]["spec"]["nodeName"])
    world.pods["bank-0"]["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    world.pass_time(30)
    assert lost(world) == ["bank-0"]


def test_all_replicas_are_fenced_by_a_star() -> None:
    world = running()
    world.annotations[names.FENCED_ANNOTATION] = "*"
    world.pods["bank-0"]["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    actions = fence(world.snapshot())
    assert [action.name for action in actions] == ["bank-1", "bank-2"], "one that goes is left alone"  # type: ignore[union-attr]


def test_pod_that_a_later_instance_unknown_to_the_api_server_holds_up_is_made_anew() -> None:
    world = running()
    for name in ("bank-0", "bank-1", "bank-2"):  # as after the API server's data were restored from an older copy
        set_ready(world.pods[name], ready=False)
        told = json.loads(world.pods[name]["metadata"]["annotations"][names.STATUS_ANNOTATION])
        told |= {"role": "recovering", "condition": "DL2002", "text": "DL2002 a later instance", "since": world.now}
        world.pods[name]["metadata"]["annotations"][names.STATUS_ANNOTATION] = json.dumps(told)
        world.pods[name]["metadata"]["labels"][names.LABEL_ROLE] = "recovering"
    plan = world.plan()
    assert [action for action in plan.actions if isinstance(action, DeletePod)] == []
    assert plan.requeue_s is not None
    assert plan.requeue_s <= FORMER_S, "it goes on by itself where it can"
    world.pass_time(FORMER_S + 1)
    deleted = [action.name for action in world.plan().actions if isinstance(action, DeletePod)]
    assert deleted == ["bank-0", "bank-1", "bank-2"], "nobody serves, so there is nobody to spare"
    world.strict = False
    world.settle()
    assert world.condition("Ready")["status"] == "True"
