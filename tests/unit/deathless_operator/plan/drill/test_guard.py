"""Each line of the list of reasons forbids a drill, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest
from tests.unit.deathless_operator.plan.drill_world import World, good_service, make_spec, replica

from deathless_operator.model import names
from deathless_operator.model.drill import DrillRun, DrillStatus
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.model.status import Condition, ServiceStatus
from deathless_operator.plan.drill.guard import refusal
from deathless_operator.plan.drill.outcome import show_moment
from deathless_operator.plan.snapshot import NodeView, Snapshot


def why(world: World, mark: str = "") -> str:
    found = refusal(world.snapshot(), world.spec, world.settings, mark)
    return found.reason if found is not None else ""


def test_healthy_service_may_be_drilled() -> None:
    assert why(World(make_spec())) == ""


def not_ready(world: World) -> None:
    told = Condition(type="Ready", status="False", reason="NoPrimary")
    world.service = good_service(status=ServiceStatus(conditions=(told,)))


def degraded(world: World) -> None:
    told = Condition(type="Degraded", status="True", reason="ReplicaLost")
    world.service = good_service(status=ServiceStatus(conditions=(*good_service().status.conditions, told)))


def suspended(world: World) -> None:
    spec = good_service().spec
    assert spec is not None
    world.service = good_service(spec=msgspec.structs.replace(spec, suspend=True))


def one_pod_ends(world: World) -> None:
    world.replicas[2] = replace(world.replicas[2], deleted_at=world.now)


def one_pod_fenced(world: World) -> None:
    world.replicas[2] = replace(world.replicas[2], annotations={names.FENCED_ANNOTATION: "true"})


def one_ready_alone(world: World) -> None:
    world.replicas = [replica(0, "primary")]


def cordoned(world: World) -> None:
    world.nodes["worker1"] = replace(world.nodes["worker1"], cordoned=True)


def other_drill(world: World) -> None:
    run = DrillRun(id="r", phase="Warm")
    world.others = (msgspec.structs.replace(world.resource(), name="other", status=DrillStatus(active=run)),)


def budget_spent(world: World) -> None:
    world.spec = make_spec(abortIf={"unavailableBudgetSeconds": 1.5})
    run = DrillRun(id="r", completion_time=show_moment(world.now - 60), unavailable_seconds=0.8)
    world.status = DrillStatus(history=(run, run))


CASES: dict[str, tuple[Callable[[World], object], str]] = {
    "service gone": (lambda world: setattr(world, "service", None), "TargetMissing"),
    "spec with problems": (lambda world: setattr(world, "service", good_service(spec=None)), "TargetNotReady"),
    "being deleted": (lambda world: setattr(world, "service", good_service(deleted_at=1.0)), "TargetNotReady"),
    "paused": (
        lambda world: setattr(world, "service", good_service(annotations={names.PAUSED_ANNOTATION: "true"})),
        "TargetPaused",
    ),
    "suspended": (suspended, "TargetPaused"),
    "not ready": (not_ready, "TargetNotReady"),
    "condition": (degraded, "ConditionHolds"),
    "too few": (one_ready_alone, "TooFewReplicas"),
    "pod not ready": (lambda world: world.replicas.append(replica(3, "standby", ready=False)), "DisruptionUnderWay"),
    "pod ends": (one_pod_ends, "DisruptionUnderWay"),
    "pod fenced": (one_pod_fenced, "DisruptionUnderWay"),
    "node cordoned": (cordoned, "DisruptionUnderWay"),
    "other drill": (other_drill, "AnotherDrill"),
    "budget": (budget_spent, "BudgetSpent"),
    "no agents": (lambda world: setattr(world, "settings", OperatorSettings()), "AgentsNotAllowed"),
}


@pytest.mark.parametrize(("harm", "reason"), CASES.values(), ids=CASES)
def test_reason_forbids_the_drill(harm: Callable[[World], object], reason: str) -> None:
    world = World(make_spec())
    harm(world)
    assert why(world) == reason


def test_node_drain_needs_its_own_permission() -> None:
    world = World(make_spec("NodeDrain"), settings=OperatorSettings(drill_agents=True))
    assert why(world) == "NodeDrainNotAllowed"


def test_pod_delete_needs_no_permission() -> None:
    assert why(World(make_spec("PodDelete"), settings=OperatorSettings())) == ""


def test_node_that_is_not_ready_forbids_the_drill() -> None:
    world = World(make_spec())
    snapshot = world.snapshot()
    assert snapshot.target is not None
    lost = replace(snapshot.target, nodes=(NodeView(name="worker2", ready=False),))
    assert isinstance(lost, Snapshot)
    found = refusal(replace(snapshot, target=lost), world.spec, world.settings)
    assert found is not None
    assert found.reason == "DisruptionUnderWay"


def test_what_a_run_cordoned_itself_is_no_disruption() -> None:
    world = World(make_spec())
    world.nodes["worker1"] = replace(world.nodes["worker1"], cordoned=True, mark="ns/nightly/r")
    assert why(world, "ns/nightly/r") == ""
    assert why(world, "ns/nightly/s") == "DisruptionUnderWay"


def test_cost_outside_the_window_is_forgotten() -> None:
    world = World(make_spec())
    budget_spent(world)
    world.now += 3_000_000
    assert why(world) == ""
