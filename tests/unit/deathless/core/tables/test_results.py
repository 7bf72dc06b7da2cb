"""Results: kept for a while, bounded, the same bytes for whoever asks (I5, I10)."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from deathless.base.limits import Limits
from deathless.codec.snapshot import ResultRecord
from deathless.core.tables.results import Results

SECOND = 1_000_000
LIMITS = Limits(results_max=3, results_kept_s=10)


def test_i5_a_result_is_given_to_whoever_asks_as_often_as_they_ask() -> None:
    results = Results(LIMITS)
    results.add(41, b"\x00\x05", 0)
    assert [results.get(41), results.get(41), results.get(42)] == [b"\x00\x05", b"\x00\x05", None]


def test_a_result_is_kept_for_its_time_and_not_longer() -> None:
    results = Results(LIMITS)
    results.add(1, b"a", 0)
    results.add(2, b"b", SECOND)
    assert (results.expire(10 * SECOND), results.get(1)) == (0, b"a")
    assert (results.expire(10 * SECOND + 1), results.get(1), results.get(2)) == (1, None, b"b")


def test_i10_above_the_maximum_the_oldest_goes() -> None:
    results = Results(LIMITS)
    for invocation in range(1, 5):
        results.add(invocation, b"r", 0)
    assert (len(results), results.get(1), results.get(4)) == (3, None, b"r")


def test_i10_above_the_bytes_the_oldest_go_but_never_the_youngest() -> None:
    results = Results(Limits(results_bytes_max=10))
    for invocation, size in ((1, 4), (2, 4), (3, 2)):
        results.add(invocation, bytes(size), 0)
    assert len(results) == 3
    results.add(4, bytes(5), 0)
    assert [invocation for invocation in range(1, 5) if results.get(invocation)] == [3, 4]
    results.add(5, bytes(11), 0)
    results.check_invariants()
    assert (len(results), results.get(5)) == (1, bytes(11))
    again = Results(Limits(results_bytes_max=10))
    again.restore(results.snapshot())
    again.add(6, b"s", 0)
    again.check_invariants()
    assert (again.get(5), again.get(6)) == (None, b"s")
    assert again.expire(1 << 60) == 1
    again.check_invariants()


def test_an_invocation_ends_once() -> None:
    results = Results(LIMITS)
    results.add(1, b"a", 0)
    with pytest.raises(AssertionError, match="ends once"):
        results.add(1, b"b", 0)


@pytest.mark.parametrize(
    "records",
    [
        [ResultRecord(1, 5, b""), ResultRecord(2, 4, b"")],
        [ResultRecord(1, -1, b"")],
        [ResultRecord(number, 0, b"") for number in range(4)],
    ],
)
def test_a_snapshot_that_breaks_an_invariant_is_not_restored(records: list[ResultRecord]) -> None:
    with pytest.raises(AssertionError):
        Results(LIMITS).restore(records)


def test_a_result_under_another_name_is_found() -> None:
    results = Results(LIMITS)
    results._kept[1] = ResultRecord(2, 0, b"")
    with pytest.raises(AssertionError):
        results.check_invariants()


class Kept(RuleBasedStateMachine):
    """The table against a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.results = Results(LIMITS)
        self.naive: list[ResultRecord] = []
        self.now = 0
        self.lsn = 0

    @rule(seconds=st.integers(0, 6))
    def time_passed(self, seconds: int) -> None:
        self.now += seconds * SECOND

    @rule(reply=st.binary(max_size=4))
    def ended(self, reply: bytes) -> None:
        self.lsn += 1
        self.results.add(self.lsn, reply, self.now)
        self.naive = [*self.naive, ResultRecord(self.lsn, self.now, reply)][-3:]

    @rule()
    def expired(self) -> None:
        kept = [record for record in self.naive if self.now - record.at_us <= 10 * SECOND]
        assert self.results.expire(self.now) == len(self.naive) - len(kept)
        self.naive = kept

    @rule()
    def restored(self) -> None:
        records = self.results.snapshot()
        self.results = Results(LIMITS)
        self.results.restore(records)

    @invariant()
    def tables_are_equal(self) -> None:
        self.results.check_invariants()
        assert self.results.snapshot() == self.naive
        assert len(self.results) == len(self.naive)


TestKept = Kept.TestCase
