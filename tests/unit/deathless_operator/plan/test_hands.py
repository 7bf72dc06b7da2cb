"""What a person deletes or edits by hand comes back whole, with what hangs on it."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.deathless_operator.plan.plan_world import World, role, running, set_ready

from deathless_operator.model import names


def until_ready(world: World, rounds_max: int = 120) -> list[str]:
    """Let everybody work until the service is Ready; gives the reasons that Degraded had on the way."""
    said: list[str] = []
    for _ in range(rounds_max):
        world.operate()
        said.append(world.condition("Degraded")["reason"])
        world.others_work()
    assert world.condition("Ready")["status"] == "True"
    assert world.plan().actions == ()
    return said


def test_pods_of_an_account_that_was_deleted_are_made_anew_one_by_one() -> None:
    world = running()
    before, world.takeovers = {pod["metadata"]["uid"] for pod in world.replicas().values()}, 0
    del world.children["ServiceAccount", "bank"]
    assert "TokensEnded" in until_ready(world), "a condition says why labels do not follow"
    assert not before & {pod["metadata"]["uid"] for pod in world.replicas().values()}
    assert world.takeovers == 1, "in the order of a roll"


def test_account_that_was_there_first_has_no_pod_made_anew() -> None:
    world = running()
    before = {pod["metadata"]["uid"] for pod in world.replicas().values()}
    until_ready(world, 10)
    assert before == {pod["metadata"]["uid"] for pod in world.replicas().values()}


LABELS = (names.LABEL_NAME, names.LABEL_INSTANCE, names.LABEL_MANAGED_BY, names.LABEL_SERVING)


@pytest.mark.parametrize("label", LABELS)
def test_label_that_somebody_took_from_a_pod_comes_back(label: str) -> None:
    world = running()
    before = copy.deepcopy(world.pods["bank-1"]["metadata"]["labels"])
    del world.pods["bank-1"]["metadata"]["labels"][label]
    world.operate()
    assert world.pods["bank-1"]["metadata"]["labels"] == before


@pytest.mark.parametrize("label", [names.LABEL_NAME, names.LABEL_INSTANCE])
def test_label_that_somebody_wrote_on_a_pod_is_set_back(label: str) -> None:
    world = running()
    world.pods["bank-1"]["metadata"]["labels"][label] = "mine"
    world.operate()
    assert world.pods["bank-1"]["metadata"]["labels"][label] in ("bank", "deathless")


def test_replica_that_is_not_called_stays_so() -> None:
    world = running()
    world.pods["bank-1"]["metadata"]["labels"][names.LABEL_SERVING] = "false"
    world.operate()
    assert world.pods["bank-1"]["metadata"]["labels"][names.LABEL_SERVING] == "false", "the primary does not hear it"


@pytest.mark.parametrize("moment", ["roll", "refusal", "takeover"])
@pytest.mark.parametrize(
    "gone",
    [("StatefulSet", "bank"), ("Service", "bank-primary"), ("ServiceAccount", "bank"), ("ConfigMap", "")],
)
def test_object_deleted_in_the_middle_of_something_comes_back(moment: str, gone: tuple[str, str]) -> None:
    world = running()
    if moment == "roll":
        world.edit(resources={"requests": {"cpu": "1"}})
    elif moment == "refusal":
        world.edit(image="bank:other")
    else:
        leader = next(name for name, pod in world.pods.items() if role(pod) == "primary")
        world.lose_node(world.pods[leader]["spec"]["nodeName"])
    for _ in range(3):
        world.operate()
        world.run_controller()
        world.pass_time(1)
    gone = gone if gone[1] else (gone[0], world.config_name())
    world.children.pop(gone, None)
    if moment == "refusal":
        world.edit(image="bank:1")
    if moment == "takeover":
        for index in range(4):
            world.find_node(f"n{index}")
    until_ready(world)
    assert gone in world.children


def network_policy(world: World) -> Any:
    """The body of the NetworkPolicy."""
    return world.children["NetworkPolicy", "bank"]["spec"]


def service(world: World) -> Any:
    """The body of the Service that callers use."""
    return world.children["Service", "bank"]["spec"]


def budget(world: World) -> Any:
    """The body of the PodDisruptionBudget."""
    return world.children["PodDisruptionBudget", "bank"]["spec"]


def door(world: World) -> Any:
    """Whom the NetworkPolicy lets in at the front door."""
    return network_policy(world)["ingress"][1]["from"]


EXISTS = {"key": "a", "operator": "Exists"}
ALLOWED = {"ingress": {"allowFrom": [{"podSelector": {"matchLabels": {"app": "till"}}, "namespaceSelector": {}}]}}
EDITS: dict[str, Any] = {
    "policy is about no pod": lambda world: network_policy(world)["podSelector"]["matchLabels"].update(a="b"),
    "policy is about some pods": lambda world: network_policy(world)["podSelector"].update(matchExpressions=[EXISTS]),
    "policy lets in other namespaces": lambda world: door(world)[0].update(namespaceSelector={}),
    "policy lets in this namespace alone": lambda world: door(world)[1].pop("namespaceSelector"),
    "policy lets in anybody's pods": lambda world: door(world)[1]["podSelector"].clear(),
    "policy lets in everybody": lambda world: network_policy(world)["ingress"][1].pop("from"),
    "policy lets in one more": lambda world: door(world).append({"ipBlock": {"cidr": "0.0.0.0/0"}}),
    "policy opens more ports": lambda world: network_policy(world)["ingress"][1]["ports"][0].update(endPort=65535),
    "policy is about no way out": lambda world: network_policy(world)["policyTypes"].remove("Egress"),
    "Service finds no pod": lambda world: service(world)["selector"].update(a="b"),
    "Service finds others' pods": lambda world: service(world)["selector"].clear(),
    "budget is about no pod": lambda world: budget(world)["selector"]["matchLabels"].update(a="b"),
    "budget lets all go": lambda world: budget(world).update(maxUnavailable=3),
}


@pytest.mark.parametrize("rolling", [False, True])
@pytest.mark.parametrize("edit", EDITS)
def test_object_that_somebody_edited_is_set_back_also_during_a_roll(edit: str, rolling: bool) -> None:
    world = running(ALLOWED)
    if rolling:
        world.edit(resources={"requests": {"cpu": "1"}})
        for _ in range(3):
            world.operate()
            world.run_controller()
            world.pass_time(1)
    wanted = copy.deepcopy([network_policy(world), service(world), budget(world)])
    EDITS[edit](world)
    for kind in ("NetworkPolicy", "PodDisruptionBudget"):
        world.children[kind, "bank"]["metadata"]["generation"] += 1
    assert [network_policy(world), service(world), budget(world)] != wanted
    world.operate()
    assert [network_policy(world), service(world), budget(world)] == wanted
    until_ready(world)


def test_copy_of_the_lock_stores_secret_that_somebody_edited_is_made_anew() -> None:
    world = running()
    (name,) = [name for name in world.secrets if name.startswith("bank-lock-tls")]
    world.secrets[name] = replace(world.secrets[name], digest="edited")
    world.operate()
    assert world.secrets[name].digest == "d1"
    assert world.plan().actions == ()


def test_label_of_the_primary_on_another_pod_makes_it_none() -> None:
    world = running()
    set_ready(world.pods["bank-0"], ready=False)
    world.pods["bank-0"]["metadata"]["labels"][names.LABEL_ROLE] = "standby"
    world.elect()
    world.others_work()
    world.operate()
    assert role(world.pods["bank-1"]) == "primary"
    for name in world.pods:
        world.pods[name]["metadata"]["labels"][names.LABEL_ROLE] = "primary"
    told = json.loads(world.pods["bank-0"]["metadata"]["annotations"][names.STATUS_ANNOTATION])
    told |= {"role": "standby", "epoch": world.epoch}
    world.pods["bank-0"]["metadata"]["annotations"][names.STATUS_ANNOTATION] = json.dumps(told)
    world.operate()
    assert world.status["primary"] == "bank-1"
