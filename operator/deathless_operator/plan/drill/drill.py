"""What to do about one FailoverDrill: a pure function from what is seen to what is done and told.

    none --due, nothing forbids it--> PENDING --runner ready--> WARM --victim written down--> FAULT
                                                                   FAULT --fault is over--> HEALING
    any of them --runner ended--> judged; --deadline, deletion, replaced--> aborted, undone

Each phase stands in the status before what it allows is done, so an operator that dies anywhere is followed by one that
finds the run where it was: the victim is written down before it is touched, and is touched by its uid. Applying a pod,
deleting a uid and cordoning a node may all be done twice.

One drill per service: the runner's pod has a name that belongs to the service, and a name is given once. A run that
finds another's pod there waits, or is left out.

Guarantees: the same snapshot gives the same plan; nothing is broken while `guard` says no; a node is uncordoned
only by the mark of the run that cordoned it. What an agent did ends by its own deadline. Does not: talk to the API
server. Imports model and plan.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, assert_never

import msgspec

from deathless_operator.model import names
from deathless_operator.model.drill import DrillResource, DrillRun, DrillSpec, DrillStatus
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.model.status import Condition
from deathless_operator.plan.actions import Apply, DeletePod, Event, PatchMetadata
from deathless_operator.plan.drill.budget import with_cost
from deathless_operator.plan.drill.faults import begin_fault, choose_victim, undo_actions
from deathless_operator.plan.drill.guard import Refusal, refusal
from deathless_operator.plan.drill.outcome import ended, judged, show_moment, told, with_conditions, with_run
from deathless_operator.plan.drill.pods import mark_of, runner_manifest
from deathless_operator.plan.drill.reports import RunnerReport, read_report
from deathless_operator.plan.drill.snapshot import DrillAction, DrillPlan, DrillSnapshot
from deathless_operator.plan.schedule import ScheduleError, latest_due, next_due
from deathless_operator.plan.service.installation import owner_of
from deathless_operator.plan.service.reading import read_time
from deathless_operator.plan.snapshot import PodView

ACTIVE_REQUEUE_S: Final = 1.0
WAITING_REQUEUE_S: Final = 5.0
REQUEUE_MAX_S: Final = 300.0
RUN_NAME_MAX: Final = 50  # with the minute behind it a label's 63


@dataclass(slots=True)
class _Draft:
    """A plan in the making."""

    status: DrillStatus
    actions: list[DrillAction] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    requeue_s: float | None = None
    sentence: str = ""

    def plan(self) -> DrillPlan:
        return DrillPlan(
            actions=tuple(self.actions),
            status=self.status,
            events=tuple(self.events),
            requeue_s=self.requeue_s,
            sentence=self.sentence,
        )


def make_drill_plan(snapshot: DrillSnapshot, settings: OperatorSettings) -> DrillPlan:
    """Make the plan for one drill.

    Args:
        snapshot: what the API server shows.
        settings: what the installation was told.
    """
    resource = snapshot.resource
    owner = owner_of(snapshot.target) if snapshot.target is not None else ""
    if owner not in ("", settings.namespace):
        said = f"the operator in namespace {owner} manages its service, and runs its drills"
        return DrillPlan(actions=(), status=None, events=(), requeue_s=None, sentence=said)
    if resource.deleted:
        return _leave(snapshot, settings)
    draft = _Draft(status=resource.status)
    if resource.spec is None:
        _refuse_spec(draft, snapshot, settings, "; ".join(resource.problems))
        return draft.plan()
    active = resource.status.active
    try:
        if active is None:
            _idle(draft, snapshot, resource.spec, settings)
        else:
            _go_on(draft, snapshot, resource.spec, settings, active)
        _next_time(draft, snapshot, resource.spec)
    except ScheduleError as error:
        _refuse_spec(draft, snapshot, settings, str(error))
    return draft.plan()


# ---------------------------------------------------------------- ends


def _leave(snapshot: DrillSnapshot, settings: OperatorSettings) -> DrillPlan:
    """The drill is being deleted: undo what it did, then let it go."""
    resource = snapshot.resource
    actions = undo_actions(snapshot, settings, f"{resource.namespace}/{resource.name}/")
    if names.DRILL_FINALIZER in resource.finalizers:
        kept = tuple(one for one in resource.finalizers if one != names.DRILL_FINALIZER)
        actions.append(_finalizers(resource, kept, "what the drill did is undone"))
    return DrillPlan(
        actions=tuple(actions), status=None, events=(), requeue_s=None, sentence="the drill is being deleted"
    )


def _refuse_spec(draft: _Draft, snapshot: DrillSnapshot, settings: OperatorSettings, problem: str) -> None:
    """The spec can't be run: end what runs, and say so."""
    active = snapshot.resource.status.active
    if active is not None:
        draft.actions += undo_actions(snapshot, settings, mark_of(snapshot.resource, active))
        over = ended(active, "Aborted", "InvalidSpec", problem, snapshot.now)
        spent = with_cost(draft.status, over, snapshot.now, None)
        draft.status = msgspec.structs.replace(draft.status, active=None, last=over, verdict="Aborted", spent=spent)
    draft.status = msgspec.structs.replace(draft.status, next_schedule_time="")
    _say(draft, snapshot, Condition(type="Scheduled", status="False", reason="InvalidSpec", message=problem))
    draft.requeue_s, draft.sentence = None, f"the spec has problems: {problem}"


def _abort(
    draft: _Draft, snapshot: DrillSnapshot, spec: DrillSpec, settings: OperatorSettings, run: DrillRun, why: Refusal
) -> None:
    """End a run without the runner's word; what it did is undone."""
    draft.actions += undo_actions(snapshot, settings, mark_of(snapshot.resource, run))
    _close(draft, snapshot, spec, ended(run, "Aborted", why.reason, why.message, snapshot.now))


def _close(draft: _Draft, snapshot: DrillSnapshot, spec: DrillSpec, run: DrillRun) -> None:
    """Write a run that is over down, and tell it."""
    draft.status = with_run(draft.status, run, spec, snapshot.now)
    draft.events.append(told(snapshot.resource, run))
    verdict = {"Passed": "True", "Failed": "False"}.get(run.verdict, "Unknown")
    _say(
        draft,
        snapshot,
        Condition(type="Running", status="False", reason="Judged", message=f"run {run.id} is over"),
        Condition(
            type="Succeeded",
            status="True" if verdict == "True" else "False" if verdict == "False" else "Unknown",
            reason=run.reason or "Judged",
            message=run.message,
        ),
    )
    draft.requeue_s, draft.sentence = ACTIVE_REQUEUE_S, f"run {run.id}: {run.verdict}, {run.reason}"


def _say(draft: _Draft, snapshot: DrillSnapshot, *found: Condition) -> None:
    draft.status = with_conditions(draft.status, found, snapshot.resource.generation, snapshot.now)


# ---------------------------------------------------------------- no run is active


def _idle(draft: _Draft, snapshot: DrillSnapshot, spec: DrillSpec, settings: OperatorSettings) -> None:
    """Begin a run if one is due and nothing forbids it."""
    resource = snapshot.resource
    leftover = undo_actions(snapshot, settings, f"{resource.namespace}/{resource.name}/", pods=False)
    if leftover or names.DRILL_FINALIZER in resource.finalizers:
        draft.actions += leftover
        if names.DRILL_FINALIZER in resource.finalizers:
            rest = tuple(one for one in resource.finalizers if one != names.DRILL_FINALIZER)
            draft.actions.append(_finalizers(resource, rest, "no run is active"))
        draft.requeue_s, draft.sentence = ACTIVE_REQUEUE_S, "cleaning up after the last run"
        return
    slot = _due(snapshot, spec)
    if slot is None:
        draft.sentence = "suspended" if spec.suspend else "nothing is due"
        return
    run = DrillRun(
        id=f"{resource.name[:RUN_NAME_MAX].rstrip('-.')}-{int(slot) // 60}",
        scheduled_time=show_moment(slot),
        fault=spec.fault.type,
        phase="Pending",
    )
    why = _foreign_pod(snapshot) or refusal(snapshot, spec, settings)
    late = snapshot.now - slot > spec.starting_deadline_seconds or (why is not None and why.lasting)
    if why is not None and not late:
        _say(draft, snapshot, Condition(type="Running", status="False", reason=why.reason, message=why.message))
        draft.requeue_s, draft.sentence = WAITING_REQUEUE_S, f"run {run.id} waits: {why.message}"
        return
    draft.status = msgspec.structs.replace(draft.status, last_schedule_time=show_moment(slot))
    if late:
        missed = why or Refusal("Missed", f"it was due {snapshot.now - slot:.0f} s ago")
        _close(draft, snapshot, spec, ended(run, "Aborted", missed.reason, missed.message, snapshot.now))
        return
    run = msgspec.structs.replace(run, start_time=show_moment(snapshot.now))
    draft.status = msgspec.structs.replace(draft.status, active=run)
    draft.events.append(Event(type="Normal", reason="DrillStarted", message=f"run {run.id}: {spec.fault.type}"))
    _say(draft, snapshot, Condition(type="Running", status="True", reason="Pending", message=f"run {run.id} begins"))
    draft.requeue_s, draft.sentence = 0.0, f"run {run.id} begins"


def _due(snapshot: DrillSnapshot, spec: DrillSpec) -> float | None:
    """Give the time of the run that is due and was not taken yet."""
    resource = snapshot.resource
    taken = read_time(resource.status.last_schedule_time)
    if spec.suspend:
        return None
    if not spec.schedule:
        return resource.created_at if taken is None else None
    slot = latest_due(spec.schedule, spec.time_zone, snapshot.now)
    since = resource.created_at if taken is None else taken
    return slot if slot is not None and slot > since else None


def _foreign_pod(snapshot: DrillSnapshot) -> Refusal | None:
    """Tell whether the service's one place for a runner is taken by a run that is not over."""
    runner = snapshot.runner
    if runner is None or (_is_over(runner) and not _is_claimed(snapshot, runner)):
        return None
    return Refusal("AnotherDrill", f"pod {runner.name} of run {_mark(runner) or 'unknown'} still exists")


def _is_claimed(snapshot: DrillSnapshot, runner: PodView) -> bool:
    """Tell whether a run that stands in a drill's status still wants to read that pod."""
    mark = _mark(runner)
    return any(
        one.status.active is not None and mark_of(one, one.status.active) == mark
        for one in (snapshot.resource, *snapshot.others)
    )


def _is_over(pod: PodView) -> bool:
    return pod.phase in ("Succeeded", "Failed")


def _mark(pod: PodView) -> str:
    return pod.annotations.get(names.DRILL_ANNOTATION, "")


# ---------------------------------------------------------------- a run is active


def _go_on(draft: _Draft, snapshot: DrillSnapshot, spec: DrillSpec, settings: OperatorSettings, run: DrillRun) -> None:
    """Take the active run one step further."""
    resource, mark = snapshot.resource, mark_of(snapshot.resource, run)
    draft.requeue_s, draft.sentence = ACTIVE_REQUEUE_S, f"run {run.id} is in phase {run.phase}"
    if names.DRILL_FINALIZER not in resource.finalizers:
        wanted = (*resource.finalizers, names.DRILL_FINALIZER)
        draft.actions.append(_finalizers(resource, wanted, "what the drill does must be undone before it may go"))
    runner = snapshot.runner
    ours = runner if runner is not None and _mark(runner) == mark else None
    if ours is not None and _is_over(ours):
        _judge(draft, snapshot, spec, settings, run, ours)
        return
    if (why := _must_end(snapshot, spec, run)) is not None:
        _abort(draft, snapshot, spec, settings, run, why)
        return
    if ours is None and run.phase not in ("Pending", ""):
        _abort(draft, snapshot, spec, settings, run, Refusal("RunnerLost", "the runner's pod is gone"))
        return
    match run.phase:
        case "Pending" | "":
            _pending(draft, snapshot, spec, settings, run, ours)
        case "Warm":
            _warm(draft, snapshot, spec, settings, run, mark)
        case "Fault":
            step = begin_fault(snapshot, spec, settings, run)
            draft.actions += step.actions
            _move(draft, snapshot, run, step.run)
        case "Healing" | "Judged":
            pass  # the calls go on until the runner has seen enough
        case _:
            assert_never(run.phase)


def _must_end(snapshot: DrillSnapshot, spec: DrillSpec, run: DrillRun) -> Refusal | None:
    """Give why a run ends before its time."""
    began = read_time(run.start_time)
    if began is None or snapshot.now - began > spec.active_deadline_seconds:
        return Refusal("DeadlineExceeded", f"the run took more than {spec.active_deadline_seconds} s")
    due = _due(snapshot, spec)
    if due is not None and spec.concurrency_policy == "Replace":
        return Refusal("Replaced", "the next run is due")
    return None


def _pending(
    draft: _Draft,
    snapshot: DrillSnapshot,
    spec: DrillSpec,
    settings: OperatorSettings,
    run: DrillRun,
    ours: PodView | None,
) -> None:
    """Make the runner; wait until its calls succeed."""
    target, runner = snapshot.target, snapshot.runner
    if target is None or target.resource.spec is None:
        _abort(draft, snapshot, spec, settings, run, Refusal("TargetMissing", "the service is gone or has problems"))
    elif ours is not None:
        if ours.ready:
            _move(draft, snapshot, run, msgspec.structs.replace(run, phase="Warm"))
    elif runner is None:
        manifest = runner_manifest(snapshot.resource, spec, run, target.resource.spec, settings)
        draft.actions.append(Apply(manifest=manifest, why=f"run {run.id} needs its calls"))
    elif _foreign_pod(snapshot) is None:
        why = f"run {_mark(runner)} is over"
        draft.actions.append(DeletePod(name=runner.name, uid=runner.uid, grace_s=0, force=False, why=why))
    elif snapshot.now - (read_time(run.start_time) or 0.0) > spec.starting_deadline_seconds:
        _abort(draft, snapshot, spec, settings, run, Refusal("AnotherDrill", f"pod {runner.name} is another run's"))


def _warm(
    draft: _Draft, snapshot: DrillSnapshot, spec: DrillSpec, settings: OperatorSettings, run: DrillRun, mark: str
) -> None:
    """Calls go well: write the victim down, or wait for what is in the way while they go on."""
    found = _victim(snapshot, spec, settings, run, mark)
    if isinstance(found, DrillRun):
        _move(draft, snapshot, run, found)
    elif found.lasting:
        _abort(draft, snapshot, spec, settings, run, found)
    else:
        _say(
            draft,
            snapshot,
            Condition(type="Running", status="True", reason=run.phase, message=f"waits: {found.message}"),
        )
        draft.sentence = f"run {run.id} waits: {found.message}"


def _victim(
    snapshot: DrillSnapshot, spec: DrillSpec, settings: OperatorSettings, run: DrillRun, mark: str
) -> DrillRun | Refusal:
    """Look once more; give the run with its victim, or why nothing may be broken now."""
    if (why := refusal(snapshot, spec, settings, mark)) is not None:
        return why
    return choose_victim(snapshot, spec, run) or Refusal("NoVictim", f"no ready replica is {spec.fault.role}")


def _move(draft: _Draft, snapshot: DrillSnapshot, run: DrillRun, further: DrillRun) -> None:
    """Write down how far a run is; look again at once when its phase changed."""
    draft.status = msgspec.structs.replace(draft.status, active=further)
    if further.phase == run.phase:
        return
    message = f"run {run.id}: {further.fault} of {further.target or 'a replica yet to be chosen'}"
    _say(draft, snapshot, Condition(type="Running", status="True", reason=further.phase, message=message))
    draft.requeue_s, draft.sentence = 0.0, f"run {run.id} is in phase {further.phase} now"
    if further.phase == "Fault":
        draft.events.append(Event(type="Normal", reason="DrillFault", message=f"{message} on {further.node}"))


def _judge(
    draft: _Draft, snapshot: DrillSnapshot, spec: DrillSpec, settings: OperatorSettings, run: DrillRun, runner: PodView
) -> None:
    """The runner has ended: judge, and undo what may be left."""
    message = runner.containers[0].message if runner.containers else ""
    report = read_report(message, RunnerReport)
    mark = mark_of(snapshot.resource, run)
    if report is not None and report.run != mark:
        report = None
    wrong = report is not None and (report.lost or report.doubled)
    if run.phase == "Warm" and not wrong:  # it waited for what was in the way until its calls were over
        found = _victim(snapshot, spec, settings, run, mark)
        if isinstance(found, Refusal):
            _abort(draft, snapshot, spec, settings, run, found)
            return
    if run.phase == "Fault":  # what the fault did may have been told since
        run = begin_fault(snapshot, spec, settings, run).run
    draft.actions += undo_actions(snapshot, settings, mark, runner=False)
    _close(draft, snapshot, spec, judged(run, report, snapshot.target, snapshot.now, shard=spec.fault.shard))


# ---------------------------------------------------------------- small things


def _finalizers(resource: DrillResource, wanted: tuple[str, ...], why: str) -> PatchMetadata:
    return PatchMetadata(
        api_version=names.API_VERSION,
        kind=names.DRILL_KIND,
        name=resource.name,
        uid=resource.uid,
        finalizers=wanted,
        why=why,
    )


def _next_time(draft: _Draft, snapshot: DrillSnapshot, spec: DrillSpec) -> None:
    """Tell when the next run is due, skip what Forbid leaves out, and wake up in time."""
    now, status = snapshot.now, draft.status
    upcoming = next_due(spec.schedule, spec.time_zone, now) if spec.schedule and not spec.suspend else None
    due = _due(snapshot, spec)
    if snapshot.resource.status.active is not None and due is not None and spec.concurrency_policy == "Forbid":
        status = msgspec.structs.replace(status, last_schedule_time=show_moment(due))
        text = f"the run due at {show_moment(due)} is skipped: run {snapshot.resource.status.active.id} is active"
        draft.events.append(Event(type="Normal", reason="DrillSkipped", message=text))
    draft.status = msgspec.structs.replace(status, next_schedule_time=show_moment(upcoming) if upcoming else "")
    reason = "Suspended" if spec.suspend else "Scheduled" if spec.schedule else "Once"
    state = "False" if spec.suspend else "True"
    message = f"next run at {show_moment(upcoming)}" if upcoming else "no further run is planned"
    _say(
        draft,
        snapshot,
        Condition(type="Scheduled", status="True" if state == "True" else "False", reason=reason, message=message),
    )
    waits = [one for one in (draft.requeue_s, upcoming - now if upcoming else None) if one is not None]
    if waits:
        draft.requeue_s = min(max(0.0, min(waits)), REQUEUE_MAX_S)
