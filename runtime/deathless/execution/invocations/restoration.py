"""Brings invocations back from a checkpoint; one that the code does not fit is held, and the others go on.

    record --run again--> it does the same              it goes on
                          it does something else        the checkpoint is of this code: Diverged, nothing goes on (I6)
                                                        it is of other code: it is held (see held_invocation)
                          its author carries it             it begins anew with the next TIME record (see carrying)
    held record --------> the checkpoint is of this code: it stays held, as in every other replica
                          it is of other code: it is run again, as above; if something came for it meanwhile, it goes on
                          with the next TIME record, whose turns every replica takes alike

Guarantees: what becomes of each record is a function of the checkpoint and the code; a record that is held keeps its
bytes. Does not: run the turns that follow (who takes the TIME record in calls `bring_back`). Imports base, codec.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from msgspec.structs import replace

from deathless.base.errors import CorruptCheckpoint, Diverged
from deathless.execution.handlers.entities import Entities
from deathless.execution.handlers.plan import Plan
from deathless.execution.invocations.all_invocations import Invocations
from deathless.execution.invocations.carrying import CarriedOn, Carrying
from deathless.execution.invocations.comparison import Comparison
from deathless.execution.invocations.difference import Differences, misfit_of
from deathless.execution.invocations.held_invocation import HeldInvocation
from deathless.execution.invocations.invocation import Invocation
from deathless.execution.invocations.journal import (
    FORK,
    Origin,
    SuspendedHeld,
    SuspendedInvocation,
    SuspendedLooks,
    SuspendedMessage,
    SuspendedReply,
    SuspendedSchedule,
    decode_record,
    decode_suspended,
    encode_record,
)
from deathless.execution.invocations.misfits import (
    ARGUMENTS_DIFFER,
    HANDLER_GONE,
    IN_FLIGHT_DIFFERS,
    UNTRANSLATED,
    Unfit,
    UnfitInvocation,
)
from deathless.execution.invocations.schedules import ScheduleChange
from deathless.execution.invocations.translation import IDENTITY, Translation, Translator
from deathless.execution.turn.operations import Activity, Call
from deathless.execution.turn.turn import Settings
from deathless.execution.values.failure import FATAL, bounded

T = TypeVar("T")


class Restoration:
    """Restores the table of invocations.

    Args:
        table: that of the shard.
        plans: of all handlers, by method.
        entities: state of the keys, which is restored first.
        settings: of all turns.
    """

    __slots__ = ("_carrying", "_entities", "_plans", "_settings", "_table")

    def __init__(self, table: Invocations, plans: Mapping[bytes, Plan], entities: Entities, settings: Settings) -> None:
        self._table = table
        self._plans = plans
        self._entities = entities
        self._settings = settings
        self._carrying = Carrying(plans, entities)

    def restore(
        self,
        suspended: Iterable[bytes],
        *,
        same_code: bool = True,
        translation: Translation = IDENTITY,
        ready: Mapping[bytes, Invocation] | None = None,
    ) -> None:
        """Replace all of it; handlers run again up to where they waited.

        Args:
            suspended: records of a checkpoint.
            same_code: that checkpoint is of this very code.
            translation: of what the records hold into what this code expects.
            ready: handlers that `make_ready` gave, by their record; what is not needed of them is let go.

        Raises: CorruptCheckpoint; Diverged naming the invocation that did something else than before, if the
        checkpoint is of this code.
        """
        table = self._table
        table.clear()
        self._carrying = Carrying(self._plans, self._entities)
        comparison = Comparison(self._plans, self._entities, self._settings, strict=same_code)
        translator = Translator(translation, self._settings.service, self._settings.version)
        left = dict(ready or ())
        for data in suspended:
            if data in left and self._enter(left[data]):
                del left[data]
                continue
            match decode_record(data):
                case SuspendedInvocation() | SuspendedLooks():
                    held = SuspendedHeld(0, data, None, holds=True)
                    self._meet(held, comparison, translator, first=True)
                case SuspendedHeld() as held:
                    if same_code:
                        table.hold(HeldInvocation(held))
                    else:
                        self._meet(held, comparison, translator, first=False)
                case SuspendedReply() as owed:
                    owed = _or_as_it_is(translator.reply, owed)
                    table.tables.owed[owed.id] = owed
                    table.tables.note_caller(owed.origin, owed.id)
                case SuspendedSchedule() as schedule:
                    table.schedules.restore(_or_as_it_is(translator.schedule, schedule))
                case SuspendedMessage() as message:
                    message = _or_as_it_is(translator.message, message)
                    table.tables.put(message)
                    table.tables.note_caller(message.received.origin, message.id)
        for invocation in left.values():
            invocation.kill()

    def make_ready(self, data: bytes) -> Invocation | None:
        """Bring a handler to where it waits, for a `restore` that comes later; the table holds nothing of it.

        Args:
            data: its record, by this code or in its words.

        Returns: None where the record is of something else, or does not fit.
        """
        record = decode_record(data)
        if not isinstance(record, SuspendedInvocation) or not record.lsn:
            return None
        try:
            invocation = self._run_again(record, Comparison(self._plans, self._entities, self._settings, strict=False))
        except Unfit:
            return None
        self._take_out(invocation)
        return invocation

    def _enter(self, invocation: Invocation) -> bool:
        """Take in a handler that was made ready; False: another one holds its key."""
        tables, received = self._table.tables, invocation.received
        if not invocation.plan.spec.shared:
            if received.key in tables.held:
                return False
            tables.held[received.key] = invocation.id
        tables.enter(invocation)
        tables.note_caller(received.origin, invocation.id)
        for operation in invocation.operations.values():
            tables.schedule(invocation.id, operation)
        return True

    def misfits(self) -> list[UnfitInvocation]:
        """Give why each invocation that is held is so, ascending by id."""
        held = sorted(self._table.tables.unfit.items())
        return [one.misfit for _, one in held if one.misfit is not None]

    def carried(self) -> list[CarriedOn]:
        """Give the invocations that did not fit and were carried, ascending by id."""
        return sorted(self._carrying.done)

    def unfit_messages(self) -> list[UnfitInvocation]:
        """Give what is not as the code has it among messages that wait for their key, and replies that are owed."""
        found: list[UnfitInvocation] = []
        tables = self._table.tables
        for queue in tables.queues.values():
            for message in queue.values():
                received = message.received
                plan = self._plans.get(received.method.encode())
                if plan is None:
                    found.append(_of_message(message.id, received.method, received.key, HANDLER_GONE, _NO_HANDLER))
                elif problem := _unreadable(plan, received.arguments):
                    what = f"waits for its key with arguments that do not fit: {problem}"
                    found.append(_of_message(message.id, received.method, received.key, ARGUMENTS_DIFFER, what))
        for owed in tables.owed.values():
            if owed.method.encode() not in self._plans:
                what = "promised a reply, and the service has no handler of that name any more"
                found.append(_of_message(owed.id, owed.method, owed.key, HANDLER_GONE, what))
        return found

    def open_operations(self) -> list[tuple[int, int, str, str, object]]:
        """Give calls and activities that are under way: (invocation, number, service, name, annotation of the result).

        The service is empty for an activity; a name is that of the handler, or of the activity.
        """
        found: list[tuple[int, int, str, str, object]] = []
        for invocation, call in self._table.tables.operations(Call):
            address, _, method = call.what.rpartition(" ")
            found.append((invocation, call.number, address.partition("/")[0], method, call.stated))
        for invocation, activity in self._table.tables.operations(Activity):
            found.append((invocation, activity.number, "", activity.start.name, activity.stated))
        return sorted(found, key=_place_of)

    def schedule_changes(self) -> list[ScheduleChange]:
        """Give the schedules that are new, changed or gone since the checkpoint."""
        return self._table.schedules.changes()

    def bring_back(self, held: HeldInvocation) -> Invocation | None:
        """Have an invocation go on that was held and that the code fits; None: it does not fit after all.

        What came for it meanwhile is the caller's to give.
        """
        comparison = Comparison(self._plans, self._entities, self._settings, strict=False)
        record = _as_left(decode_suspended(held.held.record), held.suspend())
        self._table.release(held)
        try:
            return self._run_again(record, comparison)
        except Unfit as unfit:
            held.misfit = unfit.misfit
            self._table.hold(held)
            return None

    def _meet(self, held: SuspendedHeld, comparison: Comparison, translator: Translator, *, first: bool) -> None:
        """Run a record again; what it does decides whether it goes on.

        Args:
            held: around the record; of one that was not held before, nothing else in it counts.
            comparison: of what it does.
            translator: of what it holds.
            first: it was not held before.
        """
        record = decode_suspended(held.record)
        if first:
            key = record.received.key
            holds = not record.shared if record.asked is not None else key not in self._table.tables.held
            state = record.state if record.state is not None else self._entities.state.get(key)
            held = SuspendedHeld(record.id, held.record, None, holds, state)
        try:
            translated = self._translated(record if first else _as_left(record, held), translator)
            if not translated.lsn:
                self._check_anew(translated)
                self._table.hold(HeldInvocation(replace(held, record=encode_record(translated), misfit=None)))
                return
            invocation = self._run_again(translated, comparison)
            if held.came:
                # It has to be given what came, by turns: those belong to a record of the log.
                self._leave(invocation)
                same = translator.idle and translated.begun_in == record.begun_in
                data = held.record if same else encode_record(translated)
                self._table.hold(HeldInvocation(replace(held, record=data, misfit=None)))
        except Unfit as unfit:
            if comparison.strict:
                raise _diverged(unfit.misfit) from None
            self._table.hold(HeldInvocation(self._carried(held, record, translator, unfit.misfit)))

    def _carried(
        self, held: SuspendedHeld, record: SuspendedInvocation, translator: Translator, misfit: UnfitInvocation
    ) -> SuspendedHeld:
        """Have the author's function carry what does not fit; else it is held, with the reason."""
        how = translator.carried(record.received.method)
        if how is None or held.came:  # what came would be lost
            return replace(held, misfit=misfit)
        try:
            return replace(
                held, record=encode_record(self._carrying.carry(record, how, misfit)), misfit=None, state=None
            )
        except Unfit as unfit:
            return replace(held, misfit=unfit.misfit)

    def _check_anew(self, record: SuspendedInvocation) -> None:
        """See that what is carried can begin. Raises: Unfit."""
        plan = self._plans.get(record.received.method.encode())
        if plan is None or not plan.spec.waits or plan.spec.shared != record.shared:
            what = "begins anew, and the service has no `async def` of that name and kind any more"
            raise Unfit(misfit_of(record, HANDLER_GONE, what))
        if problem := _unreadable(plan, record.received.arguments):
            raise Unfit(misfit_of(record, ARGUMENTS_DIFFER, f"begins anew with arguments that do not fit: {problem}"))

    def _translated(self, record: SuspendedInvocation, translator: Translator) -> SuspendedInvocation:
        try:
            return translator.invocation(record)
        except FATAL:
            raise
        except BaseException as error:  # noqa: BLE001  it is the author's code, and may raise anything
            text = bounded(f"can't be translated: {type(error).__name__}: {error}", 300)
            raise Unfit(misfit_of(record, UNTRANSLATED, text)) from None

    def _run_again(self, record: SuspendedInvocation, comparison: Comparison) -> Invocation:
        """Make the invocation and bring it to where it waited.

        Raises: Unfit; there is no such invocation then.
        """
        table, entities, received = self._table, self._entities, record.received
        plan = self._plans.get(received.method.encode())
        if plan is None or not plan.spec.waits:
            if comparison.strict:
                raise CorruptCheckpoint(f"invocation {record.id}: the service has no `async def` {received.method!r}")
            what = "waits, and the service has no `async def` of that name any more"
            raise Unfit(misfit_of(record, HANDLER_GONE, what))
        shared = plan.spec.shared
        if record.asked is not None and record.shared != shared:
            what = "shares its key with others now" if shared else "holds its key now, and had not"
            raise Unfit(misfit_of(record, IN_FLIGHT_DIFFERS, what))
        if not shared and (other := table.tables.held.get(received.key)) is not None:
            raise Unfit(misfit_of(record, IN_FLIGHT_DIFFERS, f"holds its key, which the one of lsn {other} holds"))
        first = (record.count, record.order, record.part)
        place = (record.lsn, record.now_us, record.elapsed_us or record.now_us)
        invocation = table.make(plan, received, record.id, place, record.since_us, first, record.start)
        if record.begun_in:
            invocation.turn.settings = dataclasses.replace(self._settings, begun_in=record.begun_in)
        table.tables.note_caller(received.origin, record.id)
        try:
            invocation.run_again(entities, record, Differences(record, comparison))  # its turns were admitted then
        except Unfit:
            self._leave(invocation)
            raise
        invocation.admit = table.targets.admit
        current = entities.state.get(received.key)
        if current is not None and current == invocation.current:
            invocation.current = current  # one copy of the bytes
        table.weigh(invocation)
        for operation in invocation.operations.values():
            table.tables.schedule(invocation.id, operation)
        return invocation

    def _leave(self, invocation: Invocation) -> None:
        """Take an invocation out as if it had never been made."""
        invocation.kill()
        self._take_out(invocation)

    def _take_out(self, invocation: Invocation) -> None:
        tables = self._table.tables
        tables.leave(invocation)
        tables.forget_caller(invocation.received.origin)
        if tables.held.get(invocation.received.key) == invocation.id:
            del tables.held[invocation.received.key]


_NO_HANDLER: Final = "waits for its key, and the service has no handler of that name any more"


def _of_message(id_: int, method: str, key: bytes, code: str, what: str) -> UnfitInvocation:
    return UnfitInvocation(code, method, id_, key.decode(errors="replace"), what)


def _unreadable(plan: Plan, arguments: bytes) -> str:
    """Say why arguments can't be read; empty: they can."""
    try:
        plan.decode_arguments(arguments)
    except FATAL:
        raise
    except BaseException as error:  # noqa: BLE001  decoding runs the author's `__post_init__`
        return bounded(f"{type(error).__name__}: {error}", 300)
    return ""


def _place_of(operation: tuple[int, int, str, str, object]) -> tuple[int, int]:
    return operation[:2]


def _diverged(misfit: UnfitInvocation) -> Diverged:
    return Diverged(
        f"invocation {misfit.invocation}: handler {misfit.handler!r} for key {misfit.key!r}, run again: it "
        f"{misfit.what}"
    )


def _as_left(record: SuspendedInvocation, held: SuspendedHeld) -> SuspendedInvocation:
    """Give a record as it stands now: with the state that its key had when it was first held, and for nobody's sake."""
    if held.disowned:
        origin = record.received.origin
        record = replace(record, received=replace(record.received, origin=Origin(FORK, origin.service, origin.shard)))
    return record if record.state is not None else replace(record, state=held.state)


def _or_as_it_is(translate: Callable[[T], T], record: T) -> T:
    """Translate what has no turn to be held at: where that fails, it is left as it is and fails when its turn comes."""
    try:
        return translate(record)
    except FATAL:
        raise
    except BaseException:  # noqa: BLE001  it is the author's code, and may raise anything
        return record
