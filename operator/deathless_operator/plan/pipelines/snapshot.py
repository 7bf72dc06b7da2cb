"""One SparkPipeline as the API server shows it at one moment, and what a plan for it asks to have done.

Guarantees: frozen; times are wall seconds. Does not: read the API server. Imports model and plan.

    PipelineSnapshot
    |- resource      the SparkPipeline
    |- service       the DeathlessService of its name, whoever's it is
    |- children      objects of the drivers, by their label, and any StatefulSet of the drivers' name
    |- pods          of the drivers
    |- warnings      of Kubernetes about both
    |- missing       services that the spec looks for beside it
"""

from __future__ import annotations

from dataclasses import dataclass

from deathless_operator.model.spark_pipeline import PipelineResource, PipelineStatus
from deathless_operator.plan.actions import Action, Event
from deathless_operator.plan.snapshot import ChildView, PodView, Warned


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSnapshot:
    """Everything known about one pipeline at one moment."""

    now: float  # wall seconds
    resource: PipelineResource
    service: ChildView | None = None
    children: tuple[ChildView, ...] = ()
    pods: tuple[PodView, ...] = ()
    warnings: tuple[Warned, ...] = ()  # of Kubernetes, about pods and the StatefulSet, while not all pods are ready
    missing: tuple[str, ...] = ()  # services of the spec that are not in its namespace, likewise

    def child(self, kind: str, name: str) -> ChildView | None:
        """Give an object of this kind and name; None: there is none."""
        return next((each for each in self.children if (each.kind, each.name) == (kind, name)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelinePlan:
    """What is to be done about one pipeline, and what is to be told. Actions first, in order; then the status."""

    actions: tuple[Action, ...] = ()
    status: PipelineStatus | None = None  # None: write nothing
    events: tuple[Event, ...] = ()
    requeue_s: float | None = None  # look again after this at the latest
    sentence: str
