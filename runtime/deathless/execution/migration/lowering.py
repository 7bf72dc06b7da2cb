"""Makes the bytes of an older version of everything that a service holds, by the code that serves.

    lower_snapshot(snapshot, service, former, ...) -> Lowered

It is run by the process of the code that serves, with what that code declares (`to=`): the older code, which takes what
is made, knows nothing of a later version.

    state, map items    each key by the functions of the way down; without any they stay as they are
    handlers            what is kept of those that wait, in the older version's names and shapes
    messages            those that wait for a key, likewise; on their way to ourselves, and parked, they stay
    the rest            byte for byte

Whether the older code goes on with it, it says itself (`snapshot_migration` with `lowered`): it reads every state
strictly, and runs what waits again.

Guarantees: a function of its arguments; with a misfit nothing of what it gives may be used. Does not: know logs or
files. Imports base and codec.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from deathless.base.errors import InvalidService
from deathless.base.limits import Limits
from deathless.codec.nesting import is_too_deep
from deathless.codec.snapshot import Snapshot
from deathless.codec.streams.rows import INPUT_PREFIX
from deathless.execution.author.changes import Changes
from deathless.execution.author.service import Service
from deathless.execution.author.signature import map_types
from deathless.execution.interface.interface import Interface, interface_of
from deathless.execution.interface.misfit import Misfit, Tally
from deathless.execution.interface.reading import reads
from deathless.execution.interface.shapes import Shapes
from deathless.execution.interface.way_back import WayBack, way_back
from deathless.execution.invocations.journal import (
    Record,
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
from deathless.execution.invocations.translation import Translation, Translator
from deathless.execution.migration.messages import BUILT_IN, Refused, Waiting, under_way_in, waiting_in
from deathless.execution.migration.state import Migrator, migrate_all
from deathless.execution.values.failure import FATAL, bounded
from deathless.execution.values.function import place
from deathless.execution.values.ordered import encode_any


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowered:
    """What came of it.

    Attributes:
        snapshot: in the older version's words, at the same place; only where there are no misfits.
        misfits: what can't go back.
        notes: what is another again.
        keys: that were lowered, or stayed.
        changed: functions made other states.
        known: what came of each handler that waits, by its record: the next time it need not be lowered again.
    """

    snapshot: Snapshot
    misfits: list[Misfit]
    notes: list[Misfit]
    keys: int
    changed: bool
    known: Mapping[bytes, bytes] = dataclasses.field(default_factory=dict)


def lower_snapshot(
    snapshot: Snapshot,
    service: Service,
    former: Interface,
    *,
    limits: Limits,
    time_us: int,
    shards: int = 1,
    upgrade: bytes = b"",
    known: Mapping[bytes, bytes] | None = None,
) -> Lowered:
    """Lower all of a checkpoint, or of its state what changed since all of it was lowered.

    Args:
        snapshot: of the code that serves; not changed.
        service: that code.
        former: interface of the older one.
        limits: of the service.
        time_us: that migrations are shown.
        shards: of the service.
        upgrade: names the upgrade that the way back is.
        known: what `Lowered.known` was then, by the same arguments; None: nothing is known.

    Raises: CorruptCheckpoint.
    """
    way = way_back(interface_of(service, limits), former, service.declared, under_way_in(snapshot))
    if way.misfits:
        return _refused(snapshot, way, way.misfits)
    state, migrator = snapshot.state, None
    if way.runs:
        try:
            makers = [
                Migrator(
                    service, None, time_us=time_us, limits=limits, shards=shards, upgrade=upgrade, target=former.version
                )
                for _ in ("states", "what handlers keep of them")
            ]
        except InvalidService as error:
            return _refused(snapshot, way, [_of_no_way(service, former, error)])
        state, misfits = migrate_all(snapshot.state, makers[0])
        if misfits:
            return _refused(snapshot, way, misfits)
        migrator = makers[1]
    down = Down(service, former, migrator)
    invocations, unfit, found = _records(snapshot.invocations, down, service, known or {}, runs=way.runs)
    return Lowered(
        snapshot=dataclasses.replace(snapshot, state=state, invocations=invocations),
        misfits=[*unfit, *_on_their_way(snapshot, down)],
        notes=way.notes,
        keys=len(state),
        changed=way.runs,
        known=found,
    )


def _refused(snapshot: Snapshot, way: WayBack, misfits: list[Misfit]) -> Lowered:
    return Lowered(snapshot=snapshot, misfits=misfits, notes=way.notes, keys=len(snapshot.state), changed=way.runs)


def _of_no_way(service: Service, former: Interface, error: InvalidService) -> Misfit:
    """Give the misfit of functions that do not make what the older type is, where a state has no function itself."""
    name = service.name.replace("-", "_")
    remedy = f"@{name}.migrate(from_={service.version}, to={former.version}) says what the older state is"
    return Misfit("NoDownMigration", former.state_name, error.message, remedy)


class Down(Translation):
    """From the version that serves to an older one.

    Args:
        service: with the code that serves.
        former: interface of the older code.
        migrator: of states, to that version; None: they stay as they are.
    """

    def __init__(self, service: Service, former: Interface, migrator: Migrator | None) -> None:
        super().__init__()
        self._service = service
        self._changes: Changes = service.declared
        self._version = former.version
        self._former = former
        self._migrator = migrator

    def state(self, key: bytes, state: bytes) -> bytes:
        """See Translation. Raises: InvalidService where it can't be lowered."""
        if self._migrator is None:
            return state
        passed = self._migrator.migrate(key, state)
        if passed is None:
            raise InvalidService("its state can't be lowered")
        return passed.state

    def handler(self, method: str) -> str:
        """See Translation."""
        passes = BUILT_IN in method or method.startswith(INPUT_PREFIX)
        return method if passes else self._changes.name_then(method, self._version)

    def arguments(self, method: str, arguments: bytes) -> bytes:
        """See Translation: by the author's functions, from version to version. Raises: Refused."""
        if BUILT_IN in method:
            return arguments
        if method.startswith(INPUT_PREFIX):
            self._check_input(method)
            return arguments
        if self._former.handler(self.handler(method)) is None:
            what = f"{method} of version {self._service.version} was no handler of version {self._version}"
            raise Refused("HandlerGone", method, what, "let it end first")
        at = self._service.version
        while at > self._version:
            step = self._changes.lowered.get((method, at))
            if step is None or step.to < self._version:
                at -= 1
                continue
            arguments = _lowered(arguments, step.args_type, step.function, method, at)
            at = step.to
        return arguments

    def _check_input(self, method: str) -> None:
        """Refuse rows that wait for an input which the older version did not have, or whose class it read otherwise."""
        name = f"input {method.removeprefix(INPUT_PREFIX)}"
        former = next((each for each in self._former.rows if each.name == method), None)
        if former is None:
            what = f"{name} of version {self._service.version} was none of version {self._version}"
            raise Refused("InputGone", name, what, "let the rows that wait for it end first")
        shapes = Shapes()
        (now,) = shapes.arguments(self._service.inputs[method.removeprefix(INPUT_PREFIX)].args_type)
        (then,) = former.arguments
        if reads(then.type, self._former.classes, now.type, shapes.classes, subject=name).mismatches:
            what = f"{name} took another class in version {self._version}"
            raise Refused("RowChanged", name, what, "let the rows that wait for it end first")

    def activity(self, name: str) -> str:
        """As `handler`."""
        return self._changes.name_then(name, self._version)

    def schedule(self, name: str) -> str:
        """As `handler`."""
        return self._changes.name_then(name, self._version)


def _lowered(arguments: bytes, taken: type, function: object, method: str, version: int) -> bytes:
    try:
        if is_too_deep(arguments):
            raise msgspec.ValidationError("they are nested too deep")
        value: object = msgspec.msgpack.decode(arguments, type=taken)
    except msgspec.MsgspecError as error:
        what = f"arguments of {method} of version {version} do not fit: {bounded(str(error))}"
        remedy = f"accepts({method!r}, from_={version}, to=...) takes them as version {version} has them"
        raise Refused("ArgumentTypeChanged", method, what, remedy) from None
    try:
        return encode_any(dict(function(value)))  # type: ignore[operator]  # what `accepts` was given, or it raises
    except BaseException as error:
        if isinstance(error, (*FATAL, KeyboardInterrupt)):
            raise
        what = f"{place(function)}: {type(error).__name__}: {bounded(str(error))}"  # type: ignore[arg-type]  # likewise
        raise Refused("AcceptRaised", method, what, "see to these arguments in the function") from None


def _records(
    suspended: list[bytes], down: Down, service: Service, known: Mapping[bytes, bytes], *, runs: bool
) -> tuple[list[bytes], list[Misfit], dict[bytes, bytes]]:
    """Lower what is kept of handlers, messages and schedules that wait.

    Gives it, what does not fit, and what came of each handler by its record.
    """
    translator = Translator(down, service.name)
    with_maps = runs and bool(map_types(service.state))
    tally, made, waiting = Tally("invocation"), list[bytes](), 0
    handlers: dict[bytes, bytes] = {}
    for data in suspended:
        if (lowered := known.get(data)) is not None:
            waiting += 1
            handlers[data] = lowered
            made.append(lowered)
            continue
        record, held_up = decode_record(data), False
        try:
            if isinstance(record, (SuspendedInvocation, SuspendedLooks)):
                waiting += 1
                held_up = with_maps
            if held_up:
                what = "handlers are suspended whose state has maps, and its type changes"
                tally.add("InFlightMaps", service.state.__name__, what, "let them end first", f"lsn {record.id}")
                continue
            made.append(_lower_record(data, record, translator))
            if isinstance(record, SuspendedInvocation):
                handlers[data] = made[-1]
        except Refused as refused:
            word, subject, what, remedy = refused.misfit
            tally.add(word, subject, what, remedy, f"lsn {record.id}")
        except BaseException as error:
            if isinstance(error, (*FATAL, KeyboardInterrupt)):
                raise
            what = f"what is kept of it can't be lowered: {type(error).__name__}: {bounded(str(error), 300)}"
            tally.add("Untranslated", _method_of(record), what, "let it end first", f"lsn {record.id}")
    return made, tally.misfits(waiting), handlers


def _lower_record(data: bytes, record: Record, translator: Translator) -> bytes:
    """Give a record in the older version's words; one that is held stays as it is: the older code tries it."""
    new: Record
    match record:
        case SuspendedMessage():
            new = translator.message(record)
        case SuspendedReply():
            new = translator.reply(record)
        case SuspendedSchedule():
            new = translator.schedule(record)
        case SuspendedHeld():
            return data
        case _:
            record = decode_suspended(data)
            new = translator.invocation(record)
    return data if new == record else encode_record(new)


def _method_of(record: Record) -> str:
    match record:
        case SuspendedInvocation() | SuspendedMessage():
            return record.received.method
        case SuspendedLooks():
            return record.record.received.method
        case SuspendedReply():
            return record.method
        case SuspendedSchedule():
            return record.name
        case _:
            return ""


def _on_their_way(snapshot: Snapshot, down: Down) -> list[Misfit]:
    """Give the messages to ourselves that are not as the older version has them: they are sent as they stand."""
    tally = Tally("message")
    for waiting in waiting_in(snapshot):
        if waiting.place.endswith("outbox") and _differs(waiting, down):
            what = f"a message of the service to itself calls {waiting.method} as the code that serves has it"
            remedy = "ask again: it is on its way for a moment only"
            tally.add("MessageOnItsWay", waiting.method, what, remedy, waiting.place)
    return tally.misfits()


def _differs(waiting: Waiting, down: Down) -> bool:
    try:
        there = (down.handler(waiting.method), down.arguments(waiting.method, waiting.arguments))
    except Refused:
        return True
    return there != (waiting.method, waiting.arguments)
