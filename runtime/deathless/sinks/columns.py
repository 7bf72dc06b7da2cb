"""Which columns of a topic go into which of a table: chosen, checked, hashed, and written as DDL. Pure.

Guarantees: the hash changes when, and only when, a column that is written comes, goes, gets another source or another
type in the table. Does not: know a store's dialect beyond the types that PostgreSQL has. Imports base.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from deathless.base.errors import SinkTableUnfit
from deathless.base.topics.row_schema import Column, RowSchema, RowType

ORDINARY: Final = (
    Column("_shard", RowType("int64")),
    Column("_position", RowType("int64")),
    Column("_key", RowType("utf8")),
    Column("_time", RowType("timestamp")),
)
"""Columns that every row has (`topics.arrow`)."""
TYPES: Final = {
    "int64": "bigint", "float64": "double precision", "bool": "boolean", "utf8": "text", "binary": "bytea",
    "timestamp": "timestamp with time zone", "list": "jsonb", "map": "jsonb", "struct": "jsonb",
}  # fmt: skip
"""Types of PostgreSQL by kind of a column; a decimal is numeric(38,scale)."""
JSON_TYPES: Final = frozenset({"json", "jsonb"})


class Chosen(NamedTuple):
    """One column that is written."""

    target: str  # of the table
    source: Column  # of the topic


class Written(NamedTuple):
    """One column that is written, as the table has it."""

    target: str
    source: str
    type: str  # as the table's catalogue writes it

    @property
    def as_json(self) -> bool:
        """Do values go there as JSON?"""
        return self.type in JSON_TYPES


def choose(schema: RowSchema, wanted: Mapping[str, str]) -> list[Chosen]:
    """Give the columns that are written.

    Args:
        schema: of the topic's rows.
        wanted: by column of the table: the topic's; empty: those of the class, by name.

    Raises: SinkTableUnfit when the topic has no such column.
    """
    if not wanted:
        return [Chosen(column.name, column) for column in schema.columns]
    known = {column.name: column for column in (*ORDINARY, *schema.columns)}
    missing = sorted(source for source in wanted.values() if source not in known)
    if missing:
        raise SinkTableUnfit(
            f"the topic's rows have no column {', '.join(missing)}",
            remedy=f"options.columns may name {', '.join(known)}",
        )
    return [Chosen(target, known[source]) for target, source in wanted.items()]


def match(chosen: Sequence[Chosen], types: Mapping[str, str], table: str) -> list[Written]:
    """Give the columns as the table has them.

    Args:
        chosen: what is to be written.
        types: of the table's columns, by name.
        table: its name, for errors.

    Raises: SinkTableUnfit with the statements that add what is missing.
    """
    missing = [each for each in chosen if each.target not in types]
    if missing:
        added = "; ".join(
            f"ALTER TABLE {quoted(table)} ADD COLUMN {_identifier(each.target)} {_type(each.source.type)}"
            for each in missing
        )
        names = ", ".join(each.target for each in missing)
        raise SinkTableUnfit(f"table {table} has no column {names}; it may be added so: {added}")
    return [Written(each.target, each.source.name, types[each.target]) for each in chosen]


def columns_hash(written: Sequence[Written]) -> str:
    """Give the hash of a list of columns, 32 hexadecimal digits; their order in the table is of no account."""
    text = "\n".join(f"{each.target}\t{each.source}\t{each.type}" for each in sorted(written))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def ddl(table: str, chosen: Sequence[Chosen]) -> str:
    """Give the statement that makes a table which fits."""
    columns = ", ".join(
        f"{_identifier(each.target)} {_type(each.source.type)}{'' if each.source.type.nullable else ' NOT NULL'}"
        for each in chosen
    )
    return f"CREATE TABLE {quoted(table)} ({columns})"


def quoted(table: str) -> str:
    """Give a table's name, or schema.table, as a statement writes it."""
    return ".".join(_identifier(part) for part in table.split("."))


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _type(kind: RowType) -> str:
    return f"numeric(38,{kind.scale})" if kind.kind == "decimal" else TYPES[kind.kind]
