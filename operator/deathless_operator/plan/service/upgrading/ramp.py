"""Why the next shards of a LiveUpgrade's ramp are not upgraded yet.

    shards of the step not done        the next ones wait
    spec.ramp[].holdSeconds not over   they wait, counted from when the last shard of the step was done
    spec.ramp[].drill                  they wait for a run that began afterwards and passed; one that failed is told,
                                       and a later one that passes opens the gate
    spec.ramp[].metrics                they wait until each number is within its bounds. One that can't be told is not:
                                       no data, several series, no Prometheus, or one that does not answer

Guarantees: a function of the snapshot; the times are those of the LiveUpgrade's status, so an operator that is started
again counts on. Does not: go back by itself. A gate that stays shut is a matter for a person, who has the drill run
again, takes the step out of the spec, or gives the action Abort or BackOut. Imports model only.
"""

from __future__ import annotations

from deathless_operator.model.drill import DrillRun
from deathless_operator.model.live_upgrade import LiveUpgradeResource, MetricGate, RampStep
from deathless_operator.plan.service.reading import read_time, show_time
from deathless_operator.plan.snapshot import Measured, Snapshot


def gate_of(snapshot: Snapshot, resource: LiveUpgradeResource) -> str:
    """Say why the snapshot's shard is not upgraded yet; empty: its turn has come."""
    steps = resource.spec.ramp if resource.spec is not None else ()
    step = next((each for each in reversed(steps) if each.shards <= snapshot.shard), None)
    if step is None:
        return ""
    done_at = [read_time(each.completion_time) for each in resource.status.shards if each.shard < step.shards]
    times = [at for at in done_at if at is not None]
    run = "shard 0 runs" if step.shards == 1 else f"shards 0 to {step.shards - 1} run"
    if len(times) < step.shards:
        return f"the next shards follow once {run} the new code"
    if snapshot.now < (over := max(times) + step.hold_seconds):
        return f"{run} the new code, and the next ones follow at {show_time(over)}"
    return (_drilled(snapshot, step, max(times)) if step.drill else "") or _out_of_bounds(snapshot, step)


def queries_of(resource: LiveUpgradeResource) -> tuple[str, ...]:
    """Give the expressions of the step at which a ramp stands, as its status says; none where it is under way."""
    steps = resource.spec.ramp if resource.spec is not None else ()
    done = {each.shard for each in resource.status.shards if each.completion_time}
    step = next((each for each in reversed(steps) if done.issuperset(range(each.shards))), None)
    return tuple(metric.query for metric in step.metrics) if step is not None else ()


def _out_of_bounds(snapshot: Snapshot, step: RampStep) -> str:
    """Say which numbers of a step are not within their bounds; empty: all are."""
    found = [told for metric in step.metrics if (told := _why_not(metric, snapshot.measured.get(metric.query)))]
    return f"the next shards follow once {'; and '.join(found)}" if found else ""


def _why_not(metric: MetricGate, measured: Measured | None) -> str:
    """Say what a number has to be, and what it is; empty: it is so."""
    low, high = metric.min, metric.max
    value = measured.value if measured is not None else None
    if value is not None and (low is None or value >= low) and (high is None or value <= high):
        return ""
    both = (("at least", low), ("at most", high))
    bounds = [f"{word} {bound:g}" for word, bound in both if bound is not None]
    problem = measured.problem if measured is not None else "it has not been asked for yet"
    said = f"it is {value:g}" if value is not None else f"it can't be told: {problem}"
    return f"metric {metric.name} is {' and '.join(bounds)} ({said})"


def _drilled(snapshot: Snapshot, step: RampStep, since: float) -> str:
    """Say what is missing of a step's drill; empty: nothing."""
    drill = next((each for each in snapshot.drills if each.name == step.drill), None)
    if drill is None:
        return f"there is no FailoverDrill {step.drill} in this namespace, which spec.ramp names"
    service = drill.spec.service_ref.name if drill.spec is not None else snapshot.resource.name
    if service != snapshot.resource.name:
        return f"FailoverDrill {step.drill}, which spec.ramp names, is of service {service}"
    run = next((each for each in _runs(drill.status.last, drill.status.history) if _counts(each, since)), None)
    if run is None:
        return f"the next shards follow once a run of FailoverDrill {step.drill} has passed that begins from now on"
    if run.verdict == "Passed":
        return ""
    return (
        f"run {run.id} of FailoverDrill {step.drill} failed: {run.message or run.reason}. The next shards follow once "
        "a later run passes; action BackOut returns to the former code"
    )


def _runs(last: DrillRun | None, history: tuple[DrillRun, ...]) -> tuple[DrillRun, ...]:
    """Give the runs that ended, the latest first."""
    every = history if last is None else (last, *history)
    return tuple(sorted(every, key=lambda each: each.start_time, reverse=True))


def _counts(run: DrillRun, since: float) -> bool:
    """Tell whether a run was judged on what runs now; one that was aborted or shows nothing says neither."""
    began = read_time(run.start_time)
    return began is not None and began >= since and run.verdict in ("Passed", "Failed")
