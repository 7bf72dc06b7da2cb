"""One run of a log as the API server shows it at one moment, and what a plan for it asks to have done.

Guarantees: frozen; times are wall seconds. Does not: read the API server. Imports model and plan.

    LogRunSnapshot
    |- resource      the Replay or Rehearsal
    |- target        the whole snapshot of the service that it names (observed as for the service's own plan)
    |- pod           the pod of the run's name in its namespace, whoever's it is
"""

from __future__ import annotations

from dataclasses import dataclass

from deathless_operator.model.log_run import LogRunResource, LogRunStatus
from deathless_operator.plan.actions import Action, Event
from deathless_operator.plan.snapshot import PodView, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRunSnapshot:
    """Everything known about one run at one moment."""

    now: float  # wall seconds
    resource: LogRunResource
    target: Snapshot | None = None  # None: there is no such service
    pod: PodView | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRunPlan:
    """What is to be done about one run, and what is to be told. Actions first, in order; then the status."""

    actions: tuple[Action, ...] = ()
    status: LogRunStatus | None = None  # None: write nothing
    events: tuple[Event, ...] = ()
    requeue_s: float | None = None  # look again after this at the latest
    sentence: str
