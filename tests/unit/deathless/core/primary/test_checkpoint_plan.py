"""When a checkpoint is due, which count, and below what the log may go (I6, I9): table and properties."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.base.limits import Limits
from deathless.core.effects import Effect, TakeCheckpoint, VerifyCheckpoint
from deathless.core.primary.checkpoint_plan import REBASE_RETRY_S, SHORT_RETRY_S, CheckpointPlan, Own

LIMITS = Limits(checkpoint_every_messages=100, checkpoint_every_bytes=1000)
TAKE: list[Effect] = [TakeCheckpoint()]


def in_state(own: Own) -> CheckpointPlan:
    """A plan with its own checkpoint at lsn 5, if any, in this state."""
    plan = CheckpointPlan(LIMITS)
    if own is not Own.RESTING:
        plan.frame_logged(100, 0)
        assert plan.maybe_take(0.0, alone=True) == TAKE
    if own is Own.VERIFYING:
        assert plan.written(5, "c5", 0.0) == [VerifyCheckpoint(5, "c5")]
    assert plan.own is own
    return plan


@pytest.mark.parametrize(("messages", "size", "due"), [(99, 999, False), (100, 0, True), (0, 1000, True)])
def test_i9_primary_takes_one_when_due_only_with_no_checkpointer_alive(messages: int, size: int, due: bool) -> None:
    plan = CheckpointPlan(LIMITS)
    plan.frame_logged(messages, size)
    assert plan.maybe_take(0.0, alone=False) == []
    assert plan.maybe_take(0.0, alone=True) == (TAKE if due else [])


Step = Callable[[CheckpointPlan], object]
STEPS: dict[str, Step] = {
    "written": lambda plan: plan.written(7, "c7", 0.0),
    "not written": lambda plan: plan.written(7, "", 0.0),
    "announced": lambda plan: plan.announced(8, "c8"),
    "own verified": lambda plan: plan.verified(5, True, 0.0),
    "own rotten": lambda plan: plan.verified(5, False, 0.0),
    "other verified": lambda plan: plan.verified(8, True, 0.0),
}


@pytest.mark.parametrize(
    ("own", "step", "then"),
    [
        (Own.RESTING, "written", Own.VERIFYING),  # one begun as the checkpointer, before we were primary
        (Own.RESTING, "not written", Own.RESTING),
        (Own.RESTING, "announced", Own.RESTING),
        (Own.RESTING, "own verified", Own.RESTING),
        (Own.RESTING, "own rotten", Own.RESTING),
        (Own.RESTING, "other verified", Own.RESTING),
        (Own.WRITING, "written", Own.VERIFYING),
        (Own.WRITING, "not written", Own.RESTING),
        (Own.WRITING, "announced", Own.WRITING),
        (Own.WRITING, "own verified", Own.WRITING),
        (Own.WRITING, "own rotten", Own.WRITING),
        (Own.WRITING, "other verified", Own.WRITING),
        (Own.VERIFYING, "written", Own.VERIFYING),
        (Own.VERIFYING, "not written", Own.RESTING),
        (Own.VERIFYING, "announced", Own.VERIFYING),
        (Own.VERIFYING, "own verified", Own.RESTING),
        (Own.VERIFYING, "own rotten", Own.RESTING),
        (Own.VERIFYING, "other verified", Own.VERIFYING),
    ],
)
def test_table_of_our_own_checkpoint(own: Own, step: str, then: Own) -> None:
    plan = in_state(own)
    STEPS[step](plan)
    plan.check_invariants()
    assert plan.own is then


@pytest.mark.parametrize("own", [Own.WRITING, Own.VERIFYING])
def test_one_at_a_time(own: Own) -> None:
    plan = in_state(own)
    plan.frame_logged(1000, 0)
    assert plan.maybe_take(0.0, alone=True) == []


def test_checkpoint_that_could_not_be_written_is_tried_again_when_next_due() -> None:
    plan = in_state(Own.WRITING)
    plan.written(7, "", 0.0)
    assert plan.maybe_take(99.0, alone=True) == []
    plan.frame_logged(100, 0)
    assert plan.maybe_take(99.0, alone=True) == TAKE


def test_checkpoint_of_the_checkpointer_puts_ours_off() -> None:
    plan = CheckpointPlan(LIMITS)
    plan.frame_logged(99, 0)
    plan.announced(50, "c50")
    plan.frame_logged(99, 0)
    assert plan.maybe_take(0.0, alone=True) == []


def test_log_may_go_below_the_oldest_of_those_kept_once_there_are_enough() -> None:
    plan = CheckpointPlan(LIMITS)
    assert plan.floor == 0
    plan.verified(10, True, 0.0)
    assert plan.floor == 0
    plan.verified(10, True, 0.0)
    assert plan.floor == 0  # twice the same is one
    plan.verified(20, False, 0.0)
    assert plan.floor == 0  # what does not read back does not count
    plan.verified(30, True, 0.0)
    assert plan.floor == 10
    plan.verified(40, True, 0.0)
    assert plan.floor == 30


def test_i6_difference_has_a_checkpoint_taken_at_once_and_logged_once_it_counts() -> None:
    plan = CheckpointPlan(LIMITS)
    plan.rebase(50)
    assert plan.maybe_take(0.0, alone=False) == TAKE
    assert plan.written(55, "c55", 0.0) == [VerifyCheckpoint(55, "c55")]
    assert plan.verified(55, True, 0.0)
    assert not plan.verified(55, True, 0.0)
    assert plan.maybe_take(0.0, alone=False) == []


def test_i6_checkpoint_from_before_the_difference_does_not_end_it() -> None:
    plan = in_state(Own.WRITING)
    plan.rebase(50)
    assert plan.maybe_take(0.0, alone=False) == []  # the one under way first
    plan.written(40, "c40", 0.0)
    assert not plan.verified(40, True, 0.0)
    assert plan.maybe_take(0.0, alone=False) == TAKE


@pytest.mark.parametrize("fails", ["writing", "reading back"])
def test_i6_checkpoint_for_a_difference_that_fails_is_tried_again_after_a_while(fails: str) -> None:
    plan = CheckpointPlan(LIMITS)
    plan.rebase(50)
    plan.maybe_take(0.0, alone=False)
    if fails == "writing":
        plan.written(55, "", 10.0)
    else:
        plan.written(55, "c55", 10.0)
        assert plan.deadline() is None
        assert not plan.verified(55, False, 10.0)
    assert plan.maybe_take(10.0, alone=False) == []
    assert plan.deadline() == 10.0 + REBASE_RETRY_S
    assert plan.maybe_take(10.0 + REBASE_RETRY_S, alone=False) == TAKE
    assert plan.deadline() is None


def test_without_a_difference_there_is_no_deadline() -> None:
    assert CheckpointPlan(LIMITS).deadline() is None


@given(st.lists(st.one_of(st.sampled_from(sorted(STEPS)), st.integers(0, 200), st.booleans()), max_size=30))
def test_no_order_of_events_breaks_an_invariant(steps: list[str | int | bool]) -> None:
    plan = CheckpointPlan(LIMITS)
    floor = 0
    for step in steps:
        if isinstance(step, bool):
            plan.maybe_take(0.0, alone=step)
        elif isinstance(step, int):
            plan.rebase(step)
            plan.frame_logged(step, step)
        else:
            STEPS[step](plan)
        plan.check_invariants()
        assert plan.floor >= floor  # what was collected is never needed again
        floor = plan.floor


def test_for_want_of_room_one_follows_another_at_once_unless_one_failed() -> None:
    plan = CheckpointPlan(LIMITS)
    for lsn in (5, 9):
        assert plan.maybe_take(1.0, alone=False, short_of=lsn) == TAKE
        plan.written(lsn, f"c{lsn}", 1.0)
        plan.verified(lsn, True, 1.0)
    assert plan.maybe_take(1.0, alone=False, short_of=9) == [], "nothing more is to be gained"
    assert plan.maybe_take(2.0, alone=False, short_of=12) == TAKE
    plan.written(12, "", 2.0)
    assert plan.maybe_take(2.0 + SHORT_RETRY_S / 2, alone=False, short_of=12) == []
    assert plan.maybe_take(2.0 + SHORT_RETRY_S, alone=False, short_of=12) == TAKE
    plan.written(12, "c12", 10.0)
    plan.verified(12, False, 10.0)
    assert plan.maybe_take(10.0, alone=False, short_of=12) == []
    assert plan.maybe_take(10.0 + SHORT_RETRY_S, alone=False, short_of=12) == TAKE
