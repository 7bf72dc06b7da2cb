"""Messages that a driver gave up, until an operator has seen to them; pure.

    RESPONSE that names a position of our outbox --add--> listed --ORDER redeliver--> the outbox again, a new position
                                                             '-----ORDER discard----> gone

A driver has no log, so what it gives up it tells the service, which still has the message in its outbox: the record is
a copy of that, made at one place of the log, so all replicas hold the same. Only behind its confirmation does the
driver acknowledge the position. A driver that did not hear of it tells again; a position counts once, so one that was
seen to stays known, without its message, until the outbox has trimmed it.

Guarantees: equal calls give equal tables and snapshots. Nothing is forgotten for lack of room: the messages count as
those of the outbox do when calls are admitted (I10). Does not: send anything, read a clock.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from deathless.codec.peer_messages import Target
from deathless.codec.snapshot import UndeliveredRecord


class Undelivered:
    """The messages of one shard that drivers gave up, in the order in which they did."""

    __slots__ = ("_by_position", "_bytes", "_records", "_seen_to")

    def __init__(self) -> None:
        self._records: dict[int, UndeliveredRecord] = {}  # by id, ascending
        self._by_position: dict[tuple[Target, int], int] = {}  # Invariant: ids of records, by what they are copies of
        self._seen_to: set[tuple[Target, int]] = set()  # positions without a record that the outbox may still hold
        self._bytes = 0  # Invariant: of the records' messages

    def __len__(self) -> int:
        """Count of messages that nobody has seen to."""
        return len(self._records)

    @property
    def bytes(self) -> int:
        """Bytes of these messages; together with the outbox's they are compared with `outbox_bytes_max`."""
        return self._bytes

    def knows(self, target: Target, position: int) -> bool:
        """Was this message given up before?"""
        return (target, position) in self._by_position or (target, position) in self._seen_to

    def add(self, record: UndeliveredRecord) -> None:
        """List a message; its id is the lsn of the RESPONSE that told of it."""
        target = Target(record.service, record.shard)
        assert not self.knows(target, record.position), "a position is given up once"
        self._records[record.id] = record
        if record.position:
            self._by_position[target, record.position] = record.id
        self._bytes += len(record.message)

    def holds(self, number: int) -> bool:
        """Is this one listed?"""
        return number in self._records

    def take(self, number: int, first_kept: int) -> UndeliveredRecord | None:
        """Take a message off the list; None: it is not there.

        Args:
            number: its id.
            first_kept: the first position that the outbox of its target still holds.
        """
        record = self._records.pop(number, None)
        if record is None:
            return None
        place = Target(record.service, record.shard), record.position
        self._by_position.pop(place, None)
        if record.position >= first_kept:
            self._seen_to.add(place)
        self._bytes -= len(record.message)
        return record

    def trimmed(self, target: Target, first_kept: int) -> None:
        """The outbox of a target holds nothing below this position any more."""
        if self._seen_to:
            self._seen_to = {place for place in self._seen_to if place[0] != target or place[1] >= first_kept}

    def positions_began_anew(self, target: Target) -> None:
        """The outbox of a target was emptied: the same positions are other messages from now on."""
        self._seen_to = {place for place in self._seen_to if place[0] != target}
        for place in [place for place in self._by_position if place[0] == target]:
            number = self._by_position.pop(place)
            self._records[number] = msgspec.structs.replace(self._records[number], position=0)

    def get(self, number: int) -> UndeliveredRecord | None:
        """Give a message that is listed."""
        return self._records.get(number)

    def snapshot(self) -> list[UndeliveredRecord]:
        """Copy everything, ascending by id; a position that was seen to stands before them with id 0 and no message."""
        seen = [UndeliveredRecord(0, t.service, t.shard, position, 0, "", b"") for t, position in sorted(self._seen_to)]
        return [*seen, *self._records.values()]

    def restore(self, records: Iterable[UndeliveredRecord]) -> None:
        """Replace everything by what `snapshot` gave."""
        self._records, self._by_position, self._seen_to, self._bytes = {}, {}, set(), 0
        for record in records:
            if record.id:
                self.add(record)
            else:
                self._seen_to.add((Target(record.service, record.shard), record.position))
        self.check_invariants()

    def check_invariants(self) -> None:
        """Assert every `Invariant:` above; linear in messages."""
        assert list(self._records) == sorted(self._records)
        assert self._by_position == {
            (Target(record.service, record.shard), record.position): number
            for number, record in self._records.items()
            if record.position
        }
        assert not self._seen_to & self._by_position.keys()
        assert self._bytes == sum(len(record.message) for record in self._records.values())
