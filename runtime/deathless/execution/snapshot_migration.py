"""What new code goes on with of everything that the former code held: the one place where an upgrade decides what fits.

    migrate_snapshot(snapshot, service, before, ...) -> Migrated

    interfaces   compared; where the new one takes everything of the old one as it is, states stay byte for byte
    state        else each key is migrated by its author's functions; what a later version has lowered is read strictly
    handlers     those that are suspended are run again by the new code, in its words, and must ask for the same, and
                 what the former code gives to what they wait for must be of the type that they expect; one that asks
                 for something else is carried where its author says how
    messages     those that wait must have a handler that takes them, as they are where they stand in an outbox
    the rest     replies, idempotency keys, results, outboxes, peers, sessions, parked messages: byte for byte

Guarantees: a function of its arguments; with a misfit nothing of what it gives may be used. Does not: know logs, or
files; bring a parked message to fit (it is told when it is run again). Imports base and codec.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from deathless.base.limits import Limits
from deathless.base.shards import Sharding
from deathless.codec.map_entries import PREFIX
from deathless.codec.snapshot import Snapshot
from deathless.execution.author.changes import Gap
from deathless.execution.author.service import Service
from deathless.execution.author.signature import map_types
from deathless.execution.examination import Examination, meet
from deathless.execution.executor import Hide, nothing_hidden
from deathless.execution.interface.comparison import Comparison, compare
from deathless.execution.interface.interface import Interface, interface_of
from deathless.execution.interface.misfit import Misfit, Tally, merged
from deathless.execution.interface.reading import reads
from deathless.execution.interface.shapes import Shapes, show
from deathless.execution.invocations.misfits import CARRY_DIFFERS, CARRY_OPEN, CARRY_RAISED, CARRY_UNFIT
from deathless.execution.invocations.translation import Translation
from deathless.execution.migration.ahead import Ahead, Known, keys_in, together
from deathless.execution.migration.messages import Fitting, fit_messages, under_way_in, waiting_in
from deathless.execution.migration.state import Migrator, migrate_state
from deathless.execution.migration.translation import Versions

_UNTYPED: Final[tuple[object, ...]] = (object, Any)
"""What of a result nothing was said about."""
_REMEDIES: Final = {
    CARRY_RAISED: "see to it in the function, or let it end first",
    CARRY_UNFIT: "see to it in the function, or let it end first",
    CARRY_DIFFERS: "the function may use nothing but its arguments",
    CARRY_OPEN: "ask again once that is answered, or let it end first",
}
"""What to do about a handler that can't be carried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migrated:
    """What came of it.

    Attributes:
        snapshot: what the new code goes on with, at the same place; only where there are no misfits.
        changed: of its state what was migrated now, and not ahead.
        compatible: states are as they were, and no handler is carried.
        keys: that were migrated, or stayed.
        maps: states of the new code have maps.
        carried: suspended handlers that go on as their author says.
        former: what waits, as the former code's records have it.
    """

    snapshot: Snapshot
    misfits: list[Misfit]
    notes: list[Misfit]
    compatible: bool
    keys: int
    changed: Mapping[bytes, bytes] = dataclasses.field(default_factory=dict)
    maps: bool = False
    carried: int = 0
    former: Sequence[bytes] = ()

    @property
    def has_maps(self) -> bool:
        """Does the state have items of maps, or states that have maps?"""
        return self.maps or any(key.startswith(PREFIX) for key in self.snapshot.state)


def migrate_snapshot(  # noqa: PLR0913 - what an upgrade is made of, each by its name
    snapshot: Snapshot,
    service: Service,
    before: Interface,
    *,
    limits: Limits,
    seed: bytes,
    time_us: int,
    upgrade: bytes = b"",
    sharding: Sharding | None = None,
    lowered: bool = False,
    ahead: Ahead | None = None,
    gone: Collection[bytes] = (),
    hide: Hide = nothing_hidden,
) -> Migrated:
    """Migrate all of a checkpoint, or what changed since that was done ahead.

    Args:
        snapshot: of the former code; not changed.
        service: with the new code.
        before: interface of the former code.
        limits: of the new code.
        seed: 32 bytes of the service.
        time_us: that migrations are shown.
        upgrade: names it.
        sharding: which shard this is; None: of a service of one.
        lowered: it was lowered to this version by the code of `before`, which is later: it is in this code's shapes, or
            what is not is a misfit.
        ahead: the rest of the state, and what is known of handlers that wait, by the same arguments before; None: the
            checkpoint holds all of the state, and all is looked at.
        gone: keys of that which are no more.
        hide: called around the turns of suspended handlers, which are run again.

    Raises: CorruptCheckpoint.
    """
    new = interface_of(service, limits)
    serving = before.version
    if lowered:
        before = msgspec.structs.replace(new, version=serving)
    carries = service.declared.carries(before.version)
    stay: Sequence[Known] = ()
    looked_at = snapshot
    if ahead is not None:
        stay, others = ahead.parted(snapshot.invocations, (*snapshot.state, *gone))
        looked_at = dataclasses.replace(snapshot, invocations=others)
    compared = compare(before, new, service.declared, under_way=under_way_in(looked_at, carries, stay))
    way = service.declared.way(before.version)
    if compared.misfits or isinstance(way, Gap) or before.single != new.single:
        return _refused(snapshot, compared)
    if any(hop.key is not None for hop in way):
        what = "keys would be renamed, and callers would go on with the former names, which are then born anew"
        return _refused(snapshot, compared, [Misfit("KeysRenamed", "keys", what, "keep the names of keys")])
    shards = (sharding or Sharding()).shards
    translation = Translation(before.version)
    state, misfits, notes = snapshot.state, list[Misfit](), list(compared.notes)
    runs = any(hop.state or hop.maps for hop in way)
    if not compared.compatible or runs or lowered or carries:
        state, misfits = migrate_state(
            snapshot.state, service, before, time_us=time_us, limits=limits, shards=shards, upgrade=upgrade
        )
        migrator = Migrator(service, before, time_us=time_us, limits=limits, shards=shards, upgrade=upgrade)
        translation = Versions(migrator, Fitting(service, before), before)
    if misfits and lowered:
        remedy = f"let the code that serves give it back otherwise, in migrate(from_={serving}, to={new.version})"
        misfits = [msgspec.structs.replace(each, remedy=remedy) for each in misfits]
    if misfits:
        return _refused(snapshot, compared, misfits)
    changed = state
    if ahead is not None:
        state = ahead.overlaid(changed, gone)
    waiting = waiting_in(looked_at)
    fitted, unfit, noted = fit_messages(waiting, service, before)
    moved = Tally("message")
    for was, now in zip(waiting, fitted, strict=True):
        ours = was.place.endswith("outbox")
        if now is not None and ours and (now.method, now.arguments) != (was.method, was.arguments):
            what = f"a message of the service to itself calls {was.method} as it was"
            moved.add("MessageOnItsWay", was.method, what, "ask again: it is on its way for a moment only", was.place)
    records = looked_at.invocations
    held = state if records else {}  # nobody looks at it where nobody waits
    if ahead is not None and not map_types(service.state):
        held = {key: state[key] for key in keys_in(records) if key in state}
    found = meet(service, limits, seed, held, records, sharding=sharding, translation=translation, hide=hide)
    notes += _of_carried(found.examination)
    told = {was.place for was, now in zip(waiting, fitted, strict=True) if now is None}
    handlers = [*_of_handlers(found.examination, told), *_of_results(found.examination, service, before)]
    on = len(stay) + found.examination.invocations - len(found.examination.carried)
    if map_types(service.state) and on and not compared.compatible:
        what = "handlers are suspended whose state has maps, and its type changes"
        handlers.append(Misfit("InFlightMaps", service.state.__name__, what, "let them end first"))
    return Migrated(
        snapshot=dataclasses.replace(snapshot, state=state, invocations=together(stay, found.suspended)),
        changed=changed,
        maps=bool(map_types(service.state)),
        misfits=merged([], [*unfit, *moved.misfits(), *handlers]),
        notes=merged(notes, noted),
        compatible=compared.compatible and not runs and not found.examination.carried,
        keys=len(state),
        carried=len(found.examination.carried),
        former=snapshot.invocations,
    )


def _refused(snapshot: Snapshot, compared: Comparison, more: list[Misfit] | None = None) -> Migrated:
    return Migrated(
        snapshot=snapshot,
        misfits=merged(compared.misfits, more or []),
        notes=list(compared.notes),
        compatible=compared.compatible,
        keys=len(snapshot.state),
    )


def _of_carried(found: Examination) -> list[Misfit]:
    """Give the handlers that are carried, counted by their former and their new one."""
    tally = Tally("invocation")
    for each in found.carried:
        what = f"{each.handler} does not fit, and goes on as {each.to}"
        tally.add("Carried", f"{each.handler} as {each.to}", what, "", f"lsn {each.invocation}, key {each.key}")
    return tally.misfits(found.invocations)


def _of_handlers(found: Examination, told: Collection[str]) -> list[Misfit]:
    """Give what does not fit of suspended handlers, counted by kind and handler.

    Args:
        found: what was found.
        told: places of messages of which it is said already what becomes of them.
    """
    tally = Tally("invocation")
    for each in found.misfits:
        if (place := f"lsn {each.invocation}") in told:
            continue
        remedy = _REMEDIES.get(each.code, "let it end first, keep what it asks for in its order, or carry it (@carry)")
        tally.add(each.code, each.handler, f"{each.handler} {each.what}", remedy, f"{place}, key {each.key}")
    return tally.misfits(found.invocations)


def _of_results(found: Examination, service: Service, before: Interface) -> list[Misfit]:
    """Give the calls and activities under way whose result, as the former code has it, is not what is expected now."""
    name_now = service.declared.name_now
    given = [(service.name, each.name, each.result) for each in before.handlers]
    given += [("", each.name, each.result) for each in before.activities]
    results = {(whose, name_now(name, before.version)): (name, result) for whose, name, result in given}
    tally = Tally("invocation")
    looked: dict[tuple[str, str, int], str] = {}  # why one can't be read; empty: it can
    for each in found.operations:
        if (known := results.get((each.service, each.name))) is None or each.result in _UNTYPED:
            continue
        name, result = known
        place = (each.service, each.name, id(each.result))
        if place not in looked:
            shapes = Shapes()
            expected = shapes.of(each.result)
            reading = reads(expected, shapes.classes, result, before.classes, subject=name, lenient=True)
            one, other = show(expected, shapes.classes), show(result, before.classes)
            looked[place] = f"expect {one} of {name}, which gives {other}" if reading.mismatches else ""
        if what := looked[place]:
            remedy = "expect what the former code gives, or let them end first"
            tally.add("ResultTypeChanged", name, f"handlers that wait {what}", remedy, f"lsn {each.invocation}")
    return tally.misfits()
