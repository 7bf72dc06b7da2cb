"""What others claim counts as far as the lock and their own next word bear it out."""

from __future__ import annotations

import pytest

from deathless.base.safeguards import Safeguards
from deathless.core.supervisor.claims import ASK_LOCK_AGAIN_S, CLAIM_S, UNANSWERED_S, Claims

FALSE = 1 << 62
R2 = (42, 0)  # process and generation of its supervisor


def asked_at(epoch: int = 3, holder: str = "r0") -> Claims:
    """r1's, whose lock said that."""
    made = Claims("r1")
    assert made.question_due(0.0), "nothing is known yet"
    made.lock_answered(epoch, holder)
    return made


def test_a_claimed_lsn_counts_while_its_sender_is_heard_and_stands_by_it() -> None:
    made = asked_at()
    made.heard("r2", R2, 10, 0.0)
    made.heard("r3", R2, 7, 0.0)
    assert made.confirmed(CLAIM_S) == 10
    assert made.confirmed(CLAIM_S + 0.1) == 0
    made.heard("r2", R2, 4, 6.0)
    assert made.confirmed(6.0) == 4
    made.heard("r2", R2, None, 10.0)
    assert made.confirmed(12.0) == 4


def test_a_later_worker_that_finds_less_takes_nothing_back() -> None:
    made = asked_at()
    made.heard("r2", R2, 10, 0.0)
    made.heard("r2", R2, None, 1.0, works=False)
    made.heard("r2", R2, 4, 2.0)
    assert made.confirmed(2.0) == 10
    made.heard("r2", R2, 12, 2.0)
    made.heard("r2", R2, 11, 2.0)
    assert made.confirmed(2.0) == 11


def test_another_process_of_a_replica_answers_for_nothing_said_before() -> None:
    made = asked_at()
    made.heard("r2", R2, FALSE, 0.0)
    made.heard("r2", R2, None, 0.0)
    assert made.confirmed(0.0) == FALSE
    made.heard("r2", (43, 0), None, 0.0)
    assert made.confirmed(0.0) == 0


def test_a_removed_replica_claims_nothing() -> None:
    made = asked_at()
    made.heard("r2", R2, 10, 0.0)
    assert not made.believed("r2", FALSE, 0.0)
    made.forget("r2")
    assert made.confirmed(0.0) == 0
    assert not made.doubted(0.0)


def test_without_the_safeguard_a_lie_outlives_its_sender() -> None:
    made = Claims("r1", Safeguards(claims_expire=False))
    made.heard("r2", R2, FALSE, 0.0)
    made.heard("r2", R2, 4, 0.0)
    made.forget("r2")
    assert made.confirmed(100.0) == FALSE


def test_before_the_lock_was_asked_every_epoch_is_believed() -> None:
    assert Claims("r1").believed("r2", FALSE, 0.0, leads=True)


def test_our_own_epoch_is_believed() -> None:
    assert asked_at().believed("r1", 4, 0.0, leads=True)


@pytest.mark.parametrize(("epoch", "leads", "believed"), [(2, True, True), (3, False, True), (3, True, False)])
def test_an_epoch_up_to_the_locks_is_believed_of_whoever_may_lead_it(epoch: int, leads: bool, believed: bool) -> None:
    assert asked_at().believed("r2", epoch, 0.0, leads=leads) is believed


def test_a_higher_epoch_is_believed_once_the_lock_names_its_holder() -> None:
    made = asked_at()
    assert not made.believed("r2", 4, 0.0, leads=True)
    assert made.doubted(0.0)
    assert made.question_due(0.0)
    assert not made.question_due(0.0), "one question at a time"
    made.lock_answered(4, "r2")
    assert made.believed("r2", 4, 0.0, leads=True)
    assert not made.doubted(0.0)


@pytest.mark.parametrize(("epoch", "holder"), [(3, "r0"), (4, "r0")])
def test_an_epoch_that_the_lock_gave_to_nobody_or_another_is_denied_and_asked_again(epoch: int, holder: str) -> None:
    made = asked_at()
    assert not made.believed("r2", 4, 0.0, leads=True)
    assert made.question_due(0.0)
    made.lock_answered(epoch, holder)
    assert not made.believed("r2", 4, 10.0, leads=True)
    assert not made.doubted(0.1)
    assert not made.question_due(ASK_LOCK_AGAIN_S / 2)
    assert made.question_due(ASK_LOCK_AGAIN_S)


def test_an_answer_from_before_a_claim_says_nothing_of_it() -> None:
    made = asked_at()
    assert not made.believed("r3", 4, 0.0, leads=True)
    assert made.question_due(0.0)
    assert not made.believed("r2", 5, 0.0, leads=True)
    made.lock_answered(4, "r3")
    assert made.doubted(0.0), "r2 may have taken over since"
    assert made.question_due(0.0)


def test_a_claim_is_believed_after_a_while_without_an_answer() -> None:
    made = asked_at()
    assert not made.believed("r2", 4, 0.0)
    assert made.believed("r2", 4, UNANSWERED_S + 0.1)
    assert not made.believed("r2", 5, UNANSWERED_S + 0.1), "that is another one"


def test_without_the_safeguard_any_epoch_is_believed_and_nobody_asked() -> None:
    made = Claims("r1", Safeguards(claims_bounded=False))
    made.lock_answered(3, "r0")
    assert made.believed("r2", FALSE, 0.0, leads=True)
    assert not made.question_due(0.0)
