"""Two interfaces beside each other: may the new code go on with what the old one left, and if not, why.

    compatible    every handler, type, activity, schedule, topic and input of the old interface stands in the new one
                  unchanged; a handler, a field with a default, an optional argument, an activity, a schedule, a topic,
                  an input or a column that may be null more is allowed
    misfits       what the new code has no place for, each with what to do about it
    notes         what changes, and may

A declaration of the author's takes a misfit away where it says what becomes of the thing. What is under way counts
where it decides: a handler that is gone is nobody's loss while nothing waits for it, if its author says so.

Guarantees: a function of its arguments. Does not: look at values; a migration over real state finds what types can't
say. Imports nothing but the declarations and the shapes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from deathless.base.topics.row_schema import columns_gone
from deathless.codec.streams.rows import INPUT_PREFIX
from deathless.execution.author.changes import Accepted, Changes, Gap, Hop
from deathless.execution.author.signature import map_types
from deathless.execution.interface.interface import ActivityShape, HandlerShape, Interface
from deathless.execution.interface.misfit import Misfit
from deathless.execution.interface.reading import Mismatch, Reading, reads
from deathless.execution.interface.shapes import Classes, ClassShape, FieldShape, Shape, Shapes, show

MAPS_APART: Final = Shape("map", (Shape("any"), Shape("any")))


class Use(msgspec.Struct, frozen=True):
    """How often something is met, and where first."""

    count: int
    first: str = ""  # "lsn 14", "shop"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnderWay:
    """What is under way, by the names of the old code."""

    handlers: Mapping[str, Use] = field(default_factory=dict)  # messages that wait, and suspended invocations
    activities: Mapping[str, Use] | None = field(default_factory=dict)  # attempts that are pending; None: not known


@dataclass(slots=True, kw_only=True)
class Comparison:
    """What came of it."""

    misfits: list[Misfit] = field(default_factory=list)
    notes: list[Misfit] = field(default_factory=list)  # what changes and may; with nothing to do
    changed: bool = False  # something of the old interface stands in the new one otherwise, and fits

    @property
    def compatible(self) -> bool:
        """True: the new code may go on without a version of its own."""
        return not (self.misfits or self.changed)


def compare(
    old: Interface,
    new: Interface,
    changes: Changes,
    *,
    callers: Mapping[str, Use] | None = None,
    under_way: UnderWay | None = None,
) -> Comparison:
    """Compare the interface that stands with a new one.

    Args:
        old: of the code that serves.
        new: of the code that shall.
        changes: what the new code's author declares.
        callers: calls in a window of the log, by handler; None: not known.
        under_way: what waits; None: not known, so that whatever could wait counts as if it did.
    """
    return _Comparing(old, new, changes, callers or {}, under_way).run()


class _Comparing:
    """One comparison."""

    def __init__(
        self, old: Interface, new: Interface, changes: Changes, callers: Mapping[str, Use], under_way: UnderWay | None
    ) -> None:
        self._old = old
        self._new = new
        self._changes = changes
        self._callers = callers
        self._under_way = under_way
        self._drops = changes.drops(old.version)
        self._said = {
            "old": f"version {old.version}",
            "new": f"version {new.version}" if new.version != old.version else "the new code",
        }
        self._name = changes.service.name.replace("-", "_")
        self._result = Comparison()

    def run(self) -> Comparison:
        """Compare all."""
        self._names()
        if self._old.single != self._new.single:
            words = ("one object", "keys")
            before, after = words if self._old.single else reversed(words)
            what = f"the service had {before} in {self._said['old']} and has {after} in {self._said['new']}"
            self._misfit("KeyingChanged", "single", what, "no migration does that yet; make another service")
        else:
            self._state()
        for each in self._old.handlers:
            self._handler(each)
        for row in self._old.rows:
            self._input(row)
        for activity in self._old.activities:
            self._activity(activity)
        self._schedules()
        self._topics()
        self._limits()
        for (handler, from_), accepted in sorted(self._changes.accepted.items()):
            self._ambiguous(handler, from_, accepted)
        return self._result

    def _misfit(self, word: str, subject: str, what: str, remedy: str, use: Use | None = None, unit: str = "") -> None:
        use = use or Use(0)
        self._result.misfits.append(Misfit(word, subject, what, remedy, use.count, unit or "message", 0, use.first))

    def _note(self, word: str, subject: str, what: str) -> None:
        self._result.changed = True
        self._result.notes.append(Misfit(word, subject, what))

    @property
    def _next(self) -> str:
        """Say how to get a version for which something can be declared; empty: this one is."""
        if self._new.version > self._old.version:
            return ""
        return f"write version={self._old.version + 1} in Service(...), and "

    # ---- declarations ---------------------------------------------------------------------------------------

    def _names(self) -> None:
        """Names in declarations that nothing has: they would say nothing, in silence."""
        handlers = {each.name for each in self._new.handlers}
        here = handlers | {each.name for each in self._new.activities} | {each.name for each in self._new.schedules}
        for from_, block in sorted(self._changes.blocks.items()):
            for before, after in block.renamed.items():
                if self._changes.name_now(after, from_ + 1) not in here | {""}:
                    what = f"changes(from_={from_}) renames {before!r} to {after!r}, which the new code does not have"
                    self._misfit("UnknownName", after, what, "write renamed={old name: new name}")
            for name in block.changed:
                if name not in here and name not in block.renamed:
                    what = f"changes(from_={from_}) says that {name!r} changed, which the new code does not have"
                    self._misfit("UnknownName", name, what, "name a handler or a schedule, as it is called now")
        for handler, from_ in sorted(self._changes.accepted):
            if handler not in handlers:
                what = f"accepts({handler!r}, from_={from_}) is for a handler that the new code does not have"
                self._misfit("UnknownName", handler, what, "name the handler as it is called now")
        for handler, from_ in sorted(self._changes.lowered):
            if handler not in handlers:
                what = f"accepts({handler!r}, from_={from_}, to=...) is for a handler that the new code does not have"
                self._misfit("UnknownName", handler, what, "name the handler as it is called now")
        former = {each.name for each in self._old.handlers}
        for handler, from_ in sorted(self._changes.carried):
            if from_ == self._old.version and handler not in former:
                what = f"carry({handler!r}, from_={from_}) is for a handler that version {from_} does not have"
                self._misfit("UnknownName", handler, what, "name the handler as it was called then")
        maps = {name for name, _, _ in self._changes.maps}
        states = [self._changes.service.state, *(t for step in self._changes.states.values() for t in _types(step))]
        known = {name for state in states for name in map_types(state)}
        for name in sorted(maps - known):
            what = f"migrate_map({name!r}) is for a map that no state has"
            self._misfit("UnknownName", name, what, "name the field of the state that is a Map")

    # ---- the state ------------------------------------------------------------------------------------------

    def _state(self) -> None:
        way = self._changes.way(self._old.version)
        if isinstance(way, Gap):
            what = f"the state can't go from {self._said['old']} to {self._said['new']}: {way.why}"
            self._misfit("MigrationMissing", f"version {way.at}", what, f"write @{self._name}.migrate(from_={way.at})")
            return
        first = way[0].old if way else self._changes.service.state
        shapes = Shapes()
        reader, writer = shapes.state(first), self._old.state
        apart = items_apart(way)
        readers, writers = without_items(shapes.classes, reader, apart), without_items(self._old.classes, writer, apart)
        reading = reads(reader, readers, writer, writers, subject=self._old.state_name, drops=self._drops)
        self._state_misfits(reading, first, migrated=bool(way and way[0].state))
        self._items(way, apart)
        if way:
            self._result.changed = True
            self._way_back(way)

    def _state_misfits(self, reading: Reading, first: type, *, migrated: bool) -> None:
        self._result.changed |= reading.widened
        for each in once(reading.mismatches):
            if migrated:
                remedy = (
                    f"the old type {first.__name__} of the migration must have it as version {self._old.version} had"
                )
            else:
                remedy = f"{self._next}write @{self._name}.migrate(from_={self._old.version})"
            if each.word in ("FieldDropped", "MapGone"):
                remedy += f', or drops=["{each.subject}"]'
            self._misfit(each.word, each.subject, each.what.format(**self._said), remedy, unit="key")

    def _items(self, way: list[Hop], apart: frozenset[str]) -> None:
        """Items of maps whose first function names their old type."""
        old = self._old.classes[self._old.state.at]
        for name in sorted(apart):
            step = next(hop.maps[name] for hop in way if name in hop.maps)
            before = next((each for each in old.fields if each.name == name and each.type.kind == "map"), None)
            if before is None:
                continue
            shapes = Shapes()
            shape = shapes.of(step.old)
            subject = f"{old.name}.{name}"
            reading = reads(
                shape, shapes.classes, before.type.parts[1], self._old.classes, subject=subject, drops=self._drops
            )
            for each in once(reading.mismatches):
                remedy = f"the old type that @{self._name}.migrate_map({name!r}, from_={step.from_}) takes must have it"
                self._misfit(each.word, each.subject, each.what.format(**self._said), remedy, unit="item")

    def _way_back(self, way: list[Hop]) -> None:
        """What has no way back is told, for it decides whether the upgrade can be undone once it has served."""
        missing = no_down_migration(self._changes, way, self._old, self._new.version)
        if missing is not None:
            self._result.notes.append(missing)

    # ---- handlers -------------------------------------------------------------------------------------------

    def _use(self, name: str) -> tuple[Use | None, str]:
        """Give what waits for a handler, else who called it."""
        waiting = self._under_way.handlers.get(name) if self._under_way is not None else None
        if waiting is not None:
            return waiting, "message"
        return self._callers.get(name), "call"

    def _handler(self, old: HandlerShape) -> None:
        name = self._changes.name_now(old.name, self._old.version)
        if not name:
            self._removed(old)
            return
        new = self._new.handler(name)
        use, unit = self._use(old.name)
        if new is None and (old.name, self._old.version) in self._changes.carried:
            self._removed(old)
            return
        if new is None:
            said = f"{old.kind} {old.name} of {{old}} is not in {{new}}".format(**self._said)
            renamed = "" if old.by_number else f"renamed={{{old.name!r}: ...}} or "
            remedy = f"{self._next}say {renamed}removed={{{old.name!r}: ...}} in changes()"
            self._misfit("HandlerGone", old.name, said, remedy, use, unit)
            return
        if name != old.name:
            self._note("Renamed", old.name, f"{old.name} of {self._said['old']} is {name} now")
        self._kind(old, new)
        if old.kind == new.kind:
            self._arguments(old, new)
            self._result_type(old, new)

    def _removed(self, old: HandlerShape) -> None:
        pending = self._changes.removed(old.name, self._old.version) or "refuse"  # one that is carried need not say
        waiting = self._under_way.handlers.get(old.name) if self._under_way is not None else None
        if pending == "refuse" and waiting is not None and waiting.count:
            remedy = f"let it end, or say removed={{{old.name!r}: 'fail'}}"
            self._misfit("HandlerGone", old.name, f"{old.name} is removed", remedy, waiting)
            return
        fails = f", and {waiting.count:,} that wait for it fail" if waiting is not None else ""
        self._note("Removed", old.name, f"{old.name} of {self._said['old']} is removed{fails}")

    def _kind(self, old: HandlerShape, new: HandlerShape) -> None:
        if old.way == new.way:
            return
        what = f"{old.name} was a {old.way} and is a {new.way}"
        waiting = self._under_way.handlers.get(old.name) if self._under_way is not None else None
        if old.kind == new.kind and self._under_way is not None and not (waiting and waiting.count):
            self._note("KindChanged", old.name, what + "; nothing waits for it")
            return
        other = "give the new one another " + ("number" if old.by_number else "name")
        remedy = f"let what waits for it end, or {other}" if old.kind == new.kind else other
        self._misfit("KindChanged", old.name, what, remedy, waiting)

    def _arguments(self, old: HandlerShape, new: HandlerShape) -> None:
        use, unit = self._use(old.name)
        accepted = self._changes.accepted.get((new.name, self._old.version))
        shapes = Shapes()
        if accepted is not None:
            self._result.changed = True
            takes, classes = shapes.arguments(accepted.args_type), shapes.classes
        else:
            takes, classes = new.arguments, self._new.classes
        remedy = (
            f"write it into {accepted.args_type.__name__}, as version {self._old.version} has it"
            if accepted is not None
            else "give the new one another number"
            if new.by_number
            else f"{self._next}write @{self._name}.accepts({new.name!r}, from_={self._old.version}, args=...)"
        )
        before = {each.name: each for each in old.arguments}
        for each in takes:
            if each.name not in before:
                if each.required:
                    needs = f"{new.name} of {self._said['new']} needs {each.name!r}"
                    what = f"{needs}, which {self._said['old']} does not send"
                    self._misfit("ArgumentRequired", f"{new.name}.{each.name}", what, f"give it a default, or {remedy}",
                                 use, unit)  # fmt: skip
            elif each.required and not before[each.name].required:
                what = f"{each.name!r} of {old.name} had a default, and has none in {self._said['new']}"
                self._misfit("ArgumentRequired", f"{new.name}.{each.name}", what, f"give it a default, or {remedy}",
                             use, unit)  # fmt: skip
        after = {each.name: each for each in takes}
        for name, field_ in before.items():
            subject = f"{old.name}.{name}"
            if name not in after:
                what = f"{self._said['old']} sends {name!r} to {old.name}, which {self._said['new']} does not take"
                self._misfit("ArgumentGone", subject, what, f"keep it with a default, or {remedy}", use, unit)
                continue
            found = reads(after[name].type, classes, field_.type, self._old.classes, subject=subject, drops=self._drops)
            self._result.changed |= found.widened
            for mismatch in once(found.mismatches):
                what = f"argument {name!r} of {old.name}: {mismatch.what.format(**self._said)}"
                self._misfit("ArgumentTypeChanged", subject, what, remedy, use, unit)

    def _result_type(self, old: HandlerShape, new: HandlerShape) -> None:
        """Whoever reads the result with the old type must be able to."""
        accepted = self._changes.accepted.get((new.name, self._old.version))
        shapes = Shapes()
        shape, classes = old.result, self._old.classes
        if accepted is not None and accepted.result_type is not ...:
            told = shapes.of(accepted.result_type)
            if reads(told, shapes.classes, shape, classes, subject=old.name, lenient=True).mismatches:
                expected, given = show(told, shapes.classes), show(shape, classes)
                what = f"accepts says that callers of {old.name} expect {expected}, not {given}"
                self._misfit("ResultTypeChanged", old.name, what, f"result= is the type of version {self._old.version}")
        found = reads(shape, classes, new.result, self._new.classes, subject=f"result of {old.name}", lenient=True)
        self._result.changed |= found.widened
        for each in once(found.mismatches):
            # Here the old code reads what the new one writes.
            what = each.what.format(old=self._said["new"], new=self._said["old"])
            use = self._callers.get(old.name)
            remedy = "keep the type, or give the new one another name"
            self._misfit("ResultTypeChanged", old.name, f"result of {old.name}: {what}", remedy, use, "call")
        told_of = {each.subject for each in found.mismatches}
        there = reads(new.result, self._new.classes, shape, classes, subject=f"result of {old.name}")
        for each in once(there.mismatches):
            if each.word in ("FieldDropped", "MapGone") and each.subject not in told_of:
                what = f"result of {old.name}: {each.what.format(**self._said)}; who reads it gets the default"
                self._note("ResultFieldGone", old.name, what)

    def _ambiguous(self, handler: str, from_: int, accepted: Accepted) -> None:
        """A JSON text carries no interface, so one that fits both types would be taken for the new one."""
        new = self._new.handler(handler)
        if new is None:
            return
        shapes = Shapes()
        old = shapes.arguments(accepted.args_type)
        here, there = {each.name: each for each in new.arguments}, {each.name: each for each in old}
        needed = {each.name for each in (*new.arguments, *old) if each.required}
        if needed <= here.keys() & there.keys() and all(
            _overlap(here[name].type, self._new.classes, there[name].type, shapes.classes) for name in sorted(needed)
        ):
            what = f"one JSON text can be arguments of {handler} by its own types and by those of version {from_}"
            remedy = "rename an argument that is required, or require one that the other does not have"
            self._misfit("ArgumentsAmbiguous", handler, what, remedy)

    # ---- the rest -------------------------------------------------------------------------------------------

    def _input(self, old: HandlerShape) -> None:
        """Rows go on coming as they did, so a class that reads them otherwise is a version's decision.

        Those that wait for a key were accepted by the old class, and are read by the new one.
        """
        title = f"input {old.name.removeprefix(INPUT_PREFIX)}"
        new = next((each for each in self._new.rows if each.name == old.name), None)
        waiting = self._under_way.handlers.get(old.name) if self._under_way is not None else None
        decided = self._new.version > self._old.version and self._under_way is not None
        if new is None:
            what, remedy = f"{title} of {self._said['old']} is not in {self._said['new']}", "keep it"
            self._input_changed("InputGone", title, what, remedy, waiting, decided=decided)
            return
        if old.way != new.way:
            what = f"{title} was a {old.way} and is a {new.way}"
            self._input_changed("KindChanged", title, what, "keep it as it was", waiting, decided=decided)
        (before,), (after,) = old.arguments, new.arguments
        found = reads(after.type, self._new.classes, before.type, self._old.classes, subject=title, drops=self._drops)
        self._result.changed |= found.widened
        for each in once(found.mismatches):
            what = f"{title}: {each.what.format(**self._said)}"
            self._input_changed("RowChanged", title, what, "keep what the class had", waiting, decided=decided)

    def _input_changed(
        self, word: str, title: str, what: str, remedy: str, waiting: Use | None, *, decided: bool
    ) -> None:
        if decided and not (waiting and waiting.count):
            self._note(word, title, what)
            return
        if self._next:
            remedy += f", or write version={self._old.version + 1} in Service(...)"
        else:
            remedy += ", or let the rows that wait for it end"
        self._misfit(word, title, what, remedy, waiting)

    def _activity(self, old: ActivityShape) -> None:
        name = self._changes.name_now(old.name, self._old.version)
        known = self._under_way.activities if self._under_way is not None else None
        pending = known.get(old.name) if known is not None else None
        new = next((each for each in self._new.activities if each.name == name), None)
        none_pending = known is not None and not (pending and pending.count)
        if new is None:
            what = f"activity {old.name} of {self._said['old']} is not in {self._said['new']}"
            if not name and (none_pending or self._changes.removed(old.name, self._old.version) == "fail"):
                self._note("Removed", old.name, what)
                return
            remedy = f"{self._next}say renamed={{{old.name!r}: ...}} or removed={{{old.name!r}: 'fail'}} in changes()"
            self._misfit("ActivityGone", old.name, what, remedy, pending)
            return
        if name != old.name:
            self._note("Renamed", old.name, f"activity {old.name} is {name} now")
        if old.at_most_once != new.at_most_once:
            ways = ("at most once", "at least once")
            before, after = ways if old.at_most_once else reversed(ways)
            what = f"activity {old.name} ran {before} and runs {after}"
            if none_pending:
                self._note("KindChanged", old.name, what + "; none is pending")
            else:
                self._misfit("KindChanged", old.name, what, "let what is pending end, or give it another name", pending)
        self._activity_types(old, new, pending)

    def _activity_types(self, old: ActivityShape, new: ActivityShape, pending: Use | None) -> None:
        """What was asked, and what was given, is read again by the new code where an invocation is brought back."""
        before = {each.name: each for each in old.arguments}
        after = {each.name: each for each in new.arguments}
        remedy = "keep its types, or give the new one another name"
        for name in sorted(before.keys() | after.keys()):
            subject = f"{old.name}.{name}"
            if name not in after:
                what = f"activity {old.name} was asked with {name!r}, which {self._said['new']} does not take"
                self._misfit("ArgumentGone", subject, what, remedy, pending)
            elif name not in before:
                if after[name].required:
                    what = f"activity {old.name} of {self._said['new']} needs {name!r}"
                    self._misfit("ArgumentRequired", subject, what, f"give it a default, or {remedy}", pending)
            else:
                found = reads(
                    after[name].type, self._new.classes, before[name].type, self._old.classes, subject=subject
                )
                self._result.changed |= found.widened
                for each in once(found.mismatches):
                    what = f"activity {old.name}: {each.what.format(**self._said)}"
                    self._misfit("ArgumentTypeChanged", subject, what, remedy, pending)
        found = reads(new.result, self._new.classes, old.result, self._old.classes, subject=f"result of {old.name}")
        self._result.changed |= found.widened
        for each in once(found.mismatches):
            what = f"activity {old.name}: {each.what.format(**self._said)}"
            self._misfit("ResultTypeChanged", old.name, what, remedy, pending)

    def _schedules(self) -> None:
        here = {each.name: each for each in self._new.schedules}
        for old in self._old.schedules:
            name = self._changes.name_now(old.name, self._old.version)
            new = here.get(name)
            if new is None:
                what = f"schedule {old.name} of {self._said['old']} is not in {self._said['new']}"
                if not name:
                    self._note("Removed", old.name, what)
                    continue
                remedy = f"{self._next}say renamed= or removed={{{old.name!r}: ...}} in changes()"
                self._misfit("ScheduleGone", old.name, what, remedy)
                continue
            if name != old.name:
                self._note("Renamed", old.name, f"schedule {old.name} is {name} now")
            before = (old.times, self._changes.name_now(old.method, self._old.version), old.key)
            after = (new.times, new.method, new.key)
            if before == after:
                continue
            what = f"schedule {old.name} ran {old.method} ({old.times}, key {old.key!r})"
            what += f" and runs {new.method} ({new.times}, key {new.key!r})"
            if "times" in self._changes.changed(old.name, self._old.version):
                self._note("ScheduleChanged", old.name, what)
            else:
                remedy = f"{self._next}say changed={{{name!r}: {{'times': why}}}} in changes()"
                self._misfit("ScheduleChanged", old.name, what, remedy)

    def _topics(self) -> None:
        """Readers go on over both codes' rows, so columns come and go behind the others, and may be null."""
        here = self._new.schemas
        for name, old in self._old.schemas.items():
            if name not in here:
                self._note("TopicGone", name, f"topic {name} of {self._said['old']} gets no more rows")
            elif why := here[name].misfit(old):
                remedy = "publish these rows in a topic of another name"
                self._misfit("TopicChanged", name, f"rows of topic {name}: {why}", remedy)
            elif gone := columns_gone(old, here[name]):
                self._note("ColumnGone", name, f"rows of topic {name} get no more values in {', '.join(gone)}")

    def _limits(self) -> None:
        for name, before in self._old.limits.items():
            after = self._new.limits.get(name, before)
            if after == before:
                continue
            what = f"limit {name} was {before:,} and is {after:,}"
            if after > before or f"limits.{name}" in self._drops:
                self._note("LimitChanged", name, what)
            else:
                remedy = f'{self._next}say drops=["limits.{name}"] in changes(), or keep the limit'
                self._misfit("LimitLowered", name, what, remedy)


def no_down_migration(changes: Changes, way: list[Hop], old: Interface, version: int) -> Misfit | None:
    """Give what has no way back, where what was done on a way would have to be undone; None: nothing.

    Args:
        changes: what the author of the later version declares.
        way: from the older version to the later one.
        old: interface of the older version.
        version: the later one.
    """
    back = changes.way(version, old.version)
    gap = isinstance(back, Gap)
    hops: list[Hop] = [] if isinstance(back, Gap) else back
    if not gap and any(hop.state for hop in way) and not any(hop.state for hop in hops):
        gap = True
    if not gap:
        gap = any(hop.key for hop in way) and not any(hop.key for hop in hops)
    missing = items_apart(way) - items_apart(hops)
    if not (gap or missing):
        return None
    subject = old.state_name if gap else f"{old.state_name}.{min(missing)}"
    decorator = "migrate(" if gap else f"migrate_map({min(missing)!r}, "
    name = changes.service.name.replace("-", "_")
    remedy = f"@{name}.{decorator}from_={version}, to={old.version}) makes one"
    return Misfit("NoDownMigration", subject, f"{subject} has no way back to version {old.version}", remedy)


def _types(step: object) -> list[type]:
    return [each for each in (getattr(step, "old", None), getattr(step, "new", None)) if isinstance(each, type)]


def items_apart(way: list[Hop]) -> frozenset[str]:
    """Give the maps whose items have functions of their own."""
    return frozenset(name for hop in way for name in hop.maps)


def without_items(classes: Classes, state: Shape, names: frozenset[str]) -> Classes:
    """Give the classes with the items of these maps of the state left out."""
    if not names:
        return classes
    top = classes[state.at]
    fields = tuple(
        msgspec.structs.replace(each, type=MAPS_APART) if each.name in names and each.type.kind == "map" else each
        for each in top.fields
    )
    made: ClassShape = msgspec.structs.replace(top, fields=fields)
    return (*classes[: state.at], made, *classes[state.at + 1 :])


def once(found: list[Mismatch]) -> list[Mismatch]:
    """Give each thing once, however often its class stands in a type."""
    return list({(each.word, each.subject): each for each in found}.values())


def _overlap(one: Shape, ones: Classes, other: Shape, others: Classes) -> bool:
    """May one JSON value be of both types? Where it can't be told, it may."""
    kinds = [_json_kinds(one), _json_kinds(other)]
    if not kinds[0] & kinds[1]:
        return False
    if one.kind == other.kind == "class":
        here: dict[str, FieldShape] = {each.name: each for each in ones[one.at].fields}
        there: dict[str, FieldShape] = {each.name: each for each in others[other.at].fields}
        needed = [each.name for each in (*here.values(), *there.values()) if each.required]
        # A name that the other side does not know is refused there: nested types are read strictly.
        return all(name in here and name in there for name in needed)
    return True


def _json_kinds(shape: Shape) -> frozenset[str]:
    """Give what a value looks like in JSON."""
    if shape.kind == "union":
        return frozenset().union(*(_json_kinds(part) for part in shape.parts))
    if shape.values:
        return frozenset(
            "null" if value is None else "bool" if isinstance(value, bool) else "text" if isinstance(value, str)
            else "number"
            for value in shape.values
        )  # fmt: skip
    known = {"int": "number", "float": "number", "bool": "bool", "none": "null", "class": "object", "dict": "object",
             "list": "array", "set": "array", "frozenset": "array", "vartuple": "array", "tuple": "array"}  # fmt: skip
    if shape.kind == "any":
        return frozenset({*known.values(), "text"})
    return frozenset({known.get(shape.kind, "text")})
