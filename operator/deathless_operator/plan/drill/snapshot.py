"""One FailoverDrill as the API server shows it at one moment, and what a plan for it may ask to have done.

Guarantees: frozen; times are wall seconds. Does not: read the API server. Imports model and plan.

    DrillSnapshot
    |- resource      the drill
    |- target        the whole snapshot of the service it names (observed as for the service's own plan)
    |- runner        the pod `names.runner_pod(service)` in the drill's namespace, whoever's it is
    |- agent         the pod `names.agent_pod(namespace, service)` in the operator's namespace, whoever's it is
    |- nodes         every node of the target's pods, and every node that bears a drill's mark
    |- others        the other FailoverDrills of the namespace
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from deathless_operator.model import names
from deathless_operator.model.drill import DrillResource, DrillStatus
from deathless_operator.model.values import JsonObject, part, text, texts
from deathless_operator.plan.actions import Action, Event
from deathless_operator.plan.snapshot import PodView, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillNodeView:
    """A node, as a drill sees it."""

    name: str
    cordoned: bool = False
    mark: str = ""  # annotation DRILL_ANNOTATION: the run that cordoned it; empty: none did


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillSnapshot:
    """Everything known about one drill at one moment."""

    now: float  # wall seconds
    resource: DrillResource
    target: Snapshot | None = None  # None: there is no such service
    runner: PodView | None = None
    agent: PodView | None = None
    nodes: tuple[DrillNodeView, ...] = ()
    others: tuple[DrillResource, ...] = field(default=())

    def node(self, name: str) -> DrillNodeView | None:
        """Give the node of that name."""
        return next((found for found in self.nodes if found.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictPod:
    """Ask for a pod's end where its disruption budget allows it; not now is no failure. Gone is done."""

    name: str
    uid: str  # precondition
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetCordon:
    """Set a node's `spec.unschedulable` and its annotation DRILL_ANNOTATION, in one patch. Gone is done."""

    node: str
    cordon: bool
    mark: str | None  # None takes the annotation away
    why: str


DrillAction: TypeAlias = Action | EvictPod | SetCordon


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillPlan:
    """What is to be done about one drill, and what is to be told. Actions first, in order; then the status.

    Invariant: a victim stands in the status that was written before any action touches it.
    """

    actions: tuple[DrillAction, ...]
    status: DrillStatus | None  # None: the resource is going, write nothing
    events: tuple[Event, ...]
    requeue_s: float | None  # look again after this at the latest
    sentence: str


def read_node(raw: JsonObject) -> DrillNodeView:
    """Read a node."""
    return DrillNodeView(
        name=text(raw, "metadata", "name"),
        cordoned=part(raw, "spec", "unschedulable") is True,
        mark=texts(raw, "metadata", "annotations").get(names.DRILL_ANNOTATION, ""),
    )
