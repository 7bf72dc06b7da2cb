"""The columns of a query's rows, as stores of tables read them.

    string           utf8         byte, short, integer, long   int64       array<T>        list<T>
    binary           binary       float, double                float64     map<string, T>  map<T>
    boolean          bool         timestamp                    timestamp   struct<...>     struct<...>
    decimal(p, s)    decimal<s>

Guarantees: a column of any other type is refused by name. Does not: import pyspark, whose types are taken as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from deathless.base.errors import InvalidArgument
from deathless.base.topics.row_schema import Column, RowSchema, RowType

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_PLAIN: Final = {
    "string": "utf8", "binary": "binary", "boolean": "bool", "timestamp": "timestamp",
    "byte": "int64", "short": "int64", "integer": "int64", "long": "int64", "float": "float64", "double": "float64",
}  # fmt: skip


def row_schema(query: str, rows: StructType) -> RowSchema:
    """Give the columns of a query's rows. Raises: InvalidArgument naming query, column and what to write."""
    return RowSchema(_columns(query, rows))


def _columns(query: str, rows: Any) -> tuple[Column, ...]:
    for field in rows.fields:
        if not (field.name.isidentifier() and field.name.isascii()):
            raise InvalidArgument(
                f"query {query}: {field.name!r} can't be a table's column here", remedy="name it anew: .alias('name')"
            )
    return tuple(
        Column(field.name, _type(query, field.name, field.dataType, nullable=field.nullable)) for field in rows.fields
    )


def _type(query: str, column: str, type_: Any, *, nullable: bool) -> RowType:
    name = type_.typeName()
    if name in _PLAIN:
        return RowType(_PLAIN[name], nullable)
    if name == "decimal":
        return RowType("decimal", nullable, scale=type_.scale)
    if name == "array":
        return RowType("list", nullable, item=_type(query, column, type_.elementType, nullable=type_.containsNull))
    if name == "map" and type_.keyType.typeName() == "string":
        return RowType("map", nullable, item=_type(query, column, type_.valueType, nullable=type_.valueContainsNull))
    if name == "struct":
        return RowType("struct", nullable, columns=_columns(query, type_))
    raise InvalidArgument(
        f"query {query}: column {column} has values of type {type_.simpleString()}, which no table gets",
        remedy=f"cast them, as in col('{column}').cast('string')",
    )
