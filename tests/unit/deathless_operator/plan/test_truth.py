"""Conditions in combination, and what people do by hand: what is told is what serves.

`Ready` is what a pipeline waits for after it has changed the spec. So it is False while the spec is refused, pending,
half carried out or not read, though every replica serves; and what was accepted is not changed by whoever deletes or
edits an object, or writes a status.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
import pytest
from tests.unit.deathless_operator.plan.plan_world import SPEC, World, running, set_ready

from deathless_operator.model import names
from deathless_operator.model.status import ServiceStatus
from deathless_operator.plan.service.objects import Code
from deathless_operator.plan.service.reading import show_time
from deathless_operator.plan.service.upgrading.accepted import accepted_code, accepted_with


def ready(world: World) -> tuple[str, str, int]:
    """The condition that a pipeline waits for."""
    told = world.condition("Ready")
    return told["status"], told["reason"], told["observedGeneration"]


def live(world: World, rounds: int) -> list[tuple[str, str, int]]:
    """Let everybody work, and note what Ready said after each of the operator's looks."""
    said = []
    for _ in range(rounds):
        world.operate()
        said.append(ready(world))
        world.others_work()
    return said


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"image": "bank:other", "upgradePolicy": "Manual"}, "OtherFingerprint"),
        ({"image": "bank:gone"}, "ImagePullFailed"),
        ({"quorum": 2}, "InvalidSpec"),
        ({"lock": {"etcd": {"endpoints": ["https://e:2379"], "tlsSecretRef": {"name": "none"}}}}, "SecretMissing"),
        ({"updateStrategy": {"type": "OnDelete"}, "resources": {"requests": {"cpu": "1"}}}, "Rolling"),
    ],
)
def test_spec_that_does_not_serve_is_never_ready(change: dict[str, Any], reason: str) -> None:
    world = running()
    world.unpullable = ("bank:gone",)
    assert ready(world) == ("True", "AllReplicasReady", 1)
    world.edit(**change)
    said = live(world, 20)
    assert [one for one in said if one[0] == "True" and one[2] > 1] == [], "a pipeline would have gone on"
    assert said[-1] == ("False", reason, 2)
    assert world.condition("Available")["status"] == "True", "what runs goes on"


@pytest.mark.parametrize("change", [{"image": "bank:2"}, {"resources": {"requests": {"cpu": "1"}}}, {"replicas": 5}])
def test_ready_comes_once_the_whole_change_serves(change: dict[str, Any]) -> None:
    world = running()
    world.edit(**change)
    said = next(said for _ in range(120) for said in live(world, 1) if said[0] == "True")
    assert said == ("True", "AllReplicasReady", 2)
    pods = world.replicas()
    assert len(pods) == world.spec["replicas"]
    assert {pod["spec"]["containers"][0]["image"] for pod in pods.values()} == {world.spec["image"]}
    assert {pod["metadata"]["labels"][names.LABEL_TEMPLATE] for pod in pods.values()} == {world.template()}


def test_spec_that_waits_because_the_service_is_paused_is_not_ready() -> None:
    world = running()
    world.annotations[names.PAUSED_ANNOTATION] = "true"
    world.operate()
    assert ready(world)[0] == "True", "nothing waits"
    world.edit(resources={"requests": {"cpu": "1"}})
    plan = world.operate()
    assert (plan.actions, ready(world)) == ((), ("False", "ByAnnotation", 2))


def test_change_back_to_what_serves_is_ready_again() -> None:
    world = running()
    world.edit(image="bank:other", upgradePolicy="Manual")
    live(world, 20)
    world.edit(image="bank:1")
    assert live(world, 3)[-1] == ("True", "AllReplicasReady", 3)


def refused() -> World:
    """A service whose new image is refused."""
    world = running()
    world.edit(image="bank:other", upgradePolicy="Manual")
    world.settle()
    assert world.condition("UpgradeRequired")["status"] == "True"
    return world


HANDS: dict[str, Any] = {
    "set": lambda world: world.children.pop(("StatefulSet", "bank")),
    "set and its pods": lambda world: (world.children.pop(("StatefulSet", "bank")), world.pods.clear()),
    "status": lambda world: world.status.clear(),
    "status, and pods are not ready": lambda world: (world.status.clear(), world.lose_node("n0")),
    "settings": lambda world: world.children.pop(("ConfigMap", world.config_name())),
    "check pod": lambda world: [world.pods.pop(name) for name in list(world.pods) if "check" in name],
    "set and status": lambda world: (world.children.pop(("StatefulSet", "bank")), world.status.clear()),
    "image in the set": lambda world: image(world)["template"]["spec"]["containers"][0].update(image="bank:other"),
    "image in the status": lambda world: world.status.update(image="bank:other"),
    "fingerprint in the status": lambda world: world.status.update(fingerprint="bb" * 16),
    "annotations of the set": lambda world: world.children["StatefulSet", "bank"]["metadata"]["annotations"].clear(),
}


def image(world: World) -> Any:
    """The body of the StatefulSet."""
    found = world.children["StatefulSet", "bank"]
    found["metadata"]["generation"] += 1
    return found["spec"]


@pytest.mark.parametrize("hand", HANDS)
def test_refused_image_is_never_accepted_because_of_what_a_person_deletes_or_edits(hand: str) -> None:
    world = refused()
    HANDS[hand](world)
    for _ in range(30):
        live(world, 1)
        found = world.stateful_set()
        assert found is None or found["spec"]["template"]["spec"]["containers"][0]["image"] == "bank:1"
        assert world.status["image"] == "bank:1"
    assert ready(world)[0] == "False"
    world.edit(image="bank:2")
    world.settle()
    assert ready(world) == ("True", "AllReplicasReady", 3)


def test_limits_and_peers_that_were_accepted_stand_in_the_status_too() -> None:
    world = running({"limits": {"keyBytesMax": 500}})
    del world.children["StatefulSet", "bank"]
    found = accepted_code(world.snapshot())
    assert found is not None
    assert found.limits == {"key_bytes_max": 500}
    assert accepted_with(Code(image="x", module="y")) == ""


def test_status_that_somebody_wrote_is_corrected() -> None:
    world = running()
    right = copy.deepcopy(world.status)
    world.status |= {
        "epoch": 999,
        "primary": "bank-9",
        "image": "evil:1",
        "module": "evil",
        "fingerprint": "ff",
        "serviceId": "00",
        "incarnation": 9,
        "ready": "9/9",
        "lastTakeoverTime": "2099-01-01T00:00:00Z",
    }
    world.operate()
    world.operate()
    moving = {"lastTakeoverTime", "conditions"}
    assert {key: value for key, value in world.status.items() if key not in moving} == {
        key: value for key, value in right.items() if key not in moving
    }
    assert world.status["lastTakeoverTime"] < "2099"


NONSENSE: dict[str, Any] = {
    "huge numbers": {"epoch": 2**70, "incarnation": 10**30, "replicas": 2**40},
    "numbers below none": {"epoch": -1, "readyReplicas": -7, "observedGeneration": -1},
    "numbers with a fraction": {"epoch": 1.5},
    "texts for numbers": {"epoch": "many", "incarnation": "9"},
    "numbers for texts": {"primary": 7, "image": 0, "installation": 3},
    "lists for maps": {"members": {"a": 1}, "shards": "x", "conditions": 5},
    "members that are none": {"members": [{"name": "r9", "epoch": 5}, {"name": "r9", "epoch": 5}]},
    "shards that are none": {"shards": [{"shard": 40, "epoch": 9}]},
    "another installation": {"installation": "nobody"},
    "times that are none": {"lastTakeoverTime": "soon"},
    "a time before all": {"lastTakeoverTime": "0001-01-01T00:00:00"},
    "what nobody knows": {"evil": {"deep": [1, 2]}},
}


@pytest.mark.parametrize("wrong", NONSENSE)
@pytest.mark.parametrize("shards", [1, 2])
def test_nonsense_in_a_status_is_corrected_and_moves_nothing(wrong: str, shards: int) -> None:
    world = running({**SPEC, "shards": shards})
    right, pods = copy.deepcopy(world.status), set(world.pods)
    world.status |= copy.deepcopy(NONSENSE[wrong])
    world.operate()
    world.operate()
    assert world.plan().actions == ()
    assert set(world.pods) == pods
    moving = {"conditions"} | ({"lastTakeoverTime"} if "time" in wrong else set())
    assert {key: value for key, value in world.status.items() if key not in moving} == {
        key: value for key, value in right.items() if key not in moving
    }
    assert ready(world) == ("True", "AllReplicasReady", 1)


@pytest.mark.parametrize("at", ["2099-01-01T00:00:00Z", "soon", "", "9999-12-31T23:59:59-23:59"])
def test_time_of_a_condition_that_somebody_wrote_is_corrected(at: str) -> None:
    world = running()
    for each in world.status["conditions"]:
        each["lastTransitionTime"] = at
    world.operate()
    times = {each["lastTransitionTime"] for each in world.status["conditions"]}
    assert times == {show_time(world.now)}


HUGE: dict[str, Any] = {
    "epoch": 2**70,
    "incarnation": -4,
    "service_id": "f" * 3000,
    "fingerprint": "f" * 50_000,
    "since": -1e300,
    "text": "DL9001 " + "x" * 40_000,
    "role": "p" * 5000,
    "replica": "r" * 5000,
}


@pytest.mark.parametrize("field", HUGE)
def test_what_a_pod_was_made_to_announce_never_gives_a_status_that_is_refused(field: str) -> None:
    world = running()
    for pod in world.pods.values():
        told = json.loads(pod["metadata"]["annotations"][names.STATUS_ANNOTATION]) | {field: HUGE[field]}
        pod["metadata"]["annotations"][names.STATUS_ANNOTATION] = json.dumps(told)
    world.status |= {"lastTakeoverTime": "2099-01-01T00:00:00Z"}
    set_ready(world.pods["bank-1"], ready=False)
    world.operate()
    msgspec.convert(world.status, ServiceStatus)
    assert 0 <= world.status["epoch"] < 2**63


def test_image_that_was_refused_and_set_back_is_refused_again() -> None:
    world = refused()
    for generation in (3, 5):
        world.edit(image="bank:1")
        world.settle()
        assert ready(world) == ("True", "AllReplicasReady", generation)
        world.edit(image="bank:other")
        said = live(world, 30)
        assert not [one for one in said if one[0] == "True"]
        assert ready(world) == ("False", "OtherFingerprint", generation + 1)
        assert world.status["image"] == "bank:1"


def test_image_that_could_not_be_pulled_is_looked_into_again_where_it_comes_back() -> None:
    world = running()
    world.unpullable = ("bank:2",)
    world.edit(image="bank:2")
    live(world, 30)
    assert ready(world)[:2] == ("False", "ImagePullFailed")
    world.edit(image="bank:1")
    live(world, 5)
    world.unpullable = ()
    world.edit(image="bank:2")
    world.settle()
    assert ready(world) == ("True", "AllReplicasReady", 4)


def test_epoch_of_a_shard_that_somebody_wrote_is_corrected() -> None:
    world = running({**SPEC, "shards": 2})
    world.status["shards"][1]["epoch"] = 999
    world.operate()
    assert world.status["shards"][1]["epoch"] < 10
