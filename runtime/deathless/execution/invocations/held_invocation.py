"""An invocation that the code does not fit: it is held as it was found, with its key, until code comes that fits.

    restored by code that does not fit --> held --restored by code that fits--> goes on, given what came meanwhile
                                             |
                                             operator cancels or kills it: its caller gets an error, its key is free

One that is carried (see carrying) is held in the same way until the next TIME record, and begins anew there.

What comes for it meanwhile (replies, outcomes, values of promises, its caller's word that it waits no more) is kept in
order, because none of it comes again. Its timers and deadlines stand still. No activity of it is begun.

Guarantees: its record stays byte for byte; what is kept is bounded by what it asked for, and by `journal_bytes_max`.
Does not: run anything. Imports base and codec.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from deathless.base.errors import TooLarge
from deathless.codec.peer_messages import Given, History, InvocationView, Target
from deathless.codec.wire import error_reply
from deathless.execution.invocations.journal import (
    CAME_RESPONSE,
    FORK,
    Came,
    Origin,
    SuspendedHeld,
    SuspendedInvocation,
    decode_suspended,
)
from deathless.execution.turn.asked_operation import AskedCall, AskedCancel, AskedOperation, AskedRun, decode_asked
from deathless.execution.turn.asked_operation import name_of as name_of_asked

HELD_BYTES: Final = 1024
"""What a held invocation costs beside its own bytes, in round numbers."""
CAME_BYTES: Final = 96
"""Likewise, each thing that came for it."""


def open_in(record: SuspendedInvocation) -> dict[int, AskedOperation] | None:
    """Give what an invocation asked for and may wait for, by number; None: of version 1, so nobody knows.

    Raises: CorruptCheckpoint.
    """
    if record.asked is None:
        return None
    found: dict[int, AskedOperation] = {}
    for number, asked in enumerate(map(decode_asked, record.asked), record.count + 1):
        if isinstance(asked, AskedCancel):
            found.pop(asked.number, None)
        else:
            found[number] = asked
    for event in record.journal:
        found.pop(event.operation, None)
    return found


class HeldInvocation:
    """One.

    Args:
        held: what a checkpoint keeps of it.

    Raises: CorruptCheckpoint.
    """

    __slots__ = ("_open", "_record", "came", "disowned", "given", "held", "misfit", "received", "size")

    def __init__(self, held: SuspendedHeld) -> None:
        self.held = held
        self._record = record = decode_suspended(held.record)
        self.misfit = held.misfit
        self.disowned = held.disowned
        self.received = record.received
        if held.disowned:
            self.disown()
        self.came: dict[tuple[int, int, int, str, int], Came] = {}
        self.given = sum(len(event.reply) + len(event.state or b"") for event in record.journal)
        self._open = open_in(record)  # what it asked for and may wait for; None: nobody knows
        self.size = HELD_BYTES + len(held.record) + len(held.state or b"")
        for came in held.came:
            self._take(came)

    @property
    def id(self) -> int:
        """Of the invocation."""
        return self.held.id

    @property
    def begins_anew(self) -> bool:
        """Is it carried, so that its first turn in this code is still to come?"""
        return not self._record.lsn

    @property
    def first(self) -> tuple[int, int, int]:
        """What it had asked for, what was resolved of that, and its turns, before it was carried."""
        return self._record.count, self._record.order, self._record.part

    @property
    def holds(self) -> bool:
        """Does it hold its key?"""
        return self.held.holds

    def disown(self) -> None:
        """Its caller was created anew: nobody is told how it ends."""
        origin = self.received.origin
        self.received = replace(self.received, origin=Origin(FORK, origin.service, origin.shard))
        self.disowned = True

    # ---- what comes -------------------------------------------------------------------------------------------

    def waits_for_peer(self, target: Target, own: Target) -> bool:
        """May it wait for a call of `target`? Where nobody knows what it asked for, yes.

        Args:
            target: as messages name it; SELF is we.
            own: service and shard that stand in a record for SELF.
        """
        if self._open is None:
            return True
        place = own if not target.service else target
        calls = [asked for asked in self._open.values() if isinstance(asked, AskedCall)]
        return any((call.service, call.shard) == place for call in calls)

    def take(self, came: Came, own: Target, bytes_max: int) -> None:
        """Keep what came; what can't be for it, or came before, changes nothing.

        Args:
            came: what.
            own: service and shard that stand in a record for SELF.
            bytes_max: `journal_bytes_max`: beyond it an error is kept in a reply's place.
        """
        if came.operation and not self._may_wait(came, own):
            return
        if self._place(came) in self.came:
            return
        if self.given + len(came.reply) > bytes_max:
            text = f"a reply of {len(came.reply)} bytes, but a handler is given at most {bytes_max}"
            came = replace(came, reply=error_reply(TooLarge.code, TooLarge.__name__, text))
        self._take(came)

    def _take(self, came: Came) -> None:
        self.came[self._place(came)] = came
        self.given += len(came.reply)
        self.size += CAME_BYTES + len(came.reply) + len(came.service)

    def _may_wait(self, came: Came, own: Target) -> bool:
        record = self._record
        if self._open is None:
            return record.count < came.operation <= record.count + len(record.prints)
        asked = self._open.get(came.operation)
        if came.kind == CAME_RESPONSE:
            place = (came.service, came.shard) if came.service else own
            return isinstance(asked, AskedCall) and (asked.service, asked.shard) == place
        return asked is not None

    @staticmethod
    def _place(came: Came) -> tuple[int, int, int, str, int]:
        return came.kind, came.operation, came.attempt, came.service, came.shard

    # ---- for others -------------------------------------------------------------------------------------------

    def calls(self, own: Target) -> Iterator[tuple[int, Target]]:
        """Give the calls that may be under way: (number, whom it asked, SELF for ourselves)."""
        for number, asked in (self._open or {}).items():
            if isinstance(asked, AskedCall):
                place = Target(asked.service, asked.shard)
                yield number, Target("", 0) if place == own else place

    def activities(self) -> list[int]:
        """Give the numbers of the activities that may be under way."""
        if self._open is None:
            return [activity.operation for activity in self._record.activities]
        return [number for number, asked in self._open.items() if isinstance(asked, AskedRun)]

    def suspend(self) -> SuspendedHeld:
        """Give what a checkpoint keeps of it."""
        return replace(self.held, misfit=self.misfit, came=list(self.came.values()), disowned=self.disowned)

    def view(self) -> InvocationView:
        """Give it for operators."""
        record, misfit = self._record, self.misfit
        why = "the next record of time" if misfit is None else "code that fits it"
        waits_for = (why, *map(name_of_asked, (self._open or {}).values()))
        turns = record.part + 1 if misfit is None else max(misfit.turn, record.part + 1)
        return InvocationView(
            self.id,
            self.received.method,
            self.received.key.decode(errors="replace"),
            record.since_us,
            turns,
            waits_for,
            str(self.received.origin),
            "" if misfit is None else f"{misfit.code}: {misfit}",
        )

    def history(self, count_max: int) -> History:
        """Give what it was given before it was held, the last `count_max` of it."""
        journal = self._record.journal
        given = [Given(event.operation, "", 0, event.lsn, event.now_us, event.reply) for event in journal[-count_max:]]
        return History(self.received.arguments, given, len(journal))

    @property
    def since_us(self) -> int:
        """Logical time of its first turn."""
        return self._record.since_us
