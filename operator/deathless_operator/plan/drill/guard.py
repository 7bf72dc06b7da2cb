"""Why a drill must not begin now: what it would break further, or has no right to.

Why apart: this is the list that a person who owns the service wants to read. Guarantees: the first line that holds is
the reason, in words; a drill is looked at again right before its fault. Pure. Does not: decide what becomes of a drill
that may not begin.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from deathless_operator.model import names
from deathless_operator.model.drill import AGENT_FAULTS, DrillSpec
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.model.status import condition
from deathless_operator.plan.drill.budget import spent_in_window
from deathless_operator.plan.drill.snapshot import DrillSnapshot
from deathless_operator.plan.snapshot import PodView, Snapshot

REPLICA_LABEL: Final = names.LABEL_REPLICA


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why not."""

    reason: str  # CamelCase
    message: str
    lasting: bool = False  # waiting does not help


def refusal(snapshot: DrillSnapshot, spec: DrillSpec, settings: OperatorSettings, mark: str = "") -> Refusal | None:
    """Give why the drill must not break anything now; None: it may.

    Args:
        snapshot: what is there.
        spec: the drill's.
        settings: the installation.
        mark: of the run that asks, once it has its runner; what it did itself is no disruption.
    """
    return next(_refusals(snapshot, spec, settings, mark), None)


def replicas(target: Snapshot) -> list[PodView]:
    """Give the pods that are replicas, not those made for checks."""
    return [pod for pod in target.pods if REPLICA_LABEL in pod.labels or pod.announced is not None]


def of_shard(target: Snapshot, shard: int) -> list[PodView]:
    """Give the replicas of one shard."""
    alike = names.shard_label(shard, target.shards).items()
    return [pod for pod in replicas(target) if alike <= pod.labels.items()]


def _refusals(snapshot: DrillSnapshot, spec: DrillSpec, settings: OperatorSettings, mark: str) -> Iterator[Refusal]:
    yield from _not_permitted(spec, settings)
    name, target = spec.service_ref.name, snapshot.target
    if target is None:
        yield Refusal("TargetMissing", f"there is no DeathlessService {name} in this namespace")
        return
    count = target.resource.spec.shards if target.resource.spec is not None else 0
    if spec.fault.shard >= count > 0:
        yield Refusal("NoSuchShard", f"{name} has {count} shards, and none has the number {spec.fault.shard}", True)
    yield from _not_ready(target, spec)
    yield from _disrupted(snapshot, target, mark)
    for other in snapshot.others:
        aims = other.spec is not None and other.spec.service_ref.name == name
        if not mark and aims and other.status.active is not None:  # a run with its runner has the service's one place
            yield Refusal("AnotherDrill", f"drill {other.name} is running on {name}")
    yield from _budget_spent(snapshot, spec)


def _not_permitted(spec: DrillSpec, settings: OperatorSettings) -> Iterator[Refusal]:
    kind = spec.fault.type
    if kind in AGENT_FAULTS and not settings.drill_agents:
        yield Refusal(
            "AgentsNotAllowed", f"{kind} needs a privileged agent: install with drills.privileged.enabled", True
        )
    if kind == "NodeDrain" and not settings.drill_node_drain:
        yield Refusal(
            "NodeDrainNotAllowed", "draining nodes is not allowed: install with drills.nodeDrain.enabled", True
        )


def _not_ready(target: Snapshot, spec: DrillSpec) -> Iterator[Refusal]:
    resource = target.resource
    wanted = resource.spec
    if wanted is None or resource.deleted_at is not None:
        yield Refusal("TargetNotReady", f"{resource.name} has a spec with problems or is being deleted")
        return
    if wanted.suspend or resource.annotations.get(names.PAUSED_ANNOTATION) == "true":
        yield Refusal("TargetPaused", f"{resource.name} is suspended or paused")
    ready = condition(resource.status.conditions, "Ready")
    if ready is None or ready.status != "True":
        told = ready.message if ready is not None else "no condition Ready yet"
        yield Refusal("TargetNotReady", f"{resource.name} is not Ready: {told}")
    for kind in spec.abort_if.conditions:
        found = condition(resource.status.conditions, kind)
        if found is not None and found.status == "True":
            yield Refusal("ConditionHolds", f"{resource.name} is {kind}: {found.message}")
    up = sum(pod.ready and pod.deleted_at is None for pod in of_shard(target, spec.fault.shard))
    if up < spec.abort_if.ready_replicas_below:
        yield Refusal("TooFewReplicas", f"{up} replicas are ready, fewer than {spec.abort_if.ready_replicas_below}")


def _disrupted(snapshot: DrillSnapshot, target: Snapshot, mark: str) -> Iterator[Refusal]:
    for pod in replicas(target):
        if pod.deleted_at is not None or not pod.ready:
            yield Refusal("DisruptionUnderWay", f"pod {pod.name} is {'ending' if pod.deleted_at else 'not ready'}")
        if pod.annotations.get(names.FENCED_ANNOTATION) == "true":
            yield Refusal("DisruptionUnderWay", f"pod {pod.name} is fenced")
    hosting = {pod.node for pod in replicas(target)}
    for node in snapshot.nodes:
        if node.name in hosting and node.cordoned and (not mark or node.mark != mark):
            yield Refusal("DisruptionUnderWay", f"node {node.name} is cordoned")
    for view in target.nodes:
        if view.unreachable or not view.ready:
            yield Refusal("DisruptionUnderWay", f"node {view.name} is not ready")


def _budget_spent(snapshot: DrillSnapshot, spec: DrillSpec) -> Iterator[Refusal]:
    budget, window = spec.abort_if.unavailable_budget_seconds, spec.abort_if.budget_window_seconds
    if not budget:
        return
    spent = spent_in_window(snapshot.resource.status, snapshot.now, window)
    if spent >= budget:
        yield Refusal("BudgetSpent", f"earlier runs have cost {spent:.1f} s of a budget of {budget:g} s")
