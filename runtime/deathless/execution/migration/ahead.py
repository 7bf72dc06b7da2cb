"""What was made of a former code's state ahead of the cut: there, only what changed since is looked at.

    entries   states that were migrated
    known     handlers that wait, which were run again by the new code and fit

What becomes of a handler that waits is a function of its record, of the state of its key, and of who else works on that
key. So it is not run again at the cut where its record and that state are as they were, and no other record of its key
is another one.

Guarantees: a function of what it is given; as much as twice the records that a checkpoint holds is kept. Does not:
migrate, or run, anything. Imports base and codec.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from deathless.execution.invocations.journal import (
    SuspendedHeld,
    SuspendedInvocation,
    SuspendedLooks,
    decode_record,
    decode_suspended,
)


class Known(NamedTuple):
    """A handler that waits, which fits the new code as it is."""

    id: int
    method: str  # by its former name
    key: bytes
    pending: bool  # activities are under way
    record: bytes  # in the words of the new code


class Ahead:
    """States that were migrated ahead of the cut, and handlers that were run again: the rest is done at the cut.

    Args:
        entries: that came of a checkpoint; taken over, and changed here.
        known: handlers, by their former record (see `known_in`).
    """

    def __init__(self, entries: dict[bytes, bytes], known: Mapping[bytes, Known] | None = None) -> None:
        self.entries = entries
        self._known = known or {}
        self._was: dict[bytes, bytes | None] = {}  # of entries that were overlaid; None: there was none

    def overlaid(self, changed: Mapping[bytes, bytes], gone: Collection[bytes]) -> dict[bytes, bytes]:
        """Give all entries, with these in place of those; what was overlaid before is as it was first.

        What is given is good until the next call.
        """
        entries = self.entries
        for key, value in self._was.items():
            if value is None:
                del entries[key]
            else:
                entries[key] = value
        self._was = {key: entries.get(key) for key in (*changed, *gone)}
        entries.update(changed)
        for key in gone:
            del entries[key]
        return entries

    def parted(self, records: Sequence[bytes], touched: Iterable[bytes]) -> tuple[list[Known], list[bytes]]:
        """Give the handlers that stay as they were found ahead, and the records of all else, each in their order.

        Args:
            records: of a checkpoint, by the former code.
            touched: keys whose state is another one, or gone.
        """
        known = self._known
        keys = {*touched, *keys_in(data for data in records if data not in known)}
        stay: list[Known] = []
        others: list[bytes] = []
        for data in records:
            found = known.get(data)
            if found is None or found.key in keys:
                others.append(data)
            else:
                stay.append(found)
        return stay, others


def known_in(was: Iterable[bytes], now: Iterable[bytes]) -> dict[bytes, Known]:
    """Give what is known of handlers that were run again and fit, by their former record.

    Args:
        was: records by the former code.
        now: what came of them, without a misfit.
    """
    records: dict[int, bytes] = {}
    for data in now:
        record = decode_record(data)
        if isinstance(record, SuspendedInvocation):
            records[record.id] = data
    known: dict[bytes, Known] = {}
    for data in was:
        record = decode_record(data)
        if isinstance(record, SuspendedInvocation) and record.id in records:
            received = record.received
            pending = bool(record.activities)
            known[data] = Known(record.id, received.method, received.key, pending, records[record.id])
    return known


def keys_in(records: Iterable[bytes]) -> set[bytes]:
    """Give the keys that handlers which wait are of."""
    keys: set[bytes] = set()
    for data in records:
        record = decode_record(data)
        if isinstance(record, SuspendedHeld):
            record = decode_suspended(record.record)
        if isinstance(record, SuspendedLooks):
            record = record.record
        if isinstance(record, SuspendedInvocation):
            keys.add(record.received.key)
    return keys


def together(stay: Iterable[Known], others: Sequence[bytes]) -> list[bytes]:
    """Give the records of both, ascending by id, as a checkpoint has them."""
    placed = [(known.id, known.record) for known in stay]
    if not placed:
        return list(others)
    placed += [(decode_record(data).id, data) for data in others]
    return [data for _, data in sorted(placed, key=itemgetter(0))]
