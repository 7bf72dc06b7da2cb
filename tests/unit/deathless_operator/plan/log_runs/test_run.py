"""A run of a log from its first look to its end, by what a kubelet and the API server say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from tests.unit.deathless_operator.plan.plan_world import SETTINGS, START, World

from deathless_operator.model import names
from deathless_operator.model.log_run import LogRunStatus
from deathless_operator.model.status import condition
from deathless_operator.plan.actions import Apply, DeleteObject, DeletePod
from deathless_operator.plan.log_runs.reading import read_replay
from deathless_operator.plan.log_runs.replays import REPLAY
from deathless_operator.plan.log_runs.run import make_log_run_plan, refused
from deathless_operator.plan.log_runs.snapshot import LogRunPlan, LogRunSnapshot
from deathless_operator.plan.service.reading import read_pod, show_time
from deathless_operator.plan.snapshot import Failure, Snapshot

DONE = '{"messages":6,"startedAt":3,"lsn":9}'


def service(**spec: Any) -> World:
    """A service that serves."""
    world = World()
    world.spec |= spec
    world.settle()
    return world


WORLD = service()


@dataclass
class Run:
    """One Replay, as the API server holds it."""

    target: Snapshot | None = field(default_factory=WORLD.snapshot)
    spec: dict[str, Any] = field(default_factory=dict)
    pod: dict[str, Any] | None = None
    status: LogRunStatus | None = None
    now: float = START
    deleted: bool = False

    def snapshot(self) -> LogRunSnapshot:
        """What is seen."""
        metadata = {"name": "again", "namespace": "prod", "uid": "uid-again", "resourceVersion": "1", "generation": 1}
        if self.deleted:
            metadata["deletionTimestamp"] = show_time(self.now)
        status = msgspec.to_builtins(self.status) if self.status is not None else {}
        raw: Any = {"metadata": metadata, "spec": {"serviceRef": {"name": "bank"}, **self.spec}, "status": status}
        pod = read_pod(self.pod) if self.pod is not None else None
        return LogRunSnapshot(now=self.now, resource=read_replay(raw), target=self.target, pod=pod)

    def look(self) -> LogRunPlan:
        """One look; what it tells is stored."""
        plan = make_log_run_plan(self.snapshot(), REPLAY, SETTINGS)
        self.status = plan.status or self.status
        return plan

    def begun(self, **state: Any) -> Run:
        """Its pod is there, in this state of its container."""
        (made,) = self.look().actions
        assert isinstance(made, Apply)
        self.pod = {**made.manifest, "status": {"phase": "Pending"}}
        self.pod["metadata"] |= {"uid": "uid-pod"}
        self.container(**state)
        return self

    def container(self, phase: str = "Pending", **state: Any) -> None:
        """What the kubelet says of the container."""
        assert self.pod is not None
        statuses = [{"name": "replay", "state": state}] if state else []
        self.pod["status"] |= {"phase": phase, "containerStatuses": statuses}

    def told(self) -> tuple[str, str]:
        """Phase and reason after a look."""
        self.look()
        assert self.status is not None
        return self.status.phase, self.status.reason

    def conditions(self) -> tuple[str, str]:
        """Progressing and Succeeded."""
        assert self.status is not None
        found = [condition(self.status.conditions, kind) for kind in ("Progressing", "Succeeded")]
        assert all(each is not None and each.reason == self.status.reason for each in found)
        return tuple(each.status for each in found if each is not None)  # type: ignore[return-value]


def ended(message: str, code: int = 0, reason: str = "Completed") -> dict[str, Any]:
    """A container that has ended."""
    return {"terminated": {"exitCode": code, "message": message, "reason": reason}}


def test_run_goes_from_its_pod_to_its_outcome() -> None:
    run = Run().begun()
    assert run.told() == ("Pending", "Starting")
    assert run.conditions() == ("True", "Unknown")
    run.container("Running", running={"startedAt": show_time(START)})
    assert run.told() == ("Running", "Running")
    run.container("Succeeded", **ended(DONE))
    plan = run.look()
    assert [event.reason for event in plan.events] == ["Replayed"]
    assert run.status is not None
    assert (run.status.phase, run.status.reason, run.status.image) == ("Succeeded", "Replayed", "bank:1")
    assert (run.status.pod, run.status.start_time) == ("again-replay", show_time(START))
    assert run.status.completion_time == show_time(START)
    assert run.conditions() == ("False", "True")
    last = run.look()
    assert (last.actions, last.status, last.requeue_s) == ((), None, None), "what has ended stays as it is told"


def test_pod_is_the_runs_own_and_no_replica() -> None:
    (made,) = Run().look().actions
    assert isinstance(made, Apply)
    metadata: Any = made.manifest["metadata"]
    assert metadata["ownerReferences"][0] | {"uid": "uid-again", "controller": True} == metadata["ownerReferences"][0]
    assert metadata["labels"][names.LABEL_NAME] == "deathless-replay"
    assert metadata["labels"][names.LABEL_PURPOSE] == "replay"
    assert metadata["labels"][names.LABEL_SERVICE] == "bank", "the lock store lets it in, and its ConfigMap stays"
    assert metadata["annotations"][names.LOG_RUN_ANNOTATION] == "Replay/prod/again"


def upgrading() -> Snapshot:
    """A service in the middle of an upgrade."""
    world = service()
    world.edit(image="bank:other")
    for _ in range(40):
        found = world.stateful_set()
        assert found is not None
        if len(found["spec"]["template"]["spec"]["containers"]) > 1:
            return world.snapshot()
        world.operate()
        world.others_work()
    raise AssertionError(world.plan().sentence)


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (Run(target=None), "ServiceMissing"),
        (Run(target=World().snapshot()), "ServiceNotStarted"),
        (Run(spec={"shard": 3}), "NoSuchShard"),
        (Run(spec={"fromLsn": 5, "toLsn": 4}), "InvalidSpec"),
        (Run(target=upgrading()), "ServiceUpgrading"),
    ],
)
def test_what_it_waits_for_is_told_and_no_pod_is_made(run: Run, reason: str) -> None:
    plan = run.look()
    assert plan.actions == ()
    assert run.status is not None
    assert (run.status.phase, run.status.reason) == ("Pending", reason)
    assert run.conditions() == ("True", "Unknown")


@pytest.mark.parametrize(
    ("phase", "state", "told"),
    [
        ("Failed", ended("DL4009 other code", 78), ("Failed", "RunFailed")),
        ("Failed", ended("", 137, "OOMKilled"), ("Failed", "OutOfMemory")),
        ("Failed", {}, ("Failed", "RunFailed")),
        (
            "Pending",
            {"waiting": {"reason": "ErrImagePull", "message": "no such image"}},
            ("Pending", "ImagePullFailed"),
        ),
        ("Pending", {"waiting": {"reason": "ContainerCreating"}}, ("Pending", "Starting")),
    ],
)
def test_what_becomes_of_the_pod_is_told(phase: str, state: dict[str, Any], told: tuple[str, str]) -> None:
    run = Run().begun()
    run.container(phase, **state)
    assert run.told() == told


def test_image_that_a_sidecar_can_not_get_is_told() -> None:
    run = Run().begun(waiting={"reason": "PodInitializing"})
    assert run.pod is not None
    waits = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    run.pod["status"]["initContainerStatuses"] = [{"name": "former", "state": waits}]
    assert run.told() == ("Pending", "ImagePullFailed")
    assert run.status is not None and "former" in run.status.message


def test_pod_that_took_too_long_is_told_as_such() -> None:
    run = Run().begun()
    run.container("Failed", **ended("", 137, "Error"))
    assert run.pod is not None
    run.pod["status"] |= {"reason": "DeadlineExceeded", "message": "it was active too long"}
    assert run.told() == ("Failed", "DeadlineExceeded")


def test_pod_that_was_seen_and_is_gone_is_not_made_again() -> None:
    run = Run().begun(running={})
    run.look()
    run.pod = None
    plan = run.look()
    assert plan.actions == ()
    assert run.status is not None
    assert (run.status.phase, run.status.reason) == ("Failed", "PodLost")


def test_pod_that_is_being_deleted_ends_the_run() -> None:
    run = Run().begun(running={})
    assert run.pod is not None
    run.pod["metadata"]["deletionTimestamp"] = show_time(START)
    assert run.told() == ("Failed", "PodLost")


def test_pod_of_a_former_run_of_that_name_is_waited_for() -> None:
    run = Run().begun(**ended(DONE))
    assert run.pod is not None
    run.pod["metadata"]["ownerReferences"][0]["uid"] = "uid-before"
    assert run.told() == ("Pending", "NameTaken")


def test_run_ends_with_its_service() -> None:
    run = Run().begun(running={})
    run.look()
    run.target = None
    plan = run.look()
    assert [type(each) for each in plan.actions] == [DeletePod]
    assert run.status is not None
    assert (run.status.phase, run.status.reason) == ("Failed", "ServiceMissing")


def test_what_has_ended_is_deleted_after_its_time_and_stays_without_one() -> None:
    run = Run(spec={"ttlSecondsAfterFinished": 100}).begun(**ended(DONE))
    run.look()
    assert (run.look().actions, run.look().requeue_s) == ((), 100)
    run.now += 101
    (gone,) = run.look().actions
    assert isinstance(gone, DeleteObject)
    assert (gone.kind, gone.name, gone.uid) == ("Replay", "again", "uid-again")
    run.spec = {}
    assert run.look().actions == ()


def test_nothing_is_done_for_what_is_deleted_or_is_another_installations() -> None:
    assert Run(deleted=True).look().actions == ()
    world = service()
    world.status["installation"] = "elsewhere"
    world.annotations[names.INSTALLATION_ANNOTATION] = "elsewhere"
    plan = Run(target=world.snapshot()).look()
    assert (plan.actions, plan.status) == ((), None)


def test_pod_that_the_api_server_refuses_is_told_and_asked_for_again() -> None:
    run = Run()
    failure = Failure(kind="Pod", name="again-replay", status=403, reason="Forbidden", message="exceeded quota")
    plan = refused(run.snapshot(), failure)
    assert plan.status is not None and plan.requeue_s
    assert (plan.status.phase, plan.status.reason) == ("Pending", "PodRefused")
    assert "exceeded quota" in plan.status.message
    done = Run().begun(**ended(DONE))
    done.look()
    assert refused(done.snapshot(), failure).status is None, "what has ended stays as it is told"
