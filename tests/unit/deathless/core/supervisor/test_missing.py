"""What is not found of the log is lost when it stays missing, for what was tried; success elsewhere says nothing."""

from __future__ import annotations

import pytest

from deathless.core.supervisor.missing import MISSING_S, STALE_S, Missing


@pytest.mark.parametrize(("local", "bound_s"), [(True, MISSING_S), (False, STALE_S)])
@pytest.mark.parametrize("role", ["recovering", "standby", "taking-over"])
def test_what_stays_missing_is_lost_after_the_bound(role: str, local: bool, bound_s: float) -> None:
    missing = Missing()
    assert not missing.ended(role, 10.0, local=local)
    assert not missing.ended(role, 10.0 + bound_s, local=local)
    assert missing.ended(role, 10.1 + bound_s, local=local)


@pytest.mark.parametrize("role", ["standby", "checkpointer"])
def test_worker_that_follows_has_found_what_one_before_missed(role: str) -> None:
    missing = Missing()
    missing.ended("recovering", 10.0, local=True)
    missing.role_said(role, led=False)
    assert not missing.ended("recovering", 99.0, local=True)


def test_recovery_says_nothing_of_what_a_takeover_misses() -> None:
    missing = Missing()
    missing.ended("taking-over", 10.0, local=True)
    for role in ("recovering", "standby", "taking-over"):
        missing.role_said(role, led=False)
    assert missing.ended("taking-over", 12.0, local=True)


@pytest.mark.parametrize(("role", "led"), [("primary", False), ("standby", True), ("checkpointer", True)])
def test_takeover_by_anybody_ends_what_one_before_missed(role: str, led: bool) -> None:
    missing = Missing()
    missing.ended("taking-over", 10.0, local=True)
    missing.role_said(role, led=led)
    assert not missing.ended("taking-over", 99.0, local=True)


def test_worker_that_only_begins_clears_nothing() -> None:
    missing = Missing()
    missing.ended("recovering", 10.0, local=True)
    missing.role_said("recovering", led=True)
    assert missing.ended("recovering", 12.0, local=True)
