"""Who is hit, and what undoes it."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from tests.unit.deathless_operator.plan.drill_world import World, make_spec, replica

from deathless.base.errors import Internal
from deathless_operator.model import names
from deathless_operator.model.drill import FAULTS, DrillRun
from deathless_operator.plan.actions import DeletePod
from deathless_operator.plan.drill.faults import begin_fault, choose_victim, undo_actions
from deathless_operator.plan.drill.snapshot import DrillNodeView, SetCordon, read_node


@pytest.mark.parametrize(
    ("role", "pod"), [("Primary", "bank-0"), ("Checkpointer", "bank-1"), ("Standby", "bank-2"), ("Any", "bank-0")]
)
def test_victim_has_the_role_that_was_asked_for(role: str, pod: str) -> None:
    world = World(make_spec(fault_role=role))
    victim = choose_victim(world.snapshot(), world.spec, DrillRun(id="r"))
    assert victim is not None
    assert (victim.target, victim.phase, victim.epoch_before) == (pod, "Fault", 4)


def test_pod_that_is_ending_is_no_victim() -> None:
    world = World(make_spec())
    world.replicas[0] = replace(world.replicas[0], deleted_at=1.0)
    assert choose_victim(world.snapshot(), world.spec, DrillRun(id="r")) is None


@pytest.mark.parametrize("grace", [0, 30])
def test_pod_is_deleted_with_the_grace_that_was_asked_for(grace: int) -> None:
    world = World(make_spec("PodDelete", fault_graceSeconds=grace))
    run = choose_victim(world.snapshot(), world.spec, DrillRun(id="r"))
    assert run is not None
    (action,) = begin_fault(world.snapshot(), world.spec, world.settings, run).actions
    assert isinstance(action, DeletePod)
    assert (action.uid, action.grace_s) == ("uid-bank-0-1", grace)


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_begun(fault: str) -> None:
    world = World(make_spec(fault))
    run = choose_victim(world.snapshot(), world.spec, DrillRun(id="r"))
    assert run is not None
    assert begin_fault(world.snapshot(), world.spec, world.settings, run).actions


def test_nothing_is_done_for_a_fault_that_is_unknown() -> None:
    world = World(make_spec("PodDelete"))
    run = choose_victim(world.snapshot(), world.spec, DrillRun(id="r"))
    assert run is not None
    strange = msgspec.structs.replace(run, fault="Earthquake")
    with pytest.raises(Internal, match="'Earthquake'"):
        begin_fault(world.snapshot(), world.spec, world.settings, strange)


def test_agent_of_another_run_makes_room_once_it_is_over() -> None:
    world = World(make_spec("Freeze"))
    run = choose_victim(world.snapshot(), world.spec, DrillRun(id="r"))
    assert run is not None
    other = replace(
        replica(9, ""), name="ns-bank-drill-agent", uid="old", annotations={names.DRILL_ANNOTATION: "a/b/c"}
    )
    world.pods["ns-bank-drill-agent"] = other
    assert begin_fault(world.snapshot(), world.spec, world.settings, run).actions == ()
    world.pods["ns-bank-drill-agent"] = replace(other, phase="Failed")
    (action,) = begin_fault(world.snapshot(), world.spec, world.settings, run).actions
    assert isinstance(action, DeletePod)
    assert (action.uid, action.namespace) == ("old", "deathless-system")


def test_undoing_touches_what_bears_the_mark_alone() -> None:
    world = World(make_spec("NodeDrain"))
    world.nodes["worker0"] = DrillNodeView(name="worker0", cordoned=True, mark="ns/nightly/r")
    world.nodes["worker1"] = DrillNodeView(name="worker1", cordoned=True, mark="ns/nightly-2/r")
    world.nodes["worker2"] = DrillNodeView(name="worker2", cordoned=True)
    for mark in ("ns/nightly/r", "ns/nightly/"):
        (action,) = undo_actions(world.snapshot(), world.settings, mark)
        assert isinstance(action, SetCordon)
        assert (action.node, action.cordon, action.mark) == ("worker0", False, None)


def test_node_is_read_with_its_mark() -> None:
    raw = {"metadata": {"name": "n", "annotations": {"deathless.dev/drill": "m"}}, "spec": {"unschedulable": True}}
    assert read_node(raw) == DrillNodeView(name="n", cordoned=True, mark="m")  # type: ignore[arg-type]
