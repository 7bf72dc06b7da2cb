"""Columns of Spark as tables have them; the real types are tested with Spark."""

from typing import Any

import pytest
from tests.unit.deathless.spark.spark_lab import Field, Type, columns

from deathless.base.errors import InvalidArgument
from deathless.base.topics.row_schema import parse_row_schema
from deathless.spark.row_schema import row_schema

TEXT = Type("string")


def test_columns_keep_names_order_and_what_may_be_null() -> None:
    found = row_schema("facts", columns(carrier="string", minutes="integer", at="timestamp", share="float"))
    assert found.text == "carrier:utf8?,minutes:int64?,at:timestamp?,share:float64?"
    certain: Any = Type("struct", fields=[Field("carrier", TEXT, nullable=False)])
    assert row_schema("facts", certain).text == "carrier:utf8"


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (Type("decimal", scale=2), "decimal<2>?"),
        (Type("array", elementType=TEXT, containsNull=False), "list<utf8>?"),
        (Type("map", keyType=TEXT, valueType=Type("long"), valueContainsNull=True), "map<int64?>?"),
        (columns(a="byte", b="boolean"), "struct<a:int64?,b:bool?>?"),
    ],
)
def test_types_of_several_parts(type_: Type, text: str) -> None:
    rows: Any = Type("struct", fields=[Field("it", type_)])
    found = row_schema("facts", rows)
    assert found.text == f"it:{text}"
    assert parse_row_schema(found.text) == found


@pytest.mark.parametrize(
    "type_", [Type("date"), Type("timestamp_ntz"), Type("map", keyType=Type("long")), Type("variant")]
)
def test_what_no_table_gets_is_named_with_what_to_write(type_: Type) -> None:
    rows: Any = Type("struct", fields=[Field("day", type_)])
    with pytest.raises(InvalidArgument, match="query facts: column day has values of type the type") as raised:
        row_schema("facts", rows)
    assert raised.value.advice == "cast them, as in col('day').cast('string')"


@pytest.mark.parametrize("name", ["count(1)", "größe", ""])
def test_a_name_that_is_no_word_is_refused(name: str) -> None:
    rows: Any = Type("struct", fields=[Field(name, TEXT)])
    with pytest.raises(InvalidArgument, match="can't be a table's column"):
        row_schema("facts", rows)
