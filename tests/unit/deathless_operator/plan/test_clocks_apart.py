"""The clocks of nodes, of the control plane and of the operator are an hour apart: nothing waits for an hour."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.unit.deathless_operator.plan.plan_world import World, running, set_ready

from deathless_operator.model import names
from deathless_operator.plan.actions import DeletePod
from deathless_operator.plan.service.loss import FORMER_S
from deathless_operator.plan.service.pods import OTHER_SETTINGS_S, has_settings, passed_s
from deathless_operator.plan.service.reading import CLOCKS_APART_S
from deathless_operator.plan.service.rollout import CATCH_UP_S, FENCE_WAIT_S, decide_size, next_step
from deathless_operator.plan.snapshot import Snapshot

HOUR_S = 3600.0
APART = pytest.mark.parametrize("apart_s", [-HOUR_S, HOUR_S], ids=["behind", "ahead"])


def seen_by(world: World, apart_s: float) -> Snapshot:
    """What an operator sees whose clock is so far behind that of everybody else."""
    snapshot = world.snapshot()
    return replace(snapshot, now=snapshot.now - apart_s)


def test_moment_that_is_a_little_ahead_is_waited_for_and_no_other_one() -> None:
    snapshot = running().snapshot()
    assert passed_s(snapshot, snapshot.now - 5) == 5
    assert passed_s(snapshot, snapshot.now + CLOCKS_APART_S) == -CLOCKS_APART_S
    assert passed_s(snapshot, snapshot.now + HOUR_S) > HOUR_S


@APART
def test_roll_goes_on_beside_nodes_whose_clocks_are_an_hour_apart(apart_s: float) -> None:
    world = running()
    for name in ("bank-2", "bank-1"):
        world.pods[name]["metadata"]["labels"][names.LABEL_TEMPLATE] = "new"
        set_ready(world.pods[name], ready=False)
        set_ready(world.pods[name], ready=True, at=world.now)
    world.pass_time(CATCH_UP_S)
    snapshot = seen_by(world, apart_s)
    assert snapshot.resource.spec is not None
    step = next_step(snapshot, snapshot.resource.spec, "new", world.size())
    assert step.delete is not None
    assert step.delete.name == "bank-0"


@APART
def test_service_is_suspended_though_its_replica_was_fenced_by_another_clock(apart_s: float) -> None:
    world = running()
    world.edit(suspend=True)
    del world.pods["bank-2"]
    world.pods["bank-0"]["metadata"]["labels"][names.LABEL_ROLE] = "standby"
    world.pods["bank-1"]["metadata"]["labels"][names.LABEL_ROLE] = "primary"
    world._say("bank-1", world.pods["bank-1"], "primary")
    world.pods["bank-0"]["metadata"]["annotations"] |= {
        names.FENCED_ANNOTATION: "true",
        names.FENCED_AT_ANNOTATION: str(int(world.now)),
    }
    world.pass_time(FENCE_WAIT_S)
    snapshot = seen_by(world, apart_s)
    assert snapshot.resource.spec is not None
    assert decide_size(snapshot, snapshot.resource.spec, 2).waits == "bank-1 to end"


@APART
def test_pod_of_other_settings_is_made_anew_though_its_node_has_another_clock(apart_s: float) -> None:
    world = running()
    set_ready(world.pods["bank-2"], ready=False, at=world.now)
    told = json.loads(world.pods["bank-2"]["metadata"]["annotations"][names.STATUS_ANNOTATION])
    world.pods["bank-2"]["metadata"]["annotations"] |= {
        names.STATUS_ANNOTATION: json.dumps(told | {"settings": "others"}),
        names.CONFIG_ANNOTATION: "wanted",
    }
    world.pass_time(OTHER_SETTINGS_S)
    snapshot = seen_by(world, apart_s)
    pod = next(pod for pod in snapshot.pods if pod.name == "bank-2")
    assert not has_settings(snapshot, pod)


@APART
def test_former_instance_is_made_anew_though_its_node_has_another_clock(apart_s: float) -> None:
    world = running()
    for name in ("bank-0", "bank-1", "bank-2"):
        set_ready(world.pods[name], ready=False)
        told = json.loads(world.pods[name]["metadata"]["annotations"][names.STATUS_ANNOTATION])
        told |= {"role": "recovering", "condition": "DL2002", "text": "later", "since": world.now + apart_s}
        world.pods[name]["metadata"]["annotations"][names.STATUS_ANNOTATION] = json.dumps(told)
        world.pods[name]["metadata"]["labels"][names.LABEL_ROLE] = "recovering"
    world.pass_time(FORMER_S + 1)
    assert [action.name for action in world.plan().actions if isinstance(action, DeletePod)]
