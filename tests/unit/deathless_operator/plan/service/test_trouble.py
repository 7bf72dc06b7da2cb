"""What is wrong becomes a condition that says what to do."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.deathless_operator.plan.plan_world import SPEC, World, claim, is_going, role, running, set_ready

from deathless.base.errors import StorageUnfit
from deathless.base.foreign.binding import SERVICE_MODULE
from deathless_operator.model.names import STATUS_ANNOTATION
from deathless_operator.plan.service.conditions import ORDER, Findings
from deathless_operator.plan.service.trouble import (
    MEANINGS,
    tell_fenced,
    tell_kubernetes,
    tell_replicas,
    tell_storage,
)
from deathless_operator.plan.snapshot import Announcement, ContainerView, Failure, PodView, Snapshot, Warned


def with_pod(**fields: Any) -> Snapshot:
    """A service of three with one pod, which is as said."""
    pod = PodView(**{"name": "bank-0", "uid": "u", **fields})
    return replace(World().snapshot(), pods=(pod,))


def kubernetes(snapshot: Snapshot) -> dict[str, str]:
    """Reasons by condition."""
    findings = Findings()
    tell_kubernetes(snapshot, findings)
    return {kind: told.reason for kind, told in findings.told.items()}


@pytest.mark.parametrize("code", MEANINGS)
def test_every_code_leads_to_a_condition_with_words(code: str) -> None:
    findings = Findings()
    words = f"{code} what happened (what to do)"
    said = tell_replicas(with_pod(announced=Announcement(condition=code, text=words)), findings)
    meaning = MEANINGS[code]
    told = findings.told[meaning.condition]
    assert meaning.condition in ORDER
    assert (told.reason, words in told.message, said) == (meaning.reason, True, {"bank-0": words})
    assert findings.is_bad(meaning.condition)


def test_storage_that_can_not_carry_the_log_is_a_condition_of_storage_with_the_replicas_words() -> None:
    world = running()
    refused = StorageUnfit("the log directory does not link exclusively")
    for pod in world.replicas().values():
        set_ready(pod, ready=False)
        pod["metadata"]["annotations"].clear()
        ended = {"exitCode": refused.exit_code, "message": str(refused)}
        pod["status"]["containerStatuses"] = [{"name": "replica", "state": {"terminated": ended}}]
    world.operate()
    found = world.condition("StorageReady")
    assert (found["status"], found["reason"]) == ("False", "StorageUnfit")
    assert all(words in found["message"] for words in ("bank-0", str(refused), refused.remedy, "another class"))
    assert world.condition("Ready")["reason"] == "StorageUnfit" and "StorageUnfit" in world.told


def test_unknown_code_is_told_with_its_page() -> None:
    findings = Findings()
    tell_replicas(with_pod(containers=(ContainerView(name="replica", message="DL9001 broken"),)), findings)
    assert "docs/errors/DL9001.md" in findings.told["Degraded"].message


def test_primary_without_room_is_told_though_it_is_ready_and_only_while_it_says_so() -> None:
    world = running()
    leader = next(name for name, pod in world.replicas().items() if role(pod) == "primary")
    say_full(world, leader, full=True)
    world.operate()
    for kind in ("StorageReady", "Available", "Ready"):
        found = world.condition(kind)
        assert (found["status"], found["reason"]) == ("False", "OutOfSpace")
        assert all(words in found["message"] for words in (leader, "DL1003", "grow the volume"))
    assert "OutOfSpace" in world.told
    say_full(world, leader, full=False)
    world.operate()
    assert [world.condition(kind)["status"] for kind in ("StorageReady", "Available", "Ready")] == ["True"] * 3


def test_primary_whose_outbox_has_no_room_is_told_with_how_to_find_who_takes_nothing() -> None:
    world = running()
    leader = next(name for name, pod in world.replicas().items() if role(pod) == "primary")
    say_full(world, leader, outbox_full=True)
    world.operate()
    for kind, status in (("Degraded", "True"), ("Available", "False"), ("Ready", "False")):
        found = world.condition(kind)
        assert (found["status"], found["reason"]) == (status, "OutboxFull")
        assert all(words in found["message"] for words in (leader, "DL1007", "kubectl deathless peers bank -n"))
    assert world.condition("StorageReady")["status"] == "True"
    assert "OutboxFull" in world.told
    say_full(world, leader, outbox_full=False)
    world.operate()
    told = [world.condition(kind)["status"] for kind in ("Degraded", "Available", "Ready")]
    assert told == ["False", "True", "True"]


def test_primary_that_holds_the_outside_is_told_with_what_to_type_though_it_serves() -> None:
    world = running()
    leader = next(name for name, pod in world.replicas().items() if role(pod) == "primary")
    say_full(world, leader, outside_held=True)
    world.operate()
    for kind, status in (("Degraded", "True"), ("Ready", "False")):
        found = world.condition(kind)
        assert (found["status"], found["reason"]) == (status, "OutsideHeld")
        assert leader in found["message"]
        assert "`kubectl deathless resume-outside bank -n prod`" in found["message"]
    assert world.condition("Available")["status"] == "True"
    assert "OutsideHeld" in world.told
    say_full(world, leader, outside_held=False)
    world.operate()
    assert [world.condition(kind)["status"] for kind in ("Degraded", "Ready")] == ["False", "True"]


def test_shard_that_holds_the_outside_is_named_and_the_next_one_after_it() -> None:
    world = running({**SPEC, "shards": 3})
    second, third = sorted(
        name for name, pod in world.replicas().items() if role(pod) == "primary" and not name.startswith("bank-0")
    )
    for name in (second, third):
        say_full(world, name, outside_held=True)
    world.operate()
    message = world.condition("Ready")["message"]
    assert second in message and third not in message
    assert message.endswith("`kubectl deathless resume-outside bank -n prod --shard 1`, and likewise for 1 more shards")
    say_full(world, second, outside_held=False)
    world.operate()
    message = world.condition("Ready")["message"]
    assert message.endswith("`kubectl deathless resume-outside bank -n prod --shard 2`")


@pytest.mark.parametrize("clock", ["ahead", "behind"])
def test_primary_whose_clock_stepped_is_told_and_goes_on_serving(clock: str) -> None:
    world = running()
    leader = next(name for name, pod in world.replicas().items() if role(pod) == "primary")
    say_full(world, leader, clock=clock)
    world.operate()
    found = world.condition("Degraded")
    assert (found["status"], found["reason"]) == ("True", "ClockStepped")
    assert all(words in found["message"] for words in (leader, clock, "correct the clock of its node"))
    assert world.condition("Available")["status"] == "True"
    say_full(world, leader, clock="")
    world.operate()
    assert world.condition("Degraded")["status"] == "False"


def test_full_outbox_hides_no_other_trouble_and_a_full_log_comes_first() -> None:
    snapshot = with_pod(announced=Announcement(full=True, outbox_full=True), ready=True)
    differs = PodView(name="bank-1", uid="v", announced=Announcement(condition="DL4008", text="DL4008 two differ"))
    findings = Findings()
    tell_replicas(replace(snapshot, pods=(*snapshot.pods, differs)), findings)
    told = {kind: found.reason for kind, found in findings.told.items()}
    assert told == {
        "StorageReady": "OutOfSpace", "Available": "OutOfSpace", "Ready": "OutOfSpace", "Degraded": "Diverged",
    }  # fmt: skip


@pytest.mark.parametrize("what", ["full", "outbox_full", "outside_held"])
def test_replica_that_serves_no_more_tells_nothing_of_room(what: str) -> None:
    findings = Findings()
    tell_replicas(with_pod(announced=Announcement(**{what: True}), ready=False), findings)  # type: ignore[arg-type]  # flags
    assert findings.told == {}


WITH_PROGRAM = {"module": SERVICE_MODULE, "binding": {"command": ["./counter"]}}


def say_program(world: World, name: str, **told: object) -> None:
    """A replica announces how its program is."""
    annotations = world.pods[name]["metadata"]["annotations"]
    announced = json.loads(annotations[STATUS_ANNOTATION])
    announced["program"] = {"type": "program", "state": "serving"} | told
    annotations[STATUS_ANNOTATION] = json.dumps(announced)


@pytest.mark.parametrize(
    ("state", "reason"),
    [("failing", "ProgramKeepsFailing"), ("loading", "ProgramLoading"), ("ended", "ProgramEnded")],
)
def test_service_without_the_primarys_program_is_neither_available_nor_ready(state: str, reason: str) -> None:
    world = running(WITH_PROGRAM)
    leader = next(name for name, pod in world.replicas().items() if role(pod) == "primary")
    for name in world.replicas():
        say_program(world, name)
    world.operate()
    assert [world.condition(kind)["status"] for kind in ("ProgramReady", "Available", "Ready")] == ["True"] * 3
    say_program(world, leader, state=state, text="DL3103 it ended with exit code 1 (read what it printed)")
    world.operate()
    for kind in ("ProgramReady", "Available", "Ready"):
        found = world.condition(kind)
        assert (found["status"], found["reason"]) == ("False", reason)
        assert all(words in found["message"] for words in (leader, "DL3103", "What to do"))
    assert reason in world.told
    say_program(world, leader)
    world.operate()
    assert [world.condition(kind)["status"] for kind in ("ProgramReady", "Available", "Ready")] == ["True"] * 3
    assert "ProgramServes" in world.told


def test_program_of_a_follower_that_ended_is_named_with_its_words() -> None:
    """Its pod is not ready, and the service is available."""
    world = running(WITH_PROGRAM)
    for name in world.replicas():
        say_program(world, name)
    follower = next(name for name, pod in world.replicas().items() if role(pod) != "primary")
    set_ready(world.pods[follower], ready=False)
    say_program(world, follower, state="failing", text="DL3103 it ended (read what it printed)")
    world.operate()
    degraded = world.condition("Degraded")
    assert (degraded["reason"], follower in degraded["message"]) == ("ProgramFailed", True)
    assert [world.condition(kind)["status"] for kind in ("ProgramReady", "Available", "Ready")] == [
        "True", "True", "False",
    ]  # fmt: skip


def test_program_that_differs_and_rows_that_are_skipped_are_conditions() -> None:
    """The service serves on."""
    world = running(WITH_PROGRAM)
    first = min(world.replicas())
    for name in world.replicas():
        say_program(world, name)
    world.operate()
    quiet = {kind: world.condition(kind)["status"] for kind in ("ProgramDiffers", "RowsSkipped")}
    say_program(world, first, differs="to bank, at position 3: the bytes differ", skipped=2)
    world.operate()
    differs, skipped = world.condition("ProgramDiffers"), world.condition("RowsSkipped")
    assert quiet == {"ProgramDiffers": "False", "RowsSkipped": "False"}
    assert (differs["status"], first in differs["message"], "position 3" in differs["message"]) == ("True", True, True)
    assert (skipped["status"], "2 rows" in skipped["message"]) == ("True", True)
    assert {"OutputDiffers", "SkippedByOperator"} <= set(world.told)
    assert world.condition("Ready")["status"] == "True"


def test_service_whose_code_is_a_module_has_no_conditions_of_programs() -> None:
    world = running()
    told = {each["type"] for each in world.status["conditions"]}
    assert not told & {"ProgramReady", "ProgramDiffers", "RowsSkipped"}


def say_full(world: World, name: str, **said: bool | str) -> None:
    """A replica announces whether its log and its outbox have room, and how its clock stands."""
    annotations = world.pods[name]["metadata"]["annotations"]
    annotations[STATUS_ANNOTATION] = json.dumps(json.loads(annotations[STATUS_ANNOTATION]) | said)


def test_passing_trouble_and_fenced_replicas_are_no_condition() -> None:
    findings = Findings()
    assert tell_replicas(with_pod(announced=Announcement(text="DL1001 no primary")), findings)
    fenced = with_pod(announced=Announcement(text="DL4005 x"), annotations={"deathless.dev/fenced": "true"})
    assert tell_replicas(fenced, findings) == {}
    assert findings.told == {}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"unschedulable": "no room"}, "not placed: no room"),
        ({"phase": "Failed", "phase_reason": "Evicted", "phase_message": "disk"}, "Evicted: disk"),
        ({"phase": "Failed"}, "Failed"),
        ({"containers": (ContainerView(name="replica", reason="OOMKilled"),)}, "OOMKilled: it needed more memory"),
        ({"containers": (ContainerView(name="replica", waiting_reason="X", waiting_message="y"),)}, "X: y"),
        ({"containers": (ContainerView(name="replica"),)}, None),
        ({"containers": (ContainerView(name="replica", running=True),)}, None),
    ],
)
def test_pod_that_says_nothing_is_described(fields: dict[str, Any], words: str | None) -> None:
    said = tell_replicas(with_pod(**fields), Findings()).get("bank-0")
    assert said is None if words is None else str(said).startswith(words)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"containers": (ContainerView(name="replica", waiting_reason="ErrImagePull"),)}, "ImagePullFailed"),
        ({"containers": (ContainerView(name="replica", reason="OOMKilled"),)}, "OutOfMemory"),
        ({"unschedulable": "no room"}, "Unschedulable"),
    ],
)
def test_what_keeps_a_pod_from_running_is_told(fields: dict[str, Any], reason: str) -> None:
    assert kubernetes(with_pod(**fields)) == {"Degraded": reason}


def warned(kind: str, name: str, reason: str, message: str) -> Warned:
    """A warning."""
    return Warned(kind=kind, name=name, reason=reason, message=message, at=1.0)


@pytest.mark.parametrize(
    ("warning", "told"),
    [
        (warned("StatefulSet", "bank", "FailedCreate", "exceeded quota: x"), {"Degraded": "QuotaExceeded"}),
        (warned("StatefulSet", "bank", "FailedCreate", "violates PodSecurity"), {"Degraded": "PodsRefused"}),
        (warned("Pod", "bank-0", "FailedMount", 'volume "deathless-log"'), {"StorageReady": "MountFailed"}),
        (warned("Pod", "bank-0", "FailedMount", 'volume "other"'), {"Degraded": "VolumeMissing"}),
        (warned("Pod", "bank-9", "FailedMount", 'volume "deathless-log"'), {}),
        (warned("Pod", "bank-0", "Unhealthy", "probe"), {}),
    ],
)
def test_warnings_of_kubernetes_become_conditions(warning: Warned, told: dict[str, str]) -> None:
    assert kubernetes(replace(with_pod(), warnings=(warning,))) == told


def test_old_warning_about_pods_that_are_there_by_now_is_passed_over() -> None:
    snapshot = running().snapshot()
    mount = warned("Pod", "bank-0", "FailedMount", 'volume "deathless-log"')
    quota = warned("StatefulSet", "bank", "FailedCreate", "exceeded quota")
    assert kubernetes(replace(snapshot, warnings=(mount, quota))) == {}


def test_refusal_of_pods_stands_until_a_later_pod_of_that_set_is_made() -> None:
    refused = replace(warned("StatefulSet", "bank", "FailedCreate", "violates PodSecurity"), at=1000.0)
    told = {"Degraded": "PodsRefused"}
    assert kubernetes(replace(with_pod(created_at=10.0), warnings=(refused,))) == told
    assert kubernetes(replace(with_pod(created_at=1002.0), warnings=(refused,))) == told, "both of one attempt"
    assert kubernetes(replace(with_pod(created_at=1600.0), warnings=(refused,))) == {}
    two = World(spec={**SPEC, "shards": 2}).snapshot()
    others = tuple(PodView(name=f"bank-s1-{ordinal}", uid="u", created_at=1600.0) for ordinal in range(3))
    assert kubernetes(replace(two, pods=others, warnings=(refused,))) == told, "they are another set's"


def test_pod_of_a_roll_that_is_refused_degrades_the_service_while_it_is_in_progress() -> None:
    world = running()
    world.edit(resources={"limits": {"memory": "2Gi"}})
    world.operate()
    world.run_controller()
    world.operate()
    (going,) = (name for name, pod in world.pods.items() if is_going(pod))
    world.run_kubelet(going)
    world.warnings = (replace(warned("StatefulSet", "bank", "FailedCreate", "exceeded quota: x"), at=world.now),)
    world.operate()
    said = {kind: world.condition(kind) for kind in ("Ready", "Available", "Progressing", "Degraded")}
    assert {kind: (found["status"], found["reason"]) for kind, found in said.items()} == {
        "Ready": ("False", "QuotaExceeded"),
        "Available": ("True", "PrimaryServes"),
        "Progressing": ("True", "Rolling"),
        "Degraded": ("True", "QuotaExceeded"),
    }


@pytest.mark.parametrize(("message", "reason"), [("exceeded quota: x", "QuotaExceeded"), ("no right", "ObjectRefused")])
def test_refused_actions_are_told(message: str, reason: str) -> None:
    failure = Failure(kind="Pod", name="x", status=403, reason="Forbidden", message=message)
    assert kubernetes(replace(World().snapshot(), failures=(failure,))) == {"Degraded": reason, "Ready": reason}


@pytest.mark.parametrize(
    ("found", "made_here", "status", "reason"),
    [
        (None, True, "Unknown", "ClaimBeingMade"),
        (None, False, "False", "ClaimNotFound"),
        (claim("shared", phase="Lost"), False, "False", "VolumeLost"),
        (claim("shared", phase="Pending"), False, "Unknown", "ClaimPending"),
        (claim("shared", modes=["ReadWriteOnce"]), False, "True", "OneNodeOnly"),
        (claim("shared"), False, "True", "Bound"),
        (claim("shared", capacity="95Mi"), False, "True", "VolumeTooSmall"),
        (claim("shared", capacity="96Mi"), False, "True", "Bound"),
    ],
)
def test_claim_is_told_as_it_stands(found: Any, made_here: bool, status: str, reason: str) -> None:
    world = World()
    world.claims = {"shared": found} if found else {}
    findings = Findings()
    tell_storage(world.snapshot(), findings, "shared", made_here=made_here)
    told = findings.told["StorageReady"]
    assert (told.status, told.reason) == (status, reason)


def test_claim_that_only_one_node_may_write_is_told_with_several_nodes() -> None:
    world = running()
    world.claims["shared"] = claim("shared", modes=["ReadWriteOnce"])
    findings = Findings()
    tell_storage(world.snapshot(), findings, "shared", made_here=False)
    assert findings.told["StorageReady"].reason == "NotShared"
    world.claims["shared"]["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    findings = Findings()
    tell_storage(world.snapshot(), findings, "shared", made_here=False)
    assert findings.told["StorageReady"].reason == "ClaimGoing"


def test_claim_that_is_not_bound_is_told_with_the_reason_of_kubernetes() -> None:
    world = World()
    world.claims["shared"] = claim("shared", phase="Pending")
    about = warned("PersistentVolumeClaim", "shared", "ProvisioningFailed", "no such class")
    assert kubernetes(replace(world.snapshot(), warnings=(about,))) == {"StorageReady": "ClaimPending"}


def test_fenced_replicas_are_named() -> None:
    findings = Findings()
    tell_fenced(World().snapshot(), findings)
    assert findings.told["Fenced"].status == "False"
