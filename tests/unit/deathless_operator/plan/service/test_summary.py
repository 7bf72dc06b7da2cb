"""The conditions that sum up the others, and the counts."""

from __future__ import annotations

import json
from typing import Any

from tests.unit.deathless_operator.plan.plan_world import World, role, running, set_ready

from deathless_operator.model import names
from deathless_operator.model.status import ServiceStatus, condition
from deathless_operator.plan.service.conditions import Findings
from deathless_operator.plan.service.summary import Facts, sum_up


def status(world: World, findings: Findings | None = None, **facts: Any) -> ServiceStatus:
    """The status that is written."""
    return sum_up(world.snapshot(), findings or Findings(), Facts(**{"wanted": 3, **facts}))[0]


def told(found: ServiceStatus, kind: str) -> tuple[str, str]:
    """A condition's status and reason."""
    seen = condition(found.conditions, kind)
    assert seen is not None
    return seen.status, seen.reason


def test_counts_and_members_are_what_pods_show() -> None:
    found = status(running())
    assert (found.ready, found.replicas, found.ready_replicas, found.primary, found.epoch) == ("3/3", 3, 3, "bank-0", 1)
    assert [(member.name, member.role, member.ready) for member in found.members] == [
        ("r0", "primary", True),
        ("r1", "standby", True),
        ("r2", "standby", True),
    ]
    assert found.selector == "app.kubernetes.io/name=deathless,app.kubernetes.io/instance=bank"
    assert (found.fingerprint, found.service_id) == ("aa" * 16, "ab" * 16)


def test_what_was_known_outlives_the_pods() -> None:
    world = running()
    world.pods.clear()
    found = status(world)
    assert (found.epoch, found.fingerprint, found.service_id) == (1, "aa" * 16, "ab" * 16)
    assert told(found, "Available") == ("False", "NoPrimary")


def test_primary_that_is_not_ready_serves_nobody() -> None:
    world = running()
    set_ready(world.pods["bank-0"], ready=False)
    found = status(world, said={"bank-0": "DL1004 no answer"})
    assert told(found, "Available") == ("False", "PrimaryNotReady")
    assert told(found, "Ready") == ("False", "ReplicasNotReady")
    assert told(found, "Degraded") == ("True", "ReplicasMissing")
    assert "bank-0 (DL1004 no answer)" in condition(found.conditions, "Degraded").message  # type: ignore[union-attr]
    assert found.members[0].problem == "DL1004 no answer"


def test_root_cause_explains_why_it_is_not_ready() -> None:
    world = running()
    set_ready(world.pods["bank-0"], ready=False)
    findings = Findings()
    findings.tell("Degraded", "True", "QuotaExceeded", "no room")
    findings.tell("StorageReady", "False", "HalfCopy", "empty volume")
    assert told(status(world, findings), "Ready") == ("False", "HalfCopy")


def test_what_is_waited_for_explains_it_otherwise() -> None:
    world = running()
    set_ready(world.pods["bank-0"], ready=False)
    found = status(world, progressing="Rolling", waits="bank-0")
    assert told(found, "Ready") == ("False", "Rolling")
    assert told(found, "Degraded") == ("False", "NotDegraded")
    assert told(found, "Progressing") == ("True", "Rolling")


def test_service_on_its_way_to_rest_says_so() -> None:
    world = running()
    found = status(world, wanted=0, suspended=True, doing="ending")
    assert told(found, "Ready") == ("False", "Suspending")
    world.pods.clear()
    assert told(status(world, wanted=0, suspended=True), "Ready") == ("False", "Suspended")


def test_change_of_the_primary_is_told() -> None:
    world = running()
    world.status["primary"] = "bank-2"
    found, events = sum_up(world.snapshot(), Findings(), Facts(wanted=3))
    assert found.last_takeover_time
    assert events[0].reason == "PrimaryChanged"
    world.status["primary"] = ""
    assert not [
        event for event in sum_up(world.snapshot(), Findings(), Facts(wanted=3))[1] if "is primary now" in event.message
    ]
    world.status["epoch"] = world.epoch
    world.epoch += 1
    world._say("bank-0", world.pods["bank-0"], "primary")
    _, events = sum_up(world.snapshot(), Findings(), Facts(wanted=3))
    assert events[0].message == "bank-0 is primary now, before it another; epoch 2"


def test_what_a_primary_waits_for_stands_in_what_is_done() -> None:
    world = running()
    world.settle()
    world.operate()
    assert world.status["doing"] == "nothing to do"
    name, primary = next((name, pod) for name, pod in world.replicas().items() if role(pod) == "primary")
    told = json.loads(primary["metadata"]["annotations"][names.STATUS_ANNOTATION])
    for until in (1_700_000_000, 2**62):
        told |= {"waits_for": 2, "waits_until": until}
        primary["metadata"]["annotations"][names.STATUS_ANNOTATION] = json.dumps(told)
        world.operate()
        assert world.status["doing"].startswith(f"{name} lets 2 activities end that must run at most once, until 2")
