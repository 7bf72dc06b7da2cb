"""A storage that is slow for everybody deposes nobody; one that hangs for one replica still does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deathless.base.limits import Limits
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.core.supervisor.detection import (
    FORGET_S,
    SLOW_FACTOR,
    SLOW_MAX_S,
    TAKING_CALLS,
    TAKING_MAX_S,
    Detector,
    Report,
    WorkerState,
)

LIMITS = Limits()
CARELESS = replace(ALL_SAFEGUARDS, adapt_to_slow_storage=False)


def detector(safeguards: Safeguards = ALL_SAFEGUARDS) -> Detector:
    return Detector(replica="r1", limits=LIMITS, now=0.0, safeguards=safeguards)


def report(replica: str, role: str, slow_ms: int = 0, state: WorkerState = WorkerState.RUNNING) -> Report:
    return Report(replica=replica, state=state, role=role, epoch=1, lsn=5, slow_ms=slow_ms)


def test_a_call_may_take_what_the_storage_did_lately_for_anybody_and_some() -> None:
    known = detector()
    known.report_received(report("r1", "primary"), 1.0)
    assert known.call_max_s(1.0) == LIMITS.log_call_max_s
    known.report_received(report("r2", "standby", slow_ms=2500), 1.0)
    assert known.call_max_s(1.0) == SLOW_FACTOR * 2.5
    assert known.call_max_s(1.0 + FORGET_S + 0.1) == LIMITS.log_call_max_s, "who says nothing any more is not believed"


def test_no_claim_makes_a_hung_call_wait_for_ever() -> None:
    known = detector()
    known.report_received(report("r1", "primary"), 1.0)
    known.report_received(report("r2", "standby", slow_ms=1 << 60), 1.0)
    assert known.call_max_s(1.0) == SLOW_FACTOR * SLOW_MAX_S


def test_who_takes_over_has_the_time_to_learn_how_slow_the_storage_is() -> None:
    known = detector()
    known.report_received(report("r1", "taking-over"), 1.0)
    assert known.call_max_s(1.0) == TAKING_MAX_S


def test_without_adapting_a_slow_call_is_a_hung_one() -> None:
    known = detector(CARELESS)
    known.report_received(report("r1", "taking-over", slow_ms=2500), 1.0)
    assert known.call_max_s(1.0) == LIMITS.log_call_max_s


def ordered_after(slow_ms: int, safeguards: Safeguards = ALL_SAFEGUARDS) -> float:
    """When another replica's takeover is stolen: each of its calls takes so long, and it never ends."""
    known = detector(safeguards)
    now = 0.0
    while now < 200:
        now += 0.1
        known.report_received(report("r1", "standby"), now)
        known.report_received(
            report("r0", "primary", state=WorkerState.DEAD) if now < 0.5 else report("r0", "dead"), now
        )
        known.report_received(report("r2", "taking-over", slow_ms), now)
        if known.decide(now, float("inf")) is not None:
            return now
    return now


@pytest.mark.parametrize(
    ("slow_ms", "least_s"), [(0, TAKING_MAX_S), (500, TAKING_CALLS * 0.5), (2500, TAKING_CALLS * 2.5)]
)
def test_a_takeover_on_a_slow_storage_is_not_stolen_while_its_calls_need_their_time(
    slow_ms: int, least_s: float
) -> None:
    found = ordered_after(slow_ms)
    assert least_s <= found < least_s + 5


def test_without_adapting_takeovers_on_a_slow_storage_are_stolen_in_turn() -> None:
    assert ordered_after(2500, CARELESS) < TAKING_CALLS * 2.5 / 4
