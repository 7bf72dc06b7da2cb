"""The operator dies between any two actions of any plan, and everything still comes to where it should be.

Why: a plan is carried out by calls that may each be the last one. A small cluster (plan_world) is driven by hypothesis:
users edit, nodes vanish, pods end, the operator is cut off after any action. After each storm all is left to rest.

Shown here: it converges; a primary is not deleted before its followers in a roll; never two pods of a set at once;
a spec is never written; a roll costs one takeover; the other code never runs.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.deathless_operator.plan.plan_world import (
    FINGERPRINTS,
    SPEC,
    Broken,
    World,
    is_fenced,
    is_ready,
    purpose,
    role,
    running,
    set_of,
    set_ready,
    template_of,
)

from deathless_operator.model import names
from deathless_operator.plan.service.reading import show_time
from deathless_operator.plan.service.rollout import next_step

EDITS: list[dict[str, Any]] = [
    {"image": "bank:2"},
    {"image": "bank:1"},
    {"image": "bank:other"},
    {"image": "bank:misfit"},
    {"image": "bank:major"},
    {"upgradePolicy": "Manual"},
    {"upgradePolicy": "Automatic"},
    {"upgradePolicy": "Compatible"},
    {"replicas": 1},
    {"replicas": 2},
    {"replicas": 5},
    {"suspend": True},
    {"suspend": False},
    {"resources": {"requests": {"cpu": "1"}}},
    {"resources": {"requests": {"cpu": "1000m", "memory": "1024Mi"}}},
    {"podTemplate": {"volumes": [{"name": "x", "emptyDir": {"sizeLimit": "0.5Gi"}}]}},
    {"podTemplate": {"affinity": {"podAntiAffinity": {"matchLabelKeys": ["dropped"]}}}},
    {"limits": {"turnMaxS": 5.0}},
    {"networkPolicy": {"type": "Off"}},
    {"tls": {"issuer": "Off"}},
]
MOVES = st.one_of(
    st.tuples(st.just("operate"), st.integers(0, 6)),
    st.tuples(st.just("edit"), st.sampled_from(range(len(EDITS)))),
    st.tuples(st.just("controller"), st.just(0)),
    st.tuples(st.just("kubelet"), st.integers(0, 6)),
    st.tuples(st.just("elect"), st.just(0)),
    st.tuples(st.just("fail"), st.integers(0, 6)),
    st.tuples(st.just("lose"), st.integers(0, 3)),
    st.tuples(st.just("find"), st.integers(0, 3)),
    st.tuples(st.just("fence"), st.sampled_from(range(4))),
    st.tuples(st.just("pause"), st.integers(0, 1)),
    st.tuples(st.just("time"), st.integers(1, 60)),
    st.tuples(st.just("meddle"), st.integers(0, 2)),
    st.tuples(st.just("word"), st.integers(0, 3)),
    st.tuples(st.just("drop"), st.integers(0, 8)),
    st.tuples(st.just("call off"), st.integers(1, 3)),
)
MEDDLING: list[dict[str, Any]] = [
    {"revisionHistoryLimit": 10},
    {"updateStrategy": {"type": "RollingUpdate"}},
    {"minReadySeconds": 5},  # a field that is not the operator's
]


def move(world: World, what: str, which: int) -> None:
    """One thing happens."""
    pods = sorted(world.pods)
    match what:
        case "others":
            world.others_work()
        case "round":
            world.operate()
            world.others_work()
        case "operate":
            world.operate(which)
        case "edit" if world.log_code or EDITS[which].get("image", "bank:1") in ("bank:1", "bank:2"):
            # What code a service begins with nobody checks, so it is not changed before the service has begun.
            world.edit(**EDITS[which])
        case "controller":
            world.run_controller()
        case "kubelet" if pods:
            world.run_kubelet(pods[which % len(pods)])
        case "elect":
            world.elect()
        case "fail" if pods:
            set_ready(world.pods[pods[which % len(pods)]], ready=False)
        case "lose":
            world.lose_node(f"n{which}")
        case "find":
            world.find_node(f"n{which}")
        case "fence":
            world.annotations[names.FENCED_ANNOTATION] = ("", "r0,r2", "*", "0/r1,1/r0")[which]
        case "pause":
            world.annotations[names.PAUSED_ANNOTATION] = ("false", "true")[which]
        case "time":
            world.pass_time(which)
        case "word":
            world.annotations[names.UPGRADE_ANNOTATION] = ("", *(each * 6 for each in ("bb", "cc", "dd")))[which]
        case "drop" if pods:
            drop(world, pods[which % len(pods)])
        case "call off":
            world.calls_off = which
        case "meddle":
            world.meddle(MEDDLING[which])


def drop(world: World, name: str) -> None:
    """Somebody deletes a pod: a replica's ends as its node has it, another one at once."""
    if purpose(world.pods[name]):
        del world.pods[name]
    else:
        world.pods[name]["metadata"].setdefault("deletionTimestamp", show_time(world.now + 30))


@settings(max_examples=150, deadline=None)
@given(moves=st.lists(MOVES, max_size=40))
def test_whatever_happens_and_wherever_the_operator_dies_it_converges(moves: list[tuple[str, int]]) -> None:
    storm(World(), moves)


@settings(max_examples=60, deadline=None)
@given(moves=st.lists(MOVES, max_size=60), shards=st.integers(2, 3))
def test_shards_converge_whatever_happens_and_wherever_the_operator_dies(
    moves: list[tuple[str, int]], shards: int
) -> None:
    storm(World(spec={**copy.deepcopy(SPEC), "shards": shards, "replicas": 2}), moves)


def storm(world: World, moves: list[tuple[str, int]]) -> None:
    """Much happens, then nothing any more."""
    for what, which in moves:
        move(world, what, which)
    for index in range(4):
        world.find_node(f"n{index}")
    world.annotations.clear()
    rest(world)
    check_rest(world)


def rest(world: World) -> None:
    """Nothing happens any more, until no upgrade is under way or is to be tried again."""
    for _ in range(6):
        world.settle(200)
        if not is_upgrading(world):
            return
        world.pass_time(90)
    raise Broken(f"an upgrade has no end: {world.plan().sentence}; {world.condition('UpgradeRequired')}")


def is_upgrading(world: World) -> bool:
    """Whether an upgrade is under way, or is to be tried again."""
    reasons = {world.condition(kind)["reason"] for kind in ("UpgradeRequired", "Progressing")}
    return not reasons.isdisjoint({"UpgradeCalledOff", "Upgrading"})


def check_rest(world: World) -> None:
    """Everything is as the spec says, but for code that is refused."""
    wanted = 0 if world.spec.get("suspend") else world.spec["replicas"]
    assert all(is_ready(pod) and not is_fenced(pod) for pod in world.replicas().values())
    for each in world.sets():
        pods = world.replicas(each)
        assert sorted(pods) == [names.pod(each, ordinal) for ordinal in range(wanted)]
        assert {template_of(pod) for pod in pods.values()} <= {world.template(each)}
        assert [role(pod) for pod in pods.values()].count("primary") == min(wanted, 1)
        held = world.children["StatefulSet", each]["spec"]
        assert (held["revisionHistoryLimit"], held["updateStrategy"]) == (3, {"type": "OnDelete"}), "not mended"
    assert len(world.replicas()) == wanted * len(world.sets())
    refused = world.condition("UpgradeRequired")["status"] == "True"
    assert world.condition("Ready")["status"] == ("True" if wanted and not refused else "False")
    assert world.status["image"] == world.spec["image"] or refused
    for each in world.sets():
        noted = world.children["StatefulSet", each]["metadata"]["annotations"]
        if each in world.log_codes:
            assert world.log_codes[each] == FINGERPRINTS[noted[names.IMAGE_ANNOTATION]], "it runs other code"
        assert names.UPGRADING_TO_ANNOTATION not in noted or not wanted
    assert refused or not world.log_code or world.log_code == FINGERPRINTS[str(world.status["image"])]
    assert ("NetworkPolicy", "bank") in world.children or world.spec.get("networkPolicy")
    checks = [pod for pod in world.pods.values() if names.LABEL_PURPOSE in pod["metadata"]["labels"]]
    assert not checks or refused
    assert world.plan().actions == ()


def live_through(world: World, cuts: list[int]) -> None:
    """The operator dies after so many actions of each of its rounds, and the world goes on."""
    for cut in cuts:
        world.operate(cut)
        world.others_work()


UPGRADING = st.one_of(
    st.tuples(st.just("operate"), st.integers(0, 4)),
    st.tuples(st.just("others"), st.just(0)),
    st.tuples(st.just("edit"), st.sampled_from([0, 1, 2, 2, 2, 4, 8, 9, 10, 11, 12])),
    st.tuples(st.just("drop"), st.integers(0, 8)),
    st.tuples(st.just("call off"), st.integers(1, 3)),
    st.tuples(st.just("lose"), st.integers(0, 3)),
    st.tuples(st.just("find"), st.integers(0, 3)),
    st.tuples(st.just("time"), st.integers(1, 60)),
    st.tuples(st.just("word"), st.integers(0, 3)),
)


@settings(max_examples=200, deadline=None)
@given(
    moves=st.lists(st.one_of(st.just(("round", 0)), UPGRADING), max_size=60),
    image=st.sampled_from([2, 3, 4]),
    replicas=st.integers(1, 4),
)
def test_upgrade_ends_whatever_happens_and_wherever_the_operator_dies(
    moves: list[tuple[str, int]], image: int, replicas: int
) -> None:
    world = running({"replicas": replicas})
    world.edit(**EDITS[image])
    storm(world, moves)


@settings(max_examples=60, deadline=None)
@given(
    moves=st.lists(st.one_of(st.just(("round", 0)), UPGRADING), max_size=90),
    image=st.sampled_from([2, 3, 4]),
    shards=st.integers(2, 3),
)
def test_upgrade_of_shards_ends_whatever_happens_and_wherever_the_operator_dies(
    moves: list[tuple[str, int]], image: int, shards: int
) -> None:
    world = running({"replicas": 2, "shards": shards})
    world.edit(**EDITS[image])
    storm(world, moves)


@settings(max_examples=30, deadline=None)
@given(cuts=st.lists(st.integers(0, 3), max_size=120), shards=st.integers(2, 3))
def test_each_shard_is_upgraded_once_wherever_the_operator_dies(cuts: list[int], shards: int) -> None:
    world = running({"replicas": 2, "shards": shards})
    world.shard_takeovers.clear()
    world.edit(image="bank:other")
    live_through(world, cuts)
    rest(world)
    check_rest(world)
    assert world.log_codes == dict.fromkeys(world.sets(), "bb" * 16)
    assert world.shard_takeovers == dict.fromkeys(world.sets(), 2), "the upgrader leads, then one that stays"


@settings(max_examples=60, deadline=None)
@given(cuts=st.lists(st.integers(0, 3), max_size=60), replicas=st.integers(1, 5))
def test_upgrade_that_nothing_disturbs_is_made_wherever_the_operator_dies(cuts: list[int], replicas: int) -> None:
    world = running({"replicas": replicas})
    before, world.takeovers = world.log_code, 0
    world.edit(image="bank:other")
    live_through(world, cuts)
    rest(world)
    check_rest(world)
    assert (before, world.log_code) == ("aa" * 16, "bb" * 16)
    assert world.takeovers == 2, "the upgrader leads, then one that stays"


@settings(max_examples=60, deadline=None)
@given(cuts=st.lists(st.integers(0, 3), max_size=60), replicas=st.integers(1, 5), leader=st.integers(0, 4))
def test_roll_costs_one_takeover_wherever_the_operator_dies(cuts: list[int], replicas: int, leader: int) -> None:
    world = running({"replicas": replicas})
    make_leader(world, f"bank-{leader % replicas}")
    before, world.takeovers = world.template(), 0
    world.edit(image="bank:2")
    live_through(world, cuts)
    world.settle()
    assert world.template() != before
    assert world.takeovers == 1
    check_rest(world)


@settings(max_examples=40, deadline=None)
@given(cuts=st.lists(st.integers(0, 4), max_size=60), shards=st.integers(2, 3), leader=st.integers(0, 2))
def test_roll_costs_each_shard_one_takeover_wherever_the_operator_dies(
    cuts: list[int], shards: int, leader: int
) -> None:
    world = running({"shards": shards})
    make_leader(world, f"bank-s1-{leader}")
    world.shard_takeovers.clear()
    world.edit(image="bank:2")
    live_through(world, cuts)
    world.settle(160)
    assert world.shard_takeovers == dict.fromkeys(world.sets(), 1)
    check_rest(world)


def test_shards_are_rolled_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    world = running({"shards": 2})
    monkeypatch.setattr("deathless_operator.plan.service.plan._Planner._roll", hasty_roll)
    world.edit(image="bank:2")
    with pytest.raises(Broken, match="bank-s1-2 is deleted before the shard of bank is rolled"):
        world.settle()


def hasty_roll(planner: Any, shards: list[Any]) -> Any:
    """The last shard first."""
    steps = [next_step(one.part, planner.spec, one.template, one.size.wanted) for one in reversed(shards)]
    return next((step for step in steps if step.outdated), steps[0])


def make_leader(world: World, name: str) -> None:
    """Give the lead to a pod."""
    for key, pod in world.replicas(set_of(name)).items():
        world._say(key, pod, "standby")
    world.epoch += 1
    world._say(name, world.pods[name], "primary")
    world.settle()


def test_pod_is_rolled_only_when_all_others_are_there() -> None:
    world = running()
    world.edit(resources={"requests": {"cpu": "1"}})
    world.operate()  # applies the StatefulSet
    world.run_controller()
    assert world.operate().sentence.startswith("rolling")
    assert not [action for action in world.plan().actions if type(action).__name__ == "DeletePod"], "one is going"


def test_safeguard_of_the_roll_is_seen_when_it_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(snapshot: Any, spec: Any, template: str, size: int, *others: Any) -> Any:
        """The primary first."""
        step = next_step(snapshot, spec, template, size, *others)
        leads = [pod for pod in snapshot.pods if pod.labels.get(names.LABEL_ROLE) == "primary"]
        if step.delete is None or not leads:
            return step
        return replace(step, delete=replace(step.delete, name=leads[0].name, uid=leads[0].uid))

    world = running()
    monkeypatch.setattr("deathless_operator.plan.service.rollout.next_step", hasty)
    world.edit(image="bank:2")
    with pytest.raises(Broken, match="primary"):
        world.settle()
