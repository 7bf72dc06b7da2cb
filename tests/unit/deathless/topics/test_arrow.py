"""Rows as Arrow has them: each type there and back, and misfits by their row."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.base.errors import InvalidArgument, InvalidConfig
from deathless.topics.arrow import Row, RowMisfit, arrow_schema, decode_batch, encode_batch, fit, library, record_batch

EVERY = (
    "n:int64,x:float64,b:bool,s:utf8,raw:binary,at:timestamp,money:decimal<2>,maybe:int64?,"
    "legs:list<struct<to:utf8,cost:decimal<1>?>>,tags:map<int64?>,deep:map<list<timestamp>>?"
)
TIME_US = 1_700_000_000_123_456
TIME = datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC)
TRAVELLING = [
    7, 0.5, True, "ü", b"\xff", TIME_US, "12.30", None,
    [["JFK", "1.5"], ["LHR", None]], {"a": 1, "b": None}, {"x": [TIME_US]},
]  # fmt: skip


def test_every_type_arrives_as_the_value_that_was_sent() -> None:
    batch = record_batch(EVERY, 3, [Row(41, "key", TIME_US, TRAVELLING)])
    again = decode_batch(encode_batch(batch), EVERY)
    assert again.equals(batch)
    row = again.to_pylist()[0]
    assert (row["_shard"], row["_position"], row["_key"], row["_time"]) == (3, 41, "key", TIME)
    assert [row[name] for name in ("n", "x", "b", "s", "raw", "at", "maybe")] == [
        7,
        0.5,
        True,
        "ü",
        b"\xff",
        TIME,
        None,
    ]
    assert row["money"] == Decimal("12.30")
    assert row["legs"] == [{"to": "JFK", "cost": Decimal("1.5")}, {"to": "LHR", "cost": None}]
    assert row["tags"] == [("a", 1), ("b", None)]
    assert row["deep"] == [("x", [TIME])]


def test_a_row_schema_is_an_arrow_schema_with_the_ordinary_columns_first() -> None:
    schema = arrow_schema("money:decimal<2>,maybe:list<utf8?>?")
    assert schema.names == ["_shard", "_position", "_key", "_time", "money", "maybe"]
    assert schema.field("_time").type == pa.timestamp("us", tz="UTC")
    assert schema.field("money").type == pa.decimal128(38, 2)
    assert [schema.field(name).nullable for name in schema.names] == [False] * 5 + [True]
    assert arrow_schema("").names == ["_shard", "_position", "_key", "_time"]


@pytest.mark.parametrize(
    ("schema", "value", "why"),
    [
        ("n:int64", 1 << 63, "int"),
        ("n:int64", "seven", "int"),
        ("n:int64", None, "null"),
        ("s:utf8", 7, "bytes|str"),
        ("d:decimal<1>", "1.25", "scale|loss"),
        ("d:decimal<1>", 1, "text"),
        ("d:decimal<1>", "one", "ConversionSyntax"),
        ("t:struct<a:utf8>", ["a", "b"], "1 columns has 2"),
        ("t:list<struct<a:utf8>>", "ab", "list"),
        ("t:map<int64>", [1], "map"),
    ],
)
def test_a_value_that_does_not_fit_is_told_with_its_row(schema: str, value: object, why: str) -> None:
    good = {"int64": 1, "utf8": "a"}.get(schema.partition(":")[2])
    rows = [Row(41, "k", 1, [good])] if good is not None else []
    with pytest.raises(RowMisfit, match=why) as caught:
        record_batch(schema, 0, [*rows, Row(42, "k", 2, [value])])
    assert caught.value.at == len(rows)


def test_a_row_of_another_number_of_columns_is_told() -> None:
    with pytest.raises(RowMisfit, match="1 values, and its schema 2 columns"):
        record_batch("a:int64,b:int64", 0, [Row(1, "k", 1, [7])])


def test_a_batch_gets_the_columns_of_another_schema() -> None:
    batch = record_batch("a:int64", 0, [Row(1, "k", 1, [7])])
    newer = fit(batch, arrow_schema("a:int64,b:utf8?"))
    assert newer.to_pylist()[0]["b"] is None
    assert fit(newer, arrow_schema("a:int64")).equals(batch)
    assert fit(batch, batch.schema) is batch
    with pytest.raises(InvalidArgument, match="no column 'b'"):
        fit(batch, arrow_schema("a:int64,b:utf8"))
    with pytest.raises(InvalidArgument, match="is int64, not string"):
        fit(batch, arrow_schema("a:utf8"))


@given(st.binary(max_size=400), st.integers(0, 300))
def test_bytes_that_are_no_batch_are_an_error_and_nothing_else(data: bytes, at: int) -> None:
    good = encode_batch(record_batch("s:utf8,n:int64?", 0, [Row(1, "k", 1, ["a", None]), Row(2, "k", 2, ["b", 1])]))
    for bad in (data, good[:at] + data + good[at + len(data) :], good[: at % len(good)]):
        if bad != good:
            try:
                found = decode_batch(bad, "s:utf8,n:int64?")
            except ValueError:
                continue
            assert found.num_columns == 6


def test_without_pyarrow_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InvalidConfig) as caught:
        library()
    assert caught.value.advice == "pip install deathless[topics]"
