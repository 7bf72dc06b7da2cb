"""Activities that may have been done are listed until somebody settles them, at most so many (I7, I10)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.base.limits import Limits
from deathless.codec.snapshot import UnknownRecord
from deathless.core.tables.unknown_outcomes import UnknownOutcomes

LIMITS = Limits(unknown_outcomes_max=3)


def case(invocation: int, operation: int = 1, *, lsn: int = 0) -> UnknownRecord:
    at = lsn or 100 + invocation
    return UnknownRecord(invocation, operation, "place", b"a", "charge", f"key {invocation}", at, 5)


def table(*records: UnknownRecord) -> UnknownOutcomes:
    found = UnknownOutcomes(LIMITS)
    for record in records:
        found.add(record)
    found.check_invariants()
    return found


def test_a_case_is_listed_until_it_is_settled() -> None:
    unknown = table(case(7), case(9, 2))
    assert unknown.holds(7, 1) and unknown.holds(9, 2) and not unknown.holds(9, 1)
    unknown.settle(7, 1)
    assert unknown.snapshot() == [case(9, 2)]
    assert not unknown.holds(7, 1)


def test_what_is_not_listed_can_be_settled_without_effect() -> None:
    unknown = table(case(7))
    unknown.settle(7, 2)
    unknown.settle(8, 1)
    assert unknown.snapshot() == [case(7)]


def test_i10_the_oldest_go() -> None:
    unknown = table(*map(case, range(1, 6)))
    assert [record.invocation for record in unknown.snapshot()] == [3, 4, 5]
    assert len(unknown) == 3


def test_an_operation_has_one_outcome() -> None:
    with pytest.raises(AssertionError, match="one outcome"):
        table(case(7), case(7, lsn=900))


@pytest.mark.parametrize("records", [[case(2), case(1)], [case(1), case(2, lsn=101)], [*map(case, range(1, 5))]])
def test_a_snapshot_that_breaks_an_invariant_is_not_restored(records: list[UnknownRecord]) -> None:
    with pytest.raises(AssertionError):
        UnknownOutcomes(LIMITS).restore(records)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=30))
def test_a_restored_table_goes_on_as_the_one_it_was_taken_from(steps: list[tuple[bool, int]]) -> None:
    one, other = UnknownOutcomes(LIMITS), UnknownOutcomes(LIMITS)
    naive: list[UnknownRecord] = []
    for lsn, (comes, back) in enumerate(steps, 1):
        if comes:
            one.add(case(lsn, lsn=lsn))
            other.add(case(lsn, lsn=lsn))
            naive = [*naive, case(lsn, lsn=lsn)][-3:]
        else:
            one.settle(lsn - back, 1)
            other.settle(lsn - back, 1)
            naive = [record for record in naive if record.invocation != lsn - back]
        fresh = UnknownOutcomes(LIMITS)
        fresh.restore(other.snapshot())
        other = fresh
        assert one.snapshot() == other.snapshot() == naive
