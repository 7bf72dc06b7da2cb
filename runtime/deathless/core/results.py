"""Results of ended invocations that callers were promised and may still ask for (I5); pure.

A CALL whose handler waits is answered with the id of its invocation. What it gives in the end stands here, a
function of the log's prefix, so every primary answers with the same bytes, however often it is asked.

A result is kept for `results_kept_s` of logical time, and while fewer than `results_max` younger ones came.

Guarantees: equal calls give equal tables and snapshots. Does not: read a clock, bound the bytes of the replies it keeps
(each is at most `reply_bytes_max`), know who waits (the primary does). Imports codec and base.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from deathless.base.limits import Limits
from deathless.codec.snapshot import ResultRecord


class Results:
    """The kept results of one shard, in the order in which invocations ended.

    Args:
        limits: `results_max` and `results_kept_s` are used.
    """

    __slots__ = ("_kept", "_kept_us", "_max")

    def __init__(self, limits: Limits) -> None:
        # Invariant: `at_us` never falls along the order.
        self._kept: OrderedDict[int, ResultRecord] = OrderedDict()
        self._max = limits.results_max
        self._kept_us = limits.results_kept_s * 1_000_000

    def __len__(self) -> int:
        """Count of kept results."""
        return len(self._kept)

    def add(self, invocation: int, reply: bytes, now_us: int) -> None:
        """Keep what an invocation gave; the oldest goes when there are more than `results_max`.

        Args:
            invocation: its id; it ends once.
            reply: as a handler's.
            now_us: logical time, microseconds, never below an earlier call's.
        """
        assert invocation not in self._kept, f"invocation {invocation} ends once"
        self._kept[invocation] = ResultRecord(invocation, now_us, reply)
        if len(self._kept) > self._max:
            self._kept.popitem(last=False)

    def get(self, invocation: int) -> bytes | None:
        """Give the reply of an ended invocation; None: it has not ended, was never, or is forgotten."""
        record = self._kept.get(invocation)
        return None if record is None else record.reply

    def expire(self, now_us: int) -> int:
        """Forget results older than `results_kept_s`; cheap with none. Gives how many were forgotten.

        Called behind each time record, with logical time.
        """
        oldest_us = now_us - self._kept_us
        kept = self._kept
        before = len(kept)
        while kept and next(iter(kept.values())).at_us < oldest_us:
            kept.popitem(last=False)
        return before - len(kept)

    def snapshot(self) -> list[ResultRecord]:
        """Copy everything, the oldest first."""
        return list(self._kept.values())

    def restore(self, records: Iterable[ResultRecord]) -> None:
        """Replace everything by what `snapshot` gave."""
        self._kept = OrderedDict((record.invocation, record) for record in records)
        self.check_invariants()

    def check_invariants(self) -> None:
        """Assert every `Invariant:` above; linear in results."""
        at_us = 0
        for invocation, record in self._kept.items():
            assert record.invocation == invocation
            assert record.at_us >= at_us, "order of ends is not the order of the table"
            at_us = record.at_us
        assert len(self._kept) <= self._max
