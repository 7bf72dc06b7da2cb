"""A primary that alone gets no answer from the lock store is replaced by who gets answers, and by nobody else."""

from __future__ import annotations

import pytest

from deathless.base.limits import Limits
from deathless.core.supervisor.detection import LOCK_ANSWERS_S, Detector, Order, Report, WorkerState

LIMITS = Limits()
SUSPECT = LIMITS.suspect_after_s


def tell(to: Detector, replica: str, role: str, *, epoch: int = 3, now: float = 0.0, unproved: bool = False) -> None:
    to.report_received(Report(replica, WorkerState.RUNNING, role, epoch, 0, "c:1", "f:1", unproved=unproved), now)


def detector() -> Detector:
    """r1's, among r0, r1 and r2, of which nobody has said a word."""
    made = Detector(replica="r1", limits=LIMITS, now=0.0)
    made.members_seen({"r0", "r1", "r2"})
    return made


def with_primary() -> Detector:
    """r0 is primary in epoch 3; r1 (we) and r2 stand by."""
    made = detector()
    for replica, role in (("r0", "primary"), ("r1", "standby"), ("r2", "checkpointer")):
        tell(made, replica, role)
    return made


def cut_off(now: float, *, role: str = "primary", unproved: bool = True, heard_at: float | None = None) -> Detector:
    """r0 is cut off from the lock store, by its own word."""
    made = with_primary()
    tell(made, "r1", "standby", now=now)
    tell(made, "r0", role, now=now if heard_at is None else heard_at, unproved=unproved)
    return made


@pytest.mark.parametrize(
    ("now", "unproved", "heard_at", "answers_s", "tries"),
    [
        (9.0, True, 9.0, LOCK_ANSWERS_S, True),
        (9.0, True, 9.0, LOCK_ANSWERS_S - 0.01, False),  # the store may be away for all, or just come back
        (9.0, True, 9.0, 0.0, False),
        (9.0, False, 9.0, 60.0, False),
        (9.0, True, 9.0 - SUSPECT - 0.01, 60.0, False),  # it may have got its answer since
        (LIMITS.reign_min_s - 0.01, True, 0.4, 60.0, False),  # the holder lives: its reign is too young
    ],
)
def test_unproved_primary_is_replaced_by_who_gets_answers(
    now: float, unproved: bool, heard_at: float, answers_s: float, tries: bool
) -> None:
    order = cut_off(now, unproved=unproved, heard_at=heard_at).decide(now, 0.0, answers_s)
    assert order == (Order(3, "unproved: r0 gets no answer from the lock store") if tries else None)


def test_a_follower_is_to_ask_the_lock_while_another_leads_unproved() -> None:
    assert cut_off(9.0).unproved(9.0)
    assert not cut_off(9.0, unproved=False).unproved(9.0)
    assert not cut_off(9.0).unproved(9.0 + SUSPECT + 0.01)
    assert not cut_off(9.0, role="standby").unproved(9.0)
    assert not detector().unproved(9.0)
    ours = detector()
    tell(ours, "r1", "primary", unproved=True)
    assert not ours.unproved(0.0)


def test_steals_from_an_unproved_holder_back_off() -> None:
    made = cut_off(9.0)
    assert made.decide(9.0, 0.0, 60.0) is not None
    tell(made, "r0", "primary", epoch=4, now=9.1)
    assert made.decide(9.1, 0.0, 0.0) is None
    for now, tries in ((9.1 + LIMITS.reign_min_s, False), (9.1 + 2 * LIMITS.reign_min_s, True)):
        tell(made, "r0", "primary", epoch=4, now=now, unproved=True)
        assert (made.decide(now, 0.0, 60.0) is not None) == tries
