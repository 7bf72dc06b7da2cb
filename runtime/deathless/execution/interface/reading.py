"""Can values of one type, as they stand in bytes, be read as another, with nothing of them lost?

    reads(reader, writer)    what is in the way, for each class and field; nothing: every value can be read

Allowed are additions (a field with a default, one more member of a union or an enum) and what a decoder takes as it is
(an int as a float). A name of a class means nothing to bytes, unless it is their tag.

Guarantees: where nothing is found, a decoder of the reader's type takes every value of the writer's and knows each
field of it. Does not: look at values: a bound that became narrower is told although they may all keep it. Imports
nothing but shapes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from deathless.execution.interface.shapes import Classes, ClassShape, FieldShape, Shape, show

_ARRAYS: Final = ("list", "vartuple")
_SETS: Final = ("set", "frozenset")
_BYTES: Final = ("bytes", "bytearray", "memoryview")
_LOWER: Final = ("gt", "ge", "min_length")
_UPPER: Final = ("lt", "le", "max_length")


class Mismatch(NamedTuple):
    """One thing in the way."""

    word: str  # FieldDropped, FieldRequired, FieldTypeChanged, DefaultChanged, MapGone
    subject: str  # class and field, as the writer names them
    what: str  # a statement with {old} and {new} for the two versions
    also: str = ""  # the same as the reader names it


class Reading(NamedTuple):
    """What came of a look at two types."""

    mismatches: list[Mismatch]
    widened: bool  # the reader takes more than the writer's type has, or less on purpose, beside fields that were added


def reads(
    reader: Shape,
    readers: Classes,
    writer: Shape,
    writers: Classes,
    *,
    subject: str,
    drops: Collection[str] = (),
    lenient: bool = False,
) -> Reading:
    """Look whether values of `writer` can be read as `reader`.

    Args:
        reader: a type, with its list of classes.
        readers: that list.
        writer: likewise.
        writers: likewise.
        subject: what a mismatch outside of a class is about.
        drops: "Class.field" that may be lost, as either side names the class.
        lenient: fields that the reader does not know are nobody's loss, unless it refuses them.
    """
    look = _Look(readers, writers, frozenset(drops), lenient=lenient)
    look.type(reader, writer, subject)
    return Reading(look.found, look.widened)


class _Look:
    """One look at two types."""

    def __init__(self, readers: Classes, writers: Classes, drops: frozenset[str], *, lenient: bool) -> None:
        self._readers = readers
        self._writers = writers
        self._drops = drops
        self._lenient = lenient
        self._seen: set[tuple[int, int]] = set()
        self.found: list[Mismatch] = []
        self.widened = False

    def type(self, reader: Shape, writer: Shape, subject: str) -> None:
        """Look at two types that stand at one place."""
        if not self._fits(reader, writer, subject):
            old, new = show(writer, self._writers), show(reader, self._readers)
            more = "" if old != new else ", but with other values"
            self._tell("FieldTypeChanged", subject, f"{subject} is {old} in {{old}} and {new} in {{new}}{more}")

    def _tell(self, word: str, subject: str, what: str, also: str = "") -> None:
        self.found.append(Mismatch(word, subject, what, also or subject))

    def _fits(self, reader: Shape, writer: Shape, subject: str) -> bool:
        """Are the two alike on the outside? What is inside is looked at, and told, by itself."""
        if reader.kind == "any":
            self.widened = self.widened or writer.kind != "any"
            return True
        if "union" in (reader.kind, writer.kind):
            return self._union(reader, writer, subject)
        if "class" in (reader.kind, writer.kind):
            return reader.kind == writer.kind and self._class(reader, writer)
        if reader.values or writer.values:
            return self._values(reader, writer)
        if reader.kind != writer.kind:
            if not _wider(reader.kind, writer.kind):
                return False
            self.widened = True
        if len(reader.parts) != len(writer.parts) or self._narrower(reader, writer):
            return False
        for part, before in zip(reader.parts, writer.parts, strict=True):
            self.type(part, before, subject)
        return True

    def _narrower(self, reader: Shape, writer: Shape) -> bool:
        if reader.bounds == writer.bounds:
            return False
        for name, bound in reader.bounds.items():
            before = writer.bounds.get(name)
            if before == bound:
                continue
            numbers = isinstance(before, int | float) and isinstance(bound, int | float)
            lower = numbers and name in _LOWER and bound <= before  # type: ignore[operator]  # both are numbers
            upper = numbers and name in _UPPER and bound >= before  # type: ignore[operator]  # likewise
            if not (lower or upper):
                return True
        self.widened = True
        return False

    def _values(self, reader: Shape, writer: Shape) -> bool:
        """Enums and literals, and plain types that take all of their values."""
        if not writer.values:
            return False
        if reader.values:
            kept = {(type(value), value) for value in reader.values}
            self.widened = self.widened or len(kept) > len(writer.values)
            return all((type(value), value) in kept for value in writer.values)
        kinds = {bool: "bool", int: "int", str: "str", type(None): "none"}
        self.widened = True
        return not reader.bounds and all(kinds[type(value)] == reader.kind for value in writer.values)

    def _union(self, reader: Shape, writer: Shape, subject: str) -> bool:
        """Each member of the writer needs one of the reader that takes it."""
        takers = reader.parts if reader.kind == "union" else (reader,)
        givers = writer.parts if writer.kind == "union" else (writer,)
        self.widened = self.widened or len(takers) > len(givers)
        for giver in givers:
            best: list[Mismatch] | None = None
            for taker in takers:
                told = self._try(taker, giver, subject)
                if told is not None and (best is None or len(told) < len(best)):
                    best = told
            if best is None:
                return False
            self.found += best
        return True

    def _try(self, taker: Shape, giver: Shape, subject: str) -> list[Mismatch] | None:
        """Give what is in the way for one member, inside of it; None: it can't be taken at all."""
        kept, self.found = self.found, []
        seen = set(self._seen)
        try:
            return self.found if self._fits(taker, giver, subject) else None
        finally:
            self.found, self._seen = kept, seen

    def _class(self, reader: Shape, writer: Shape) -> bool:
        new, old = self._readers[reader.at], self._writers[writer.at]
        if (new.array, new.tag_field, new.tag) != (old.array, old.tag_field, old.tag):
            return False
        if (reader.at, writer.at) in self._seen:
            return True
        self._seen.add((reader.at, writer.at))
        if new.array:
            self._by_place(new, old)
        else:
            self._by_name(new, old)
        return True

    def _by_name(self, new: ClassShape, old: ClassShape) -> None:
        after = {field.name: field for field in new.fields}
        before = {field.name: field for field in old.fields}
        for name, field in before.items():
            if name in after:
                self._field(new, after[name], old, field)
            else:
                self._dropped(new, old, field)
        for name, field in after.items():
            if name not in before and field.required:
                self._tell(
                    "FieldRequired",
                    f"{new.name}.{name}",
                    f"{new.name}.{name} has no default in {{new}}, and {{old}} does not have it",
                )

    def _by_place(self, new: ClassShape, old: ClassShape) -> None:
        """Fields of lists: what they are called means nothing, but says whether they were meant to be the same."""
        for place, field in enumerate(old.fields):
            if place >= len(new.fields):
                self._dropped(new, old, field)
                continue
            after = new.fields[place]
            if after.name != field.name:
                where = f"{old.name}.{field.name}"
                what = f"{where} of {{old}} is read as {new.name}.{after.name} in {{new}}, for its values are lists"
                self._tell("FieldTypeChanged", where, what)
            else:
                self._field(new, after, old, field)
        for field in new.fields[len(old.fields) :]:
            if field.required:
                where = f"{new.name}.{field.name}"
                self._tell("FieldRequired", where, f"{where} has no default in {{new}}, and {{old}} does not have it")

    def _dropped(self, new: ClassShape, old: ClassShape, field: FieldShape) -> None:
        where, also = f"{old.name}.{field.name}", f"{new.name}.{field.name}"
        if where in self._drops or also in self._drops:
            self.widened = True
            return
        if self._lenient and not new.forbids:
            return
        if field.type.kind == "map":
            what = f"{where} ({show(field.type, self._writers)}) of {{old}} is not in {{new}}, with all its items"
            self._tell("MapGone", where, what, also)
            return
        shown = show(field.type, self._writers)
        self._tell("FieldDropped", where, f"{where} ({shown}) of {{old}} is not in {{new}}", also)

    def _field(self, new: ClassShape, after: FieldShape, old: ClassShape, before: FieldShape) -> None:
        where = f"{old.name}.{before.name}"
        if after.required and not before.required:
            self._tell("FieldRequired", where, f"{where} has a default in {{old}} and none in {{new}}")
        if old.omits and new.omits and before.default and after.default and before.default != after.default:
            what = f"the default of {where} is another one in {{new}}, and values of {{old}} leave it out"
            self._tell("DefaultChanged", where, what)
        self.type(after.type, before.type, where)


def _wider(reader: str, writer: str) -> bool:
    """Does a decoder of this kind take every value of that one as it is?"""
    for kinds in (_BYTES, _SETS, _ARRAYS):
        if reader in kinds and writer in kinds:
            return True
    return (reader, writer) == ("float", "int") or (reader in _ARRAYS and writer in _SETS)
