"""Runs an application over rows that were recorded, and compares what it emits with what the log has; pure.

    checkpoint --load--> application <--rows behind it, as they were delivered
                             |
                             '--> lanes --compared at each row that tells how far a lane was logged, and its chain

A lane of which a row tells is compared once the application is that far, however late it emits; what is still missing
behind its last checkpoint, which is a barrier, will not come. A row's chain covers all items of the lane, so a
difference lies between what was found equal last and that row's position. Of calls to itself the log has the items,
so there the first one that differs is named.

Guarantees: nothing is sent anywhere; the first difference that is found is kept. Does not: IO, or decide where to
begin. Imports protocols and this package.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import takewhile
from typing import Final, NamedTuple

import msgspec

from deathless.foreign.checkpoints import Head, decode_lanes
from deathless.foreign.rows import Given, What, decode_given, decode_items
from deathless.foreign.waiting import ITEM_BYTES
from deathless.protocols.ambrosia import events as on
from deathless.protocols.ambrosia.items import bytes_of
from deathless.protocols.ambrosia.lanes import Expectation
from deathless.protocols.ambrosia.machine import ApplicationMachine
from deathless.protocols.ambrosia.messages import Oversized, Rpc

DELIVERED_BYTES: Final = 64 << 10  # of rows in one record
ITEMS_SHOWN: Final = 5


class Logged(NamedTuple):
    """What a row tells of a lane."""

    known: Expectation
    items: bytes  # of calls to itself, which end at that position; empty: not known


class Parting(NamedTuple):
    """Where the application emitted something else than the log has.

    Attributes:
        target: of the lane; "": calls to itself.
        first: the first position that may differ; everything before it is equal.
        last: the position at which the difference was found.
        row: position of the topic's row that tells what the log has.
        fewer: nothing was emitted there.
        expected: items of the log from `first` on, at most ITEMS_SHOWN; empty: it has their chain alone.
        got: items that were emitted from `first` on, at most ITEMS_SHOWN.
    """

    target: str
    first: int
    last: int
    row: int
    fewer: bool
    expected: tuple[Rpc | Oversized, ...]
    got: tuple[Rpc | Oversized, ...]


class Counted(msgspec.Struct):
    """What was done."""

    rows: int = 0
    messages: int = 0  # calls and returns that were delivered
    outputs: int = 0  # that the application emitted
    refused: int = 0  # outputs that went nowhere, in this run as in any other


class Rerun:
    """One run.

    Args:
        machine: of the application's process, new; any difference of bytes is fatal to it.
        head: of the checkpoint that it begins from.
    """

    def __init__(self, machine: ApplicationMachine, head: Head) -> None:
        self.counted = Counted()
        self.parting: Parting | None = None
        self.delivered = head.position  # position of the last row that was given
        self._machine = machine
        self._head = head
        self._targets: set[str] = set()  # that something was emitted for
        self._logged: dict[str, deque[Logged]] = {}  # by target; what the application was not compared with yet

    def load(self) -> on.Load:
        """Give what it begins from. Raises: msgspec.MsgspecError, ValueError."""
        head = self._head
        return on.Load(length=head.length, lsn=head.position, records=head.records, lanes=decode_lanes(head.lanes))

    def deliver(self, rows: Iterable[tuple[int, Given]]) -> list[on.Event]:
        """Give what the application is to be given of these rows, which follow those before."""
        events: list[on.Event] = []
        rpcs: list[Rpc] = []
        size = 0
        for position, row in rows:
            assert position > self.delivered, (position, self.delivered)
            self.delivered = position
            self.counted.rows += 1
            if row.what == What.INITIAL:
                events += [
                    on.Confirmed(lsn=position),
                    on.DeliverInitial(lsn=position, data=row.items),
                ]
                continue
            rpcs += decode_given(row.items)
            size += len(row.items) + ITEM_BYTES
            if row.upto:
                known = Logged(Expectation(row.upto, row.chain, lsn=position), b"" if row.target else row.items)
                self._logged.setdefault(row.target, deque()).append(known)
            if size >= DELIVERED_BYTES:
                events += self._record(rpcs)
                rpcs, size = [], 0
        return events + self._record(rpcs)

    def took(self, effects: Iterable[on.Effect]) -> list[on.Event]:
        """The machine wants this; gives what it is to be told next: how far the log is, as far as it has emitted."""
        for effect in effects:
            match effect:
                case on.Emitted():
                    self.counted.outputs += 1
                    self._targets.add(effect.target)
                case on.OutputRefused():
                    self.counted.refused += 1
                case on.Differs():
                    self._differs(effect.difference.target, effect.difference.position)
                case _:
                    pass
        return self._compare()

    def ended(self) -> None:
        """It has given a checkpoint behind everything that it was given: what it did not emit, it does not emit."""
        for target in sorted(self._logged):
            waiting = self._waiting(target)
            if waiting:
                self._part(target, waiting[0])

    @property
    def beyond(self) -> int:
        """How many items it emitted that the log has not: they were not logged when the last row was."""
        lanes = [self._machine.lane(target) for target in self._targets]
        return sum(max(0, lane.emitted - lane.floor) for lane in lanes)

    def _record(self, rpcs: list[Rpc]) -> list[on.Event]:
        self.counted.messages += len(rpcs)
        confirmed: list[on.Event] = [on.Confirmed(lsn=self.delivered)]
        return [*confirmed, on.Deliver(lsn=self.delivered, rpcs=tuple(rpcs))] if rpcs else confirmed

    def _compare(self) -> list[on.Event]:
        """Have lanes compared that are as far as the log; they forget what is equal."""
        if self.parting is not None:
            return []
        events: list[on.Event] = []
        for target in self._logged:
            emitted = self._machine.lane(target).emitted
            reached = (each.known for each in self._waiting(target) if each.known.position <= emitted)
            events += [on.EffectKnown(target=target, known=known) for known in reached]
        return events

    def _differs(self, target: str, position: int) -> None:
        self._part(target, next(each for each in self._waiting(target) if each.known.position == position))

    def _waiting(self, target: str) -> deque[Logged]:
        """Give what the application was not compared with yet: a lane's floor is what was found equal last."""
        logged, floor = self._logged[target], self._machine.lane(target).floor
        while logged and logged[0].known.position <= floor:
            logged.popleft()
        return logged

    def _part(self, target: str, logged: Logged) -> None:
        """Keep where it parts from the log, if this is the first time."""
        if self.parting is not None:
            return
        lane = self._machine.lane(target)
        first, last = lane.floor + 1, logged.known.position
        got = [item for position, item in lane.kept_from(first) if position <= last]
        fewer = lane.emitted < last
        items = decode_items(logged.items) if logged.items else ()
        expected: tuple[Rpc | Oversized, ...] = ()
        if len(items) == last - lane.floor:
            pairs = zip(items, got, strict=False)
            equal = sum(1 for _ in takewhile(lambda pair: bytes_of(pair[0]) == bytes_of(pair[1]), pairs))
            if equal < len(items):
                first, expected, got = first + equal, items[equal:], got[equal:]
                last, fewer = first, not got
        shown = slice(ITEMS_SHOWN if last > first else 1)
        self.parting = Parting(target, first, last, logged.known.lsn, fewer, expected[shown], tuple(got[shown]))
