"""What is planned, case by case, and what is told about it; `test_convergence` shows that it gets there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tests.unit.deathless_operator.plan.plan_world import (
    SETTINGS,
    SPEC,
    World,
    claim,
    is_fenced,
    is_ready,
    role,
    running,
    set_ready,
)

from deathless_operator.model import names
from deathless_operator.plan.actions import Apply, DeleteObject, DeletePod, MakeToken, PatchMetadata
from deathless_operator.plan.service.plan import UNSEEN_S, make_plan
from deathless_operator.plan.snapshot import Failure, SecretFacts, Warned


def applied(world: World) -> list[str]:
    """What the next plan applies, as kind/name; without the mark of a ConfigMap with settings."""
    shown = [
        f"{action.manifest['kind']}/{action.manifest['metadata']['name']}"  # type: ignore[index,call-overload]
        for action in world.plan().actions
        if isinstance(action, Apply)
    ]
    return ["ConfigMap/bank-config" if each.startswith("ConfigMap/bank-config-") else each for each in shown]


def test_first_plan_makes_every_object_before_the_pods() -> None:
    assert applied(World()) == [
        "ServiceAccount/bank",
        "Role/bank",
        "RoleBinding/bank",
        "ConfigMap/bank-config",
        "Service/bank",
        "Service/bank-primary",
        "Service/bank-replicas",
        "PodDisruptionBudget/bank",
        "NetworkPolicy/bank",
        "StatefulSet/bank",
    ]


def test_claim_is_made_before_the_pods_and_grown_after_them() -> None:
    world = World(spec={**SPEC, "logStorage": {"size": "1Gi", "className": "nfs"}})
    assert applied(world)[0] == "PersistentVolumeClaim/bank-log"
    assert applied(world)[-1] == "StatefulSet/bank"
    world.operate()
    world.settle()
    made = world.children["PersistentVolumeClaim", "bank-log"]
    assert made["spec"] == {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "nfs",
    }
    world.edit(logStorage={"size": "2Gi", "className": "nfs"}, logLevel="debug")
    assert applied(world) == ["ConfigMap/bank-config", "StatefulSet/bank", "PersistentVolumeClaim/bank-log"]


@pytest.mark.parametrize(("policy", "goes"), [("Retain", False), ("Delete", True)])
def test_claim_goes_with_the_service_only_where_the_spec_says_so(policy: str, goes: bool) -> None:
    world = running({"logStorage": {"size": "1Gi", "deletionPolicy": policy}})
    owners = world.children["PersistentVolumeClaim", "bank-log"]["metadata"].get("ownerReferences", [])
    assert bool(owners) == goes


def test_going_service_is_left_to_its_owner_references() -> None:
    world = running()
    world.deleted_at = "2027-01-15T08:00:00Z"
    plan = world.plan()
    assert (plan.actions, plan.status, plan.events, plan.wanted) == ((), None, (), 0)


def test_quiet_service_needs_nothing_and_tells_nothing() -> None:
    world = running()
    plan = world.plan()
    assert (plan.actions, plan.events, plan.sentence, plan.wanted) == ((), (), "nothing to do", 3)
    assert plan.status == world.snapshot().resource.status
    assert plan.requeue_s == SETTINGS.resync_s


def test_service_selects_by_the_label_of_who_serves_once_every_pod_has_it() -> None:
    def selected(world: World) -> bool:
        return names.LABEL_SERVING in world.children["Service", "bank"]["spec"]["selector"]

    world = running({"updateStrategy": {"type": "OnDelete"}})
    assert selected(world)
    old = world.pods["bank-1"]["metadata"]["labels"]
    del old[names.LABEL_SERVING]  # made by an operator that knew no such label
    old[names.LABEL_TEMPLATE] = "before"
    world.settle()
    assert not selected(world)
    old[names.LABEL_SERVING] = "false"
    world.settle()
    assert selected(world)


def test_same_snapshot_gives_the_same_plan() -> None:
    snapshot = World().snapshot()
    assert make_plan(snapshot, SETTINGS) == make_plan(snapshot, SETTINGS)


def test_spec_of_a_newer_version_changes_nothing_and_says_so() -> None:
    world = running()
    world.edit(quorum=2)
    plan = world.operate()
    assert plan.actions == ()
    told = world.condition("Accepted")
    assert (told["status"], told["reason"]) == ("False", "InvalidSpec")
    assert "spec.quorum: is no field here" in told["message"]
    assert world.condition("Available")["status"] == "True", "what runs goes on"
    assert world.condition("Ready")["reason"] == "InvalidSpec", "and it is not what the spec says"
    assert world.condition("StorageReady")["status"] == "True", "what was found before stands"


def test_spec_that_cannot_be_read_from_the_start_is_told() -> None:
    world = World(spec={"module": "bank:bank"})
    world.operate()
    assert "spec.image: is missing; name the image" in world.condition("Accepted")["message"]
    assert world.condition("Ready")["reason"] == "InvalidSpec"


def test_paused_service_is_watched_and_not_touched() -> None:
    world = running()
    world.annotations[names.PAUSED_ANNOTATION] = "true"
    world.edit(replicas=5, image="bank:2")
    world.pods.pop("bank-1")
    plan = world.operate()
    assert plan.actions == ()
    assert world.condition("Paused")["status"] == "True"
    assert world.condition("Ready")["status"] == "False"
    assert (world.status["ready"], plan.wanted) == ("2/3", 3)
    assert "Paused" not in plan.sentence
    assert "ByAnnotation" in world.told


def test_roll_leaves_the_primary_to_the_end_and_costs_one_takeover() -> None:
    world = running()
    world.takeovers = 0
    world.edit(image="bank:2")
    order: list[str] = []
    for _ in range(60):
        plan = world.operate()
        order += [
            action.name for action in plan.actions if isinstance(action, DeletePod) and "check" not in action.name
        ]
        world.others_work()
    assert (order, world.takeovers) == (["bank-2", "bank-1", "bank-0"], 1)
    assert world.told.count("ReplicaRolled") == 3
    assert world.told.count("PrimaryChanged") == 1
    assert world.status["lastTakeoverTime"]


def test_roll_stops_at_a_replica_that_does_not_come_back() -> None:
    world = running()
    world.edit(resources={"limits": {"memory": "1Ki"}})
    for _ in range(8):
        world.operate()
        world.run_controller()
        for name in list(world.pods):
            world.run_kubelet(name)
        if "bank-2" in world.pods:
            set_ready(world.pods["bank-2"], ready=False)
    assert [name for name, pod in world.replicas().items() if is_ready(pod)] == ["bank-0", "bank-1"]
    world.pass_time(400)
    world.operate()
    told = world.condition("Progressing")
    assert (told["status"], told["reason"]) == ("False", "Stalled")
    assert "bank-2" in told["message"]
    assert world.condition("Available")["status"] == "True"


def test_wrong_image_that_nobody_ever_ran_is_mended_by_the_next() -> None:
    world = World(spec={**SPEC, "image": "bank:2"}, unpullable=("bank:2",))
    for _ in range(6):
        world.operate()
        world.run_controller()
        for name in list(world.pods):
            world.run_kubelet(name)
    assert world.condition("Ready")["reason"] == "ImagePullFailed"
    world.edit(image="bank:1")
    world.settle()
    assert world.condition("Ready")["status"] == "True"


def test_image_that_cannot_be_pulled_leaves_the_old_one() -> None:
    world = running()
    world.unpullable = ("bank:2",)
    world.edit(image="bank:2")
    world.settle()
    assert (world.status["image"], world.condition("Accepted")["reason"]) == ("bank:1", "ImagePullFailed")
    assert world.condition("Available")["status"] == "True"
    assert world.condition("Ready")["reason"] == "ImagePullFailed"
    assert "bank:1 continues" in world.condition("Accepted")["message"]


def test_other_code_is_refused_and_said_how_to_go_back() -> None:
    world = running()
    world.edit(image="bank:other", upgradePolicy="Manual")
    world.settle()
    assert world.condition("UpgradeRequired")["status"] == "True"
    assert world.stateful_set()["spec"]["template"]["spec"]["containers"][0]["image"] == "bank:1"  # type: ignore[index]
    assert "OtherFingerprint" in world.told
    world.edit(image="bank:1")
    world.settle()
    assert world.condition("UpgradeRequired")["status"] == "False"
    assert sorted(world.pods) == ["bank-0", "bank-1", "bank-2"]


def test_lost_node_is_waited_for_and_then_replaced_by_force() -> None:
    world = running()
    node = world.pods["bank-0"]["spec"]["nodeName"]
    world.lose_node(node)
    world.elect()
    assert (world.plan().actions, world.plan().requeue_s) == ((), 30.0)
    world.pass_time(30)
    (action,) = world.plan().actions
    assert (action.name, action.force) == ("bank-0", True)  # type: ignore[union-attr]
    world.operate()
    assert world.condition("Degraded")["reason"] == "NodeUnreachable"
    world.settle()
    assert (world.status["ready"], world.condition("Degraded")["status"]) == ("3/3", "False")
    assert world.pods["bank-0"]["spec"]["nodeName"] != node


def test_pods_stay_when_every_node_seems_lost() -> None:
    world = running()
    for node in world.nodes:
        world.lose_node(node)
    world.pass_time(1000)
    assert world.plan().actions == ()
    assert "Check the control plane" in world.plan().sentence


def test_single_replica_on_its_only_node_is_replaced_all_the_same() -> None:
    world = running({"replicas": 1})
    world.lose_node(world.pods["bank-0"]["spec"]["nodeName"])
    world.pass_time(31)
    assert [type(action) for action in world.plan().actions] == [DeletePod]


def test_scaling_down_past_the_primary_makes_it_hand_over() -> None:
    world = running({"replicas": 5})
    for name, pod in world.replicas().items():
        world._say(name, pod, "primary" if name == "bank-3" else "standby")
    world.settle()
    world.takeovers = 0
    world.edit(replicas=2)
    sizes = []
    for _ in range(20):
        world.operate()
        sizes.append(world.size())
        world.run_controller()
        for name in list(world.pods):
            world.run_kubelet(name)
    assert list(dict.fromkeys(sizes)) == [4, 3, 2]
    assert world.takeovers == 1
    assert world.status["ready"] == "2/2"


def test_scaling_down_waits_for_an_heir() -> None:
    world = running({"replicas": 2})
    for name, pod in world.replicas().items():
        world._say(name, pod, "primary" if name == "bank-1" else "standby")
    set_ready(world.pods["bank-0"], ready=False)
    world.edit(replicas=1)
    world.operate()
    assert world.size() == 2
    assert "a ready replica that can take over from bank-1" in world.status["doing"]


def test_suspension_stops_followers_first() -> None:
    world = running()
    for name, pod in world.replicas().items():
        world._say(name, pod, "primary" if name == "bank-1" else "standby")
    world.settle()
    world.takeovers = 0
    world.edit(suspend=True)
    assert world.operate().wanted == 0
    assert world.size() == 2
    world.run_controller()
    world.run_kubelet("bank-2")
    world.operate()
    assert [name for name, pod in world.pods.items() if is_fenced(pod)] == ["bank-0"]
    assert world.size() == 2
    world.run_kubelet("bank-0")
    world.operate()
    assert world.size() == 0
    world.settle()
    assert (world.takeovers, sorted(world.pods), world.condition("Ready")["reason"]) == (0, [], "Suspended")
    assert world.condition("Available")["reason"] == "Suspended"
    world.edit(suspend=False)
    world.settle()
    assert (world.status["ready"], [role(pod) for pod in world.pods.values()].count("primary")) == ("3/3", 1)


def test_fenced_follower_that_does_not_stop_is_not_waited_for_for_ever() -> None:
    world = running()
    for name, pod in world.replicas().items():
        world._say(name, pod, "primary" if name == "bank-2" else "standby")
    world.edit(suspend=True)
    world.operate()
    assert world.size() == 3
    world.pass_time(30)
    world.operate()
    assert world.size() == 0


def test_fencing_annotation_of_the_service_reaches_the_pods_and_leaves_them() -> None:
    world = running()
    world.annotations[names.FENCED_ANNOTATION] = "r0, r2"
    world.settle()
    assert [name for name, pod in world.pods.items() if is_fenced(pod)] == ["bank-0", "bank-2"]
    assert "bank-0, bank-2" in world.condition("Fenced")["message"]
    assert world.pods["bank-1"]["metadata"]["labels"][names.LABEL_ROLE] == "primary"
    world.annotations.clear()
    world.settle()
    assert world.status["ready"] == "3/3"


def test_fence_written_on_a_pod_by_hand_stays() -> None:
    world = running()
    world.pods["bank-2"]["metadata"]["annotations"][names.FENCED_ANNOTATION] = "true"
    assert [action for action in world.plan().actions if isinstance(action, PatchMetadata)] == []


@pytest.mark.parametrize(
    ("metadata", "word"),
    [
        ({"labels": {}}, "Service bank: exists and is not this service's"),
        ({"labels": {names.LABEL_SERVICE: "bank"}, "ownerReferences": [{"uid": "x", "controller": True}]}, "Delete it"),
    ],
)
def test_object_of_somebody_else_is_not_taken(metadata: dict[str, Any], word: str) -> None:
    world = World()
    world.children["Service", "bank"] = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "bank", "uid": "u", "generation": 1, **metadata},
    }
    world.operate()
    assert "Service/bank" not in applied(world)
    assert word in world.condition("ObjectsOwned")["message"]
    assert world.condition("Ready")["reason"] == "OwnedByAnother"


def test_foreign_stateful_set_stops_everything_else() -> None:
    world = running()
    world.children["StatefulSet", "bank"]["metadata"]["labels"] = {}
    world.edit(image="bank:1", resources={"requests": {"cpu": "1"}})
    assert [action for action in world.plan().actions if isinstance(action, DeletePod)] == []
    assert "somebody else's" in world.plan().sentence


def test_object_with_our_label_and_without_owner_is_adopted() -> None:
    world = running()
    world.children["Service", "bank"]["metadata"].pop("ownerReferences")
    assert applied(world) == ["Service/bank"]
    world.operate()
    assert world.children["Service", "bank"]["metadata"]["ownerReferences"][0]["uid"] == "uid-bank"


def test_change_by_another_hand_is_taken_back() -> None:
    world = running()
    world.children["PodDisruptionBudget", "bank"]["spec"]["maxUnavailable"] = 3
    assert applied(world) == ["PodDisruptionBudget/bank"]


def test_objects_that_are_asked_for_no_longer_are_deleted() -> None:
    world = running()
    world.edit(networkPolicy={"type": "Off"})
    assert [action.kind for action in world.plan().actions if isinstance(action, DeleteObject)] == ["NetworkPolicy"]
    world.settle()
    assert ("NetworkPolicy", "bank") not in world.children


def replace_settings(**changes: Any) -> Any:
    """The installation with changes."""
    return msgspec.structs.replace(SETTINGS, **changes)


def test_lock_store_that_is_not_known_is_told_before_anything_is_made() -> None:
    world = World(settings=replace_settings(lock_endpoints=()))
    world.operate()
    assert applied(world) == []
    assert (world.condition("LockReady")["reason"], world.condition("Ready")["reason"]) == (
        "NoLockStore",
        "NoLockStore",
    )


def test_pods_are_not_made_before_what_they_mount() -> None:
    world = World()
    world.claims.clear()
    world.operate()
    assert "StatefulSet/bank" not in applied(world)
    assert world.condition("Ready")["reason"] == "ClaimNotFound"
    assert world.plan().requeue_s == UNSEEN_S, "no watch tells that a user made the claim"
    world.claims["shared"] = claim("shared")
    world.edit(tokenSecretRef={"name": "token"})
    assert world.plan().sentence == "waiting for Secret token (spec.tokenSecretRef)"
    callers = {"type": "Token", "token": {"secretRef": {"name": "callers"}}}
    world.edit(tokenSecretRef=None, ingress={"authentication": callers})
    assert world.plan().sentence == "waiting for Secret callers (spec.ingress.authentication.token.secretRef)"
    world.edit(ingress=None)
    world.edit(tokenSecretRef=None, tls={"issuer": "CertManager", "issuerRef": {"name": "ca"}})
    world.certificates.clear()
    assert world.plan().sentence == "waiting for certificates"


def test_quota_is_told_with_what_to_do() -> None:
    world = World()
    world.operate()
    message = 'pods "bank-0" is forbidden: exceeded quota: compute'
    world.warnings = (Warned(kind="StatefulSet", name="bank", reason="FailedCreate", message=message, at=world.now),)
    world.operate()
    told = world.condition("Ready")
    assert (told["reason"], "raise the quota" in told["message"].lower()) == ("QuotaExceeded", True)


def test_refused_action_is_told() -> None:
    world = running()
    world.failures = (Failure(kind="Service", name="bank", status=403, reason="Forbidden", message="no right"),)
    world.operate()
    assert world.condition("Degraded")["reason"] == "ObjectRefused"


def test_roll_waits_for_the_controller_to_have_read_the_set() -> None:
    world = running()
    world.edit(resources={"requests": {"cpu": "1"}})
    world.operate()
    assert world.plan().actions == (), "its controller would make the pod from the old template"
    world.run_controller()
    assert [type(action) for action in world.plan().actions] == [DeletePod]


def test_strategy_on_delete_leaves_pods_to_their_deletion() -> None:
    world = running()
    world.edit(updateStrategy={"type": "OnDelete"}, resources={"requests": {"cpu": "1"}})
    world.operate()
    world.run_controller()
    plan = world.operate()
    assert plan.actions == ()
    assert "waiting for their deletion" in plan.sentence


def test_takeover_is_told_once() -> None:
    world = running()
    set_ready(world.pods["bank-0"], ready=False)
    world.elect()
    world.operate()
    world.operate()
    assert world.told.count("PrimaryChanged") == 1
    assert world.status["primary"] == "bank-1"


def test_plan_of_a_world_without_a_node_that_is_gone_from_the_list() -> None:
    world = running()
    snapshot = replace(world.snapshot(), nodes=())
    assert make_plan(snapshot, SETTINGS).actions == ()


def test_token_of_operators_is_made_once_and_mounted() -> None:
    world = World()
    first = world.plan().actions
    made = [index for index, action in enumerate(first) if isinstance(action, MakeToken)]
    sets = [
        index for index, action in enumerate(first)
        if isinstance(action, Apply) and action.manifest["kind"] == "StatefulSet"
    ]  # fmt: skip
    assert len(made) == 1 and (not sets or made[0] < sets[0]), "before the first pod"
    world.operate()
    world.operate()
    assert world.tokens_made == 1
    assert not [action for action in world.plan().actions if isinstance(action, MakeToken)]


def test_token_that_somebody_made_is_kept() -> None:
    world = World()
    world.secrets["bank-operator-token"] = SecretFacts(name="bank-operator-token", keys=("token",))
    world.operate()
    assert world.tokens_made == 0
