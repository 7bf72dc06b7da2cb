"""A checkpoint is due after so many rows or bytes, for the replica that takes them first."""

import pytest

from deathless.foreign.checkpoint_plan import ALONE, CheckpointPlan, Every
from deathless.foreign.rows import Given, What


def rows_until_due(plan: CheckpointPlan, size: int) -> int:
    """Deliver rows until one is due; gives how many."""
    for count in range(1, 1000):
        plan.delivered(Given(What.ITEMS, bytes(size)))
        if plan.is_due:
            return count
    raise AssertionError("it never is")


@pytest.mark.parametrize(("size", "rows"), [(0, 10), (50, 2)])
def test_it_is_due_for_the_checkpointer_first(size: int, rows: int) -> None:
    """By rows or by bytes; for others later, so that one replica takes them."""
    for checkpointer, factor in ((True, 1), (False, ALONE)):
        plan = CheckpointPlan(Every(rows=10, bytes=100))
        plan.checkpointer = checkpointer
        assert rows_until_due(plan, size) == factor * rows
        plan.taken()
        assert not plan.is_due
        assert rows_until_due(plan, size) == factor * rows


def test_application_that_asks_gets_one_once_there_is_anything_new() -> None:
    """And one at a time."""
    plan = CheckpointPlan(Every(rows=10, bytes=100))
    plan.wanted = True
    due = [plan.is_due]
    plan.delivered(Given(What.ITEMS, b""))
    due.append(plan.is_due)
    plan.under_way = True
    assert [*due, plan.is_due] == [False, True, False]
