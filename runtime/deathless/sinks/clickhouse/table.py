"""Which tables of ClickHouse a sink may write to: engines, columns and their types. Pure.

Only a table that keeps each row that was inserted, until somebody deletes it, can be asked what it has of a block. So
everything else is refused by name: engines that merge rows into one, forget them, or keep them elsewhere.

A value that does not fit the column's type would be changed without a word (300 becomes 44 in a UInt8), so the types
are those alone that hold every value of the topic's column.

Guarantees: none of IO. Imports base, and columns of sinks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from deathless.base.errors import SinkEngineUnfit, SinkTableUnfit
from deathless.base.topics.row_schema import Column, RowSchema, RowType
from deathless.sinks.columns import Chosen, Written, choose

BLOCK: Final = Column("_block", RowType("utf8"))
"""The id of the block that a row was inserted with, beside the columns that every row has."""
POSITION: Final = "_position"
ENGINES: Final = ("MergeTree",)
PLAIN_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "int64": ("Int64", "Int128", "Int256"),
    "float64": ("Float64",),
    "bool": ("Bool", "UInt8", "Int8"),
    "utf8": ("String", "LowCardinality(String)"),
    "binary": ("String",),
    "timestamp": ("DateTime64(6)", "DateTime64(6, *)", "Int64"),
    "list": ("String",),
    "map": ("String",),
    "struct": ("String",),
}
"""Types that hold every value of a column of this kind, the one of a table that is made first."""
_REPLICATED: Final = "a block's rows can't be counted where replicas take them over from each other"
_WHY: Final = {
    "Replicated": _REPLICATED,
    "Shared": _REPLICATED,
    "Distributed": "it hands rows on later, and tells of no failure",
    "Replacing": "it merges rows into one",
    "Summing": "it merges rows into one",
    "Aggregating": "it merges rows into one",
    "Collapsing": "it merges rows into one",
    "VersionedCollapsing": "it merges rows into one",
    "Graphite": "it merges rows into one",
    "Buffer": "it keeps rows in memory alone",
    "Memory": "it keeps rows in memory alone",
    "Null": "it keeps no rows",
}


class ColumnSeen(msgspec.Struct, frozen=True):
    """A column of a table, as the server describes it."""

    name: str
    type: str
    default_kind: str = ""  # "", DEFAULT, MATERIALIZED, ALIAS, EPHEMERAL


class TableSeen(msgspec.Struct, frozen=True):
    """A table, as the server describes it."""

    engine: str
    engine_full: str
    dependents: tuple[str, ...]  # views that take what is inserted
    columns: tuple[ColumnSeen, ...]


class Place(msgspec.Struct, frozen=True):
    """Where rows of a block are found again."""

    table: str
    block: str  # column of ids
    position: str  # column of positions

    @property
    def text(self) -> str:
        """As the journal keeps it."""
        return f"{self.table}\t{self.block}\t{self.position}"


def place_of(text: str) -> Place | None:
    """Give the place that a journal kept; None: it kept none."""
    parts = text.split("\t")
    return Place(*parts) if len(parts) == 3 else None


def chosen_for(schema: RowSchema, wanted: Mapping[str, str]) -> list[Chosen]:
    """Give the columns that are written: those that were wanted, and the block's id and the position in any case.

    Raises: SinkTableUnfit when the topic has no such column.
    """
    ids = [target for target, source in wanted.items() if source == BLOCK.name]
    others = {target: source for target, source in wanted.items() if source != BLOCK.name}
    chosen = choose(schema, others) if others or not wanted else []
    if not any(each.source.name == POSITION for each in chosen):
        chosen += choose(schema, {POSITION: POSITION})
    return chosen + [Chosen(target, BLOCK) for target in ids or (BLOCK.name,)]


def match(chosen: Sequence[Chosen], seen: TableSeen, table: str) -> list[Written]:
    """Give the columns as the table has them.

    Raises: SinkEngineUnfit when the table can't keep the promise; SinkTableUnfit when a column is missing, or has a
        type that does not hold every value, with the statements that help.
    """
    _check_engine(seen, table)
    types = {each.name: each for each in seen.columns}
    missing = [each for each in chosen if each.target not in types]
    if missing:
        added = "; ".join(
            f"ALTER TABLE {quoted(table)} ADD COLUMN {quoted_name(each.target)} {type_for(each.source)}"
            for each in missing
        )
        names = ", ".join(each.target for each in missing)
        raise SinkTableUnfit(f"table {table} has no column {names}; it may be added so: {added}")
    for each in chosen:
        found = types[each.target]
        if found.default_kind in {"MATERIALIZED", "ALIAS", "EPHEMERAL"}:
            raise SinkTableUnfit(f"column {each.target} of table {table} is {found.default_kind}: it takes no values")
        if not fits(each.source, found.type):
            wanted = " or ".join(types_for(each.source.type)) if each.source != BLOCK else "UUID"
            raise SinkTableUnfit(
                f"column {each.target} of table {table} is {found.type}, which does not hold every value of "
                f"{each.source.name} ({each.source.type.text}): it must be {wanted}"
            )
    return [Written(each.target, each.source.name, types[each.target].type) for each in chosen]


def _check_engine(seen: TableSeen, table: str) -> None:
    if seen.engine not in ENGINES:
        why = next((why for prefix, why in _WHY.items() if seen.engine.startswith(prefix)), "it was not tried")
        raise SinkEngineUnfit(f"table {table} has the engine {seen.engine}: {why}")
    if re.search(r"\bTTL\b", seen.engine_full):
        raise SinkEngineUnfit(f"table {table} has a TTL: rows that it forgets can't be told from rows never inserted")
    if seen.dependents:
        raise SinkEngineUnfit(
            f"table {table} feeds {', '.join(seen.dependents)}: a server that dies between a table and a view of it "
            "leaves a block in one of them alone"
        )


def types_for(kind: RowType) -> tuple[str, ...]:
    """Give the types of a table's column that hold every value, the one for a new table first."""
    return (f"Decimal(38, {kind.scale})",) if kind.kind == "decimal" else PLAIN_TYPES[kind.kind]


def type_for(source: Column) -> str:
    """Give the type of a column of a new table."""
    if source == BLOCK:
        return "UUID"
    plain = types_for(source.type)[0]
    return f"Nullable({plain})" if source.type.nullable else plain


def fits(source: Column, found: str) -> bool:
    """Does this type hold every value? Null is refused by the server, where the column has none."""
    plain = found.removeprefix("Nullable(").removesuffix(")") if found.startswith("Nullable(") else found
    if found == "LowCardinality(Nullable(String))":
        plain = "LowCardinality(String)"
    if source == BLOCK:
        return found == "UUID"
    for wanted in types_for(source.type):
        if wanted.endswith("*)"):
            if plain.startswith(wanted[:-2]):
                return True
        elif plain.replace(", ", ",") == wanted.replace(", ", ","):
            return True
    return False


def ddl(table: str, chosen: Sequence[Chosen], settings: Sequence[str] = ()) -> str:
    """Give the statement that makes a table which fits.

    Args:
        table: its name, or database.table.
        chosen: its columns.
        settings: of MergeTree, as they are written, that let an insert reach the disk before it is acknowledged.
    """
    columns = ", ".join(f"{quoted_name(each.target)} {type_for(each.source)}" for each in chosen)
    position = next(each.target for each in chosen if each.source.name == POSITION)
    kept = f" SETTINGS {', '.join(settings)}" if settings else ""
    return f"CREATE TABLE {quoted(table)} ({columns}) ENGINE = MergeTree ORDER BY {quoted_name(position)}{kept}"


def place_for(table: str, written: Sequence[Written]) -> Place:
    """Give where rows of a block are found again."""
    by_source = {each.source: each.target for each in reversed(written)}
    return Place(table, by_source[BLOCK.name], by_source[POSITION])


def quoted(table: str) -> str:
    """Give a table's name, or database.table, as a statement writes it."""
    return ".".join(quoted_name(part) for part in table.split("."))


def quoted_name(name: str) -> str:
    """Give a name as a statement writes it."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def quoted_text(text: str) -> str:
    """Give a text as a statement writes it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\0", "\\0") + "'"
