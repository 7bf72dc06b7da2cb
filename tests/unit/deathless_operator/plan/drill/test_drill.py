"""A drill goes its way step by step, breaks nothing that it must not, and is found again by every next operator."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.deathless_operator.plan.drill_world import START, Refused, World, make_spec, replica

from deathless_operator.model import names
from deathless_operator.model.drill import DrillResource, DrillRun, DrillStatus
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.plan.actions import Apply, DeletePod, PatchMetadata
from deathless_operator.plan.drill.drill import make_drill_plan
from deathless_operator.plan.drill.outcome import show_moment
from deathless_operator.plan.drill.snapshot import EvictPod, SetCordon

FAULTS = ("ProcessKill", "PodDelete", "NodeDrain", "Freeze", "Partition", "LockOutage")


def finish(world: World) -> None:
    """Let the fault pass and the runner end, and judge."""
    world.look()
    if "ns-bank-drill-agent" in world.pods:
        world.end_agent()
    world.now += 11
    world.look_until("Healing")
    world.now += 5
    world.end_runner()
    for _ in range(4):
        world.look()


@pytest.mark.parametrize("fault", FAULTS)
def test_drill_without_a_schedule_runs_once_and_leaves_nothing_behind(fault: str) -> None:
    world = World(make_spec(fault))
    world.to_fault()
    finish(world)
    assert world.status.active is None
    assert (world.status.verdict, world.status.runs_passed) == ("Passed", 1)
    assert set(world.hit) == {"uid-bank-0-1"}
    assert world.traces() == []
    assert len(world.begun) == 1
    world.now += 100_000
    assert world.look().actions == ()
    assert world.status.active is None


def test_victim_is_written_down_before_it_is_touched() -> None:
    world = World(make_spec("PodDelete"))
    world.to_warm()
    plan = world.look()
    assert not [one for one in plan.actions if isinstance(one, DeletePod | Apply | EvictPod)]
    assert world.status.active is not None
    assert (world.status.active.target_uid, world.status.active.node) == ("uid-bank-0-1", "worker0")
    assert world.hit == []


def test_nothing_is_broken_before_calls_succeed() -> None:
    world = World(make_spec("PodDelete"))
    for _ in range(20):
        world.look()
        world.now += 1
    assert world.phase == "Pending"
    assert world.hit == []


def test_pod_that_took_the_victims_place_is_left_alone() -> None:
    world = World(make_spec("PodDelete"))
    world.to_fault()
    world.look()
    for _ in range(10):
        world.look()
    assert world.hit == ["uid-bank-0-1"]


def test_service_that_fell_ill_meanwhile_is_not_broken_further() -> None:
    world = World(make_spec("PodDelete"))
    world.to_warm()
    world.replicas[2] = replica(2, "standby", ready=False)
    for _ in range(5):
        world.look()
        assert world.phase == "Warm"
    world.end_runner()
    world.look()
    assert world.status.last is not None
    assert (world.status.verdict, world.status.reason) == ("Aborted", "DisruptionUnderWay")
    assert world.hit == []
    world.look()
    assert world.traces() == []


def test_role_that_is_moving_just_now_hits_nobody() -> None:
    world = World(make_spec("PodDelete"))
    world.to_warm()
    world.replicas[1] = replica(1, "primary")
    world.look()
    world.end_runner()
    world.look()
    assert world.status.reason == "NoVictim"


def test_what_passes_before_the_calls_end_is_waited_for() -> None:
    world = World(make_spec("PodDelete"))
    world.to_warm()
    world.replicas[2] = replica(2, "standby", ready=False)
    world.look()
    assert [(one.reason, one.message) for one in world.status.conditions if one.type == "Running"] == [
        ("Warm", "waits: pod bank-2 is not ready")
    ]
    world.replicas[2] = replica(2, "standby")
    world.look_until("Fault")
    assert world.status.active is not None


def test_what_does_not_pass_is_not_waited_for() -> None:
    world = World(make_spec("NodeDrain"))
    world.to_warm()
    world.settings = msgspec.structs.replace(world.settings, drill_node_drain=False)
    world.look()
    assert (world.status.verdict, world.status.reason) == ("Aborted", "NodeDrainNotAllowed")


def test_call_lost_before_anything_was_broken_is_told_whatever_was_in_the_way() -> None:
    world = World(make_spec("PodDelete"))
    world.to_warm()
    world.replicas[2] = replica(2, "standby", ready=False)
    world.end_runner("Failed", "CallsLost", lost=1)
    world.look()
    assert (world.status.verdict, world.status.reason) == ("Failed", "CallsLost")


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("phase", ["Pending", "Warm", "Fault", "Healing"])
def test_drill_that_is_deleted_undoes_what_it_did(fault: str, phase: str) -> None:
    world = World(make_spec(fault))
    world.look_until("Pending")
    world.look()
    if phase != "Pending":
        world.become_warm()
        world.look_until("Warm")
    if phase in ("Fault", "Healing"):
        world.look_until("Fault")
        world.look()
    if phase == "Healing" and "ns-bank-drill-agent" in world.pods:
        world.end_agent()
        world.look()
    world.deleted = True
    plan = world.look()
    assert plan.status is None
    assert world.traces() == []
    assert "bank-drill" not in world.pods
    order = [type(one) for one in plan.actions]
    assert order[-1] is PatchMetadata  # the finalizer goes last


def test_run_that_takes_too_long_is_aborted_and_undone() -> None:
    world = World(make_spec("NodeDrain", activeDeadlineSeconds=60))
    world.budget_allows = False
    world.to_fault()
    world.look()
    assert world.nodes["worker0"].cordoned
    world.now += 70
    world.look()
    world.look()
    assert (world.status.verdict, world.status.reason) == ("Aborted", "DeadlineExceeded")
    assert world.traces() == []
    assert "bank-drill" not in world.pods


def test_node_that_somebody_cordoned_stays_cordoned() -> None:
    world = World(make_spec("NodeDrain"))
    world.to_fault()
    world.nodes["worker0"] = replace(world.nodes["worker0"], cordoned=True)
    world.look()
    world.end_runner()
    for _ in range(4):
        world.look()
    assert world.nodes["worker0"].cordoned
    assert (world.status.verdict, world.status.reason) == ("Inconclusive", "NodeCordoned")


def test_node_is_uncordoned_when_the_duration_is_over_and_not_before() -> None:
    world = World(make_spec("NodeDrain", fault_durationSeconds=10))
    world.to_fault()
    plan = world.look()
    assert [type(one) for one in plan.actions] == [SetCordon, EvictPod]
    world.now += 9
    world.look()
    assert world.nodes["worker0"].cordoned
    world.now += 1
    world.look()
    assert not world.nodes["worker0"].cordoned


def test_runner_that_is_gone_ends_the_run_before_anything_is_broken() -> None:
    world = World(make_spec("PodDelete"))
    world.to_warm()
    del world.pods["bank-drill"]
    world.look()
    assert world.status.reason == "RunnerLost"
    assert world.hit == []


def test_fault_of_an_agent_that_failed_passes_nothing() -> None:
    world = World(make_spec("Freeze"))
    world.to_fault()
    world.look()
    world.end_agent(problem="no process of pod")
    world.look()
    world.end_runner()
    world.look()
    assert (world.status.verdict, world.status.reason) == ("Inconclusive", "AgentFailed")


def test_agent_that_never_starts_is_given_up() -> None:
    world = World(make_spec("Freeze"))
    world.to_fault()
    world.look()
    world.now += 200
    world.look()
    assert world.phase == "Healing"
    world.end_runner()
    world.look()
    assert world.status.reason == "AgentNotStarted"


def test_lost_calls_fail_a_run_whose_fault_went_wrong() -> None:
    world = World(make_spec("Freeze"))
    world.to_fault()
    world.look()
    world.end_agent(problem="no process of pod")
    world.look()
    world.end_runner("Failed", "Lost", lost=2)
    world.look()
    assert (world.status.verdict, world.status.calls_lost, world.status.runs_failed) == ("Failed", 2, 1)


def test_run_whose_calls_ended_before_the_fault_is_inconclusive() -> None:
    world = World(make_spec("PodDelete"))
    world.to_fault()
    world.look()
    world.look()
    world.end_runner(ended_at=world.now - 60)
    world.look()
    assert (world.status.verdict, world.status.reason) == ("Inconclusive", "FaultOutsideCalls")


def test_report_of_another_run_is_none() -> None:
    world = World(make_spec("PodDelete"))
    world.to_fault()
    world.look()
    world.look()
    world.end_runner(mark="ns/nightly/other")
    world.look()
    assert world.status.verdict == "Inconclusive"


def scheduled(**other: object) -> World:
    """A drill each hour, made at START."""
    return World(make_spec("PodDelete", schedule="0 * * * *", **other))


def test_schedule_waits_for_its_time() -> None:
    world = scheduled()
    plan = world.look()
    assert plan.actions == ()
    assert plan.requeue_s is not None
    assert 0 < plan.requeue_s <= 300
    assert world.status.next_schedule_time == "2023-11-14T23:00:00.000Z"
    world.now = START + 2800.0
    world.look()
    assert world.status.active is not None
    assert world.status.active.id == "nightly-28333380"


def test_time_that_was_missed_for_too_long_is_left_out() -> None:
    world = scheduled(startingDeadlineSeconds=60)
    world.now = START + 3 * 3600
    world.look()
    assert world.status.active is None
    assert (world.status.verdict, world.status.reason) == ("Aborted", "Missed")
    assert len(world.status.history) == 1
    world.look()
    assert len(world.status.history) == 1


def test_run_that_may_not_begin_waits_within_its_deadline_and_is_then_left_out() -> None:
    world = scheduled(startingDeadlineSeconds=60)
    world.replicas[1] = replica(1, "checkpointer", ready=False)
    world.now = 1_700_002_800.0 + 30
    world.look()
    assert world.status.active is None
    assert not world.status.history
    world.now += 60
    world.look()
    (left_out,) = world.status.history
    assert left_out.reason == "DisruptionUnderWay"
    assert world.begun == []


def test_run_that_is_not_permitted_is_left_out_at_once() -> None:
    world = World(make_spec("Freeze"), settings=OperatorSettings())
    world.look()
    assert (world.status.verdict, world.status.reason) == ("Aborted", "AgentsNotAllowed")
    assert world.begun == []


def test_suspended_drill_begins_nothing_and_ends_what_runs() -> None:
    world = scheduled()
    world.spec = msgspec.structs.replace(world.spec, suspend=True)
    world.now = 1_700_002_800.0 + 5
    world.look()
    assert world.status.active is None
    assert world.status.next_schedule_time == ""


@pytest.mark.parametrize(
    ("policy", "reason", "begun"), [("Forbid", "", 1), ("Replace", "Replaced", 1), ("Allow", "", 1)]
)
def test_run_that_is_due_while_one_runs(policy: str, reason: str, begun: int) -> None:
    world = World(make_spec("PodDelete", schedule="* * * * *", concurrencyPolicy=policy))
    world.now = START + 65
    world.look_until("Pending")
    world.look()
    first = world.status.active
    assert first is not None
    world.now += 60
    world.look()
    assert len(world.begun) == begun
    if policy == "Replace":
        assert world.status.history[0].reason == reason
        assert world.status.active is None
    else:
        assert world.status.active is not None
        assert world.status.active.id == first.id
    taken = world.status.last_schedule_time != first.scheduled_time
    assert taken == (policy == "Forbid")


def another(world: World, phase: str = "Fault", mark: str = "ns/other/run-1") -> DrillResource:
    """Another drill of the same service, with an active run."""
    run = DrillRun(id=mark.rsplit("/", maxsplit=1)[-1], phase=phase)  # type: ignore[arg-type]
    return msgspec.structs.replace(world.resource(), name="other", status=DrillStatus(active=run))


def test_service_is_drilled_by_one_at_a_time() -> None:
    world = World(make_spec("PodDelete"))
    world.others = (another(world),)
    world.look()
    assert world.status.active is None
    assert any(one.reason == "AnotherDrill" for one in world.status.conditions)


def test_of_two_that_began_together_the_one_with_the_runner_goes_on() -> None:
    first, second = World(make_spec("PodDelete")), World(make_spec("PodDelete"), name="other")
    first.look()
    second.look()  # neither saw the other
    second.pods = first.pods  # one name space
    first.look()
    first.others, second.others = (second.resource(),), (first.resource(),)
    with contextlib.suppress(Refused):
        second.look()
    first.become_warm()
    first.look_until("Fault")
    for _ in range(5):
        second.look()
        second.now += 1
    assert second.phase == "Pending"
    assert second.begun == []
    second.now += 301
    second.look()
    assert second.status.reason == "AnotherDrill"


def test_runner_of_a_run_that_was_judged_makes_room() -> None:
    world = World(make_spec("PodDelete"))
    world.pods["bank-drill"] = replace(
        replica(9, ""), name="bank-drill", uid="old", phase="Succeeded", annotations={names.DRILL_ANNOTATION: "ns/o/r"}
    )
    world.look_until("Pending")
    world.look()
    world.look()
    assert world.pods["bank-drill"].uid != "old"


def test_runner_of_a_run_that_is_not_judged_is_kept() -> None:
    world = World(make_spec("PodDelete"))
    world.others = (another(world),)
    world.status = DrillStatus(active=DrillRun(id="r", phase="Pending", start_time=show_moment(world.now)))
    world.pods["bank-drill"] = replace(
        replica(9, ""),
        name="bank-drill",
        uid="old",
        phase="Succeeded",
        annotations={names.DRILL_ANNOTATION: "ns/other/run-1"},
    )
    world.look()
    assert world.pods["bank-drill"].uid == "old"


def test_spec_with_problems_ends_what_runs_and_says_so() -> None:
    world = World(make_spec("NodeDrain"))
    world.to_fault()
    world.look()
    broken = msgspec.structs.replace(world.resource(), spec=None, problems=("spec.fault: is missing",))
    plan = make_drill_plan(replace(world.snapshot(), resource=broken), world.settings)
    assert any(isinstance(one, SetCordon) and not one.cordon for one in plan.actions)
    assert plan.status is not None
    assert plan.status.active is None
    told = next(one for one in plan.status.conditions if one.type == "Scheduled")
    assert "spec.fault" in told.message


@pytest.mark.parametrize("schedule", ["no cron at all", "61 * * * *", "0 0 * * * *"])
def test_schedule_that_is_none_is_told(schedule: str) -> None:
    world = World(make_spec("PodDelete", schedule=schedule))
    world.look()
    told = next(one for one in world.status.conditions if one.type == "Scheduled")
    assert (told.status, told.reason) == ("False", "InvalidSpec")


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(FAULTS), st.data())
def test_operator_may_die_at_any_step(fault: str, data: st.DataObject) -> None:
    world = World(make_spec(fault))
    for _ in range(80):
        dies = data.draw(st.booleans())
        world.look(data.draw(st.integers(0, 3)) if dies else 1000, write_status=not dies)
        world.now += data.draw(st.sampled_from([0.3, 0.5, 3.0]))
        runner, agent = world.pods.get("bank-drill"), world.pods.get("ns-bank-drill-agent")
        if runner is not None and not runner.ready and runner.phase == "Pending":
            world.become_warm()
        if agent is not None and agent.phase == "Pending":
            world.end_agent()
        if world.phase == "Healing" and runner is not None and runner.phase == "Running":
            world.end_runner()
        if world.status.verdict and not world.traces():
            break
    assert (world.status.verdict, world.status.reason) == ("Passed", "NothingLost")
    assert set(world.hit) == {"uid-bank-0-1"}
    assert len(world.begun) == 1
    assert world.traces() == []
    assert [run.verdict for run in world.status.history] == ["Passed"]


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(FAULTS), st.integers(0, 30), st.integers(0, 3))
def test_drill_that_is_deleted_at_any_step_leaves_nothing(fault: str, looks: int, actions: int) -> None:
    world = World(make_spec(fault))
    for _ in range(looks):
        world.look(actions)
        world.look()
        world.now += 0.5
        if "bank-drill" in world.pods and world.pods["bank-drill"].phase == "Pending":
            world.become_warm()
    world.deleted = True
    world.look(actions)
    world.look()
    assert world.traces() == []
