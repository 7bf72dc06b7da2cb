"""What a person deletes or edits by hand comes back whole, with what hangs on it."""

from __future__ import annotations

import copy

import pytest
from tests.unit.deathless_operator.plan.plan_world import World, role, running

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
