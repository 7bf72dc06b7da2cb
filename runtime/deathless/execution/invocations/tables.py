"""Who is where: invocations that wait, messages that wait for their key, replies that are owed, and what is due.

    live      invocations that have begun                    by id
    held      the key of each that is not shared             to its id
    queues    messages that wait for a key that is held      by key, ascending by id, none empty
    owed      replies that plain handlers promised           by id
    unfit     invocations that the code does not fit         by id; these hold their keys, too
    callers   operations of others that something works for  to its id

An id is the lsn of the message that began it, so no two of them are the same. Guarantees: nothing here runs a turn.
Does not: decide. Imports base and codec.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop, heappush, nsmallest
from operator import itemgetter
from typing import Final, TypeVar

from msgspec.structs import replace

from deathless.base.times import NEVER, Due, Times
from deathless.codec.peer_messages import ActivityStart, Crowd, History, InvocationView, Target
from deathless.execution.invocations.held_invocation import HeldInvocation
from deathless.execution.invocations.invocation import Invocation
from deathless.execution.invocations.journal import (
    FORK,
    REQUEST,
    TICK,
    Came,
    Origin,
    Received,
    Record,
    SuspendedMessage,
    SuspendedReply,
    encode_record,
)
from deathless.execution.invocations.kept_records import KeptRecords
from deathless.execution.turn.operations import Activity, Call, Operation, Timer

DUE_AT_ONCE_MAX: Final = 1024
"""So many timers and deadlines fire in one time record; what is left fires in the next, which follows at once."""

DUE_MIN: Final = 1024
"""So many deadlines are kept before those of operations that are gone are looked for."""

MESSAGE_BYTES: Final = 256
"""What a message that waits costs beside its own bytes, in round numbers."""

ADDRESS_BYTES: Final = 64
"""What an address of a chain costs beside its text: a caller's chain may hold thousands of short ones."""

O = TypeVar("O", bound=Operation[object])  # noqa: E741  stands for an operation


_Entry = tuple[int, int, int]
"""(due, invocation, operation)."""


class Agenda:
    """What is due by one of the counters, the first of it first; some of it may be gone.

    Args:
        pending: False for what is gone.
    """

    __slots__ = ("_max", "_pending", "entries")

    def __init__(self, pending: Callable[[_Entry], bool]) -> None:
        self._pending = pending
        self.entries: list[_Entry] = []  # a heap
        self._max = DUE_MIN  # when it is longer, those that are gone are let go

    def add(self, entry: _Entry) -> None:
        """Take one in."""
        heappush(self.entries, entry)
        if len(self.entries) > self._max:
            # Most calls are answered long before their deadline: without this a day's calls would pile up.
            self.entries = [each for each in self.entries if self._pending(each)]
            heapify(self.entries)
            self._max = max(DUE_MIN, 2 * len(self.entries))

    def take(self, now_us: int, count_max: int) -> list[tuple[int, int]]:
        """Take out what is due at `now_us`, the first `count_max` of it: (invocation, operation)."""
        due: list[tuple[int, int]] = []
        while self.entries and self.entries[0][0] <= now_us and len(due) < count_max:
            due.append(heappop(self.entries)[1:])
        return due

    def first_us(self) -> int:
        """When the first is due that is not gone; 0: there is none."""
        while self.entries:
            if self._pending(self.entries[0]):
                return self.entries[0][0]
            heappop(self.entries)
        return 0


class Tables:
    """The tables above; see there.

    Args:
        beside: others may take turns of a key that is held, so the last state of who holds it may be kept by it alone.
    """

    __slots__ = (
        "_by_elapsed", "_by_time", "_callers", "beside", "bytes", "held", "live", "owed", "queued",
        "queues", "unfit",
    )  # fmt: skip

    def __init__(self, *, beside: bool = False) -> None:
        self.beside = beside
        self.live: dict[int, Invocation] = {}
        self.held: dict[bytes, int] = {}
        # Found by id as well: each of thousands that wait for one key may be cancelled.
        self.queues: dict[bytes, OrderedDict[int, SuspendedMessage]] = {}
        self.queued: dict[int, bytes] = {}  # message to the key it waits for
        self.owed: dict[int, SuspendedReply] = {}
        self.unfit: dict[int, HeldInvocation] = {}
        self.bytes = 0  # Invariant: `size` of all invocations, held ones as well, and `size_of` all messages that wait
        self._callers: dict[tuple[str, int, int, int], int] = {}
        self._by_elapsed = Agenda(self._is_pending)
        self._by_time = Agenda(self._is_pending)

    def __len__(self) -> int:
        """How many have begun, or wait to, and not ended."""
        return len(self.live) + len(self.queued) + len(self.owed) + len(self.unfit)

    def __contains__(self, invocation: int) -> bool:
        """True for one that has begun, or waits to, and not ended."""
        return invocation in self.live or invocation in self.queued or self.stands_still(invocation)

    def stands_still(self, invocation: int) -> bool:
        """True for a reply that is owed, and for an invocation that is held."""
        return invocation in self.owed or invocation in self.unfit

    # ---- invocations ------------------------------------------------------------------------------------------

    def enter(self, invocation: Invocation) -> None:
        """Take an invocation in; what it keeps so far is counted."""
        self.live[invocation.id] = invocation
        self.bytes += invocation.size

    def weigh(self, invocation: Invocation, size: int) -> None:
        """An invocation that is in keeps so many bytes now."""
        self.bytes += size - invocation.size
        invocation.size = size

    def leave(self, invocation: Invocation) -> None:
        """Let an invocation go."""
        del self.live[invocation.id]
        self.bytes -= invocation.size

    # ---- invocations that are held ----------------------------------------------------------------------------

    def hold(self, held: HeldInvocation) -> None:
        """Take an invocation in that the code does not fit."""
        self.unfit[held.id] = held
        self.bytes += held.size

    def keep_for(self, invocation: int, came: Came, own: Target, bytes_max: int) -> bool:
        """Keep what came for an invocation that is held; False: it is not."""
        held = self.unfit.get(invocation)
        if held is None:
            return False
        self.bytes -= held.size
        held.take(came, own, bytes_max)
        self.bytes += held.size
        return True

    def let_go(self, held: HeldInvocation) -> None:
        """Take an invocation out that was held."""
        del self.unfit[held.id]
        self.bytes -= held.size

    def returning(self) -> list[HeldInvocation]:
        """Give those that the code fits now and that have still to go on, ascending by id."""
        return [held for _, held in sorted(self.unfit.items()) if held.misfit is None]

    # ---- queues -----------------------------------------------------------------------------------------------

    def put(self, message: SuspendedMessage) -> None:
        """Have a message wait for the key it names."""
        queue = self.queues.setdefault(message.waits_for, OrderedDict())
        behind: list[int] = []
        for other in reversed(queue):  # none, but for one that has waited for another of its keys before
            if other < message.id:
                break
            behind.append(other)
        queue[message.id] = message
        for other in reversed(behind):
            queue.move_to_end(other)
        self.queued[message.id] = message.waits_for
        self.bytes += size_of(message)

    def take(self, message: SuspendedMessage) -> None:
        """Take a message out of its queue."""
        queue = self.queues[message.waits_for]
        del queue[message.id]
        if not queue:
            del self.queues[message.waits_for]
        del self.queued[message.id]
        self.bytes -= size_of(message)
        self.forget_caller(message.received.origin)

    def first(self, key: bytes) -> SuspendedMessage | None:
        """Give the message that waits longest for a key."""
        queue = self.queues.get(key)
        return next(iter(queue.values())) if queue else None

    def waiting(self, message: int) -> SuspendedMessage | None:
        """Give a message that waits for its key, by its id."""
        key = self.queued.get(message)
        return None if key is None else self.queues[key][message]

    # ---- callers ----------------------------------------------------------------------------------------------

    def note_caller(self, origin: Origin, invocation: int) -> None:
        """Remember who works for a caller."""
        if origin.kind == REQUEST:
            self._callers[origin.service, origin.shard, origin.invocation, origin.operation] = invocation

    def forget_caller(self, origin: Origin) -> None:
        """The opposite. Who waits for nothing was never noted: a broken peer may ask under a reference of zeros."""
        if origin.kind == REQUEST:
            self._callers.pop((origin.service, origin.shard, origin.invocation, origin.operation), None)

    def works_for(self, caller: Target, invocation: int, operation: int) -> int | None:
        """Give who works for a caller's operation."""
        return self._callers.get((caller.service, caller.shard, invocation, operation))

    def disown(self, caller: Target) -> None:
        """Forget whom replies are for that a caller asked for which was created anew: its ids are another's now."""
        for invocation in self.live.values():
            if _asked_by(invocation.received.origin, caller):
                invocation.received = replace(invocation.received, origin=_nobody(caller))
        for held in self.unfit.values():
            if _asked_by(held.received.origin, caller):
                held.disown()
        for queue in self.queues.values():
            for at, message in queue.items():
                if _asked_by(message.received.origin, caller):
                    queue[at] = replace(message, received=replace(message.received, origin=_nobody(caller)))
        for owed in [owed for owed in self.owed.values() if _asked_by(owed.origin, caller)]:
            self.owed[owed.id] = replace(owed, origin=_nobody(caller))
        self._callers = {asked: by for asked, by in self._callers.items() if asked[:2] != caller}

    # ---- operations -------------------------------------------------------------------------------------------

    def operation(self, invocation: int, number: int, kind: type[O]) -> O | None:
        """Give an operation that is not resolved, if it is there and of that kind."""
        found = self.live.get(invocation)
        operation = found.operations.get(number) if found is not None else None
        return operation if isinstance(operation, kind) else None

    def operations(self, kind: type[O]) -> Iterator[tuple[int, O]]:
        """Give all operations of a kind with their invocation, in the order of those and of numbers."""
        for invocation in sorted(self.live):
            for operation in self.live[invocation].operations.values():
                if isinstance(operation, kind):
                    yield invocation, operation

    def schedule(self, invocation: int, operation: Operation[object]) -> None:
        """Note when an operation is due."""
        if isinstance(operation, Timer | Call) and not operation.done:
            due = operation.due
            if due.elapsed_us:
                self._by_elapsed.add((due.elapsed_us, invocation, operation.number))
            if due.time_us:
                self._by_time.add((due.time_us, invocation, operation.number))

    def take_due(self, times: Times) -> list[tuple[int, int]]:
        """Give what is due, (invocation, operation), in the order of deadlines; some may be gone.

        What is due by elapsed comes before what is due by time. At most DUE_AT_ONCE_MAX: others wait while these run.
        For the rest `due` gives what has come.
        """
        due = self._by_elapsed.take(times.elapsed_us, DUE_AT_ONCE_MAX)
        return due + self._by_time.take(times.time_us, DUE_AT_ONCE_MAX - len(due))

    def due(self) -> Due:
        """When the first timer or deadline is due."""
        by_elapsed, by_time = self._by_elapsed, self._by_time
        if not (by_elapsed.entries or by_time.entries):
            return NEVER
        return Due(by_elapsed.first_us(), by_time.first_us())

    def _is_pending(self, entry: _Entry) -> bool:
        _, invocation, number = entry
        found = self.live.get(invocation)
        return found is not None and number in found.operations

    # ---- for others -------------------------------------------------------------------------------------------

    def activities(self) -> list[ActivityStart]:
        """Give all activities that have no outcome, in the order in which they were asked for."""
        return [activity.start for _, activity in self.operations(Activity)]

    def ticks(self) -> list[tuple[str, int]]:
        """Give schedule and id of each tick that has begun or waits for its key, ascending by id."""
        received = [(invocation.received.origin, invocation.id) for invocation in self.live.values()]
        received += [(owed.origin, owed.id) for owed in self.owed.values()]
        received += [(held.received.origin, held.id) for held in self.unfit.values()]
        for queue in self.queues.values():
            received += [(message.received.origin, message.id) for message in queue.values()]
        return sorted(((origin.service, id_) for origin, id_ in received if origin.kind == TICK), key=_second)

    def views(self, first: int, count_max: int) -> list[InvocationView]:
        """Give those from id `first` on for operators, ascending by id, the first `count_max` of them."""
        ids = (id_ for table in (self.live, self.queued, self.owed, self.unfit) for id_ in table if id_ >= first)
        return [self._view(id_) for id_ in nsmallest(count_max, ids)]

    def _view(self, id_: int) -> InvocationView:
        if (invocation := self.live.get(id_)) is not None:
            waits_for = tuple(f"{op.what}, since {op.since_us} us" for op in invocation.operations.values())
            received, turns = invocation.received, invocation.turn.part
            return InvocationView(
                id_, received.method, _text(received.key), invocation.since_us, turns, waits_for, str(received.origin)
            )
        if (message := self.waiting(id_)) is not None:
            received, since_us = message.received, message.since_us
            waits_for = (f"key {_text(message.waits_for)}, since {since_us} us",)
            return InvocationView(
                id_, received.method, _text(received.key), since_us, 0, waits_for, str(received.origin)
            )
        if (held := self.unfit.get(id_)) is not None:
            return held.view()
        owed = self.owed[id_]
        waits_for = (f"promise {id_}.0, since {owed.since_us} us",)
        return InvocationView(id_, owed.method, _text(owed.key), owed.since_us, 1, waits_for, str(owed.origin))

    def history(self, invocation: int, count_max: int) -> History | None:
        """Give the arguments of an invocation, and the last `count_max` things it was given; None: there is none."""
        if (found := self.live.get(invocation)) is not None:
            return found.history(count_max)
        if (message := self.waiting(invocation)) is not None:
            return History(message.received.arguments, [], 0)
        if (held := self.unfit.get(invocation)) is not None:
            return held.history(count_max)
        return History(b"\x80", [], 0) if invocation in self.owed else None  # its arguments are not kept

    def crowd(self) -> Crowd:
        """Say how much is suspended."""
        return Crowd(len(self), len(self.queued), self.bytes)

    def suspended(self, states: Mapping[bytes, bytes], kept: KeptRecords | None = None) -> list[bytes]:
        """Give all of it as records, ascending by id.

        Args:
            states: of all keys, encoded.
            kept: records as they were given before; None: all are made anew.
        """
        live = self.live.values()
        if kept is not None:
            placed = kept.of(live, states)
        else:
            placed = [(each.id, encode_record(each.suspend(states.get(each.received.key)))) for each in live]
        others: list[Record] = [*self.owed.values(), *(held.suspend() for held in self.unfit.values())]
        for queue in self.queues.values():
            others += queue.values()
        placed += [(record.id, encode_record(record)) for record in others]
        return [data for _, data in sorted(placed, key=itemgetter(0))]


def size_of(message: SuspendedMessage) -> int:
    """Give the bytes that a message keeps while it waits."""
    received = message.received
    return len(received.arguments) + len(received.key) + len(received.method) + size_of_chain(received) + MESSAGE_BYTES


def size_of_chain(received: Received) -> int:
    """Give the bytes that the addresses which wait for a message keep."""
    return sum(map(len, received.chain)) + ADDRESS_BYTES * len(received.chain)


def _asked_by(origin: Origin, caller: Target) -> bool:
    return origin.kind == REQUEST and (origin.service, origin.shard) == caller


def _nobody(caller: Target) -> Origin:
    return Origin(FORK, *caller)


def _second(tick: tuple[str, int]) -> int:
    return tick[1]


def _text(key: bytes) -> str:
    return key.decode(errors="replace")
