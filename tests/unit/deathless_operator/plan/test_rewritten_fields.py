"""A roll comes to its end although the API server stores a field otherwise than it was written.

What somebody else changes is mended all the same, and who changes it again and again is told instead of a roll.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.deathless_operator.plan.plan_world import SPEC, Broken, World, running, template_of
from tests.unit.deathless_operator.plan.storing import canonical, stored

from deathless_operator.model import names
from deathless_operator.plan.actions import Apply, DeletePod
from deathless_operator.plan.service import covering

SIZED = {"podTemplate": {"volumes": [{"name": "x", "emptyDir": {"sizeLimit": "1024Mi"}}]}}
REWRITTEN: list[dict[str, Any]] = [
    {"resources": {"requests": {"cpu": "1000m"}, "limits": {"memory": "1024Mi"}}},
    {"resources": {"requests": {"cpu": "0.5"}}},
    SIZED,
    {"podTemplate": {"affinity": {"podAntiAffinity": {"matchLabelKeys": ["behind a gate"]}}}},
    {"podTemplate": {"env": [{"name": "X", "valueFrom": {"resourceFieldRef": {"divisor": "1000m"}}}]}},
]
AGAIN = {"revisionHistoryLimit": 10}


def is_rolled(world: World) -> bool:
    """Whether every pod is of the template."""
    return {template_of(pod) for pod in world.replicas().values()} == {world.template()}


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("1000m", "1"),
        ("0.5", "500m"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("1000", "1k"),
        ("1500", "1500"),
        ("1024", "1024"),
        ("0.5Ki", "512"),
        ("0Ki", "0"),
        ("0.0000000001", "1n"),
    ],
)
def test_world_stores_quantities_as_the_api_server_does(written: str, kept: str) -> None:
    assert canonical(written) == kept
    assert stored({"limits": {"cpu": written}, "name": written}) == {"limits": {"cpu": kept}, "name": written}


@pytest.mark.parametrize("spec", REWRITTEN)
def test_roll_comes_to_its_end_although_the_api_server_stores_a_field_otherwise(spec: dict[str, Any]) -> None:
    world = running()
    before, world.takeovers = world.template(), 0
    world.edit(**spec)
    world.settle()
    assert is_rolled(world)
    assert world.template() != before and world.takeovers == 1
    world.told.clear()
    world.edit(image="bank:2")
    world.settle()
    assert is_rolled(world) and world.status["image"] == "bank:2"
    assert world.told.count("ReplicaRolled") == 3 and "ChangedByAnother" not in world.told
    assert world.plan().actions == () and world.condition("Progressing")["reason"] == "Done"


def test_roll_would_wait_for_ever_were_nothing_known_of_what_the_api_server_makes_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(covering, "_is_settled", lambda _: False)
    world = running()
    world.edit(**SIZED)
    with pytest.raises(Broken, match="does not come to rest: rolling"):
        world.settle()
    assert not is_rolled(world)


def test_rewritten_field_costs_one_request_more_and_then_none() -> None:
    world = World(spec=SPEC | SIZED)
    applied = [
        [action for action in world.operate().actions if isinstance(action, Apply) and is_set(action)] for _ in range(4)
    ]
    assert [len(found) for found in applied] == [1, 1, 0, 0]


def test_claim_of_a_size_in_other_words_is_applied_once() -> None:
    world = running({"logStorage": {"size": "1024Mi"}})
    assert world.plan().actions == ()
    world.edit(logStorage={"size": "2048Mi"})
    assert len(world.operate().actions) == 1 and world.plan().actions == ()


def is_set(action: Apply) -> bool:
    """Whether a StatefulSet is applied."""
    return action.manifest["kind"] == "StatefulSet"


@pytest.mark.parametrize("spec", [{}, SIZED])
def test_field_of_ours_that_somebody_changes_is_mended_in_a_settled_object(spec: dict[str, Any]) -> None:
    world = running(spec)
    for change in (AGAIN, {"minReadySeconds": 5}, AGAIN):
        world.meddle(change)
        world.settle()
        held = world.stateful_set()
        assert held is not None and held["spec"]["revisionHistoryLimit"] == 3
    assert world.condition("Progressing")["reason"] == "Done"


def test_change_between_a_look_and_its_request_is_not_taken_for_what_the_api_server_makes_of_it() -> None:
    world = running(SIZED)
    world.meddle({"minReadySeconds": 5})
    late = world.plan()  # names the generation that it saw
    world.meddle({"template": {**held_template(world), "spec": {"containers": [{"image": "theirs"}]}}})
    for action in late.actions:
        world.carry_out(action)
    world.meddle({"template": {**held_template(world), "spec": {"containers": [{"image": "theirs"}]}}})
    assert [action for action in world.plan().actions if isinstance(action, Apply) and is_set(action)]
    world.settle()
    assert held_template(world)["spec"]["containers"][0]["image"] == "bank:1"


def held_template(world: World) -> Any:
    """The template in the StatefulSet."""
    held = world.stateful_set()
    assert held is not None
    return held["spec"]["template"]


def test_who_changes_it_back_each_time_is_told_once_and_no_pod_is_rolled_meanwhile() -> None:
    world = running()
    world.edit(resources={"requests": {"cpu": "1"}})
    for _ in range(8):
        plan = world.operate()
        assert not [action for action in plan.actions if isinstance(action, DeletePod)]
        for name in list(world.pods):
            world.run_kubelet(name)
        held = world.stateful_set()
        assert held is not None
        world.meddle({"revisionHistoryLimit": 10 + held["spec"]["revisionHistoryLimit"]})
        world.run_controller()
        world.pass_time(1)
    found = world.condition("Progressing")
    assert (found["status"], found["reason"]) == ("False", "ChangedByAnother")
    assert "bank spec.revisionHistoryLimit" in found["message"] and "bank-0" in found["message"]
    assert world.told.count("ChangedByAnother") == 1
    world.settle()
    assert is_rolled(world) and world.condition("Progressing")["reason"] == "Done"


def test_plan_that_applies_the_new_template_says_what_it_waits_for() -> None:
    world = running()
    world.edit(resources={"requests": {"cpu": "1"}})
    plan = world.operate()
    assert world.condition("Progressing")["reason"] == "Rolling"
    assert plan.sentence.startswith("rolling bank-0, bank-1, bank-2; waiting for StatefulSet bank to be as applied")


def test_label_that_somebody_takes_away_each_time_does_not_keep_pods_from_being_rolled() -> None:
    world = running()
    world.edit(resources={"requests": {"cpu": "1"}})
    for _ in range(60):
        world.operate()
        held = world.stateful_set()
        assert held is not None
        held["metadata"]["labels"].pop(names.LABEL_NAME, None)
        world.others_work()
    assert is_rolled(world)
