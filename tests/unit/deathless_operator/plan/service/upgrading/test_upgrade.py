"""Other code that the spec names: when it is upgraded to, when it waits, and when it is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.deathless_operator.plan.plan_world import (
    SETTINGS,
    World,
    end_driver,
    is_ready,
    purpose,
    role,
    running,
    set_ready,
    template_of,
)

from deathless_operator.model import names
from deathless_operator.plan.service.unchanged import Plan
from deathless_operator.plan.service.upgrading import upgrade
from deathless_operator.plan.service.upgrading.accepted import noted_upgrade

OTHER = "bb" * 16
MAJOR = "dd" * 16
ACTIONS_MAX = 100


def go(world: World, rounds: int) -> Plan:
    """Everybody works so many times, and the operator once more."""
    for _ in range(rounds):
        world.operate()
        world.others_work()
    return world.operate()


def until(world: World, seen: Callable[[World], bool], rounds_max: int = 60) -> None:
    """Everybody works until that is seen."""
    for _ in range(rounds_max):
        world.operate()
        if seen(world):
            return
        world.others_work()
    raise AssertionError(f"not seen: {world.plan().sentence}")


def drivers(world: World) -> list[dict[str, Any]]:
    """Pods that lead through an upgrade, or did."""
    return [pod for pod in world.pods.values() if purpose(pod) == names.PURPOSE_UPGRADE]


def template_image(world: World) -> str:
    """Image of the StatefulSet's template."""
    return str(world.children["StatefulSet", "bank"]["spec"]["template"]["spec"]["containers"][0]["image"])


def reason(world: World, kind: str = "UpgradeRequired") -> str:
    """Reason of a condition as it was told last."""
    return str(world.condition(kind)["reason"])


def driven(**spec: Any) -> World:
    """A service that is being upgraded, and whose driving pod has just been made."""
    world = running()
    world.told.clear()
    world.edit(**({"image": "bank:other"} | spec))
    until(world, lambda world: bool(drivers(world)))
    return world


def call_off(world: World, said: str = "DL1022 the upgrader is not up to date") -> None:
    """The driving pod ends."""
    (pod,) = drivers(world)
    end_driver(pod, 75, said, world.now)
    world.operate()


def test_compatible_code_is_upgraded_to_without_a_word() -> None:
    world = running()
    world.told.clear()
    world.edit(image="bank:other")
    world.settle(100)
    assert (world.log_code, world.status["image"], world.status["fingerprint"]) == (OTHER, "bank:other", OTHER)
    assert sorted(world.replicas()) == ["bank-0", "bank-1", "bank-2"]
    assert {template_of(pod) for pod in world.replicas().values()} == {world.template()}
    assert (reason(world, "Ready"), reason(world)) == ("AllReplicasReady", "SameCode")
    assert [world.told.count(each) for each in ("UpgradeStarted", "Upgraded", "ReplicaRolled")] == [1, 1, 3]
    assert noted_upgrade(world.snapshot()) is None
    assert [pod for pod in world.pods.values() if purpose(pod)] == []


def test_old_pods_stay_as_they_are_while_upgraders_start() -> None:
    world = running()
    before = {name: pod["metadata"]["uid"] for name, pod in world.pods.items()}
    world.edit(image="bank:other")
    until(world, lambda world: bool(drivers(world)))
    assert {name: pod["metadata"]["uid"] for name, pod in world.replicas().items() if name in before} == before
    assert all(is_ready(world.pods[name]) for name in before)
    assert sorted(set(world.replicas()) - set(before)) == ["bank-3", "bank-4"]
    status = world.status
    assert (status["ready"], status["replicas"], status["image"]) == ("3/3", 3, "bank:1")
    assert (reason(world, "Available"), reason(world, "Progressing")) == ("PrimaryServes", "Upgrading")
    assert world.condition("Ready")["reason"] == "Upgrading", "the spec is not in force yet"
    assert "Degraded" not in {each["type"] for each in status["conditions"] if each["status"] == "True"}


def test_replicas_stay_two_more_until_the_others_have_caught_up() -> None:
    world = driven()
    sizes = []
    for _ in range(30):
        world.operate()
        behind = [name for name in ("bank-0", "bank-1", "bank-2") if not is_new(world, name)]
        sizes.append((world.size(), bool(behind)))
        world.others_work()
    assert [size for size, behind in sizes if behind] == [5] * sum(behind for _, behind in sizes)
    assert sizes[-1] == (3, False)


def is_new(world: World, name: str) -> bool:
    """Whether a pod is of the template, and serves."""
    pod = world.pods.get(name)
    return pod is not None and is_ready(pod) and template_of(pod) == world.template()


@pytest.mark.parametrize(
    ("spec", "word", "made", "said"),
    [
        ({"upgradePolicy": "Manual"}, "", False, "OtherFingerprint"),
        ({"upgradePolicy": "Manual"}, OTHER[:12], True, "SameCode"),
        ({"upgradePolicy": "Manual"}, OTHER.upper(), True, "SameCode"),
        ({"upgradePolicy": "Manual"}, OTHER[:11], False, "OtherFingerprint"),
        ({"upgradePolicy": "Manual"}, MAJOR, False, "OtherFingerprint"),
        ({"upgradePolicy": "Manual"}, "no-fingerprint-at-all", False, "OtherFingerprint"),
        ({"image": "bank:major"}, "", False, "UpgradeRefused"),
        ({"image": "bank:major"}, MAJOR[:16], True, "SameCode"),
        ({"image": "bank:major", "upgradePolicy": "Automatic"}, "", True, "SameCode"),
        ({"image": "bank:misfit", "upgradePolicy": "Automatic"}, "", False, "UpgradeRefused"),
    ],
)
def test_policy_and_word_say_what_is_upgraded_to(spec: dict[str, Any], word: str, made: bool, said: str) -> None:
    world = running()
    world.annotations[names.UPGRADE_ANNOTATION] = word
    world.edit(**({"image": "bank:other"} | spec))
    world.settle(100)
    assert (world.log_code != "aa" * 16, reason(world)) == (made, said)
    assert template_image(world) == (world.spec["image"] if made else "bank:1")
    assert (sorted(world.replicas()), world.size()) == (["bank-0", "bank-1", "bank-2"], 3)


def test_refusal_holds_the_command_that_gives_the_word() -> None:
    world = running()
    world.edit(image="bank:other", upgradePolicy="Manual")
    world.settle()
    message = world.condition("UpgradeRequired")["message"]
    assert "`kubectl deathless upgrade bank -n prod --go`" in message
    words = f"annotate --overwrite deathlessservice bank {names.UPGRADE_ANNOTATION}="
    assert words in message
    world.annotations[names.UPGRADE_ANNOTATION] = message.partition(words)[2].partition("`")[0]
    world.settle(100)
    assert world.log_code == OTHER, "the command does what it says"


def test_word_that_is_given_after_a_refusal_asks_again() -> None:
    world = running()
    world.edit(image="bank:major")
    world.settle()
    (refused,) = drivers(world)
    assert "--only-compatible" in refused["spec"]["containers"][0]["command"]
    assert "DL1023 HandlerGone" in world.condition("UpgradeRequired")["message"]
    assert world.told.count("UpgradeRefused") >= 1
    world.annotations[names.UPGRADE_ANNOTATION] = MAJOR
    world.settle(100)
    assert (world.log_code, drivers(world)) == (MAJOR, [])


def test_refusal_is_kept_and_nothing_is_tried_again() -> None:
    world = running()
    world.edit(image="bank:misfit")
    world.settle()
    (before,) = drivers(world)
    world.pass_time(10_000)
    world.settle()
    assert drivers(world) == [before]
    assert (template_image(world), reason(world, "Accepted")) == ("bank:1", "UpgradeRefused")
    del world.pods[before["metadata"]["name"]]
    until(world, lambda world: bool(drivers(world)))


def begun_shards(world: World) -> list[str]:
    """StatefulSets whose pods are made from other code than what was accepted."""
    mark = names.UPGRADING_TO_ANNOTATION
    templates = {each: world.children["StatefulSet", each]["spec"]["template"] for each in world.sets()}
    return [each for each, template in templates.items() if mark in template["metadata"].get("annotations", {})]


def test_shards_are_upgraded_one_after_the_other_and_each_is_whole_before_the_next() -> None:
    world = running({"shards": 3, "replicas": 2})
    world.told.clear()
    world.edit(image="bank:other")
    seen: list[str] = []
    for _ in range(200):
        world.operate()
        begun = begun_shards(world)
        assert len(begun) <= 1
        if begun and begun != seen[-1:]:
            before = world.sets()[: world.sets().index(begun[0])]
            assert all(is_ready(pod) for each in before for pod in world.replicas(each).values())
            assert [world.log_codes[each] for each in before] == [OTHER] * len(before)
            seen += begun
        world.others_work()
    assert (seen, world.log_codes) == (world.sets(), dict.fromkeys(world.sets(), OTHER))
    assert [told for told in world.told if told.startswith("Upgrade")] == ["UpgradeStarted", "Upgraded"] * 3
    assert world.condition("Ready")["status"] == "True"
    assert not [pod for pod in world.pods.values() if purpose(pod)]


def test_shards_behind_one_that_is_refused_stay_and_the_condition_names_it() -> None:
    world = running({"shards": 2, "replicas": 2})
    until(world, lambda world: all(map(is_ready, world.replicas().values())))
    world.log_codes["bank-s1"] = "aa" * 16
    world.edit(image="bank:misfit")
    world.settle(200)
    assert set(world.log_codes.values()) == {"aa" * 16}
    assert reason(world) == "UpgradeRefused"
    assert world.condition("UpgradeRequired")["message"].startswith("bank: ")


def test_spec_that_goes_back_between_two_shards_upgrades_the_first_back() -> None:
    world = running({"shards": 2, "replicas": 2})
    world.edit(image="bank:other")
    until(world, lambda world: world.log_codes["bank"] == OTHER)
    world.edit(image="bank:1")
    world.settle(300)
    assert world.log_codes == {"bank": "aa" * 16, "bank-s1": "aa" * 16}
    assert world.shard_takeovers["bank-s1"] == 1, "it was never touched"
    assert world.condition("Ready")["status"] == "True"


def test_shard_whose_stateful_set_is_deleted_between_two_upgrades_keeps_its_code() -> None:
    world = running({"shards": 2, "replicas": 2})
    world.edit(image="bank:other")
    until(world, lambda world: world.log_codes["bank"] == OTHER)
    del world.children["StatefulSet", "bank-s1"]
    for name in [*world.replicas("bank-s1")]:
        del world.pods[name]
    world.operate()
    noted = world.children["StatefulSet", "bank-s1"]["metadata"]["annotations"]
    assert noted[names.IMAGE_ANNOTATION] == "bank:1"
    world.settle(300)
    assert world.log_codes == {"bank": OTHER, "bank-s1": OTHER}


def test_suspended_service_is_upgraded_once_it_runs() -> None:
    world = running()
    world.edit(suspend=True)
    world.settle()
    world.edit(image="bank:other")
    world.settle()
    assert (reason(world), world.size()) == ("OtherFingerprint", 0)
    assert "upgrade --offline" in world.condition("UpgradeRequired")["message"], "the way without the former code"
    world.edit(suspend=False)
    world.settle(100)
    assert world.log_code == OTHER


def test_called_off_upgrade_is_tried_again_and_three_times_in_all() -> None:
    world = driven()
    for number in (1, 2, 3):
        call_off(world)
        assert (reason(world), template_image(world)) == (
            "UpgradeRefused" if number == 3 else "UpgradeCalledOff",
            "bank:1",
        )
        world.settle()
        assert (world.size(), sorted(world.replicas())) == (3, ["bank-0", "bank-1", "bank-2"])
        assert reason(world, "Available") == "PrimaryServes"
        if number < 3:
            assert f"Attempt {number} of 3" in world.condition("UpgradeRequired")["message"]
            world.pass_time(SETTINGS.check_retry_s)
            until(world, lambda world, last=number: attempts(world) == [last + 1])  # type: ignore[misc]
    world.pass_time(10_000)
    world.settle()
    (pod,) = drivers(world)
    assert f"once pod {pod['metadata']['name']} is deleted" in world.condition("UpgradeRequired")["message"]


def attempts(world: World) -> list[int]:
    """Numbers of the driving pods that are there."""
    return sorted(int(pod["metadata"]["annotations"][names.ATTEMPT_ANNOTATION]) for pod in drivers(world))


def test_operator_that_was_away_between_two_attempts_goes_on_from_there() -> None:
    world = driven()
    (pod,) = drivers(world)
    end_driver(pod, 75, "DL1022 called off", world.now)
    world.pass_time(SETTINGS.check_retry_s + 1)
    world.operate()
    assert template_image(world) == "bank:other", "the upgraders are still there"
    assert attempts(world) == [1, 2]
    world.settle(100)
    assert world.log_code == OTHER


@pytest.mark.parametrize("said", ["", "DL3001 former: unknown field", "killed"])
def test_driving_pod_that_ends_otherwise_calls_the_upgrade_off(said: str) -> None:
    world = driven()
    call_off(world, said)
    assert reason(world) == "UpgradeCalledOff"
    assert (said or "without a word") in world.condition("UpgradeRequired")["message"]


def test_driving_pod_that_does_not_start_calls_the_upgrade_off() -> None:
    world = driven()
    world.pass_time(SETTINGS.check_deadline_s)
    world.operate()
    assert "does not start: it is not placed" in world.condition("UpgradeRequired")["message"]
    world = driven()
    (pod,) = drivers(world)
    waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling bank:other"}
    pod["status"]["containerStatuses"] = [{"name": "upgrade", "state": {"waiting": waiting}}]
    world.operate()
    assert "Back-off pulling" in world.condition("UpgradeRequired")["message"]


def test_driving_pod_that_says_it_is_made_is_believed_for_a_while() -> None:
    world = driven()
    (pod,) = drivers(world)
    end_driver(pod, 0, "{}", world.now)
    world.operate()
    assert "word for that is awaited" in world.condition("Progressing")["message"]
    world.pass_time(SETTINGS.step_deadline_s)
    world.operate()
    assert "no replica does" in world.condition("UpgradeRequired")["message"]


def test_driving_pod_on_a_lost_node_is_replaced() -> None:
    world = driven()
    world.run_kubelet(drivers(world)[0]["metadata"]["name"])
    (before,) = drivers(world)
    before["status"] = {"phase": "Running", "containerStatuses": [{"name": "upgrade", "state": {"running": {}}}]}
    node = before["spec"]["nodeName"]
    others = {pod["spec"].get("nodeName") for pod in world.replicas().values()}
    if node in others:  # only the driving pod is hit
        world.add_node("n9")
        before["spec"]["nodeName"] = node = "n9"
    world.lose_node(node)
    until(world, lambda world: drivers(world) != [before], 3)
    world.settle(100)
    assert world.log_code == OTHER


def test_lost_old_replica_calls_the_upgrade_off_and_it_begins_again() -> None:
    world = driven()
    del world.pods["bank-1"]
    world.run_controller()
    assert world.pods["bank-1"]["metadata"]["annotations"][names.UPGRADING_TO_ANNOTATION] == OTHER
    world.operate()
    assert (reason(world), template_image(world)) == ("UpgradeCalledOff", "bank:1")
    assert "bank-1 was lost" in world.condition("UpgradeRequired")["message"]
    assert noted_upgrade(world.snapshot()) is not None, "upgraders are still there"
    world.settle(150)
    assert (world.log_code, attempts(world)) == (OTHER, [])


def lose(world: World) -> None:
    """A replica of the accepted code is lost once the upgrade is led through."""
    until(world, lambda world: bool(drivers(world)), 150)
    del world.pods["bank-1"]
    world.run_controller()
    world.operate()


def noted_on(world: World) -> dict[str, str]:
    """Annotations of the StatefulSet."""
    return dict(world.children["StatefulSet", "bank"]["metadata"]["annotations"])


def test_upgrade_that_lost_replicas_spoil_is_begun_three_times_and_again_on_a_word() -> None:
    world = driven()
    for number in (1, 2, 3):
        lose(world)
        assert reason(world) == "UpgradeCalledOff"
        assert noted_on(world)[names.LOSSES_ANNOTATION].endswith(f" {number}")
    world.pass_time(10_000)
    world.settle(150)
    message = world.condition("UpgradeRequired")["message"]
    assert (reason(world), template_image(world), world.log_code) == ("UpgradeRefused", "bank:1", "aa" * 16)
    assert "was called off 3 times because a replica was lost" in message
    assert f"annotate statefulset bank {names.LOSSES_ANNOTATION}-" in message
    assert reason(world, "Available") == "PrimaryServes"
    del world.children["StatefulSet", "bank"]["metadata"]["annotations"][names.LOSSES_ANNOTATION]
    world.settle(150)
    assert world.log_code == OTHER
    assert names.LOSSES_ANNOTATION not in noted_on(world)


def test_upgrade_to_other_code_is_counted_anew() -> None:
    world = driven()
    for _ in range(3):
        lose(world)
    world.settle(150)
    assert reason(world) == "UpgradeRefused"
    world.edit(upgradePolicy="Automatic")
    world.settle(150)
    assert world.log_code == OTHER


@pytest.mark.parametrize("noted", ["", "3", "other 9", "{key} many", "{key} 9999999", "{key} -4"])
def test_what_somebody_wrote_as_a_count_of_losses_holds_nothing_back(noted: str) -> None:
    world = driven()
    lose(world)
    held = world.children["StatefulSet", "bank"]["metadata"]["annotations"]
    held[names.LOSSES_ANNOTATION] = noted.format(key=held[names.LOSSES_ANNOTATION].split()[0])
    world.settle(150)
    assert world.log_code == OTHER


def test_changed_number_of_replicas_begins_the_upgrade_anew() -> None:
    world = driven()
    world.edit(replicas=5)
    world.operate()
    assert "spec.replicas has changed from 3 to 5" in world.condition("UpgradeRequired")["message"]
    world.settle(150)
    assert (world.log_code, len(world.replicas())) == (OTHER, 5)


def test_spec_that_goes_back_before_the_commit_ends_the_upgrade() -> None:
    world = driven()
    world.edit(image="bank:1")
    world.settle()
    assert (world.log_code, world.takeovers, template_image(world)) == ("aa" * 16, 1, "bank:1")
    assert (drivers(world), sorted(world.replicas())) == ([], ["bank-0", "bank-1", "bank-2"])
    assert noted_upgrade(world.snapshot()) is None


def test_spec_that_goes_back_at_the_commit_is_another_upgrade() -> None:
    world = driven()
    world.others_work()
    world.ordered = OTHER  # the primary was told, and the pod that told it goes
    world.edit(image="bank:1")
    world.operate()
    assert template_image(world) == "bank:1"
    world.elect()
    assert world.log_code == OTHER, "nobody asked who ordered it"
    world.told.clear()
    world.operate()
    assert "Upgraded" in world.told
    assert world.status["image"] == "bank:other", "what serves is what is accepted"
    world.settle(150)
    assert (world.log_code, world.status["image"]) == ("aa" * 16, "bank:1")
    assert sorted(world.replicas()) == ["bank-0", "bank-1", "bank-2"]


def test_upgrade_whose_upgraders_ended_before_anybody_saw_them_lead_counts() -> None:
    world = driven()
    world.others_work()
    world.ordered = OTHER
    world.edit(image="bank:1")
    world.operate()
    world.elect()
    for name in ("bank-3", "bank-4"):
        del world.pods[name]
    for _ in range(2):
        world.others_work()
    assert {role(pod) for pod in world.replicas().values()} == {"dead"}
    world.settle(200)
    assert world.log_code == "aa" * 16, "it serves by the new code, then it is upgraded back"
    assert world.told.count("Upgraded") == 2


def test_service_that_is_suspended_meanwhile_ends_the_upgrade() -> None:
    world = driven()
    world.edit(suspend=True)
    world.settle()
    assert (world.size(), world.replicas(), drivers(world)) == (0, {}, [])
    world.edit(suspend=False)
    world.settle(150)
    assert world.log_code == OTHER


def test_check_pod_is_not_needed_once_it_has_begun() -> None:
    world = driven()
    for name in [name for name, pod in world.pods.items() if purpose(pod)]:
        del world.pods[name]
    world.operate()
    assert [purpose(pod) for pod in world.pods.values() if purpose(pod)] == ["upgrade"]
    world.settle(100)
    assert world.log_code == OTHER


def test_paused_service_shows_what_it_has() -> None:
    world = driven()
    world.annotations[names.PAUSED_ANNOTATION] = "true"
    plan = world.operate()
    assert (plan.actions, plan.wanted, world.status["ready"]) == ((), 3, "3/3")


@pytest.mark.parametrize("what", ["unready", "adopting", "lost", "scaling", "unled"])
def test_upgrade_begins_when_nothing_else_is_under_way(what: str) -> None:
    world = running()
    if what == "unready":
        set_ready(world.pods["bank-2"], ready=False)
    if what == "lost":
        world.lose_node(world.pods["bank-2"]["spec"]["nodeName"])
    if what == "unled":
        world.pods["bank-0"]["metadata"]["labels"].pop(names.LABEL_ROLE)
    if what == "adopting":
        labels = names.labels("bank") | {names.LABEL_PURPOSE: names.PURPOSE_ADOPT}
        world.make_pod("bank-adopt", {"metadata": {"labels": labels}, "spec": {"containers": []}})
    world.edit(image="bank:other", **({"replicas": 5} if what == "scaling" else {}))
    world.operate()
    for pod in [pod for pod in world.pods.values() if purpose(pod) == "check"]:
        world._run_check(pod)
    plan = world.operate()
    assert template_image(world) == "bank:1"
    assert world.size() == (5 if what == "scaling" else 3)
    assert reason(world, "UpgradeRequired") == "SameCode", "nobody has to do anything"
    assert plan.requeue_s is not None
    assert plan.requeue_s <= upgrade.LOOK_S


def test_upgraders_that_can_not_be_placed_are_told() -> None:
    world = running()
    world.edit(image="bank:other")
    until(world, lambda world: world.size() == 5)
    world.run_controller()
    world.pods["bank-4"]["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "message": "no room for it"}
    ]
    world.run_kubelet("bank-3")
    world.operate()
    message = world.condition("Progressing")["message"]
    assert "waiting for bank-4 (no room for it) to start" in message
    world.pass_time(upgrade.UP_S)
    world.operate()
    assert len(drivers(world)) == 1, "one of them may do"


def test_refused_word_of_an_upgrader_is_no_condition_of_the_service() -> None:
    world = driven()
    world._say("bank-3", world.pods["bank-3"], "recovering", condition="DL3013")
    world.operate()
    told = {each["type"]: each["status"] for each in world.status["conditions"]}
    assert told["Degraded"] == "False"


def test_word_counts_with_enough_digits_of_a_fingerprint_alone() -> None:
    world = running()
    for given, counts in ((OTHER, True), (OTHER[:12], True), (OTHER[:11], False), ("x" * 32, False), ("", False)):
        world.annotations[names.UPGRADE_ANNOTATION] = given
        assert (upgrade.word_of(world.snapshot()) != "") is counts
