"""What came of a run: the runner's verdict, seen together with what the fault did; and where it is written down.

Guarantees: a run passes only if its fault happened and was over while the calls still went on; calls that were lost or
doubled fail it whatever else went wrong. History keeps as many as the spec says, the latest first. Pure.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from deathless_operator.model import names
from deathless_operator.model.drill import DrillResource, DrillRun, DrillSpec, DrillStatus, Verdict
from deathless_operator.model.status import Condition
from deathless_operator.plan.actions import Event
from deathless_operator.plan.drill.budget import with_cost
from deathless_operator.plan.drill.guard import of_shard
from deathless_operator.plan.drill.reports import RunnerReport
from deathless_operator.plan.service.reading import read_time
from deathless_operator.plan.snapshot import PodView, Snapshot

CLOCK_SLACK_S: Final = 1.0  # between the clocks of two nodes
MESSAGE_MAX: Final = 1000


def show_moment(at: float) -> str:
    """Give wall seconds to the millisecond, as the API server takes them."""
    moment = dt.datetime.fromtimestamp(at, tz=dt.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def judged(
    run: DrillRun, report: RunnerReport | None, target: Snapshot | None, now: float, *, shard: int = 0
) -> DrillRun:
    """Give the run with its verdict.

    Args:
        run: with what is known of its fault; `reason` set where the fault went wrong.
        report: the runner's; None: it left none.
        target: the service as it is now, for its epoch.
        now: wall seconds.
        shard: whose replica was hit.
    """
    if report is None:
        reason, message = run.reason or "NoReport", run.message or "the runner ended without a report"
        return ended(run, "Inconclusive", reason, message, now)
    verdict, reason, message = _verdict(run, report)
    told = ended(run, verdict, reason, message, now)
    primary = primary_of(target, shard)
    return msgspec.structs.replace(
        told,
        unavailable_seconds=report.unavailable_seconds,
        takeover_seconds=_takeover_seconds(run, primary),
        calls_sent=report.calls,
        calls_answered=report.answered,
        calls_failed=report.calls - report.answered,
        calls_lost=report.lost,
        calls_doubled=report.doubled,
        epoch_after=primary.announced.epoch if primary is not None and primary.announced is not None else 0,
    )


def _verdict(run: DrillRun, report: RunnerReport) -> tuple[Verdict, str, str]:
    if report.lost or report.doubled or report.verdict == "Aborted":
        return report.verdict, report.reason, report.message
    if run.reason:
        return "Inconclusive", run.reason, run.message
    if not run.fault_time:
        return "Inconclusive", "NoFault", "the calls ended before the fault began"
    if report.verdict != "Passed":
        return report.verdict, report.reason, report.message
    last = max(read_time(run.fault_time) or 0.0, read_time(run.healed_time) or 0.0)
    if not run.healed_time or last > report.ended_at + CLOCK_SLACK_S:
        return "Inconclusive", "FaultOutsideCalls", "the fault was not over when the calls ended"
    return report.verdict, report.reason, report.message


def ended(run: DrillRun, verdict: Verdict, reason: str, message: str, now: float) -> DrillRun:
    """Give a run that is over."""
    return msgspec.structs.replace(
        run,
        phase="Judged",
        verdict=verdict,
        reason=reason[:128],
        message=message[:MESSAGE_MAX],
        completion_time=show_moment(now),
    )


def primary_of(target: Snapshot | None, shard: int = 0) -> PodView | None:
    """Give the pod that leads a shard in the highest epoch."""
    leading = [
        pod
        for pod in (of_shard(target, shard) if target is not None else ())
        if pod.announced is not None and pod.labels.get(names.LABEL_ROLE) == names.ROLE_PRIMARY
    ]
    return max(leading, key=lambda pod: pod.announced.epoch if pod.announced is not None else 0, default=None)


def _takeover_seconds(run: DrillRun, primary: PodView | None) -> float | None:
    """Give the time from the fault to the successor's announcement; None where nobody took over."""
    began = read_time(run.fault_time)
    if primary is None or primary.announced is None or began is None:
        return None
    if primary.announced.epoch <= run.epoch_before or not primary.announced.since:
        return None
    took = primary.announced.since - began
    return round(took, 3) if took >= 0 else None


def kept(history: Sequence[DrillRun], spec: DrillSpec) -> tuple[DrillRun, ...]:
    """Give the runs that stay, the latest first."""
    left = {True: spec.successful_runs_history_limit, False: spec.failed_runs_history_limit}
    stay = []
    for run in history:
        passed = run.verdict == "Passed"
        if left[passed] > 0:
            left[passed] -= 1
            stay.append(run)
    return tuple(stay)


def with_run(status: DrillStatus, run: DrillRun, spec: DrillSpec, now: float) -> DrillStatus:
    """Write a run that is over into the status; `now` is in wall seconds."""
    return msgspec.structs.replace(
        status,
        active=None,
        last=run,
        verdict=run.verdict,
        reason=run.reason,
        unavailable_seconds=run.unavailable_seconds,
        takeover_seconds=run.takeover_seconds,
        calls_lost=run.calls_lost if run.calls_sent else None,
        calls_doubled=run.calls_doubled if run.calls_sent else None,
        runs_passed=status.runs_passed + (run.verdict == "Passed"),
        runs_failed=status.runs_failed + (run.verdict == "Failed"),
        history=kept((run, *status.history), spec),
        spent=with_cost(status, run, now, spec.abort_if.budget_window_seconds),
    )


def told(resource: DrillResource, run: DrillRun) -> Event:
    """Give the event that tells how a run ended."""
    text = f"{run.fault or 'drill'} of {run.target or 'no pod'}: {run.message}"
    kind: Literal["Normal", "Warning"] = "Normal" if run.verdict == "Passed" else "Warning"
    return Event(type=kind, reason=f"Drill{run.verdict or 'Ended'}", message=f"{resource.name}: {text}"[:MESSAGE_MAX])


def with_conditions(status: DrillStatus, found: Sequence[Condition], generation: int, now: float) -> DrillStatus:
    """Set conditions; a transition time moves with the status alone."""
    old = {one.type: one for one in status.conditions}
    for one in found:
        before = old.get(one.type)
        same = before is not None and before.status == one.status and before.last_transition_time
        at = before.last_transition_time if before is not None and same else show_moment(now)
        old[one.type] = msgspec.structs.replace(one, last_transition_time=at, observed_generation=generation)
    return msgspec.structs.replace(
        status, conditions=tuple(old[kind] for kind in sorted(old)), observed_generation=generation
    )
