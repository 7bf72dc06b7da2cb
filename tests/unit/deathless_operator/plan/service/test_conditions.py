"""Conditions get times, and events tell changes alone."""

from __future__ import annotations

import pytest

from deathless_operator.model.status import Condition, ConditionStatus
from deathless_operator.plan.service.conditions import ORDER, Findings, is_bad, settle


def settled(findings: Findings, before: tuple[Condition, ...] = (), now: float = 100.0) -> tuple[Condition, ...]:
    """The conditions alone."""
    return settle(findings, before, now=now, generation=2)[0]


def one(kind: str, status: ConditionStatus, reason: str = "R", message: str = "m") -> Findings:
    """One finding."""
    findings = Findings()
    findings.tell(kind, status, reason, message)
    return findings


def test_first_finding_of_a_type_stands() -> None:
    findings = one("Degraded", "True", "RootCause")
    findings.tell("Degraded", "False", "NotDegraded", "fine")
    assert findings.told["Degraded"].reason == "RootCause"
    assert findings.is_bad("Degraded")
    assert not findings.is_bad("Ready")


def test_time_moves_with_the_status_alone() -> None:
    first = settled(one("Ready", "False", "A"), now=100.0)
    second = settled(one("Ready", "False", "B"), first, now=200.0)
    third = settled(one("Ready", "True", "C"), second, now=300.0)
    assert [found[0].last_transition_time[-6:] for found in (first, second, third)] == ["01:40Z", "01:40Z", "05:00Z"]


def test_condition_about_which_nothing_new_is_known_stands() -> None:
    before = settled(one("StorageReady", "True"))
    assert settled(one("Ready", "True"), before)[1] == before[0]


def test_conditions_stand_in_one_order() -> None:
    findings = Findings()
    for kind in reversed(ORDER):
        findings.tell(kind, "True", "R", "m")
    assert tuple(found.type for found in settled(findings)) == ORDER


@pytest.mark.parametrize(
    ("kind", "before", "after", "told"),
    [
        ("Ready", None, "True", []),
        ("Ready", None, "False", ["Warning"]),
        ("Ready", "False", "True", ["Normal"]),
        ("Ready", "True", "True", []),
        ("Degraded", "False", "True", ["Warning"]),
        ("Paused", None, "False", []),
        ("Paused", None, "True", ["Normal"]),
        ("Paused", "False", "True", ["Normal"]),
    ],
)
def test_event_tells_a_change(
    kind: str, before: ConditionStatus | None, after: ConditionStatus, told: list[str]
) -> None:
    old = settled(one(kind, before)) if before else ()
    _, events = settle(one(kind, after), old, now=1.0, generation=1)
    assert [event.type for event in events] == told


def test_steps_that_were_asked_for_are_told_by_progressing_alone() -> None:
    old = settled(one("Ready", "True"))
    stopped, events = settle(one("Ready", "False", "Rolling"), old, now=1.0, generation=1)
    assert [event.type for event in events] == ["Normal"]
    assert settle(one("Ready", "False", "Starting"), stopped, now=1.0, generation=1)[1] == ()
    assert settle(one("Ready", "False", "Creating"), (), now=1.0, generation=1)[1] == ()
    assert len(settle(one("Ready", "False", "HalfCopy"), stopped, now=1.0, generation=1)[1]) == 1


def test_words_have_a_maximum() -> None:
    assert len(one("Ready", "False", "R", "x" * 9000).told["Ready"].message) == 2000


def test_bad_news_are_known_by_their_type() -> None:
    assert (is_bad("UpgradeRequired", "True"), is_bad("UpgradeRequired", "Unknown")) == (True, False)
    assert (is_bad("StorageReady", "Unknown"), is_bad("Progressing", "False")) == (False, False)
