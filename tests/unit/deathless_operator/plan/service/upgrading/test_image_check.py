"""A changed image or module is looked into before it runs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.deathless_operator.plan.plan_world import SETTINGS, World, running

from deathless_operator.model import names
from deathless_operator.plan.actions import Apply, DeletePod
from deathless_operator.plan.service.objects import Objects
from deathless_operator.plan.service.upgrading.accepted import Decision, accepted_code, serving_fingerprint
from deathless_operator.plan.service.upgrading.image_check import decide, fingerprint_in

POD_TEMPLATE = {
    "env": [{"name": "MODE", "value": "x"}, {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
    "imagePullSecrets": [{"name": "pull"}],
    "nodeSelector": {"disk": "fast"},
}


def decision(world: World) -> Decision:
    """What is decided."""
    snapshot = world.snapshot()
    spec = snapshot.resource.spec
    assert spec is not None
    (found,) = decide(snapshot, spec, SETTINGS, Objects(snapshot.resource, spec, SETTINGS))
    return found


def checking(**spec: Any) -> tuple[World, dict[str, Any]]:
    """A service whose image is being looked into, and the check's pod."""
    world = running()
    world.edit(**(spec or {"image": "bank:2"}))
    world.operate()
    (pod,) = [pod for name, pod in world.pods.items() if "check" in name]
    return world, pod


def end(pod: dict[str, Any], code: int, message: str, **more: Any) -> None:
    """The check's container ends."""
    ended = {"exitCode": code, "message": message, **more}
    pod["status"] = {"phase": "Failed", "containerStatuses": [{"name": "check", "state": {"terminated": ended}}]}


def test_check_pod_is_no_replica_and_has_no_rights() -> None:
    world, pod = checking(image="bank:2", podTemplate=POD_TEMPLATE)
    labels, spec = pod["metadata"]["labels"], pod["spec"]
    assert not names.selector("bank").items() <= labels.items(), "no Service finds it"
    assert labels[names.LABEL_SERVICE] == "bank", "the operator does"
    assert spec["automountServiceAccountToken"] is False
    (container,) = spec["containers"]
    assert container["command"][:2] == ["deathless", "fingerprint"]
    assert container["command"][-1] == "bank:bank"
    assert container["env"] == [{"name": "MODE", "value": "x"}], "secrets are not needed to load code"
    assert (spec["imagePullSecrets"], spec["nodeSelector"]) == ([{"name": "pull"}], {"disk": "fast"})
    assert not [volume for volume in spec["volumes"] if "emptyDir" not in volume]
    assert decision(world).outcome == "Checking"


def test_changed_module_is_looked_into_like_an_image() -> None:
    world, pod = checking(module="bank:till")
    assert pod["spec"]["containers"][0]["command"][-1] == "bank:till"
    assert decision(world).code.module == "bank:bank"


def test_limits_that_decide_over_turns_are_looked_into_like_an_image() -> None:
    world, pod = checking(limits={"entityBytesMax": 1000, "turnMaxS": 3.0}, upgradePolicy="Manual")
    assert "--limits" in pod["spec"]["containers"][0]["command"]
    end(pod, 0, json.dumps({"fingerprint": "cc" * 16}))
    world.operate()
    assert world.condition("UpgradeRequired")["status"] == "True"
    assert world.config()["limits"] == {"turn_max_s": 3.0}, "the others are as they were"
    end(pod, 0, json.dumps({"fingerprint": "aa" * 16}))
    world.operate()
    accepted = accepted_code(world.snapshot())
    assert accepted is not None
    assert accepted.limits == {"entity_bytes_max": 1000}
    world.children["StatefulSet", "bank"]["metadata"]["annotations"][names.LIMITS_ANNOTATION] = "{"
    assert accepted_code(world.snapshot()).limits == {}  # type: ignore[union-attr]


def test_code_that_an_older_release_tells_otherwise_is_accepted() -> None:
    world, pod = checking(image="bank:2", upgradePolicy="Manual")
    end(pod, 0, json.dumps({"fingerprint": "cc" * 16, "spellings": ["cc" * 16, "aa" * 16]}))
    assert decision(world).outcome == "Accepted"
    for others in (["bb" * 16], [""], "aa" * 16, None, [7]):
        end(pod, 0, json.dumps({"fingerprint": "cc" * 16, "spellings": others}))
        assert decision(world).outcome == "Refused"


def test_equal_fingerprint_is_accepted_and_its_pod_goes() -> None:
    world, pod = checking()
    end(pod, 0, json.dumps({"fingerprint": "aa" * 16}))
    found = decision(world)
    assert (found.outcome, found.code.image) == ("Accepted", "bank:2")
    assert [type(action) for action in found.actions] == [DeletePod]


@pytest.mark.parametrize(("message", "retried"), [("DL3013 no such module", False), ("killed", True)])
def test_check_without_an_answer_keeps_the_old_code(message: str, retried: bool) -> None:
    world, pod = checking()
    end(pod, 1, message)
    found = decision(world)
    assert (found.outcome, found.reason, found.code.image) == ("Unanswered", "CheckFailed", "bank:1")
    assert message in found.message
    world.pass_time(SETTINGS.check_retry_s)
    assert [type(action) for action in decision(world).actions] == ([DeletePod] if retried else [])


def test_check_that_does_not_start_is_told_at_its_deadline() -> None:
    world, pod = checking()
    found = decision(world)
    assert found.requeue_s == SETTINGS.check_deadline_s
    world.pass_time(SETTINGS.check_deadline_s)
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": "no room"}]
    assert (decision(world).reason, "no room" in decision(world).message) == ("CheckStalled", True)


def test_check_of_an_image_that_is_not_asked_about_any_more_goes() -> None:
    world, pod = checking()
    world.edit(image="bank:3")
    stale, made = decision(world).actions
    assert isinstance(stale, DeletePod)
    assert stale.name == pod["metadata"]["name"]
    assert isinstance(made, Apply)
    pod["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    assert [type(action) for action in decision(world).actions] == [Apply]


def test_fingerprint_is_read_from_json_alone() -> None:
    assert [fingerprint_in(text) for text in ('{"fingerprint": "ab"}', "ab", "{}", "[]")] == ["ab", "", "", ""]


def test_fingerprint_that_serves_is_remembered_when_nobody_runs() -> None:
    world = running()
    world.edit(suspend=True)
    world.settle()
    assert serving_fingerprint(world.snapshot()) == "aa" * 16
    world.edit(image="bank:other")
    assert decision(world).outcome == "Checking"


def test_stateful_set_without_our_container_has_no_code() -> None:
    world = running()
    found = world.children["StatefulSet", "bank"]
    found["spec"]["template"]["spec"]["containers"] = [{"name": "other", "image": "x"}]
    del found["metadata"]["annotations"][names.IMAGE_ANNOTATION]  # as an operator before it left it
    assert accepted_code(world.snapshot()) is None


def test_resources_of_the_spec_are_those_of_the_check() -> None:
    world, pod = checking(image="bank:2", resources={"requests": {"cpu": 1}, "limits": {"memory": "1Gi"}})
    assert pod["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}
    assert decision(world).code.image == "bank:1"


def test_check_pod_may_run_where_replicas_may_and_as_they_do() -> None:
    where: dict[str, Any] = {
        "nodeSelector": {"pool": "bank"},
        "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "bank", "effect": "NoSchedule"}],
        "priorityClassName": "high",
        "runtimeClassName": "gvisor",
        "schedulerName": "mine",
        "imagePullSecrets": [{"name": "pull"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchFields": [{"key": "a"}]}]
                }
            }
        },
    }
    template: dict[str, Any] = where | {"securityContext": {"runAsUser": 7, "fsGroup": 8}}
    world, pod = checking(image="bank:2", podTemplate=template)
    spec = pod["spec"]
    assert {key: spec[key] for key in where} == where
    replica = world.children["StatefulSet", "bank"]["spec"]["template"]["spec"]
    assert spec["securityContext"] == replica["securityContext"]
    assert {key: spec[key] for key in where} == {key: replica[key] for key in where}


def test_code_that_was_adopted_while_it_was_to_be_upgraded_to_is_accepted() -> None:
    world = running()
    world.edit(image="bank:other")
    for _ in range(3):
        world.operate()
        world.others_work()
    assert names.UPGRADING_TO_ANNOTATION in world.children["StatefulSet", "bank"]["metadata"]["annotations"]
    world.edit(suspend=True)
    world.settle()
    assert decision(world).outcome == "Refused"
    world.annotations[names.ADOPTED_CODE_ANNOTATION] = "bb" * 16
    world.log_code = "bb" * 16
    world.edit(suspend=False)
    world.settle()
    assert (world.status["image"], world.condition("Ready")["status"]) == ("bank:other", "True")


def test_code_is_tried_where_no_replica_holds_what_the_log_is_of() -> None:
    world = running()
    world.log_code = "bb" * 16  # an upgrade was made, and its note went with the StatefulSet
    world.settle()
    world.edit(image="bank:other")
    world.settle()
    assert (world.status["image"], world.condition("Ready")["status"]) == ("bank:other", "True")


def test_the_code_of_replicas_that_are_all_refused_is_not_tried_again() -> None:
    world = running()
    world.edit(image="bank:other")
    world.settle()
    world.log_code = "cc" * 16
    world.settle()
    world.edit(image="bank:1")
    world.settle()
    accepted = world.status["image"]
    world.edit(image="bank:other")
    world.settle()
    assert (accepted, world.status["image"]) == ("bank:1", "bank:1"), "replicas of both are refused by now"
    assert world.condition("Ready")["status"] == "False"
