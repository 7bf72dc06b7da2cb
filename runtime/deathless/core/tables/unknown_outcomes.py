"""Activities of which nobody knows whether they were done, for operators, until one of them has seen to it (I7); pure.

    OUTCOME with the error OutcomeUnknown --add--> listed --ORDER settle, or as many younger ones--> gone

Such an outcome has an activity that must run at most once and may have begun: its primary was deposed, or its own
process died, or was ended by a time limit. So has any activity whose attempt raises OutcomeUnknown, if no further one
follows. Its handler is told; but that may have been written years ago, and ends. Who looks at the world outside is a
person.

Guarantees: equal calls give equal tables and snapshots; at most `unknown_outcomes_max` are kept, the oldest go (I10).
Does not: change what the handler was told, read a clock. Imports codec and base.
"""

from __future__ import annotations

from collections.abc import Iterable

from deathless.base.limits import Limits
from deathless.codec.snapshot import UnknownRecord


class UnknownOutcomes:
    """The unsettled cases of one shard, in the order in which they came.

    Args:
        limits: `unknown_outcomes_max` is used.
    """

    __slots__ = ("_kept", "_max")

    def __init__(self, limits: Limits) -> None:
        # Key: (invocation, operation). Invariant: lsns ascend along the order.
        self._kept: dict[tuple[int, int], UnknownRecord] = {}
        self._max = limits.unknown_outcomes_max

    def __len__(self) -> int:
        """Count of cases."""
        return len(self._kept)

    def add(self, record: UnknownRecord) -> None:
        """List a case; the oldest goes where they are too many."""
        case = (record.invocation, record.operation)
        assert case not in self._kept, "an operation has one outcome"
        self._kept[case] = record
        while len(self._kept) > self._max:
            del self._kept[next(iter(self._kept))]

    def holds(self, invocation: int, operation: int) -> bool:
        """Is this case listed?"""
        return (invocation, operation) in self._kept

    def settle(self, invocation: int, operation: int) -> None:
        """List a case no more; one that is not listed changes nothing."""
        self._kept.pop((invocation, operation), None)

    def snapshot(self) -> list[UnknownRecord]:
        """Copy everything, the oldest first."""
        return list(self._kept.values())

    def restore(self, records: Iterable[UnknownRecord]) -> None:
        """Replace everything by what `snapshot` gave."""
        self._kept = {(record.invocation, record.operation): record for record in records}
        self.check_invariants()

    def check_invariants(self) -> None:
        """Assert every `Invariant:` above; linear in cases."""
        lsn = 0
        for case, record in self._kept.items():
            assert case == (record.invocation, record.operation)
            assert record.lsn > lsn, "they came in the order of the log"
            lsn = record.lsn
        assert len(self._kept) <= self._max
