"""Whom a primary has handed over to takes over undisturbed, but is not waited for long."""

from __future__ import annotations

import pytest

from deathless.base.limits import Limits
from deathless.core.supervisor.claims import UNANSWERED_S
from deathless.core.supervisor.detection import HEIR_S, TAKING_SILENT_S, Detector, Report, WorkerState

NEVER = float("inf")
RUNNING = WorkerState.RUNNING


def tell(
    to: Detector,
    replica: str,
    role: str = "standby",
    *,
    state: str = RUNNING,
    successor: str = "",
    now: float = 0.0,
) -> None:
    to.report_received(Report(replica, state, role, 3, 0, "c:1", "f:1", successor=successor), now)


def followed(suspect_after_s: float = 0.3) -> Detector:
    """r1's: r0 is primary, r1 and r2 stand by."""
    made = Detector(replica="r1", limits=Limits(suspect_after_s=suspect_after_s), now=0.0)
    made.members_seen({"r0", "r1", "r2"})
    for replica, role in (("r0", "primary"), ("r1", "standby"), ("r2", "standby")):
        tell(made, replica, role)
    return made


@pytest.mark.parametrize(("suspect_after_s", "waits_s"), [(0.3, HEIR_S), (5.0, 5.0)])
def test_whom_a_primary_handed_over_to_goes_first_but_is_not_waited_for_long(
    suspect_after_s: float, waits_s: float
) -> None:
    made = followed(suspect_after_s)
    for at, expected in ((0.1, False), (waits_s, False), (waits_s + 0.15, True)):
        tell(made, "r0", "dead", state=WorkerState.DEAD, successor="r2", now=at)
        tell(made, "r1", now=at)
        tell(made, "r2", now=at)
        assert (made.decide(at, NEVER) is not None) is expected


@pytest.mark.parametrize(("replica", "state"), [("r1", RUNNING), ("r2", WorkerState.DEAD), ("r7", RUNNING)])
def test_handover_to_ourselves_to_one_that_died_or_to_nobody_known_holds_nothing_back(replica: str, state: str) -> None:
    made = followed()
    tell(made, "r2", "standby", state=state)
    tell(made, "r0", "dead", state=WorkerState.DEAD, successor=replica)
    assert made.decide(0.0, NEVER) is not None


def test_handover_to_one_that_falls_silent_holds_nothing_back() -> None:
    made = followed()
    late = TAKING_SILENT_S + 0.05
    tell(made, "r0", "dead", state=WorkerState.DEAD, successor="r2", now=late)
    tell(made, "r1", now=late)
    assert made.decide(late, NEVER) is not None


def test_heir_whose_claim_the_lock_is_not_asked_about_in_time_is_believed_as_its_doubt_ends() -> None:
    """Our own worker, which asks the lock, ended with the hand-over; the heir's next report may come a moment later."""
    made = Detector(replica="r0", limits=Limits(suspect_after_s=2.0), now=0.0)
    made.members_seen({"r0", "r1"})
    made.lock_answered(2, "r0", 0.0)
    made.report_received(Report("r0", RUNNING, "primary", 2, 0), 0.0)
    made.report_received(Report("r0", WorkerState.DEAD, "primary", 2, 0, successor="r1"), 0.1)
    made.report_received(Report("r1", RUNNING, "primary", 3, 0), 0.2)
    made.report_received(Report("r0", RUNNING, "standby", 2, 0), 0.8)
    for at in (0.9, 0.2 + UNANSWERED_S, 0.2 + UNANSWERED_S + 0.001, 0.2 + UNANSWERED_S + 0.5):
        assert made.decide(at, NEVER) is None
    assert made.primary is not None
    assert made.primary.replica == "r1"
