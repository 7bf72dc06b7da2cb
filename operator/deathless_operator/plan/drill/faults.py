"""The fault of a run: who is hit, how it is begun, how it is known to be over, and how it is undone.

    by the API server    PodDelete: the victim is deleted by its uid
                         NodeDrain: its node cordoned under our mark, the service's pods on it evicted; uncordoned
                         when the duration is over
    by an agent          ProcessKill, Freeze, Partition, LockOutage: a pod on the victim's node, which undoes by itself

Guarantees: every step may be taken twice; a pod is hit by the uid that was written down, never its successor; a node
that somebody else cordoned is left as it is. A polite end goes through the disruption budget. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from deathless.base.errors import Internal
from deathless_operator.model import names
from deathless_operator.model.drill import AGENT_FAULTS, DrillRun, DrillSpec
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.plan.actions import Apply, DeletePod
from deathless_operator.plan.drill.guard import of_shard, replicas
from deathless_operator.plan.drill.outcome import show_moment
from deathless_operator.plan.drill.pods import AGENT_DEADLINE_S, agent_manifest, fault_seconds, mark_of
from deathless_operator.plan.drill.reports import AgentReport, read_report
from deathless_operator.plan.drill.snapshot import DrillAction, DrillSnapshot, EvictPod, SetCordon
from deathless_operator.plan.service.reading import read_time
from deathless_operator.plan.snapshot import PodView

ROLES: Final = {"Primary": "primary", "Checkpointer": "checkpointer", "Standby": "standby"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What to do next about a fault."""

    actions: tuple[DrillAction, ...]
    run: DrillRun  # with what is known by now


def choose_victim(snapshot: DrillSnapshot, spec: DrillSpec, run: DrillRun) -> DrillRun | None:
    """Write down who is to be hit; None: nobody has that role now."""
    assert snapshot.target is not None, "the guard has seen the target"
    wanted = ROLES.get(spec.fault.role)
    able = [
        pod
        for pod in of_shard(snapshot.target, spec.fault.shard)
        if pod.ready and pod.deleted_at is None and pod.node and wanted in (None, pod.labels.get(names.LABEL_ROLE))
    ]
    if not able or (wanted == names.ROLE_PRIMARY and len(able) > 1):  # two with the label: the role is moving just now
        return None
    victim = min(able, key=lambda pod: pod.name)
    return msgspec.structs.replace(
        run,
        phase="Fault",
        fault=spec.fault.type,
        target=victim.name,
        target_uid=victim.uid,
        node=victim.node,
        epoch_before=victim.announced.epoch if victim.announced is not None else 0,
    )


def begin_fault(snapshot: DrillSnapshot, spec: DrillSpec, settings: OperatorSettings, run: DrillRun) -> Step:
    """Take the fault one step further: begin it, see whether it is over, end it.

    Raises: Internal for a fault that nothing here causes.
    """
    if run.fault in AGENT_FAULTS:
        return _by_agent(snapshot, spec, settings, run)
    if run.fault == "NodeDrain":
        return _drain(snapshot, spec, run)
    if run.fault == "PodDelete":
        return _delete(snapshot, spec, run)
    raise Internal(f"drill run {run.id}: nothing causes a fault {run.fault!r}")


def _victim(snapshot: DrillSnapshot, run: DrillRun) -> PodView | None:
    pods = snapshot.target.pods if snapshot.target is not None else ()
    return next((pod for pod in pods if pod.uid == run.target_uid and pod.deleted_at is None), None)


def _at(run: DrillRun, now: float) -> DrillRun:
    """The fault happens now, unless it has."""
    return run if run.fault_time else msgspec.structs.replace(run, fault_time=show_moment(now))


def _over(run: DrillRun, now: float) -> DrillRun:
    return msgspec.structs.replace(run, phase="Healing", healed_time=run.healed_time or show_moment(now))


def _delete(snapshot: DrillSnapshot, spec: DrillSpec, run: DrillRun) -> Step:
    victim, run = _victim(snapshot, run), _at(run, snapshot.now)
    if victim is None:
        return Step(actions=(), run=_over(run, snapshot.now))
    grace = spec.fault.grace_seconds
    why = f"drill run {run.id}"
    return Step(
        actions=(DeletePod(name=victim.name, uid=victim.uid, grace_s=grace, force=False, why=why),),
        run=run,
    )


def _drain(snapshot: DrillSnapshot, spec: DrillSpec, run: DrillRun) -> Step:
    mark, node = mark_of(snapshot.resource, run), snapshot.node(run.node)
    began = read_time(run.fault_time)
    if began is not None and snapshot.now - began >= fault_seconds(spec):
        if node is not None and node.mark == mark:
            return Step(actions=(_uncordon(run.node),), run=run)
        stayed = _victim(snapshot, run) is not None
        why = {"reason": "NotEvicted", "message": "the disruption budget did not allow the eviction"} if stayed else {}
        return Step(actions=(), run=msgspec.structs.replace(_over(run, snapshot.now), **why))
    actions: list[DrillAction] = []
    if node is not None and not node.cordoned and not node.mark:
        actions.append(SetCordon(node=run.node, cordon=True, mark=mark, why=f"drill run {run.id}"))
    elif node is not None and node.mark != mark:
        told = msgspec.structs.replace(
            run, reason="NodeCordoned", message=f"node {run.node} was cordoned by somebody else"
        )
        return Step(actions=(), run=_over(told, snapshot.now))
    pods = replicas(snapshot.target) if snapshot.target is not None else []
    words = f"drill run {run.id} drains node {run.node}"
    here = [pod for pod in pods if pod.node == run.node and pod.deleted_at is None]
    actions += [EvictPod(name=pod.name, uid=pod.uid, why=words) for pod in here]
    return Step(actions=tuple(actions), run=_at(run, snapshot.now))


def _by_agent(snapshot: DrillSnapshot, spec: DrillSpec, settings: OperatorSettings, run: DrillRun) -> Step:
    agent, mark = snapshot.agent, mark_of(snapshot.resource, run)
    service = snapshot.target.resource.spec if snapshot.target is not None else None
    if agent is None:
        if service is None or run.fault_time:
            return Step(actions=(), run=_failed(run, "AgentLost", "the agent's pod is gone", snapshot.now))
        manifest = agent_manifest(snapshot.resource, spec, run, service, settings)
        return Step(actions=(Apply(manifest=manifest, why=f"drill run {run.id}"),), run=run)
    if agent.annotations.get(names.DRILL_ANNOTATION) != mark:
        return _make_room(agent, settings, run)
    container = agent.containers[0] if agent.containers else None
    if agent.phase not in ("Succeeded", "Failed") or container is None or not container.terminated:
        if agent.phase == "Failed":  # ended by the kubelet before its container was
            return Step(actions=(), run=_failed(run, "AgentFailed", agent.phase_message, snapshot.now))
        if snapshot.now - agent.created_at > AGENT_DEADLINE_S + fault_seconds(spec):
            text = (container.waiting_message or container.waiting_reason) if container is not None else ""
            return Step(actions=(), run=_failed(run, "AgentNotStarted", text or "it never ran", snapshot.now))
        return Step(actions=(), run=run)
    report = read_report(container.message, AgentReport)
    if report is None or not report.began:
        problem = report.problem if report is not None else container.message or "it left no report"
        return Step(actions=(), run=_failed(run, "AgentFailed", problem, snapshot.now))
    run = msgspec.structs.replace(
        run,
        phase="Healing",
        fault_time=show_moment(report.began),
        healed_time=show_moment(report.ended),
        reason="FaultIncomplete" if report.problem else "",
        message=report.problem,
    )
    return Step(actions=(), run=run)


def _make_room(agent: PodView, settings: OperatorSettings, run: DrillRun) -> Step:
    """Another run's agent has the name: take it away once it is over."""
    if agent.phase not in ("Succeeded", "Failed"):
        return Step(actions=(), run=run)
    gone = DeletePod(
        name=agent.name,
        uid=agent.uid,
        grace_s=0,
        force=False,
        why="its run is over",
        namespace=settings.namespace,
    )
    return Step(actions=(gone,), run=run)


def _failed(run: DrillRun, reason: str, message: str, now: float) -> DrillRun:
    """The fault did not happen as ordered; the calls go on to their end, for what they tell."""
    return msgspec.structs.replace(_over(run, now), reason=reason, message=message[:1000])


def _uncordon(node: str) -> SetCordon:
    return SetCordon(node=node, cordon=False, mark=None, why="the drill's duration is over")


def undo_actions(
    snapshot: DrillSnapshot, settings: OperatorSettings, mark: str, *, pods: bool = True, runner: bool = True
) -> list[DrillAction]:
    """Give what undoes every trace of a run, or of all runs of a drill.

    Args:
        snapshot: what is there.
        settings: the installation.
        mark: a run's, or a drill's prefix `namespace/drill/`.
        pods: take pods away, too; an agent ends its fault when it is ended.
        runner: take the runner away, too; else it stays, to be read.
    """

    def ours(found: str) -> bool:
        return found == mark or (mark.endswith("/") and found.startswith(mark))

    actions: list[DrillAction] = [_uncordon(node.name) for node in snapshot.nodes if ours(node.mark)]
    if not pods:
        return actions
    for pod, namespace, wanted in ((snapshot.agent, settings.namespace, True), (snapshot.runner, "", runner)):
        if pod is None or not wanted or not ours(pod.annotations.get(names.DRILL_ANNOTATION, "")):
            continue
        actions.append(
            DeletePod(name=pod.name, uid=pod.uid, grace_s=None, force=False, why="the run is over", namespace=namespace)
        )
    return actions
