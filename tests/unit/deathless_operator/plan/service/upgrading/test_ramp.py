"""Ramps of LiveUpgrades: what has to be seen of some shards before the next ones are upgraded."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.deathless_operator.plan.plan_world import World, running
from tests.unit.deathless_operator.plan.service.upgrading.test_asked_for import OTHER, ROUNDS, until_phase

from deathless_operator.model import names
from deathless_operator.plan.service.reading import read_live_upgrade, show_time
from deathless_operator.plan.service.upgrading.ramp import queries_of
from deathless_operator.plan.snapshot import Measured

FORMER = "aa" * 16
STEPS = [{"shards": 1, "holdSeconds": 3600}, {"shards": 2, "holdSeconds": 0}]


def ramping(*steps: dict[str, Any], shards: int = 3) -> World:
    """A service of whose shards the first has just been upgraded."""
    world = running({"shards": shards, "replicas": 2})
    world.ask("second", "bank:other", ramp=list(steps or STEPS))
    until_phase(world, "second", "Ramping", ROUNDS)
    return world


def add_drill(world: World, verdict: str, *, service: str = "bank", began_in_s: float = 0.0) -> None:
    """A drill of which one run has ended."""
    world.drills["nightly"] = {
        "metadata": {"name": "nightly", "namespace": "prod", "uid": "d"},
        "spec": {"serviceRef": {"name": service}, "fault": {"type": "PodDelete"}},
        "status": {
            "last": {
                "id": "nightly-7",
                "startTime": show_time(world.now + began_in_s),
                "verdict": verdict,
                "message": "2 calls were lost",
            }
        },
    }


def test_the_next_shards_wait_until_those_before_have_served_for_as_long_as_the_step_says() -> None:
    world = ramping()
    world.pass_time(1000)
    world.settle(ROUNDS)
    told = world.upgrade("second")
    assert (told["phase"], sorted(world.log_codes.values())) == ("Ramping", [FORMER] * 2 + [OTHER])
    assert "shard 0 runs the new code, and the next ones follow at " in told["message"]
    assert len(world.replicas(names.of_shard("bank", 1))) == 2, "no pods of the new code stand by for hours"
    assert world.condition("Available")["status"] == "True"
    world.pass_time(2600)
    world.settle(3 * ROUNDS)
    assert set(world.log_codes.values()) == {OTHER}
    told = world.upgrade("second")
    assert told["phase"] == "Succeeded"
    done = [each["completionTime"] for each in told["shards"]]
    assert done == sorted(done)


def test_an_operator_that_is_started_again_counts_on_and_a_lost_status_begins_to_count_again() -> None:
    world = ramping()
    world.pass_time(3000)
    del world.live_upgrades["second"]["status"]
    world.settle(ROUNDS)
    world.pass_time(1000)
    world.settle(ROUNDS)
    assert sorted(world.log_codes.values()) == [FORMER] * 2 + [OTHER]
    world.pass_time(3000)
    world.settle(3 * ROUNDS)
    assert set(world.log_codes.values()) == {OTHER}


def test_a_step_that_is_taken_out_of_the_spec_holds_nothing_back() -> None:
    world = ramping()
    world.live_upgrades["second"]["spec"]["ramp"] = []
    world.settle(3 * ROUNDS)
    assert set(world.log_codes.values()) == {OTHER}


def test_back_out_in_the_middle_of_a_ramp_returns_the_upgraded_shards_at_once() -> None:
    world = ramping()
    world.order("second", "Abort")
    world.settle(ROUNDS)
    assert world.upgrade("second")["phase"] == "Aborted"
    world.order("second", "BackOut")
    world.settle(2 * ROUNDS)
    assert set(world.log_codes.values()) == {FORMER}


NO_RUN = "once a run of FailoverDrill nightly has passed that begins from now on"
DRILLED = {"shards": 1, "holdSeconds": 0, "drill": "nightly"}


@pytest.mark.parametrize(
    ("verdict", "more", "told"),
    [
        ("", {}, NO_RUN),
        ("Aborted", {}, NO_RUN),
        ("Inconclusive", {}, NO_RUN),
        (
            "Passed",
            {"began_in_s": -100_000.0},
            NO_RUN,
        ),
        ("Passed", {"service": "ledger"}, "is of service ledger"),
        ("Failed", {}, "run nightly-7 of FailoverDrill nightly failed: 2 calls were lost"),
    ],
)
def test_a_drill_that_has_not_passed_since_keeps_the_gate_shut(verdict: str, more: dict[str, Any], told: str) -> None:
    world = ramping(DRILLED, shards=2)
    add_drill(world, verdict, **more)
    world.settle(ROUNDS)
    assert told in world.upgrade("second")["message"]
    assert sorted(world.log_codes.values()) == [FORMER, OTHER]
    add_drill(world, "Passed")
    world.settle(2 * ROUNDS)
    assert set(world.log_codes.values()) == {OTHER}


def test_a_drill_that_is_not_there_is_told() -> None:
    world = ramping(DRILLED, shards=2)
    assert "there is no FailoverDrill nightly" in world.upgrade("second")["message"]


def test_a_drill_whose_spec_can_not_be_read_counts_by_its_runs() -> None:
    world = ramping(DRILLED, shards=2)
    add_drill(world, "Passed")
    world.drills["nightly"]["spec"] = {"fault": "nonsense"}
    world.settle(2 * ROUNDS)
    assert set(world.log_codes.values()) == {OTHER}


ERRORS = {"name": "errors", "query": "errors / calls", "max": 0.01}
CALLS = {"name": "calls", "query": "calls", "min": 1.0}
MEASURED = {"shards": 1, "holdSeconds": 0, "metrics": [ERRORS, CALLS]}
GOOD = {"errors / calls": Measured(value=0.01), "calls": Measured(value=1.0)}


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ({}, "metric errors is at most 0.01 (it can't be told: it has not been asked for yet)"),
        (GOOD | {"errors / calls": Measured(value=0.02)}, "metric errors is at most 0.01 (it is 0.02)"),
        (GOOD | {"calls": Measured(value=0.5)}, "once metric calls is at least 1 (it is 0.5)"),
        (GOOD | {"calls": Measured(problem="there is no data")}, "(it can't be told: there is no data)"),
        (GOOD | {"errors / calls": Measured(value=float("nan"))}, "metric errors is at most 0.01 (it is nan)"),
    ],
)
def test_a_number_that_is_out_of_bounds_or_can_not_be_told_keeps_the_gate_shut(
    found: dict[str, Measured], told: str
) -> None:
    world = ramping(MEASURED, shards=2)
    world.measured = found
    world.settle(ROUNDS)
    assert told in world.upgrade("second")["message"]
    assert sorted(world.log_codes.values()) == [FORMER, OTHER]
    assert world.plan().requeue_s is not None, "it is asked again without anybody's doing"
    world.measured = GOOD
    world.settle(2 * ROUNDS)
    assert set(world.log_codes.values()) == {OTHER}


def test_a_drill_and_a_number_are_both_waited_for() -> None:
    world = ramping({**MEASURED, "drill": "nightly"}, shards=2)
    world.measured = GOOD
    world.settle(ROUNDS)
    assert sorted(world.log_codes.values()) == [FORMER, OTHER]
    add_drill(world, "Passed")
    world.measured = {}
    world.settle(ROUNDS)
    assert "metric errors" in world.upgrade("second")["message"]
    assert sorted(world.log_codes.values()) == [FORMER, OTHER]


def test_numbers_of_the_step_at_which_the_ramp_stands_are_asked_for_and_no_others() -> None:
    world = ramping({**MEASURED, "holdSeconds": 3600}, {"shards": 2, "metrics": [ERRORS]})
    found = read_live_upgrade(world.live_upgrades["second"])
    assert queries_of(found) == ("errors / calls", "calls")
    del world.live_upgrades["second"]["status"]
    assert queries_of(read_live_upgrade(world.live_upgrades["second"])) == ()
