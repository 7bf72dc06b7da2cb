"""What is done and told about a pipeline, look by look."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.deathless_operator.plan.pipelines.pipeline_world import SETTINGS, World

from deathless_operator.model import names
from deathless_operator.model.spark_pipeline import PipelineStatus
from deathless_operator.plan.pipelines.plan import READY_LOOK_S, make_pipeline_plan, refused
from deathless_operator.plan.snapshot import Failure, Warned

MADE = {
    "DeathlessService delays",
    *(f"{kind} delays-drivers" for kind in (
        "ServiceAccount", "Role", "RoleBinding", "PodDisruptionBudget", "NetworkPolicy", "StatefulSet",
    )),
    "Service delays-ui",
}  # fmt: skip


def test_everything_is_made_once_and_nothing_after_that() -> None:
    world = World()
    assert len(world.look().actions) == len(MADE)
    assert {f"{kind} {name}" for kind, name in world.objects} == MADE
    assert world.look().actions == ()


def test_it_is_ready_while_its_service_serves_and_a_driver_drives() -> None:
    world = World()
    world.look()
    world.look()
    assert world.ready() == ("False", "ServiceNotLookedAt")
    world.serve()
    world.look()
    assert world.ready() == ("False", "NobodyDrives")
    world.add_pod(0, "driver", 4)
    world.add_pod(1, "warm")
    plan = world.look()
    assert world.ready() == ("True", "Drives")
    assert (world.status.driver, world.status.number, world.status.warm) == ("delays-drivers-0", 4, 1)
    assert world.status.ready == "2/2"
    assert [event.type for event in plan.events] == ["Normal"]
    assert plan.requeue_s == READY_LOOK_S
    assert world.look().events == (), "it is told once"


def test_a_pipeline_that_is_made_is_no_reason_to_warn() -> None:
    world = World()
    told = [*world.look().events, *world.look().events]
    assert [(event.type, event.reason) for event in told] == [
        ("Normal", "ServiceMissing"),
        ("Normal", "ServiceNotLookedAt"),
    ]
    world.serve()
    assert [event.type for event in world.look().events] == ["Warning"], "nobody drives"


def test_of_two_that_both_say_they_drive_the_higher_number_does() -> None:
    """One of them was replaced and does not know it yet."""
    world = World()
    world.add_pod(0, "driver", 4)
    world.add_pod(1, "driver", 5)
    world.look()
    assert (world.status.driver, world.status.number) == ("delays-drivers-1", 5)


def test_what_a_pod_told_that_is_not_ready_does_not_count() -> None:
    world = World()
    world.add_pod(0, "driver", 4, ready=False)
    world.look()
    assert (world.status.driver, world.status.ready) == ("", "0/2")


def test_a_change_of_the_spec_changes_service_and_drivers() -> None:
    world = World()
    world.look()
    world.spec = {"image": "delays:2"}
    assert {text["kind"] for text in (action.manifest for action in world.look().actions)} == {  # type: ignore[union-attr]
        "DeathlessService",
        "StatefulSet",
    }


@pytest.mark.parametrize(
    ("kind", "name", "path", "value"),
    [
        ("StatefulSet", "delays-drivers", ("spec", "replicas"), 7),
        ("NetworkPolicy", "delays-drivers", ("spec", "egress"), [{}]),
        ("Role", "delays-drivers", ("rules",), []),
        ("Service", "delays-ui", ("spec", "selector"), {"other": "pods"}),
        ("PodDisruptionBudget", "delays-drivers", ("spec", "maxUnavailable"), 2),
    ],
)
def test_what_somebody_changed_in_an_object_is_put_back(
    kind: str, name: str, path: tuple[str, ...], value: Any
) -> None:
    """Rights and policies above all: an edit by hand would stay for as long as nobody changes the pipeline."""
    world = World()
    world.look()
    *way, last = path
    at: Any = world.objects[kind, name]
    for step in way:
        at = at[step]
    before, at[last] = at[last], value
    assert len(world.look().actions) == 1
    at = world.objects[kind, name]
    for step in way:
        at = at[step]
    assert at[last] == before
    assert world.look().actions == ()


def test_fields_of_the_service_that_somebody_changed_are_set_back() -> None:
    """What the pipeline does not say is the service's own."""
    world = World(replicas=2)
    world.look()
    spec = world.objects[names.SERVICE_KIND, "delays"]["spec"]
    spec["logLevel"] = "debug"
    assert world.look().actions == ()
    spec["replicas"] = 5
    world.look()
    assert world.objects[names.SERVICE_KIND, "delays"]["spec"]["replicas"] == 2


@pytest.mark.parametrize("kind", [names.SERVICE_KIND, "StatefulSet"])
def test_what_is_anothers_is_left_alone(kind: str) -> None:
    world = World()
    world.look()
    name = "delays" if kind == names.SERVICE_KIND else "delays-drivers"
    world.objects[kind, name]["metadata"]["ownerReferences"] = []
    world.spec = {"image": "delays:2"}
    assert world.look().actions == ()
    assert world.ready() == ("False", "NameTaken")


def test_a_spec_with_problems_changes_nothing_and_names_them() -> None:
    world = World()
    world.look()
    world.add_pod(0, "driver", 4)
    world.spec = {"conf": {"spark.speculation": "true"}}
    assert world.look().actions == ()
    assert world.ready() == ("False", "InvalidSpec")
    assert "spec.conf.spark.speculation: is false in a pipeline" in world.status.conditions[0].message
    assert world.status.driver == "delays-drivers-0", "what runs is told of as it is"


def test_a_suspended_pipeline_has_no_drivers_and_is_told_so() -> None:
    world = World(suspend=True)
    world.look()
    assert world.ready() == ("False", "Suspended")
    assert world.objects["StatefulSet", "delays-drivers"]["spec"]["replicas"] == 0
    assert world.objects[names.SERVICE_KIND, "delays"]["spec"]["suspend"] is True


def test_it_is_claimed_before_anything_is_made() -> None:
    world = World()
    world.status = PipelineStatus()
    plan = world.look()
    assert (plan.actions, plan.requeue_s) == ((), 0.0)
    assert world.status.installation == SETTINGS.namespace


@pytest.mark.parametrize("how", ["status", "annotation"])
def test_a_pipeline_of_another_installation_is_left_alone(how: str) -> None:
    world = World()
    if how == "status":
        world.status = PipelineStatus(installation="elsewhere")
    else:
        world.meta = {"annotations": {names.INSTALLATION_ANNOTATION: "elsewhere"}}
    plan = world.look()
    assert (plan.actions, plan.status) == ((), None)


def test_one_that_is_being_deleted_is_left_to_the_garbage_collector() -> None:
    world = World()
    world.meta = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    assert world.look().actions == ()


def test_what_the_api_server_refuses_is_told() -> None:
    world = World()
    failure = Failure(kind="StatefulSet", name="delays-drivers", status=403, reason="Forbidden", message="quota")
    plan = refused(world.snapshot(), failure)
    assert plan.status is not None
    assert (plan.status.conditions[0].reason, plan.events[0].type) == ("Refused", "Warning")


def test_what_kubernetes_warns_of_is_told_with_the_field_that_names_it() -> None:
    """A Secret that is missing is told by an event alone, and so is a quota."""
    world = World(drivers={"secretRef": {"name": "facts"}})
    world.look()
    world.serve()
    quota = Warned(
        kind="StatefulSet", name="delays-drivers", reason="FailedCreate", message="exceeded quota: q", at=2.0
    )
    world.warnings = [quota]
    assert (
        make_pipeline_plan(world.snapshot(), SETTINGS).sentence == "pods of drivers can't be created: exceeded quota: q"
    )
    world.add_pod(0, "starting", ready=False)
    said = 'MountVolume.SetUp failed for volume "deathless-secret" : secret "facts" not found'
    world.warnings.append(Warned(kind="Pod", name="delays-drivers-0", reason="FailedMount", message=said, at=3.0))
    told = make_pipeline_plan(world.snapshot(), SETTINGS).sentence
    assert "pod delays-drivers-0 can't mount what it needs: " in told
    assert (
        'secret "facts" not found. What to do: create it in this namespace, or correct spec.drivers.secretRef' in told
    )


def test_services_that_are_not_there_are_named_while_no_driver_is_ready() -> None:
    world = World()
    world.look()
    world.serve()
    world.missing = ("airports",)
    world.add_pod(0, "starting", ready=False)
    told = make_pipeline_plan(world.snapshot(), SETTINGS).sentence
    assert "spec.services names airports, and namespace shop has no DeathlessService of that name: create it" in told


def test_how_a_driver_ended_is_told_while_its_pod_waits_to_begin_again() -> None:
    world = World()
    world.look()
    world.serve()
    world.add_pod(0, "starting", ready=False)
    state: Any = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}}
    ended: Any = {"terminated": {"exitCode": 64, "message": "there is no Java"}}
    status = [{"name": "driver", "state": state, "lastState": ended, "restartCount": 3}]
    world.pods[0]["status"]["containerStatuses"] = status
    told = make_pipeline_plan(world.snapshot(), SETTINGS).sentence
    assert told == "pod delays-drivers-0: CrashLoopBackOff back-off 5m0s; it ended with: there is no Java"
    ended["terminated"] = {"exitCode": 137, "reason": "OOMKilled"}
    assert "it ended for want of memory" in make_pipeline_plan(world.snapshot(), SETTINGS).sentence


def test_why_nobody_drives_is_told() -> None:
    world = World()
    world.look()
    world.serve()
    assert make_pipeline_plan(world.snapshot(), SETTINGS).sentence == "there is no pod of a driver"
    world.add_pod(0, "starting", ready=False)
    assert "Spark starts" in make_pipeline_plan(world.snapshot(), SETTINGS).sentence
    waiting: Any = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    world.pods[0]["status"]["containerStatuses"] = [{"name": "driver", "state": waiting}]
    assert "ImagePullBackOff no such image" in make_pipeline_plan(world.snapshot(), SETTINGS).sentence
    placed = {"type": "PodScheduled", "status": "False", "message": "no node has room"}
    world.pods[0]["status"] = {"conditions": [placed]}
    assert "no node has room" in make_pipeline_plan(world.snapshot(), SETTINGS).sentence
