"""What to do about one run of a log: a pure function from what is seen to what is done and told.

    none --service and code are there--> pod made --it runs--> RUNNING --it ends--> SUCCEEDED or FAILED
    Pending while it waits               Pending until then               ttl later: deleted, and its pod with it

The pod's name is made from the run's, and its owner is the run: one that is of another run of that name goes by itself,
and is waited for. A pod that was seen and is gone is not made again: what was asked for is asked for anew by a person.

Guarantees: the same snapshot gives the same plan; at most one pod for each run; what has ended stays as it is told.
Does not: talk to the API server, or change anything of the service. Imports model and plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Literal

import msgspec

from deathless_operator.model import names
from deathless_operator.model.log_run import ENDED, LogRunResource, LogRunSpec, LogRunStatus, Phase
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.model.status import Condition
from deathless_operator.model.values import Json, JsonObject, objects, text
from deathless_operator.plan.actions import Apply, DeleteObject, DeletePod, Event
from deathless_operator.plan.log_runs.snapshot import LogRunPlan, LogRunSnapshot
from deathless_operator.plan.log_runs.tool import Judged, Tool
from deathless_operator.plan.service.installation import owner_of
from deathless_operator.plan.service.pods import ENDED as POD_ENDED
from deathless_operator.plan.service.pods import PULL_REASONS, container
from deathless_operator.plan.service.reading import read_time, show_time
from deathless_operator.plan.snapshot import ChildView, Failure, PodView, Snapshot
from deathless_operator.plan.tool_pods import template_of

LOOK_S: Final = 10.0
WAIT_S: Final = 30.0
TTL_LOOK_MAX_S: Final = 3600.0
MESSAGE_MAX: Final = 4000
State = Literal["True", "False", "Unknown"]


def make_log_run_plan(snapshot: LogRunSnapshot, tool: Tool, settings: OperatorSettings) -> LogRunPlan:
    """Make the plan for one run.

    Args:
        snapshot: what the API server shows.
        tool: what is run.
        settings: what the installation was told.
    """
    resource = snapshot.resource
    owner = owner_of(snapshot.target) if snapshot.target is not None else ""
    if owner not in ("", settings.namespace):
        return LogRunPlan(sentence=f"the operator in namespace {owner} manages its service, and runs its log")
    if resource.deleted:
        return LogRunPlan(sentence="it is being deleted, and its pod with it")
    if resource.status.phase in ENDED:
        return _after(snapshot, tool)
    if resource.spec is None:
        return _waits(snapshot, "InvalidSpec", "; ".join(resource.problems), None)
    if snapshot.pod is None:
        return _begin(snapshot, resource.spec, tool, settings)
    return _go_on(snapshot, snapshot.pod, tool)


def refused(snapshot: LogRunSnapshot, failure: Failure) -> LogRunPlan:
    """Tell that the API server does not take the pod; what has ended stays as it is told."""
    if snapshot.resource.status.phase in ENDED:
        return LogRunPlan(requeue_s=WAIT_S, sentence=f"{failure.kind} {failure.name} was refused: {failure.message}")
    return _waits(snapshot, "PodRefused", f"{failure.kind} {failure.name} was refused: {failure.message}", WAIT_S)


def pod_name(resource_name: str, tool: Tool) -> str:
    """Name the pod of a run."""
    return f"{resource_name}-{tool.purpose}"


def mark_of(resource: LogRunResource, kind: str) -> str:
    """Name the run that a pod is of, as its annotation does."""
    return f"{kind}/{resource.namespace}/{resource.name}"


# ---------------------------------------------------------------- steps


def _begin(snapshot: LogRunSnapshot, spec: LogRunSpec, tool: Tool, settings: OperatorSettings) -> LogRunPlan:
    """Make the pod, unless something is waited for, or it was there."""
    status = snapshot.resource.status
    if status.pod:
        said = f"its pod {status.pod} is gone before it ended: make another {tool.kind}"
        return _end(snapshot, tool.without_word(Judged(phase="Failed", reason="PodLost", message=said)))
    found = _stateful_set(snapshot.target, spec)
    if not isinstance(found, ChildView):
        return _waits(snapshot, *found, WAIT_S)
    manifest = _manifest(snapshot.resource, spec, tool, found.raw, settings)
    plan = _waits(snapshot, "Starting", f"pod {pod_name(snapshot.resource.name, tool)} starts", LOOK_S)
    assert plan.status is not None, "what waits says so"
    image = text(found.raw, "metadata", "annotations", names.IMAGE_ANNOTATION)
    made = Apply(manifest=manifest, why=f"run the log of {spec.service_ref.name}")
    return LogRunPlan(
        actions=(made,),
        status=msgspec.structs.replace(plan.status, image=image[:1024], start_time=show_time(snapshot.now)),
        events=(Event(type="Normal", reason="Started", message=plan.sentence),),
        requeue_s=LOOK_S,
        sentence=plan.sentence,
    )


def _stateful_set(target: Snapshot | None, spec: LogRunSpec) -> ChildView | tuple[str, str]:
    """Give the StatefulSet whose template says how the log is reached, or why it is waited: reason and message."""
    name = spec.service_ref.name
    if target is None or target.resource.deleted_at is not None:
        return "ServiceMissing", f"there is no DeathlessService {name} in this namespace"
    if spec.shard >= target.shards:
        return "NoSuchShard", f"{name} has {target.shards} shards, and shard {spec.shard} is asked for"
    found = target.child("StatefulSet", names.of_shard(name, spec.shard))
    if found is None:
        return "ServiceNotStarted", f"{name} has no StatefulSet yet: nothing of it was ever started"
    containers = objects(template_of(found.raw), "containers")
    if any(each.get("name") == names.FORMER_CONTAINER for each in containers):
        return "ServiceUpgrading", f"{name} is being upgraded; its log is run once that has ended"
    return found


def _go_on(snapshot: LogRunSnapshot, pod: PodView, tool: Tool) -> LogRunPlan:
    """Look at the pod that is there."""
    resource = snapshot.resource
    if pod.controller_uid != resource.uid:
        return _waits(snapshot, "NameTaken", f"pod {pod.name} is of another object, and has to go first", LOOK_S)
    program = container(pod, tool.purpose)
    if program is not None and program.terminated and pod.phase_reason != "DeadlineExceeded":
        if program.reason == "OOMKilled":
            said = "its pod ran out of memory: raise spec.resources.limits.memory"
            return _end(snapshot, tool.without_word(Judged(phase="Failed", reason="OutOfMemory", message=said)), pod)
        code = program.exit_code if program.exit_code is not None else 1
        return _end(snapshot, tool.judge(program.message, code), pod)
    if pod.phase in POD_ENDED:
        late = pod.phase_reason == "DeadlineExceeded"
        reason = "DeadlineExceeded" if late else "RunFailed"
        said = pod.phase_message or pod.phase_reason or "its pod ended without a word"
        said = f"{said}: raise spec.activeDeadlineSeconds, or run less of the log" if late else said
        return _end(snapshot, tool.without_word(Judged(phase="Failed", reason=reason, message=said)), pod)
    if pod.deleted_at is not None:
        said = f"its pod {pod.name} is being deleted before it ended"
        return _end(snapshot, tool.without_word(Judged(phase="Failed", reason="PodLost", message=said)), pod)
    if snapshot.target is None or snapshot.target.resource.deleted_at is not None:
        said = "its service is gone, or goes: the log goes with it"
        judged = tool.without_word(Judged(phase="Failed", reason="ServiceMissing", message=said))
        gone = DeletePod(name=pod.name, uid=pod.uid, grace_s=None, force=False, why=said)
        return replace(_end(snapshot, judged, pod), actions=(gone,))
    if program is not None and program.running:
        return _told(snapshot, "Running", "Running", f"pod {pod.name} runs the log", LOOK_S, pod)
    return _told(snapshot, "Pending", *_why_not_running(pod), LOOK_S, pod)


def _why_not_running(pod: PodView) -> tuple[str, str]:
    """Say what keeps a pod from running: reason and message."""
    pulls = next((each for each in pod.containers if each.waiting_reason in PULL_REASONS), None)
    if pulls is not None:
        return "ImagePullFailed", f"container {pulls.name}: {pulls.waiting_message or pulls.waiting_reason}"
    waits = next((each for each in pod.containers if each.waiting_reason), None)
    said = pod.unschedulable or (f"{waits.waiting_reason} {waits.waiting_message}".strip() if waits is not None else "")
    return "Starting", f"pod {pod.name} starts{f': {said}' if said else ''}"


def _after(snapshot: LogRunSnapshot, tool: Tool) -> LogRunPlan:
    """Delete what has ended long enough ago."""
    resource = snapshot.resource
    ttl = resource.spec.ttl_seconds_after_finished if resource.spec is not None else None
    ended_at = read_time(resource.status.completion_time)
    said = f"it has ended: {resource.status.reason}"
    if ttl is None or ended_at is None:
        return LogRunPlan(sentence=said)
    left_s = ended_at + ttl - snapshot.now
    if left_s > 0:
        return LogRunPlan(requeue_s=min(left_s, TTL_LOOK_MAX_S), sentence=said)
    gone = DeleteObject(
        api_version=names.API_VERSION,
        kind=tool.kind,
        name=resource.name,
        uid=resource.uid,
        why=f"it ended {ttl} s ago",
    )
    return LogRunPlan(actions=(gone,), sentence=f"{said}, {ttl} s ago")


# ---------------------------------------------------------------- the pod


def _manifest(
    resource: LogRunResource,
    spec: LogRunSpec,
    tool: Tool,
    stateful_set: Mapping[str, Json],
    settings: OperatorSettings,
) -> JsonObject:
    """Give the pod of a run."""
    service = spec.service_ref.name
    # No replica: the Services must not find it.
    labels = names.labels(service) | {names.LABEL_PURPOSE: tool.purpose, names.LABEL_NAME: f"deathless-{tool.purpose}"}
    owner: JsonObject = {
        "apiVersion": names.API_VERSION,
        "kind": tool.kind,
        "name": resource.name,
        "uid": resource.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
    noted = {
        names.LOG_RUN_ANNOTATION: mark_of(resource, tool.kind),
        names.INSTALLATION_ANNOTATION: settings.namespace,
    }
    metadata: JsonObject = {
        "name": pod_name(resource.name, tool),
        "namespace": resource.namespace,
        "labels": dict(labels),
        "annotations": dict(noted),
        "ownerReferences": [owner],
    }
    body = tool.pod_spec(template_of(stateful_set), spec)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}


# ---------------------------------------------------------------- what is told


def _waits(snapshot: LogRunSnapshot, reason: str, message: str, again_s: float | None) -> LogRunPlan:
    return _told(snapshot, "Pending", reason, message, again_s, None)


def _told(
    snapshot: LogRunSnapshot, phase: Phase, reason: str, message: str, again_s: float | None, pod: PodView | None
) -> LogRunPlan:
    """Tell how far a run is that has not ended."""
    status = _status(snapshot, phase, reason, message, ("True", "Unknown"))
    if pod is not None:
        status = msgspec.structs.replace(status, pod=pod.name)
    return LogRunPlan(status=status, requeue_s=again_s, sentence=message)


def _end(snapshot: LogRunSnapshot, judged: Judged, pod: PodView | None = None) -> LogRunPlan:
    """Tell what came of a run."""
    done = judged.phase == "Succeeded"
    status = _status(snapshot, judged.phase, judged.reason, judged.message, ("False", "True" if done else "False"))
    pod_fields = {"pod": pod.name} if pod is not None else {}
    completed = {"completion_time": show_time(snapshot.now)}
    status = msgspec.structs.replace(status, **pod_fields, **completed, **judged.fields)
    event = Event(type="Normal" if done else "Warning", reason=judged.reason, message=judged.message[:1000])
    return LogRunPlan(status=status, events=(event,), requeue_s=0.0, sentence=judged.message)


def _status(
    snapshot: LogRunSnapshot, phase: Phase, reason: str, message: str, states: tuple[State, State]
) -> LogRunStatus:
    """Give the status with its conditions: whether it goes on, and whether nothing was found."""
    resource = snapshot.resource
    before, now = resource.status, show_time(snapshot.now)
    known = {each.type: each for each in before.conditions}
    conditions = []
    for kind, state in zip(("Progressing", "Succeeded"), states, strict=True):
        old = known.get(kind)
        since = old.last_transition_time if old is not None and old.status == state else ""
        conditions.append(
            Condition(
                type=kind,
                status=state,
                reason=reason,
                message=message[:MESSAGE_MAX],
                last_transition_time=since or now,
                observed_generation=resource.generation,
            )
        )
    return msgspec.structs.replace(
        before,
        observed_generation=resource.generation,
        phase=phase,
        reason=reason,
        message=message[:MESSAGE_MAX],
        conditions=tuple(conditions),
    )
