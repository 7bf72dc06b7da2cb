"""Results of ended invocations that callers were promised and may still ask for (I5); pure.

A CALL whose handler waits is answered with the id of its invocation. What it gives in the end stands here, a
function of the log's prefix, so every primary answers with the same bytes, however often it is asked.

A result is kept for `results_kept_s` of service (`base.times`), and while it and the younger ones are at most
`results_max`, with at most `results_bytes_max` in all. The youngest is kept however large it is.

Guarantees: equal calls give equal tables and snapshots. Does not: read a clock, know who waits (the primary does).
Imports codec and base.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from deathless.base.limits import Limits
from deathless.codec.snapshot import ResultRecord


class Results:
    """The kept results of one shard, in the order in which invocations ended.

    Args:
        limits: `results_max`, `results_bytes_max` and `results_kept_s` are used.
    """

    __slots__ = ("_bytes", "_bytes_max", "_kept", "_kept_us", "_max")

    def __init__(self, limits: Limits) -> None:
        # Invariant: `at_us` never falls along the order.
        self._kept: OrderedDict[int, ResultRecord] = OrderedDict()
        self._bytes = 0  # Invariant: of the kept replies; above `_bytes_max` for a single one alone
        self._max = limits.results_max
        self._bytes_max = limits.results_bytes_max
        self._kept_us = limits.results_kept_s * 1_000_000

    def __len__(self) -> int:
        """Count of kept results."""
        return len(self._kept)

    def add(self, invocation: int, reply: bytes, now_us: int) -> None:
        """Keep what an invocation gave; the oldest go as long as one of the maximums is passed.

        Args:
            invocation: its id; it ends once.
            reply: as a handler's.
            now_us: age of the shard, microseconds, never below an earlier call's.
        """
        assert invocation not in self._kept, f"invocation {invocation} ends once"
        self._kept[invocation] = ResultRecord(invocation, now_us, reply)
        self._bytes += len(reply)
        while len(self._kept) > self._max or (self._bytes > self._bytes_max and len(self._kept) > 1):
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        _, record = self._kept.popitem(last=False)
        self._bytes -= len(record.reply)

    def get(self, invocation: int) -> bytes | None:
        """Give the reply of an ended invocation; None: it has not ended, was never, or is forgotten."""
        record = self._kept.get(invocation)
        return None if record is None else record.reply

    def expire(self, now_us: int) -> int:
        """Forget results older than `results_kept_s`; cheap with none. Gives how many were forgotten.

        Called behind each time record, with the age of the shard.
        """
        oldest_us = now_us - self._kept_us
        kept = self._kept
        before = len(kept)
        while kept and next(iter(kept.values())).at_us < oldest_us:
            self._forget_oldest()
        return before - len(kept)

    def snapshot(self) -> list[ResultRecord]:
        """Copy everything, the oldest first."""
        return list(self._kept.values())

    def restore(self, records: Iterable[ResultRecord]) -> None:
        """Replace everything by what `snapshot` gave."""
        self._kept = OrderedDict((record.invocation, record) for record in records)
        self._bytes = sum(len(record.reply) for record in self._kept.values())
        self.check_invariants()

    def check_invariants(self) -> None:
        """Assert every `Invariant:` above; linear in results."""
        at_us = 0
        for invocation, record in self._kept.items():
            assert record.invocation == invocation
            assert record.at_us >= at_us, "order of ends is not the order of the table"
            at_us = record.at_us
        assert len(self._kept) <= self._max
        assert self._bytes == sum(len(record.reply) for record in self._kept.values())
        assert self._bytes <= self._bytes_max or len(self._kept) == 1
