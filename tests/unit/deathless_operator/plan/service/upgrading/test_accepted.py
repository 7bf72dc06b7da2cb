"""Which code was accepted, which one serves, and which one it is upgraded to."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.deathless_operator.plan.plan_world import World, running, set_ready
from tests.unit.deathless_operator.plan.service.upgrading.test_upgrade import OTHER, driven

from deathless_operator.model import names
from deathless_operator.plan.service.upgrading.accepted import (
    accepted_code,
    kept_note,
    made_upgrade,
    noted_upgrade,
    serving_fingerprint,
)


def noted_on(world: World) -> dict[str, Any]:
    """Of the StatefulSet."""
    found: dict[str, Any] = world.children["StatefulSet", "bank"]["metadata"]["annotations"]
    return found


def say(world: World, name: str, **fields: Any) -> None:
    """A replica announces something else."""
    held = world.pods[name]["metadata"]["annotations"]
    held[names.STATUS_ANNOTATION] = json.dumps(json.loads(held[names.STATUS_ANNOTATION]) | fields)


def accepted_image(world: World) -> str:
    """Image of the accepted code."""
    code = accepted_code(world.snapshot())
    assert code is not None
    return code.image


def test_code_that_is_upgraded_to_is_noted_beside_the_accepted_one() -> None:
    world = driven()
    noted = noted_upgrade(world.snapshot())
    assert noted is not None
    assert (noted.image, noted.module, noted.fingerprint, noted.replicas) == ("bank:other", "bank:bank", OTHER, 3)
    assert (accepted_image(world), made_upgrade(world.snapshot())) == ("bank:1", None)
    noted_on(world)[names.UPGRADING_TO_ANNOTATION] = "{"
    assert noted_upgrade(world.snapshot()) is None, "somebody wrote there"


def test_upgraded_code_is_the_accepted_one_once_a_replica_serves_by_it() -> None:
    world = driven()
    world.edit(image="bank:2")
    say(world, "bank-0", fingerprint=OTHER, epoch=9)
    assert (accepted_image(world), serving_fingerprint(world.snapshot())) == ("bank:other", OTHER)
    assert kept_note(world.snapshot()) is None


def test_other_spelling_of_the_code_counts_as_well() -> None:
    world = driven()
    note = json.loads(noted_on(world)[names.UPGRADING_TO_ANNOTATION])
    noted_on(world)[names.UPGRADING_TO_ANNOTATION] = json.dumps(note | {"spellings": ["ee" * 16]})
    say(world, "bank-0", fingerprint="ee" * 16, epoch=9)
    assert accepted_image(world) == "bank:other"


def test_fingerprint_that_an_upgrader_tells_before_the_commit_is_the_former_one() -> None:
    world = driven()
    world.others_work()
    told = {pod.name: pod.announced for pod in world.snapshot().pods if pod.announced is not None}
    assert {each.fingerprint for each in told.values()} == {"aa" * 16}
    assert told["bank-3"].role == "upgrader"
    assert serving_fingerprint(world.snapshot()) == "aa" * 16


def test_replicas_that_are_all_refused_say_that_the_upgrade_was_made() -> None:
    world = driven()
    for name in ("bank-0", "bank-1", "bank-2"):
        set_ready(world.pods[name], ready=False)
        say(world, name, condition="DL4009", role="dead")
    assert (accepted_image(world), serving_fingerprint(world.snapshot())) == ("bank:other", OTHER)
    del noted_on(world)[names.UPGRADING_TO_ANNOTATION]
    assert accepted_image(world) == "bank:1", "without a note nobody knows which code"


def test_upgrader_that_is_about_to_lead_does_not_tell_what_serves() -> None:
    world = driven()
    world.others_work()
    for name in ("bank-0", "bank-1", "bank-2"):
        set_ready(world.pods[name], ready=False)
    say(world, "bank-3", role="taking-over", fingerprint=OTHER, epoch=9)
    assert (accepted_image(world), serving_fingerprint(world.snapshot())) == ("bank:1", "aa" * 16)
    say(world, "bank-3", role="primary", condition="DL1014")
    assert accepted_image(world) == "bank:1"
    say(world, "bank-3", role="primary", condition="")
    assert accepted_image(world) == "bank:other"


@pytest.mark.parametrize("code", ["DL4009", "DL1024"])
def test_replica_that_is_refused_for_its_code_does_not_tell_what_serves(code: str) -> None:
    world = driven()
    for name in ("bank-0", "bank-1", "bank-2"):
        set_ready(world.pods[name], ready=False)
    say(world, "bank-0", problem=code, epoch=50, fingerprint="cc" * 16)
    del noted_on(world)[names.UPGRADING_TO_ANNOTATION]
    assert serving_fingerprint(world.snapshot()) == "aa" * 16


def test_silent_pod_of_an_earlier_epoch_does_not_contradict_the_status() -> None:
    world = running()
    for name in ("bank-0", "bank-1", "bank-2"):
        set_ready(world.pods[name], ready=False)
    world.status |= {"epoch": 7, "fingerprint": OTHER}
    assert serving_fingerprint(world.snapshot()) == OTHER
    say(world, "bank-1", epoch=7)
    assert serving_fingerprint(world.snapshot()) == "aa" * 16


def test_note_of_an_upgrade_stays_while_it_may_still_be_made() -> None:
    world = driven()
    world.edit(image="bank:1")
    assert kept_note(world.snapshot()) is not None, "upgraders are there"
    for name in ("bank-3", "bank-4"):
        del world.pods[name]
    assert kept_note(world.snapshot()) is None
    for name in ("bank-0", "bank-1", "bank-2"):
        set_ready(world.pods[name], ready=False)
    assert kept_note(world.snapshot()) is not None, "nobody serves: it may have been made"
