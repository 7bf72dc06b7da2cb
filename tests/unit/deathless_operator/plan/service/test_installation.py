"""Two installations of the chart with its defaults: one looks after a service, the other steps back."""

from __future__ import annotations

import msgspec
from tests.unit.deathless_operator.plan.plan_world import SETTINGS, World, running

from deathless_operator.model import names
from deathless_operator.plan.service.plan import make_plan

OTHER = msgspec.structs.replace(SETTINGS, namespace="second", lock_endpoints=("https://other:2379",))


def test_first_that_looks_claims_and_does_nothing_else_in_that_look() -> None:
    world = World(status={})
    plan = world.operate()
    assert (plan.actions, plan.requeue_s, world.status) == ((), 0.0, {"installation": "deathless-system"})
    world.settle()
    assert world.status["installation"] == "deathless-system"


def test_second_installation_changes_nothing_and_says_whose_it_is_and_how_it_is_moved() -> None:
    world = running()
    plan = make_plan(world.snapshot(), OTHER)
    assert (plan.actions, plan.status) == ((), None)
    (event,) = plan.events
    assert event.reason == "OtherInstallation"
    assert (
        "kubectl -n prod annotate --overwrite deathlessservice bank deathless.dev/installation=second" in event.message
    )


def test_both_working_in_turn_never_change_what_stands() -> None:
    world = running()
    before, takeovers = world.template(), world.takeovers
    for index in range(40):
        world.settings = OTHER if index % 2 else SETTINGS
        world.operate()
        world.run_controller()
        world.pass_time(5)
    assert (world.template(), world.takeovers) == (before, takeovers)


def test_owner_is_known_by_the_objects_where_the_status_was_lost() -> None:
    world = running()
    world.status = {}
    assert make_plan(world.snapshot(), OTHER).status is None
    world.operate()
    assert world.condition("Ready")["status"] == "True"
    world.settle()
    assert world.status["installation"] == "deathless-system"


def test_person_moves_a_service_by_the_annotation() -> None:
    world = running()
    world.annotations[names.INSTALLATION_ANNOTATION] = "second"
    assert make_plan(world.snapshot(), SETTINGS).status is None
    assert make_plan(world.snapshot(), OTHER).actions != ()


def test_status_that_names_nobody_keeps_its_owner_from_nothing_and_lets_no_other_in() -> None:
    world = running()
    for written in ("nobody", "second", "-", ""):
        world.status["installation"] = written
        assert make_plan(world.snapshot(), OTHER).status is None
        world.operate()
        assert world.status["installation"] == "deathless-system"


def test_service_that_was_moved_stays_moved_when_the_annotation_is_taken_away() -> None:
    world = running()
    world.annotations[names.INSTALLATION_ANNOTATION] = "second"
    world.settings = OTHER
    world.operate()
    del world.annotations[names.INSTALLATION_ANNOTATION]
    assert make_plan(world.snapshot(), SETTINGS).status is None
    assert make_plan(world.snapshot(), OTHER).status is not None


def test_claim_of_a_moment_ago_counts_before_anything_is_marked() -> None:
    world = World(status={"installation": "second"})
    assert make_plan(world.snapshot(), SETTINGS).status is None
    assert make_plan(world.snapshot(), OTHER).actions != ()
