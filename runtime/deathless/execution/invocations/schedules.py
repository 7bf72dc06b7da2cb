"""The schedules of a service: up to when each has been looked at, and which ticks are due.

    new --first time record--> waits for its next tick --time record at or behind it--> ticks are sent, waits again

A tick is a message of the service to itself (a FORK), so it queues for its key and runs exactly once, as all of those
do. Which ticks are sent is decided by logical time in a TIME record, which every replica reads alike.

One record moves logical time by all that passed. (In version 1 it took several, and ticks wait for the last of them.)
Of the ticks that are due

    one    the last one is sent
    all    each is, the last MISSED_MAX of them
    skip   the last one is, if it is less than ON_TIME_US late

Where the code of a checkpoint had other schedules, one that is new begins with the next time record, one whose times
are others goes on from where it stood, and one that is gone is let go; `changes` tells which.

Guarantees: a function of the log's prefix and the code; no tick is sent twice, none before its time. Does not: run
handlers. Imports base and codec.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from deathless.codec.messages import Kind, encode
from deathless.codec.peer_messages import ScheduleView, Tick, encode_body
from deathless.codec.untrusted import read_msgpack
from deathless.codec.wire import ReplyError, Status
from deathless.execution.author.schedule import ScheduleSpec
from deathless.execution.invocations.journal import SuspendedSchedule
from deathless.execution.values.failure import bounded

MISSED_MAX: Final = 1000
ON_TIME_US: Final = 60_000_000
PROBLEM_CHARS: Final = 300
NEW_US: Final = 1
"""When a schedule is due that no time record has met yet: at the next one."""


class ScheduleChange(NamedTuple):
    """What became of a schedule when a checkpoint was restored."""

    name: str
    kind: str  # "new", "changed" or "gone"
    before: str  # its expression and zone in the checkpoint; empty: it had none
    now: str  # of the code; empty: likewise
    seen_us: int  # its ticks up to here are dealt with; 0: it is new


class _Standing:
    """Where one schedule stands."""

    __slots__ = ("last_us", "next_us", "problem", "seen_us", "spec")

    def __init__(self, spec: ScheduleSpec) -> None:
        self.spec = spec
        self.seen_us = 0  # all its ticks up to here are sent or left out; 0: it is new
        self.next_us = NEW_US  # the first tick behind that; 0: there is none
        self.last_us = 0  # the last tick that was sent; 0: none
        self.problem = ""  # of the last one that ended; empty: it went well

    def seen(self, us: int) -> None:
        """Note that its ticks up to here are dealt with."""
        self.seen_us = us
        self.next_us = self.spec.cron.next_after(us)

    def take(self, now_us: int) -> list[int]:
        """Give the ticks to send."""
        most = MISSED_MAX if self.spec.missed == "all" else 1
        due = self.spec.cron.latest(self.seen_us, now_us, most) if self.seen_us else []
        self.seen(now_us)
        if self.spec.missed == "skip":
            due = [us for us in due if us > now_us - ON_TIME_US]
        self.last_us = due[-1] if due else self.last_us
        return due


class Schedules:
    """All of a service."""

    __slots__ = ("_changes", "_specs", "_standing")

    def __init__(self, specs: Iterable[ScheduleSpec] = ()) -> None:
        self._specs = list(specs)
        self.clear()

    def clear(self) -> None:
        """Forget everything: all are new."""
        self._standing = {spec.name: _Standing(spec) for spec in self._specs}
        self._changes: list[ScheduleChange] = []

    def due_us(self) -> int:
        """Logical time when the next tick is due; 0: never."""
        if not self._standing:
            return 0
        return min((one.next_us for one in self._standing.values() if one.next_us), default=0)

    def take_due(self, now_us: int) -> list[bytes]:
        """Give the messages of ticks that are due, in the order of their times and then of the code."""
        ticks: list[tuple[int, int, ScheduleSpec]] = []
        for index, one in enumerate(self._standing.values()):
            if 0 < one.next_us <= now_us:
                ticks += [(us, index, one.spec) for us in one.take(now_us)]
        return [_message(spec, us) for us, _, spec in sorted(ticks, key=_place)]

    def ended(self, name: str, reply: bytes) -> None:
        """Note how a tick ended; one of a schedule that is gone is nobody's."""
        one = self._standing.get(name)
        if one is None:
            return
        one.problem = ""
        if reply[0] == Status.ERROR:
            try:
                error = read_msgpack(reply[1:], ReplyError)
            except msgspec.MsgspecError:
                one.problem = "how it failed can't be read"
            else:
                one.problem = bounded(f"{error.code} {error.type}: {error.text}", PROBLEM_CHARS)

    def views(self, running: Sequence[tuple[str, int]]) -> list[ScheduleView]:
        """Give all for operators, in the order of the code.

        Args:
            running: name and invocation of ticks that have begun or wait for their key.
        """
        return [
            ScheduleView(
                spec.name,
                spec.method,
                spec.key,
                spec.cron.expression,
                spec.zone,
                spec.missed,
                one.last_us,
                one.next_us if one.seen_us else 0,
                not one.seen_us,
                tuple(invocation for name, invocation in running if name == spec.name),
                one.problem,
            )
            for one in self._standing.values()
            for spec in [one.spec]
        ]

    def suspended(self) -> list[SuspendedSchedule]:
        """Give what a checkpoint keeps: one record for each that is not new."""
        return [
            SuspendedSchedule(0, spec.name, spec.cron.expression, spec.zone, one.seen_us, one.last_us, one.problem)
            for one in self._standing.values()
            for spec in [one.spec]
            if one.seen_us
        ]

    def restore(self, record: SuspendedSchedule) -> None:
        """Take a record in. One whose times are others now goes on from there; one that is gone is let go."""
        before = f"{record.expression} {record.zone}"
        one = self._standing.get(record.name)
        if one is None:
            self._changes.append(ScheduleChange(record.name, "gone", before, "", record.seen_us))
            return
        if (one.spec.cron.expression, one.spec.zone) != (record.expression, record.zone):
            self._changes.append(ScheduleChange(record.name, "changed", before, _times_of(one.spec), record.seen_us))
        one.last_us, one.problem = record.last_us, record.problem
        one.seen(record.seen_us)

    def changes(self) -> list[ScheduleChange]:
        """Give what became of schedules since `clear`, by `restore`: those that are gone or changed, then new ones."""
        new = [spec for spec in self._specs if not self._standing[spec.name].seen_us]
        return [*self._changes, *(ScheduleChange(spec.name, "new", "", _times_of(spec), 0) for spec in new)]


def _times_of(spec: ScheduleSpec) -> str:
    return f"{spec.cron.expression} {spec.zone}"


def _place(tick: tuple[int, int, ScheduleSpec]) -> tuple[int, int]:
    return tick[:2]


def _message(spec: ScheduleSpec, tick_us: int) -> bytes:
    envelope = encode_body(Tick((), spec.name))
    return encode(
        Kind.FORK,
        method=spec.method.encode(),
        key=spec.key.encode(),
        idempotency_key=envelope,
        args=spec.arguments(tick_us),
    )
