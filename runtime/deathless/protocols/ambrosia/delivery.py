"""Makes records of what was logged, numbers them, and delivers nothing that is not confirmed.

Why it exists: what an application emits may leave because everything it was given is confirmed. That is kept here, in
one place: a record whose messages are not confirmed is a bug of whoever orders it, but for an application whose outputs
are held.

Guarantees: sequence ids of records with logged messages count from 0 without a gap, over all starts. Does not: say when
a record may be sent (`states`). Imports base.
"""

from __future__ import annotations

from deathless.base.errors import Internal
from deathless.protocols.ambrosia.check_bytes import xxhash64
from deathless.protocols.ambrosia.messages import MessageType
from deathless.protocols.ambrosia.records import Check, encode_checkpoint_record, encode_control, encode_record


class Delivery:
    """What one application was given.

    Args:
        committer: id in every record, in [-2**31, 2**31).
        check: computes the check bytes of records.
    """

    __slots__ = ("_check", "_committer", "begun", "confirmed", "lsn", "records")

    def __init__(self, committer: int, check: Check = xxhash64) -> None:
        self._committer = committer
        self._check = check
        self.confirmed = 0  # lsn: everything up to it is
        self.lsn = 0  # of what was delivered last
        self.records = 0  # with logged messages, since the service was created
        self.begun = False  # a record was delivered since the start or the load

    def control(self, kind: MessageType) -> bytes:
        """Give the record of a message without data."""
        return encode_control(self._committer, kind, self._check)

    def load(self, length: int, lsn: int, records: int) -> bytes:
        """Go on behind a checkpoint of so many bytes, and give its record."""
        self.lsn, self.records = lsn, records
        self.confirmed = max(self.confirmed, lsn)
        return encode_checkpoint_record(self._committer, length)

    def deliver(self, lsn: int, payload: bytes, *, held: bool) -> bytes:
        """Give the record of messages that the log holds up to this lsn.

        Args:
            lsn: of the last of them.
            payload: the messages.
            held: what the application emits stays here.

        Raises:
            Internal: they come too early, or again.
        """
        if lsn <= self.lsn:
            raise Internal(f"an application was given everything up to lsn {self.lsn}, and gets {lsn}")
        if lsn > self.confirmed and not held:
            raise Internal(f"an application gets lsn {lsn}, and {self.confirmed} is confirmed")
        record = encode_record(self._committer, self.records, payload, self._check)
        self.lsn = lsn
        self.records += 1
        self.begun = True
        return record
