"""What the failure detector believes of others' reports: as much as the lock and their own next word bear out."""

from __future__ import annotations

from deathless.base.limits import Limits
from deathless.core.supervisor.detection import LATER_S, TURN_S, Detector, Report, WorkerState

NEVER = float("inf")
RUNNING = WorkerState.RUNNING


def with_primary() -> Detector:
    """r0 is primary in epoch 3; r1 (we) and r2 stand by."""
    made = Detector(replica="r1", limits=Limits(), now=0.0)
    made.members_seen({"r0", "r1", "r2"})
    for replica, role in (("r0", "primary"), ("r1", "standby"), ("r2", "checkpointer")):
        tell(made, replica, role)
    return made


def tell(
    to: Detector, replica: str, role: str, *, state: str = RUNNING, epoch: int = 3, lsn: int = 0, now: float = 0.0
) -> None:
    to.report_received(Report(replica, state, role, epoch, lsn, "c:1", "f:1"), now)


def tell_instance(to: Detector, instance: str, generation: int, role: str, *, epoch: int = 3, now: float = 0.0) -> bool:
    return to.report_received(
        Report("r0", RUNNING, role, epoch, 0, instance, instance=instance, generation=generation), now
    )


def test_a_claimed_lsn_is_replaced_by_the_next_word_also_by_a_lower_one() -> None:
    made = with_primary()
    tell(made, "r2", "checkpointer", lsn=1 << 62)
    tell(made, "r2", "checkpointer", lsn=104)
    tell(made, "r0", "dead", state=WorkerState.DEAD)
    order = made.decide(0.0, NEVER)
    assert order is not None
    assert order.confirmed_lsn == 104


def test_a_claimed_lsn_goes_with_its_sender() -> None:
    made = with_primary()
    tell(made, "r2", "checkpointer", lsn=1 << 62)
    made.report_received(Report("r2", RUNNING, "starting", 3, 0, "c:1", "f:1", pid=99), 0.1)
    tell(made, "r0", "dead", state=WorkerState.DEAD, now=0.1)
    order = made.decide(0.1, NEVER)
    assert order is not None
    assert order.confirmed_lsn == 0


def test_an_epoch_above_the_locks_is_no_primarys_until_the_lock_says_so() -> None:
    made = with_primary()
    made.lock_answered(3, "r0", 0.0)
    tell(made, "r2", "primary", epoch=4, now=0.1)
    assert made.primary is not None
    assert made.primary.replica == "r0"
    tell(made, "r0", "dead", state=WorkerState.DEAD, now=0.1)
    assert made.decide(0.1, NEVER) is None, "the answer is awaited"
    assert made.claims.question_due(0.1)
    made.lock_answered(4, "r2", 0.11)
    assert made.primary.replica == "r2"


def test_a_lie_about_the_epoch_hides_nobody_and_is_not_taken_over_from() -> None:
    made = with_primary()
    made.lock_answered(3, "r0", 0.0)
    tell(made, "r2", "primary", epoch=1 << 62, now=0.1)
    assert made.claims.question_due(0.1)
    made.lock_answered(3, "r0", 0.11)
    tell(made, "r2", "primary", epoch=1 << 62, now=5.0)
    tell(made, "r0", "dead", state=WorkerState.DEAD, now=5.0)
    order = made.decide(5.0, NEVER) or made.decide(5.0 + TURN_S, NEVER)
    assert order is not None
    assert order.epoch == 3


def test_a_primary_believed_before_the_lock_was_asked_is_left_when_it_says_no() -> None:
    made = with_primary()
    tell(made, "r2", "primary", epoch=1 << 62)
    assert made.primary is not None
    assert made.primary.replica == "r2"
    made.lock_answered(3, "r0", 0.0)
    assert made.primary.replica == "r0"


def test_a_later_instance_unheard_for_long_silences_the_former_no_more() -> None:
    ours = Detector(replica="r1", limits=Limits(), now=0.0)
    assert tell_instance(ours, "b", 1 << 30, "recovering")
    assert not tell_instance(ours, "a", 1, "standby", now=1.0)
    assert tell_instance(ours, "a", 1, "standby", now=LATER_S + 0.1)


def test_a_former_instance_that_leads_a_later_epoch_is_heard() -> None:
    ours = Detector(replica="r1", limits=Limits(), now=0.0)
    ours.lock_answered(9, "r0", 0.0)
    assert tell_instance(ours, "b", 2, "recovering", epoch=0)
    assert tell_instance(ours, "a", 1, "primary", epoch=9)
