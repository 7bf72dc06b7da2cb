"""LiveUpgrades: what a service is asked to run beside its spec, in which order, and the way back."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.deathless_operator.plan.plan_world import World, code_of, purpose, running, template_of

from deathless_operator.model import names
from deathless_operator.plan.service.reading import read_time
from deathless_operator.plan.service.upgrading.accepted import noted_upgrade

OTHER = "bb" * 16
MAJOR = "dd" * 16
ROUNDS = 150


def drivers(world: World) -> list[dict[str, Any]]:
    """Pods that lead through an upgrade, or did."""
    return [pod for pod in world.pods.values() if purpose(pod) == names.PURPOSE_UPGRADE]


def until_phase(world: World, name: str, phase: str, rounds_max: int = 80) -> None:
    """Everybody works until a LiveUpgrade is told to be so far."""
    for _ in range(rounds_max):
        world.operate()
        if world.upgrade(name).get("phase") == phase:
            return
        world.others_work()
    raise AssertionError(f"{name} is {world.upgrade(name)}")


def asked(image: str = "bank:major", **spec: Any) -> World:
    """A service that runs, for which a LiveUpgrade has just been made."""
    world = running()
    world.told.clear()
    world.ask("second", image, **spec)
    return world


def test_code_that_only_a_live_upgrade_names_is_upgraded_to_and_stays() -> None:
    world = asked()
    world.settle(ROUNDS)
    told = world.upgrade("second")
    assert (told["phase"], told["reason"], world.log_code) == ("Succeeded", "Upgraded", MAJOR)
    assert told["former"] == {"image": "bank:1", "module": "bank:bank"}
    assert told["unavailableSeconds"] == 0.25
    assert sorted(world.replicas()) == ["bank-0", "bank-1", "bank-2"]
    assert {template_of(pod) for pod in world.replicas().values()} == {world.template()}
    assert world.spec["image"] == "bank:1", "the spec is the user's"
    accepted = world.condition("Accepted")
    assert (accepted["status"], accepted["reason"]) == ("True", "SpecBehind")
    assert world.condition("Ready")["status"] == "True"
    assert drivers(world) == []
    world.pass_time(5000)
    world.settle(ROUNDS)
    assert world.log_code == MAJOR


def test_the_spec_may_follow_and_is_an_order_again_once_it_names_anything_else() -> None:
    world = asked()
    world.settle(ROUNDS)
    world.edit(image="bank:major")
    world.settle(ROUNDS)
    assert world.condition("Accepted")["reason"] == "SpecAccepted"
    world.edit(image="bank:other", upgradePolicy="Automatic")
    world.settle(ROUNDS)
    assert world.log_code == OTHER


def test_an_image_that_the_spec_named_before_is_an_order_again_behind_another_one() -> None:
    world = asked()
    world.settle(ROUNDS)
    world.edit(image="bank:major")
    world.settle(ROUNDS)
    world.edit(image="bank:1", upgradePolicy="Automatic")
    world.settle(ROUNDS)
    assert world.log_code == "aa" * 16


def test_limits_may_change_behind_a_live_upgrade_without_the_old_image_coming_back() -> None:
    world = asked()
    world.settle(ROUNDS)
    world.edit(replicas=5)
    world.settle(ROUNDS)
    assert (world.log_code, len(world.replicas())) == (MAJOR, 5)


def test_it_is_the_word_that_an_incompatible_image_in_the_spec_waits_for() -> None:
    world = running()
    world.edit(image="bank:major", upgradePolicy="Manual")
    world.settle(ROUNDS)
    assert world.condition("UpgradeRequired")["status"] == "True"
    world.ask("second", "bank:major")
    world.settle(ROUNDS)
    assert (world.log_code, world.upgrade("second")["phase"]) == (MAJOR, "Succeeded")
    assert world.condition("Accepted")["reason"] == "SpecAccepted"


def test_held_everything_is_tried_and_nothing_is_handed_over() -> None:
    world = asked(action="Hold")
    until_phase(world, "second", "Ready")
    for _ in range(20):
        world.operate()
        world.others_work()
    assert (world.upgrade("second")["phase"], world.log_code) == ("Ready", "aa" * 16)
    assert sorted(world.replicas()) == [f"bank-{ordinal}" for ordinal in range(5)]
    assert "--prepare-only" in drivers(world)[0]["spec"]["containers"][0]["command"]
    world.order("second", "Go")
    world.settle(ROUNDS)
    assert (world.upgrade("second")["phase"], world.log_code) == ("Succeeded", MAJOR)


def test_what_does_not_fit_is_found_while_it_is_held() -> None:
    world = asked("bank:misfit", action="Hold")
    until_phase(world, "second", "Refused")
    world.settle(ROUNDS)
    assert "FieldDropped" in world.upgrade("second")["message"]
    assert (world.log_code, len(world.replicas())) == ("aa" * 16, 3)
    assert world.condition("Ready")["status"] == "True", "the spec is in force: it never asked for that code"


def test_the_annotation_counts_before_the_spec() -> None:
    world = asked(action="Hold")
    until_phase(world, "second", "Ready")
    world.live_upgrades["second"]["metadata"]["annotations"] = {names.ACTION_ANNOTATION: "Go"}
    world.settle(ROUNDS)
    assert world.log_code == MAJOR
    world.live_upgrades["second"]["metadata"]["annotations"] = {names.ACTION_ANNOTATION: "Sideways"}
    world.settle(ROUNDS)
    assert world.log_code == MAJOR, "a word that says nothing is passed over"


@pytest.mark.parametrize("phase", ["Checking", "Preparing", "Ready"])
def test_aborted_before_it_is_handed_over_the_former_code_stays(phase: str) -> None:
    world = asked(action="Hold")
    until_phase(world, "second", phase)
    world.order("second", "Abort")
    world.settle(ROUNDS)
    assert (world.upgrade("second")["phase"], world.log_code) == ("Aborted", "aa" * 16)
    assert sorted(world.replicas()) == ["bank-0", "bank-1", "bank-2"]
    assert noted_upgrade(world.snapshot()) is None


@pytest.mark.parametrize("phase", ["Checking", "Preparing", "Ready"])
def test_deleted_before_it_is_handed_over_the_former_code_stays(phase: str) -> None:
    world = asked(action="Hold")
    until_phase(world, "second", phase)
    del world.live_upgrades["second"]
    world.settle(ROUNDS)
    assert (world.log_code, sorted(world.replicas())) == ("aa" * 16, ["bank-0", "bank-1", "bank-2"])


def test_aborted_too_late_the_new_code_stays_and_says_how_to_return() -> None:
    world = asked()
    for _ in range(80):
        world.operate()
        world.others_work()
        if world.log_code == MAJOR:
            break
    world.order("second", "Abort")
    world.settle(ROUNDS)
    told = world.upgrade("second")
    assert (told["phase"], told["reason"], world.log_code) == ("Succeeded", "AbortedTooLate", MAJOR)
    assert "BackOut" in told["message"]


def test_deleted_behind_the_commit_the_new_code_stays() -> None:
    world = asked()
    for _ in range(80):
        world.operate()
        world.others_work()
        if world.log_code == MAJOR:
            break
    del world.live_upgrades["second"]
    world.settle(ROUNDS)
    assert (world.log_code, world.condition("Accepted")["reason"]) == (MAJOR, "SpecBehind")


@pytest.mark.parametrize("spec_follows", [False, True])
def test_backed_out_the_code_of_before_serves_and_the_spec_does_not_bring_the_other_one_back(
    spec_follows: bool,
) -> None:
    world = asked()
    world.settle(ROUNDS)
    if spec_follows:
        world.edit(image="bank:major", upgradePolicy="Automatic")
        world.settle(ROUNDS)
    world.order("second", "BackOut")
    world.settle(ROUNDS)
    assert (world.upgrade("second")["phase"], world.log_code) == ("BackedOut", "aa" * 16)
    wanted = "SpecBehind" if spec_follows else "SpecAccepted"
    assert world.condition("Accepted")["reason"] == wanted
    world.pass_time(5000)
    world.settle(ROUNDS)
    assert world.log_code == "aa" * 16


def test_back_out_of_one_that_was_never_made_calls_it_off() -> None:
    world = asked(action="Hold")
    until_phase(world, "second", "Ready")
    world.order("second", "BackOut")
    world.settle(ROUNDS)
    assert (world.upgrade("second")["phase"], world.log_code) == ("Aborted", "aa" * 16)


def test_one_at_a_time_the_oldest_first() -> None:
    world = asked("bank:other")
    world.ask("third", "bank:major")
    until_phase(world, "second", "Upgrading")
    assert (world.upgrade("third")["phase"], world.upgrade("third")["reason"]) == ("Pending", "AnotherUpgrade")
    world.settle(2 * ROUNDS)
    assert [world.upgrade(name)["phase"] for name in ("second", "third")] == ["Succeeded", "Succeeded"]
    assert world.log_code == MAJOR
    assert world.upgrade("third")["former"]["image"] == "bank:other"


def test_what_serves_already_is_a_success_at_once() -> None:
    world = asked("bank:1")
    world.settle(ROUNDS)
    told = world.upgrade("second")
    assert (told["phase"], told["reason"]) == ("Succeeded", "ServesAlready")
    assert "former" not in told
    world.order("second", "BackOut")
    world.settle(ROUNDS)
    assert world.upgrade("second")["phase"] == "Succeeded", "there is nothing to return to"


def test_other_code_than_the_one_it_was_written_for_refuses_it() -> None:
    world = asked()
    world.live_upgrades["second"]["spec"]["from"] = {"image": "bank:0"}
    world.settle(ROUNDS)
    told = world.upgrade("second")
    assert (told["phase"], told["reason"], world.log_code) == ("Refused", "OtherCodeServes", "aa" * 16)
    assert "bank:1 serves" in told["message"]


def test_it_waits_for_its_window_with_everything_ready() -> None:
    world = asked(window={"schedule": "0 2 * * *", "durationSeconds": 3600, "timeZone": "Europe/Berlin"})
    until_phase(world, "second", "Ready")
    told = world.upgrade("second")["message"]
    assert "its window opens at " in told
    opens = read_time(told.rpartition(" at ")[2])
    assert opens is not None
    assert opens > world.now
    world.now = opens - 5
    world.operate()
    assert world.upgrade("second")["phase"] == "Ready"
    world.now = opens + 5
    world.settle(ROUNDS)
    assert (world.upgrade("second")["phase"], world.log_code) == ("Succeeded", MAJOR)


def test_a_window_that_can_not_be_read_is_told() -> None:
    world = asked(window={"schedule": "0 2 * * *", "timeZone": "Europe/Nowhere"})
    world.settle(ROUNDS)
    told = world.upgrade("second")
    assert (told["phase"], told["reason"]) == ("Pending", "InvalidSpec")
    assert "Europe/Nowhere" in told["message"]


def test_a_service_that_is_suspended_is_waited_for() -> None:
    world = running()
    world.edit(suspend=True)
    world.settle(ROUNDS)
    world.ask("second", "bank:other")
    world.settle(ROUNDS)
    assert world.upgrade("second")["phase"] == "Pending"
    assert "spec.suspend" in world.upgrade("second")["message"]
    world.edit(suspend=False)
    world.settle(ROUNDS)
    assert (world.upgrade("second")["phase"], world.log_code) == ("Succeeded", OTHER)


def test_an_image_that_can_not_be_pulled_is_told_and_mended() -> None:
    world = running()
    world.unpullable = ("bank:other",)
    world.ask("second", "bank:other")
    world.settle(ROUNDS)
    told = world.upgrade("second")
    assert (told["phase"], told["reason"]) == ("Checking", "ImagePullFailed")
    world.unpullable = ()
    world.settle(ROUNDS)
    assert (world.upgrade("second")["phase"], world.log_code) == ("Succeeded", OTHER)


def test_shards_are_upgraded_one_after_another_and_each_is_told_of() -> None:
    world = running({"shards": 2})
    world.ask("second", "bank:other")
    world.settle(3 * ROUNDS)
    told = world.upgrade("second")
    assert told["phase"] == "Succeeded"
    assert [(each["shard"], each["phase"], each["unavailableSeconds"]) for each in told["shards"]] == [
        (0, "Succeeded", 0.25),
        (1, "Succeeded", 0.25),
    ]
    assert set(world.log_codes.values()) == {OTHER}
    world.order("second", "BackOut")
    world.settle(3 * ROUNDS)
    assert set(world.log_codes.values()) == {"aa" * 16}
    assert world.upgrade("second")["phase"] == "BackedOut"


def test_the_mark_survives_the_loss_of_the_stateful_set() -> None:
    world = asked()
    world.settle(ROUNDS)
    del world.children["StatefulSet", "bank"]
    world.settle(ROUNDS)
    assert world.log_code == MAJOR
    assert {code_of(pod) for pod in world.replicas().values()} == {MAJOR}
