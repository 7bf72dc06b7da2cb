"""A FailoverDrill: what is broken, how it is watched, when, and what came of it.

A drill breaks one thing of a running service while its own client calls through the front door all the time, and says
how long that client waited, and whether anything was lost or done twice. With `schedule` it repeats by itself.

Guarantees: typed spec and status, from which the CRD is generated; relations that one field can't show are found by
`drill_problems`. Does not: run drills. Imports base alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal, get_args

import msgspec
from msgspec import Meta

from deathless.base.manifest_fields import Name, ObjectName, Part, Text, told
from deathless.base.shards import SHARDS_MAX
from deathless_operator.model.status import Condition, StatusPart

FaultType = Literal["ProcessKill", "PodDelete", "NodeDrain", "Freeze", "Partition", "LockOutage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultKind:
    """What is known of a fault; `plan.drill.faults` causes it or orders an agent to, which is `drill.agent`."""

    text: str  # of the CRD, behind the name
    agent: bool  # it needs an agent beside the pod; the API server alone can do the others
    lasting: bool  # it lasts, and is undone at its own deadline
    outlived: bool  # the old primary outlives it: it may wake up or hear again, and must release nothing then


FAULTS: Final[dict[FaultType, FaultKind]] = {
    "ProcessKill": FaultKind(
        text="kill -9 of the replica's worker.",
        agent=True,
        lasting=False,
        outlived=False,
    ),
    "PodDelete": FaultKind(
        text="its pod, with grace 0.",
        agent=False,
        lasting=False,
        outlived=False,
    ),
    "NodeDrain": FaultKind(
        text="its node is cordoned and drained, and uncordoned afterwards.",
        agent=False,
        lasting=True,
        outlived=False,
    ),
    "Freeze": FaultKind(
        text="all its processes stop for durationSeconds.",
        agent=True,
        lasting=True,
        outlived=True,
    ),
    "Partition": FaultKind(
        text="its pod is cut off from the other replicas.",
        agent=True,
        lasting=True,
        outlived=True,
    ),
    "LockOutage": FaultKind(
        text="its pod is cut off from the lock store.",
        agent=True,
        lasting=True,
        outlived=True,
    ),
}
"""All there are, in the order in which they are told to users."""
assert tuple(FAULTS) == get_args(FaultType), "each fault has its row"

LASTING: Final = tuple(name for name, kind in FAULTS.items() if kind.lasting)
AGENT_FAULTS: Final = tuple(name for name, kind in FAULTS.items() if kind.agent)
OUTLIVED: Final = tuple(name for name, kind in FAULTS.items() if kind.outlived)

Verdict = Literal["", "Passed", "Failed", "Aborted", "Inconclusive"]
Phase = Literal["", "Pending", "Warm", "Fault", "Healing", "Judged"]
Time = Annotated[str, Meta(max_length=64, extra_json_schema={"format": "date-time"})]
SPENT_MAX: Final = 32
"""Entries of what runs have cost."""


class ServiceRef(Part, frozen=True):
    """The service that is drilled, in the drill's namespace."""

    name: Annotated[Name, told("Name of the DeathlessService.")]


class Fault(Part, frozen=True):
    """What is broken."""

    type: Annotated[
        FaultType,
        told(" ".join(f"{name}: {kind.text}" for name, kind in FAULTS.items())),
    ]
    shard: Annotated[
        int, Meta(ge=0, lt=SHARDS_MAX), told("The shard to hit, if the service has several; calls go only to it.")
    ] = 0
    role: Annotated[
        Literal["Primary", "Checkpointer", "Standby", "Any"],
        told("Which replica it happens to, by role at that moment."),
    ] = "Primary"
    duration_seconds: Annotated[
        int,
        Meta(ge=1, le=600),
        told("How long Freeze, Partition, LockOutage and the cordon of NodeDrain last; then they are undone."),
    ] = 10
    process: Annotated[
        Literal["Worker", "Replica"], told("ProcessKill: the replica's worker, or the first process of its container.")
    ] = "Worker"
    grace_seconds: Annotated[
        int, Meta(ge=0, le=600), told("PodDelete: 0 is a crash; more is a graceful shutdown, which hands over first.")
    ] = 0
    cut: Annotated[Literal["Peers", "All"], told("Partition: only from the other replicas, or from everything.")] = (
        "Peers"
    )


class Probe(Part, frozen=True):
    """The calls that measure."""

    calls_per_second: Annotated[int, Meta(ge=1, le=1000), told("How many calls the runner sends per second.")] = 50
    clients: Annotated[int, Meta(ge=1, le=64), told("How many independent clients share them.")] = 4
    witnesses: Annotated[
        int,
        Meta(ge=0, le=64),
        told(
            "How many clients besides call the primary itself without a pause and wait, however long: they hear what "
            "one that was frozen or cut off answers later. How long they wait counts for nothing. None is needed "
            "for a fault that leaves nobody behind. When 0, a missing fence may go unnoticed."
        ),
    ] = 4
    warm_up_seconds: Annotated[int, Meta(ge=1, le=600), told("How long calls must succeed before the fault.")] = 5
    settle_seconds: Annotated[
        int, Meta(ge=1, le=3600), told("How long calls go on after the service answers again and the fault is undone.")
    ] = 10
    call_timeout_seconds: Annotated[
        int, Meta(ge=1, le=300), told("Seconds after which a call is abandoned and counts as not answered.")
    ] = 30


class Limits(Part, frozen=True):
    """What a drill may cost at most and still pass."""

    unavailable_seconds_max: Annotated[
        Annotated[float, Meta(gt=0, le=3600)], told("The longest time that a client may wait for an answer.")
    ] = 5.0


class AbortIf(Part, frozen=True):
    """When a drill does not begin, or ends before its fault."""

    ready_replicas_below: Annotated[
        int, Meta(ge=1, le=7), told("With fewer ready replicas than this no fault is caused.")
    ] = 2
    conditions: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=64)], ...],
        Meta(max_length=16),
        told("Conditions of the service that forbid a drill while they are True, for example Degraded."),
    ] = ("Degraded", "UpgradeRequired")
    unavailable_budget_seconds: Annotated[
        Annotated[float, Meta(ge=0, le=86400)],
        told("No fault is caused once earlier runs have cost this many seconds in budgetWindowSeconds; 0: no budget."),
    ] = 0.0
    budget_window_seconds: Annotated[
        int, Meta(ge=60, le=31536000), told("How far back unavailableBudgetSeconds looks.")
    ] = 2592000


class DrillSpec(Part, frozen=True):
    """What to break, and when."""

    service_ref: Annotated[ServiceRef, told("The service.")]
    fault: Annotated[Fault, told("The fault.")]
    probe: Annotated[Probe, told("The calls that measure.")] = Probe()
    limits: Annotated[Limits, told("What a run must meet to pass.")] = Limits()
    abort_if: Annotated[AbortIf, told("When no fault is caused.")] = AbortIf()
    schedule: Annotated[
        Annotated[str, Meta(max_length=128)],
        told("When to repeat, as a cron expression: minute hour day month weekday. When empty: once."),
    ] = ""
    time_zone: Annotated[Annotated[str, Meta(max_length=64)], told("Time zone of the schedule; if empty, UTC.")] = ""
    concurrency_policy: Annotated[
        Literal["Allow", "Forbid", "Replace"],
        told(
            "What becomes of a run that is due while one of this drill runs. Forbid: it is left out. Allow: it begins "
            "after that one, within startingDeadlineSeconds. Replace: the running one is aborted. A service is never "
            "drilled by two at a time."
        ),
    ] = "Forbid"
    starting_deadline_seconds: Annotated[
        int, Meta(ge=10, le=86400), told("A run that could not begin this long after its time is skipped.")
    ] = 300
    active_deadline_seconds: Annotated[
        int, Meta(ge=30, le=7200), told("A run ends after this time in any case; its fault is undone.")
    ] = 600
    suspend: Annotated[bool, told("Begin no further run; a running one continues.")] = False
    successful_runs_history_limit: Annotated[int, Meta(ge=0, le=50), told("Passed runs kept in status.history.")] = 5
    failed_runs_history_limit: Annotated[int, Meta(ge=0, le=50), told("Other runs kept in status.history.")] = 5
    runner_image: Annotated[
        Text, told("Image of the runner; if empty, the operator's own. It needs the operator's command.")
    ] = ""


class DrillRun(StatusPart, frozen=True):
    """One run and what came of it."""

    id: Annotated[str, Meta(max_length=63), told("Its name, as on its pod.")] = ""
    scheduled_time: Annotated[Time, told("When it was due.")] = ""
    start_time: Annotated[Time, told("When its runner began.")] = ""
    fault_time: Annotated[Time, told("When the fault happened.")] = ""
    completion_time: Annotated[Time, told("When it was judged.")] = ""
    phase: Annotated[Phase, told("How far it is: Pending, Warm, Fault, Healing, Judged.")] = ""
    healed_time: Annotated[Time, told("When the fault was over.")] = ""
    target: Annotated[str, Meta(max_length=253), told("The pod it happened to.")] = ""
    target_uid: Annotated[str, Meta(max_length=64), told("That pod's uid: its successor is not affected.")] = ""
    node: Annotated[str, Meta(max_length=253), told("The node it happened on.")] = ""
    fault: Annotated[str, Meta(max_length=32), told("The fault.")] = ""
    verdict: Annotated[Verdict, told("Passed, Failed, Aborted (ended before it could be judged) or Inconclusive.")] = ""
    reason: Annotated[str, Meta(max_length=128), told("Why, in one word.")] = ""
    message: Annotated[str, Meta(max_length=4096), told("Why, in a sentence.")] = ""
    unavailable_seconds: Annotated[
        Annotated[float, Meta(ge=0)] | None, told("The longest time that a client waited for an answer.")
    ] = None
    takeover_seconds: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        told("From the fault to the successor's announcement that it is primary; absent when no replica took over."),
    ] = None
    calls_sent: Annotated[int, Meta(ge=0), told("Calls that the client sent.")] = 0
    calls_answered: Annotated[int, Meta(ge=0), told("Calls that were answered.")] = 0
    calls_failed: Annotated[int, Meta(ge=0), told("Calls that got no answer in time.")] = 0
    calls_lost: Annotated[int, Meta(ge=0), told("Answered calls whose effect is missing: must be 0.")] = 0
    calls_doubled: Annotated[int, Meta(ge=0), told("Calls whose effect happened twice: must be 0.")] = 0
    epoch_before: Annotated[int, Meta(ge=0), told("Epoch before the fault.")] = 0
    epoch_after: Annotated[int, Meta(ge=0), told("Epoch at the end.")] = 0


class DrillSpent(StatusPart, frozen=True):
    """What runs have cost that ended in one share of the budget's window."""

    until: Annotated[Time, told("When the last of them ended.")] = ""
    seconds: Annotated[Annotated[float, Meta(ge=0)], told("What they have cost together.")] = 0.0


class DrillStatus(StatusPart, frozen=True):
    """The status of a FailoverDrill."""

    observed_generation: Annotated[int, Meta(ge=0), told("The generation of the spec this status was made for.")] = 0
    active: Annotated[DrillRun | None, told("The current run.")] = None
    last: Annotated[DrillRun | None, told("The run that ended last.")] = None
    last_schedule_time: Annotated[Time, told("When a run was due last.")] = ""
    next_schedule_time: Annotated[Time, told("When the next run is due.")] = ""
    verdict: Annotated[Verdict, told("Verdict of the last run.")] = ""
    unavailable_seconds: Annotated[Annotated[float, Meta(ge=0)] | None, told("Of the last run.")] = None
    takeover_seconds: Annotated[Annotated[float, Meta(ge=0)] | None, told("Of the last run.")] = None
    calls_lost: Annotated[int | None, Meta(), told("Of the last run.")] = None
    calls_doubled: Annotated[int | None, Meta(), told("Of the last run.")] = None
    reason: Annotated[str, Meta(max_length=128), told("Why, in one word.")] = ""
    runs_passed: Annotated[int, Meta(ge=0), told("Runs that passed, ever.")] = 0
    runs_failed: Annotated[int, Meta(ge=0), told("Runs that failed, ever.")] = 0
    history: Annotated[tuple[DrillRun, ...], Meta(max_length=100), told("Runs that ended, the latest first.")] = ()
    spent: Annotated[
        tuple[DrillSpent, ...],
        Meta(max_length=SPENT_MAX),
        told("What runs have cost in budgetWindowSeconds, the latest first, whatever history keeps."),
    ] = ()
    conditions: Annotated[tuple[Condition, ...], Meta(max_length=16), told("The conditions, with their reasons.")] = ()


class DrillResource(msgspec.Struct, frozen=True, kw_only=True):
    """A FailoverDrill as the API server has it; spec None: it has problems."""

    namespace: str
    name: ObjectName
    uid: str
    generation: int
    spec: DrillSpec | None
    problems: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    deleted: bool = False
    created_at: float = 0.0
    status: DrillStatus = DrillStatus()


def drill_problems(spec: DrillSpec) -> list[str]:
    """Find what contradicts itself; the CRD's rules refuse the same."""
    found = []
    probe, fault = spec.probe, spec.fault
    lasts = fault.duration_seconds if fault.type in LASTING else 0
    if probe.warm_up_seconds + lasts + probe.settle_seconds > spec.active_deadline_seconds:
        found.append("spec.activeDeadlineSeconds must be at least warmUpSeconds + durationSeconds + settleSeconds")
    if spec.time_zone and not spec.schedule:
        found.append("spec.timeZone needs a schedule")
    return found
