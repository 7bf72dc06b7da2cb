"""What to do about one SparkPipeline: a pure function from what is seen to what is done and told.

    claimed by an installation -> its objects are applied where they differ -> it is told how service and drivers are

What somebody changes in an object of ours is put back, as in a service's (`plan.service.covering`).

Guarantees: the same snapshot gives the same plan; nothing that is not ours is changed; a spec with problems changes
nothing of what runs. Does not: talk to the API server, decide who drives (the pipeline's service does). Imports model
and plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

import msgspec

from deathless.base.pipelines.manifest import SparkPipeline
from deathless_operator.model import names
from deathless_operator.model.resource_parts import status_in
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.model.spark_pipeline import PipelineStatus
from deathless_operator.model.status import Condition, ServiceStatus, condition
from deathless_operator.model.values import JsonObject, text
from deathless_operator.plan.actions import Apply, Event
from deathless_operator.plan.mounting import why_not_begun
from deathless_operator.plan.pipelines.objects import PipelineObjects
from deathless_operator.plan.pipelines.reading import read_agent_status
from deathless_operator.plan.pipelines.snapshot import PipelinePlan, PipelineSnapshot
from deathless_operator.plan.service.conditions import CALM as CALM_OF_SERVICES
from deathless_operator.plan.service.covering import to_apply
from deathless_operator.plan.service.reading import show_time
from deathless_operator.plan.snapshot import ChildView, ContainerView, Failure, PodView

READY_LOOK_S: Final = 60.0  # whatever changes is watched
LOOK_S: Final = 10.0
WAIT_S: Final = 30.0
MESSAGE_MAX: Final = 4000
SAID_MAX: Final = 600  # characters of what others say
SECRET_FIELDS: Final = {
    "deathless-token": "spec.tokenSecretRef",
    "deathless-secret": "spec.drivers.secretRef",
}
"""Which field names the Secret of a volume of the drivers' pods."""
CALM: Final = frozenset(
    ("Suspended", "ServiceMissing", "ServiceNotLookedAt", *(f"Service{each}" for each in CALM_OF_SERVICES))
)
"""Reasons why it is not ready that are no reason to warn: they pass by themselves."""
State = Literal["True", "False", "Unknown"]


class Found(NamedTuple):
    """How one condition is."""

    type: str
    state: State
    reason: str
    message: str


def make_pipeline_plan(snapshot: PipelineSnapshot, settings: OperatorSettings) -> PipelinePlan:
    """Make the plan for one pipeline.

    Args:
        snapshot: what the API server shows.
        settings: what the installation was told.
    """
    resource, mine = snapshot.resource, settings.namespace
    owner = resource.installation or resource.status.installation
    if resource.deleted:
        return PipelinePlan(sentence="it is being deleted, and its service and drivers with it")
    if owner and owner != mine:
        return PipelinePlan(sentence=f"the operator in namespace {owner} manages it")
    if resource.status.installation != mine:
        # Of two that claim at once one writes; the other looks again and leaves it.
        claimed = msgspec.structs.replace(resource.status, installation=mine)
        return PipelinePlan(status=claimed, requeue_s=0.0, sentence=f"it is claimed by {mine}")
    if resource.pipeline is None:
        return _blocked(snapshot, "InvalidSpec", "; ".join(resource.problems))
    if taken := next(_taken(snapshot), None):
        return _blocked(snapshot, "NameTaken", taken)
    made = PipelineObjects(resource.pipeline, resource.namespace, resource.uid, settings).all()
    applied = filter(None, (to_apply(_found_as(snapshot, each), each) for each in made))
    actions = tuple(Apply(manifest=each, why="as the pipeline says") for each in applied)
    found = _found(snapshot, resource.pipeline)
    return PipelinePlan(
        actions=actions,
        status=_status(snapshot, found),
        events=_events(snapshot, found),
        requeue_s=READY_LOOK_S if found[0].state == "True" else LOOK_S,
        sentence=found[0].message,
    )


def refused(snapshot: PipelineSnapshot, failure: Failure) -> PipelinePlan:
    """Tell that the API server does not take an object."""
    return _blocked(snapshot, "Refused", f"{failure.kind} {failure.name} was refused: {failure.message}")


def _blocked(snapshot: PipelineSnapshot, reason: str, message: str) -> PipelinePlan:
    """Tell why nothing is done; what runs goes on, and is told of as it is."""
    found = (Found("Ready", "False", reason, message), *_parts(snapshot))
    events = _events(snapshot, found)
    return PipelinePlan(status=_status(snapshot, found), events=events, requeue_s=WAIT_S, sentence=message)


# ---------------------------------------------------------------- objects


def _taken(snapshot: PipelineSnapshot) -> Iterator[str]:
    """Yield what stands under one of our names and is another's."""
    uid = snapshot.resource.uid
    for child in ([snapshot.service] if snapshot.service is not None else []) + list(snapshot.children):
        if child.controller_uid != uid:
            yield f"{child.kind} {child.name} is not this pipeline's: rename one of the two, or delete it"


def _found_as(snapshot: PipelineSnapshot, manifest: JsonObject) -> ChildView | None:
    """Give the object that stands under the name of a manifest; None: there is none."""
    kind, name = text(manifest, "kind"), text(manifest, "metadata", "name")
    return snapshot.service if kind == names.SERVICE_KIND else snapshot.child(kind, name)


# ---------------------------------------------------------------- what is told


def _drivers(snapshot: PipelineSnapshot) -> tuple[PodView | None, int, int]:
    """Give the pod that drives, its number, and how many are warm; what a pod told that is not ready does not count."""
    read = [(pod, read_agent_status(pod.annotations.get(names.STATUS_ANNOTATION, ""))) for pod in snapshot.pods]
    told = [(pod, status) for pod, status in read if pod.ready and status is not None]
    driving = [(status.number, pod.name, pod) for pod, status in told if status.role == "driver"]
    warm = sum(status.role == "warm" for _, status in told)
    if not driving:
        return None, 0, warm
    number, _, pod = max(driving, key=lambda each: each[:2])
    return pod, number, warm


def _found(snapshot: PipelineSnapshot, pipeline: SparkPipeline) -> tuple[Found, ...]:
    """Give the conditions; Ready first, which is so while rows are computed and decided."""
    parts = _parts(snapshot)
    if pipeline.spec.suspend:
        return (Found("Ready", "False", "Suspended", "spec.suspend is true"), *parts)
    missing = next((each for each in parts[:2] if each.state != "True"), None)
    if missing is not None:
        return (Found("Ready", "False", missing.reason, missing.message), *parts)
    pod, number, warm = _drivers(snapshot)
    assert pod is not None, "the second part is so"
    return (Found("Ready", "True", "Drives", f"{pod.name} drives under number {number}, {warm} warm"), *parts)


def _parts(snapshot: PipelineSnapshot) -> tuple[Found, Found, Found]:
    """Give how the pipeline's service is, whether somebody drives, and whether somebody could go on at once."""
    pod, number, warm = _drivers(snapshot)
    drives = Found("Driving", "False", "NobodyDrives", _why_nobody(snapshot))
    if pod is not None:
        drives = Found("Driving", "True", "Drives", f"{pod.name} drives under number {number}")
    stands_by = Found("Warm", "False", "NoStandby", "no driver is warm: one that dies is waited for")
    if warm:
        stands_by = Found("Warm", "True", "Standby", f"{warm} warm")
    return _service(snapshot), drives, stands_by


def _service(snapshot: PipelineSnapshot) -> Found:
    kind = "ServiceReady"
    if snapshot.service is None:
        return Found(kind, "False", "ServiceMissing", "its DeathlessService is not there yet")
    told = condition(status_in(snapshot.service.raw, ServiceStatus).conditions, "Ready")
    if told is None:
        return Found(kind, "Unknown", "ServiceNotLookedAt", "nothing is told of its DeathlessService yet")
    return Found(kind, told.status, f"Service{told.reason}"[:1024], f"DeathlessService: {told.message}")


def _why_nobody(snapshot: PipelineSnapshot) -> str:
    """Say what keeps drivers from driving."""
    if not snapshot.pods:
        refused = [each for each in snapshot.warnings if each.reason == "FailedCreate"]
        if not refused:
            return "there is no pod of a driver"
        newest = max(refused, key=lambda each: each.at)
        return f"pods of drivers can't be created: {newest.message[:SAID_MAX]}"
    for pod in snapshot.pods:
        if why := why_not_begun(pod, snapshot.warnings, SECRET_FIELDS):
            return f"pod {why}"
        waits = next((each for each in pod.containers if each.waiting_reason), None)
        if pod.unschedulable:
            return f"pod {pod.name}: {pod.unschedulable}"
        if waits is not None:
            return f"pod {pod.name}: {waits.waiting_reason} {waits.waiting_message}".rstrip() + _how_it_ended(waits)
    if snapshot.missing:
        which = ", ".join(snapshot.missing)
        return (
            f"no driver is ready yet: spec.services names {which}, and namespace {snapshot.resource.namespace} has no "
            "DeathlessService of that name: create it, or say with urls and addresses where it is"
        )
    return "no driver is ready yet: Spark starts, or its queries can't be built (see the pods' logs)"


def _how_it_ended(container: ContainerView) -> str:
    """Say how a container ended last, in its own words; empty: it never did, or said nothing."""
    if container.reason == "OOMKilled":
        return "; it ended for want of memory: raise spec.drivers.resources, or lower spec.drivers.memory"
    return f"; it ended with: {container.message[:SAID_MAX]}" if container.message else ""


def _status(snapshot: PipelineSnapshot, found: tuple[Found, ...]) -> PipelineStatus:
    resource, before, now = snapshot.resource, snapshot.resource.status, show_time(snapshot.now)
    pod, number, warm = _drivers(snapshot)
    conditions = []
    for each in found:
        old = condition(before.conditions, each.type)
        since = old.last_transition_time if old is not None and old.status == each.state else ""
        conditions.append(
            Condition(
                type=each.type,
                status=each.state,
                reason=each.reason,
                message=each.message[:MESSAGE_MAX],
                last_transition_time=since or now,
                observed_generation=resource.generation,
            )
        )
    wanted = 0
    if resource.pipeline is not None and not resource.pipeline.spec.suspend:
        wanted = resource.pipeline.spec.drivers.replicas
    return msgspec.structs.replace(
        before,
        observed_generation=resource.generation,
        ready=f"{sum(each.ready for each in snapshot.pods)}/{wanted}",
        driver=pod.name if pod is not None else "",
        number=number,
        warm=warm,
        conditions=tuple(conditions),
    )


def _events(snapshot: PipelineSnapshot, found: tuple[Found, ...]) -> tuple[Event, ...]:
    """Tell when it becomes ready, ceases to be, or is not for another reason."""
    now, old = found[0], condition(snapshot.resource.status.conditions, "Ready")
    told = old is not None and (old.status, old.reason) == (now.state, now.reason)
    good = now.state == "True" or now.reason in CALM
    event = Event(type="Normal" if good else "Warning", reason=now.reason, message=now.message[:1000])
    return tuple(each for each in [event] if not told)
