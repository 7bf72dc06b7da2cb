"""Messages that wait, and were written for the old code: do their arguments fit the new one?

    waiting_in(snapshot)          all of a checkpoint: queued for a key, parked, on their way to ourselves
    fit_messages(messages, ...)   each by its name now, its key now, and with arguments that the new handler takes

Such a message was written under one interface, which is told by its hash, or is the one that stood; by the version of
that it is clear whether arguments pass as they are or through a function of `accepts`. Fields that a type does not know
are refused at any depth (`handlers.older_arguments`, which also takes what comes behind the cut).

Guarantees: bytes that fit as they are stay as they are. Does not: run handlers. Imports base and codec.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from deathless.base.errors import CorruptFrame, DeathlessError, InvalidService
from deathless.codec import messages as codec
from deathless.codec.messages import BEGINNING
from deathless.codec.snapshot import Snapshot
from deathless.codec.streams.rows import INPUT_PREFIX
from deathless.execution.author.changes import Accepted, Changes, Gap, Hop, renamed_key
from deathless.execution.author.inputs import row_decoder
from deathless.execution.author.service import HandlerSpec, Service
from deathless.execution.handlers.older_arguments import Drops, Form, OlderForm, Unfit, drops_of
from deathless.execution.interface.comparison import UnderWay, Use
from deathless.execution.interface.interface import Interface
from deathless.execution.interface.misfit import Misfit, Tally
from deathless.execution.invocations.journal import (
    SuspendedHeld,
    SuspendedInvocation,
    SuspendedLooks,
    SuspendedMessage,
    decode_record,
    decode_suspended,
)
from deathless.execution.migration.ahead import Known
from deathless.execution.values.failure import FATAL, bounded
from deathless.execution.values.function import place

BUILT_IN: Final = "."
"""Names with a dot are of handlers that every service has, and never change."""


class Waiting(msgspec.Struct, frozen=True):
    """One message that waits."""

    place: str  # where, for people: "lsn 14"
    method: str
    key: bytes
    arguments: bytes  # a msgpack map by name
    interface: bytes = b""  # hash of the one that it was written under; empty: the one that stood
    parked: bool = False  # set aside: what does not fit is told, and nothing is refused for it


class Fitted(msgspec.Struct, frozen=True):
    """The same for the new code."""

    method: str
    key: bytes
    arguments: bytes


def waiting_in(snapshot: Snapshot) -> list[Waiting]:
    """Give the messages of a checkpoint that wait to be run by this shard."""
    found: list[Waiting] = []
    for data in snapshot.invocations:
        record = decode_record(data)
        if isinstance(record, SuspendedMessage):
            received = record.received
            found.append(Waiting(f"lsn {record.id}", received.method, received.key, received.arguments))
    for parked in snapshot.parked:
        found += _message(parked.message, f"parked at lsn {parked.lsn}", parked=True)
    for held in snapshot.outbox:
        if not held.service:
            for position, message in enumerate(held.messages, held.first_position):
                found += _message(message, f"position {position} of our own outbox")
    return found


def _message(data: bytes, where: str, *, parked: bool = False) -> list[Waiting]:
    """Give a message that begins a handler, as a list; an empty one for any other."""
    try:
        message = codec.decode(data)
        method = message.method.decode()
    except (CorruptFrame, UnicodeDecodeError):
        return []  # no handler would have run it either
    if message.kind not in BEGINNING:
        return []
    return [Waiting(where, method, message.key, message.args, parked=parked)]


def under_way_in(snapshot: Snapshot, carried: Collection[str] = (), known: Iterable[Known] = ()) -> UnderWay:
    """Count what waits in a checkpoint, by the names of the code that wrote it.

    Args:
        snapshot: the checkpoint.
        carried: handlers which may do something else in the new code while they are suspended.
        known: suspended handlers that are not in it, and count as well.
    """
    counted = [each for each in known if each.method not in carried]  # there may be tens of thousands
    first = {each.method: each.id for each in reversed(counted)}
    counts = Counter(each.method for each in counted)
    handlers = {method: Use(count, f"lsn {first[method]}") for method, count in counts.items()}
    pending = any(each.pending for each in counted)
    for waiting in waiting_in(snapshot):
        if not waiting.parked:
            _add(handlers, waiting.method, waiting.place)
    for data in snapshot.invocations:
        record = decode_record(data)
        if isinstance(record, SuspendedHeld):
            record = decode_suspended(record.record)
        elif isinstance(record, SuspendedLooks):
            record = record.record
        if isinstance(record, SuspendedInvocation) and record.received.method not in carried:
            _add(handlers, record.received.method, f"lsn {record.id}")
            pending = pending or bool(record.activities)
    # Which activity a suspended invocation waits for is told by its code alone: where there is one, it may be any.
    return UnderWay(handlers=handlers, activities=None if pending else {})


def _add(uses: dict[str, Use], name: str, first: str) -> None:
    before = uses.get(name)
    uses[name] = Use(1, first) if before is None else Use(before.count + 1, before.first)


class Refused(Exception):
    """A message does not fit."""

    def __init__(self, word: str, subject: str, what: str, remedy: str) -> None:
        super().__init__(what)
        self.misfit = (word, subject, what, remedy)


class _Taker:
    """How one handler takes the arguments of one version."""

    def __init__(self, spec: HandlerSpec, accepted: Accepted | None, drops: Drops) -> None:
        self._spec = spec
        self._older = OlderForm(spec, accepted, drops) if accepted is not None else None
        self._form = Form(spec.args_type, drops) if self._older is None else self._older.form

    def take(self, arguments: bytes, version: int) -> bytes:
        """Give the arguments for the new handler. Raises: Refused."""
        spec = self._spec
        remedy = f"write accepts({spec.name!r}, from_={version}, args=...)"
        try:
            value = self._form.read(arguments)
        except msgspec.MsgspecError as error:
            what = f"arguments of {spec.name} of version {version} do not fit: {bounded(str(error))}"
            raise Refused("ArgumentTypeChanged", spec.name, what, remedy) from None
        if self._older is None:
            return arguments
        try:
            return self._older.renew(value)
        except Unfit as unfit:
            what = bounded(str(unfit))
            raise Refused("AcceptUnfit", spec.name, what, "give what the handler takes, by name") from None
        except BaseException as error:
            if isinstance(error, (*FATAL, KeyboardInterrupt)):
                raise
            what = f"{place(self._older.accepted.function)}: {type(error).__name__}: {bounded(str(error))}"
            raise Refused("AcceptRaised", spec.name, what, "see to these arguments in the function") from None


class Fitting:
    """Fits messages one by one.

    Args:
        service: with the new code.
        before: interface under which a message without a hash was written.
        interfaces: others by their hashes.

    Raises: InvalidService where keys have no way to the new version.
    """

    def __init__(
        self, service: Service, before: Interface, interfaces: Mapping[bytes, Interface] | None = None
    ) -> None:
        self._service = service
        self._changes: Changes = service.declared
        self._before = before
        self._interfaces = interfaces or {}
        self._takers: dict[tuple[str, int], _Taker] = {}
        self._ways: dict[int, list[Hop] | Gap] = {}  # by the version that a message is of
        if isinstance(gap := self._changes.way(before.version), Gap):
            raise InvalidService(f"service {service.name}: {gap.why}")

    def fit(self, waiting: Waiting) -> Fitted:
        """Give what a message is for the new code. Raises: Refused."""
        if BUILT_IN in waiting.method:
            return Fitted(waiting.method, waiting.key, waiting.arguments)
        if waiting.method.startswith(INPUT_PREFIX):
            return self._fit_row(waiting)
        interface = self._before if not waiting.interface else self._interfaces.get(waiting.interface)
        if interface is None:
            what = f"a message was written under interface {waiting.interface.hex()}, which nobody has recorded"
            raise Refused("InterfaceUnknown", waiting.method, what, "keep the records of code/ of the service's folder")
        version = interface.version
        name = self._changes.name_now(waiting.method, version)
        spec = self._service.specs.get(name)
        if spec is None or spec.kind != "handler":
            what = f"{waiting.method} of version {version} is no handler of the new code"
            remedy = f"let it end, or say renamed= or removed={{{waiting.method!r}: 'fail'}} in changes()"
            raise Refused("HandlerGone", waiting.method, what, remedy)
        taker = self._takers.get((name, version))
        if taker is None:
            accepted = self._changes.accepted.get((name, version))
            taker = self._takers[name, version] = _Taker(spec, accepted, drops_of(self._service, version))
        return Fitted(name, self._key(waiting.key, version), taker.take(waiting.arguments, version))

    def _fit_row(self, waiting: Waiting) -> Fitted:
        """A row that waits for its key: the input of the new code reads it as it stands."""
        name = waiting.method.removeprefix(INPUT_PREFIX)
        spec = self._service.inputs.get(name)
        if spec is None:
            what = f"input {name} is none of the new code"
            raise Refused("InputGone", f"input {name}", what, "let the rows that wait for it end, or keep the input")
        try:
            row_decoder(spec.args_type)(waiting.arguments)
        except BaseException as error:
            if isinstance(error, (*FATAL, KeyboardInterrupt)):
                raise
            told = error.message if isinstance(error, DeathlessError) else str(error)
            what = f"a row that waits for input {name} does not fit: {bounded(told)}"
            raise Refused("RowChanged", f"input {name}", what, "let the rows that wait for it end") from None
        return Fitted(waiting.method, self._key(waiting.key, self._before.version), waiting.arguments)

    def fails(self, waiting: Waiting) -> bool:
        """Does its author say that what waits for this handler fails?"""
        return self._changes.removed(waiting.method, self._before.version) == "fail"

    def _key(self, key: bytes, version: int) -> bytes:
        way = self._ways.get(version)
        if way is None:
            way = self._ways[version] = self._changes.way(version)
        if self._service.single or not key or isinstance(way, Gap):
            return key
        try:
            text = key.decode()
            for hop in way:
                if hop.key is not None:
                    text = renamed_key(hop.key, text)
            return text.encode()
        except BaseException as error:
            if isinstance(error, (*FATAL, KeyboardInterrupt)):
                raise
            what = f"the key of a message can't be renamed: {type(error).__name__}: {bounded(str(error))}"
            raise Refused("MigrationRaised", "keys", what, "see to this key in migrate_key") from None


def fit_messages(
    messages: Iterable[Waiting],
    service: Service,
    before: Interface,
    interfaces: Mapping[bytes, Interface] | None = None,
) -> tuple[list[Fitted | None], list[Misfit], list[Misfit]]:
    """Fit messages that wait.

    Args:
        messages: what waits.
        service: with the new code.
        before: interface under which a message without a hash was written.
        interfaces: others by their hashes.

    Returns: for each what it is now, None where it has no place; misfits; notes: parked messages that do not fit, and
    those that fail because their author says so.
    Raises: InvalidService where keys have no way to the new version.
    """
    fitting = Fitting(service, before, interfaces)
    found, noted = Tally("message"), Tally("message")
    fitted: list[Fitted | None] = []
    for waiting in messages:
        try:
            fitted.append(fitting.fit(waiting))
        except Refused as refused:
            fitted.append(None)
            word, subject, what, remedy = refused.misfit
            noting = waiting.parked or (word == "HandlerGone" and fitting.fails(waiting))
            first = f"{waiting.place}, key {waiting.key.decode(errors='backslashreplace')[:100]}"
            (noted if noting else found).add(word, subject, what, "" if noting else remedy, first)
    return fitted, found.misfits(), noted.misfits()
