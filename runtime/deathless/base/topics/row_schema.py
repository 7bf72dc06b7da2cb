"""What a row of a topic is made of: named columns, each of one type; and the text that says so.

    flight:utf8,minutes:int64,origin:utf8?,legs:list<struct<from:utf8,to:utf8>>,seen:timestamp

    int64 float64 bool utf8 binary   as Arrow's
    timestamp                        microseconds since 1970, UTC
    decimal<S>                       38 digits, S of them behind the point
    list<T>  map<T>  struct<...>     a map's keys are utf8
    T?                               may be null

A row travels as the list of its values, in the columns' order: a struct as a list likewise, a timestamp as an integer,
a decimal as text. The text travels with each row, so that whoever writes rows needs no code of whoever sent them, and
rows of former code that still wait are what they were.

Guarantees: one text for one schema, and the other way round. Does not: know the types of Python (execution.declared) or
of Arrow (drivers.topic). Imports nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

TEXT_MAX: Final = 16_384
"""Characters of a schema's text: a few hundred columns."""
DEPTH_MAX: Final = 16
SCALE_MAX: Final = 38
PLAIN: Final = ("int64", "float64", "bool", "utf8", "binary", "timestamp")

_TOKEN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[<>,:?]")


@dataclass(frozen=True, slots=True)
class RowType:
    """Type of a column, or of what is inside of one."""

    kind: str  # of PLAIN, or decimal, list, map, struct
    nullable: bool = False
    scale: int = 0  # of a decimal: digits behind the point
    item: RowType | None = None  # of a list's items or a map's values
    columns: tuple[Column, ...] = ()  # of a struct

    @property
    def text(self) -> str:
        """The canonical text."""
        inside = ""
        if self.kind == "decimal":
            inside = f"<{self.scale}>"
        elif self.item is not None:
            inside = f"<{self.item.text}>"
        elif self.kind == "struct":
            inside = f"<{_text(self.columns)}>"
        return f"{self.kind}{inside}{'?' if self.nullable else ''}"


@dataclass(frozen=True, slots=True)
class Column:
    """One column."""

    name: str
    type: RowType


@dataclass(frozen=True, slots=True)
class RowSchema:
    """Columns of a topic's rows, in order."""

    columns: tuple[Column, ...]

    @property
    def text(self) -> str:
        """The canonical text; `parse_row_schema` is its inverse."""
        return _text(self.columns)

    def misfit(self, former: RowSchema) -> str:
        """Say why readers of `former` rows could not go on with these; empty: they can.

        Only columns that may be null can come, or go, behind all others: readers see null where rows lack one.
        """
        for old, new in zip(former.columns, self.columns, strict=False):
            if old.name != new.name:
                return f"column {old.name!r} was in the place of {new.name!r}"
            if old.type != new.type:
                return f"column {old.name!r} was of type {old.type.text}, and is of type {new.type.text}"
        for column in former.columns[len(self.columns) :]:
            if not column.type.nullable:
                return f"column {column.name!r} is gone, and may not be null"
        for column in self.columns[len(former.columns) :]:
            if not column.type.nullable:
                return f"column {column.name!r} is new, and must be of a type that may be null"
        return ""


def columns_gone(former: RowSchema, present: RowSchema) -> list[str]:
    """Give the columns that rows do not have any more, by name; `present.misfit(former)` is empty."""
    return [column.name for column in former.columns[len(present.columns) :]]


def _text(columns: tuple[Column, ...]) -> str:
    return ",".join(f"{column.name}:{column.type.text}" for column in columns)


@lru_cache(256)
def parse_row_schema(text: str) -> RowSchema:
    """Read the text of a schema.

    Raises: ValueError saying what is wrong and where.
    """
    if len(text) > TEXT_MAX:
        raise ValueError(f"a schema has {len(text):,} characters; {TEXT_MAX:,} at most are allowed")
    parser = _Parser(text)
    columns = parser.columns(0)
    if parser.found:
        raise parser.wrong("the end")
    return RowSchema(columns)


class _Parser:
    """Takes a text apart, token by token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._end = 0
        self.found = ""
        self._next()

    def _next(self) -> None:
        self._at = self._end
        found = _TOKEN.match(self._text, self._at)
        if found is None and self._at < len(self._text):
            raise self.wrong("a name or one of < > , : ?")
        self.found = found.group() if found else ""
        self._end = self._at + len(self.found)

    def wrong(self, wanted: str) -> ValueError:
        """Give the error for this place."""
        return ValueError(f"expected {wanted} at character {self._at} of schema {self._text[:200]!r}")

    def _take(self, wanted: str) -> None:
        if self.found != wanted:
            raise self.wrong(repr(wanted))
        self._next()

    def columns(self, depth: int) -> tuple[Column, ...]:
        """Take columns that are divided by commas; one at least."""
        found: dict[str, Column] = {}
        while True:
            name = self.found
            if not name.isidentifier():
                raise self.wrong("the name of a column")
            if name in found:
                raise ValueError(f"column {name!r} stands twice in schema {self._text[:200]!r}")
            self._next()
            self._take(":")
            found[name] = Column(name, self._type(depth))
            if self.found != ",":
                return tuple(found.values())
            self._next()

    def _type(self, depth: int) -> RowType:
        if depth > DEPTH_MAX:
            raise ValueError(f"a schema is nested more than {DEPTH_MAX} deep")
        kind, scale = self.found, 0
        item: RowType | None = None
        columns: tuple[Column, ...] = ()
        if kind not in (*PLAIN, "decimal", "list", "map", "struct"):
            raise self.wrong(f"a type: {', '.join(PLAIN)}, decimal, list, map or struct")
        self._next()
        if kind not in PLAIN:
            self._take("<")
            if kind == "decimal":
                scale = self._scale()
            elif kind == "struct":
                columns = self.columns(depth + 1)
            else:
                item = self._type(depth + 1)
            self._take(">")
        nullable = self.found == "?"
        if nullable:
            self._next()
        return RowType(kind, nullable, scale, item, columns)

    def _scale(self) -> int:
        text = self.found
        if not (text.isdecimal() and text.isascii() and str(int(text)) == text and int(text) <= SCALE_MAX):
            raise self.wrong(f"digits behind the point, from 0 to {SCALE_MAX}")
        self._next()
        return int(text)
