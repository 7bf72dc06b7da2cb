"""Carries a suspended handler into code that does something else: its author's function says how it goes on.

    record of the former code --function--> Continue(handler, arguments)
      twice, must be the same  --> a record without a turn yet: it is held, and begins with the next TIME record

It stays the same invocation: who waits for its reply, its place before later messages, its age. What it asks for goes
on to be counted, so that nothing that comes late for the former handler is taken for the new one's. What it had asked
for and not got is given up with it: a timer, a promise, an activity that may run again. A call and an activity that
must run at most once can't be taken back, so it is refused while one of these is out.

Guarantees: a function of the record, the state and the code; nothing is changed. Raises Unfit, and what must end the
process. Does not: begin it (all_invocations does). Imports base and codec.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from deathless.codec.untrusted import read_msgpack
from deathless.codec.wire import ReplyError, Status
from deathless.execution.author.carry import Continue, Result, Suspended
from deathless.execution.author.changes import Carried
from deathless.execution.handlers.entities import Entities
from deathless.execution.handlers.plan import Plan
from deathless.execution.invocations.difference import misfit_of
from deathless.execution.invocations.held_invocation import open_in
from deathless.execution.invocations.journal import SuspendedInvocation
from deathless.execution.invocations.misfits import (
    CARRY_DIFFERS,
    CARRY_OPEN,
    CARRY_RAISED,
    CARRY_UNFIT,
    Unfit,
    UnfitInvocation,
)
from deathless.execution.maps.table import Look
from deathless.execution.turn.asked_operation import (
    AskedCall,
    AskedOperation,
    AskedPromise,
    AskedRun,
    AskedTimer,
    decode_asked,
    name_of,
)
from deathless.execution.values.failure import FATAL, bounded
from deathless.execution.values.function import place
from deathless.execution.values.ordered import encode_any

_OK: Final = Status.OK
_AWAITED: Final = (AskedCall, AskedTimer, AskedRun, AskedPromise)
_TEXT_MAX: Final = 300


class CarriedOn(NamedTuple):
    """An invocation that was carried, for people."""

    invocation: int
    handler: str  # of the former code
    key: str
    to: str  # handler that begins for it


def suspended_of(record: SuspendedInvocation) -> Suspended:
    """Give what an author is told of a suspended handler. Raises: CorruptCheckpoint."""
    still = open_in(record) or {}
    waits_for = [name_of(asked) for asked in still.values() if isinstance(asked, _AWAITED)]
    received = record.received
    return Suspended(received.method, received.key.decode(), received.arguments, list(_results(record)), waits_for)


def _results(record: SuspendedInvocation) -> Iterator[Result]:
    """Give how each thing ended that it was given, in the order in which it had asked."""
    asked = dict(enumerate(map(decode_asked, record.asked or ()), record.count + 1))
    given = {event.operation: event.reply for event in record.journal if event.operation in asked}
    for number, reply in sorted(given.items()):
        names = _names(asked[number])
        if reply[:1] == bytes([_OK]):
            yield Result(names, reply[1:], "")
        else:
            yield Result(names, b"", _failure(reply))


def _names(asked: AskedOperation) -> tuple[str, ...]:
    match asked:
        case AskedCall():
            return asked.method, f"{asked.service}.{asked.method}"
        case AskedRun():
            return (asked.activity,)
        case AskedPromise():
            return ("promise",)
        case _:
            return ()


def _failure(reply: bytes) -> str:
    try:
        error = read_msgpack(reply[1:], ReplyError)
    except msgspec.MsgspecError:
        return "it failed"
    return f"{error.code} {error.type}: {error.text}"


def _taken(found: object) -> tuple[str, bytes]:
    """Give handler and encoded arguments. Raises: TypeError, and what encoding raises."""
    if type(found) is not Continue:
        raise TypeError(f"it gave {type(found).__name__}, not Continue")
    return str(found.handler), encode_any(dict(found.arguments))


class Carrying:
    """Carries invocations of one checkpoint.

    Args:
        plans: of all handlers of the new code, by method.
        entities: state of the keys, in the new shape.
    """

    __slots__ = ("_entities", "_plans", "done")

    def __init__(self, plans: Mapping[bytes, Plan], entities: Entities) -> None:
        self._plans = plans
        self._entities = entities
        self.done: list[CarriedOn] = []

    def carry(self, record: SuspendedInvocation, how: Carried, why: UnfitInvocation) -> SuspendedInvocation:
        """Give the record of the same invocation before its first turn in this code.

        Args:
            record: as the former code left it, in its words.
            how: what its author says.
            why: it does not fit.

        Raises: Unfit.
        """
        if record.asked is None:
            what = "can't be carried: a release wrote its record that did not keep what it asks for"
            raise self._unfit(record, CARRY_UNFIT, what, why)
        for asked in (open_in(record) or {}).values():
            if isinstance(asked, AskedCall) or (isinstance(asked, AskedRun) and asked.at_most_once):
                once = "" if isinstance(asked, AskedCall) else ", which runs at most once"
                what = f"can't be carried while it waits for {name_of(asked)}{once}: that can't be taken back"
                raise self._unfit(record, CARRY_OPEN, what, why)
        given = [self._run(record, how, why) for _ in range(2)]
        if given[0] != given[1]:
            what = f"gets another way to go on each time from {place(how.function)}"
            raise self._unfit(record, CARRY_DIFFERS, what, why)
        method, arguments = given[0]
        received = msgspec.structs.replace(record.received, method=method, arguments=arguments)
        self.done.append(CarriedOn(record.id, record.received.method, received.key.decode(errors="replace"), method))
        return SuspendedInvocation(
            id=record.id,
            received=received,
            lsn=0,
            now_us=0,
            count=record.count + len(record.asked),
            order=record.order + len(record.asked),
            part=record.part + 1 + len(record.journal),
            start=None,
            journal=[],
            prints=[],
            activities=[],
            state_hash=b"",
            since_us=record.since_us,
            asked=[],
            shared=record.shared,
        )

    def _run(self, record: SuspendedInvocation, how: Carried, why: UnfitInvocation) -> tuple[str, bytes]:
        """Have the author's function say how it goes on; gives handler and arguments."""
        where = place(how.function)
        entities, key = self._entities, record.received.key
        try:
            entity = entities.look(key, self._look())
            method, arguments = _taken(how.function(suspended_of(record), entity))
        except FATAL:
            raise
        except BaseException as error:  # noqa: BLE001  it is the author's code, and may raise anything
            what = f"{where} raised {type(error).__name__}: {error}"
            raise self._unfit(record, CARRY_RAISED, what, why) from None
        plan = self._plans.get(method.encode())
        if plan is None or not plan.spec.waits or plan.ours:
            raise self._unfit(record, CARRY_UNFIT, f"{where} names {method!r}, which is no `async def` handler", why)
        if plan.spec.shared != record.shared:
            one, other = ("shares", "does not") if record.shared else ("holds", "shares it")
            what = f"{where} names {method}: the handler {one} its key, and that one {other}"
            raise self._unfit(record, CARRY_UNFIT, what, why)
        try:
            plan.decode_arguments(arguments)
            same = self._is_unchanged(key, entity)
        except FATAL:
            raise
        except BaseException as error:  # noqa: BLE001  decoding runs the author's `__post_init__`
            what = f"{where} gave what {method} does not take: {type(error).__name__}: {error}"
            raise self._unfit(record, CARRY_UNFIT, what, why) from None
        if not same:
            raise self._unfit(record, CARRY_UNFIT, f"{where} changes the state, which is only to be read", why)
        return method, arguments

    def _look(self) -> Look | None:
        return Look(self._entities.maps) if self._entities.states.maps else None

    def _is_unchanged(self, key: bytes, entity: object) -> bool:
        entities = self._entities
        if entities.changes(entity, key):
            return False
        untouched = entities.look(key, self._look())
        return entities.close(entity) == entities.close(untouched)

    @staticmethod
    def _unfit(record: SuspendedInvocation, code: str, what: str, why: UnfitInvocation) -> Unfit:
        return Unfit(misfit_of(record, code, bounded(f"{what} (run again, it {why.what})", _TEXT_MAX)))
