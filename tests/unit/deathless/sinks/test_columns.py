"""Which columns are written, how a change of them shows, and the statements that make a table fit."""

from __future__ import annotations

import pytest

from deathless.base.errors import SinkTableUnfit
from deathless.base.topics.row_schema import parse_row_schema
from deathless.sinks.columns import TYPES, choose, columns_hash, ddl, match, quoted

SCHEMA = parse_row_schema("flight:utf8,minutes_late:int64,gate:utf8?,price:decimal<2>?")


def test_columns_of_the_class_go_by_name_unless_they_are_named() -> None:
    assert [each.target for each in choose(SCHEMA, {})] == ["flight", "minutes_late", "gate", "price"]
    chosen = choose(SCHEMA, {"late": "minutes_late", "at": "_position"})
    assert [(each.target, each.source.name) for each in chosen] == [("late", "minutes_late"), ("at", "_position")]


def test_column_that_the_topic_lacks_is_told_with_those_it_has() -> None:
    with pytest.raises(SinkTableUnfit, match="no column minutes ") as raised:
        choose(SCHEMA, {"late": "minutes"})
    assert "_shard, _position, _key, _time, flight" in str(raised.value)


def test_column_that_the_table_lacks_is_told_with_what_adds_it() -> None:
    chosen = choose(SCHEMA, {})
    with pytest.raises(SinkTableUnfit) as raised:
        match(chosen, {"flight": "text", "minutes_late": "bigint"}, "reports.facts")
    assert 'ALTER TABLE "reports"."facts" ADD COLUMN "price" numeric(38,2)' in str(raised.value)


def test_hash_tells_names_sources_and_types_and_no_order() -> None:
    types = {"flight": "text", "minutes_late": "bigint", "gate": "text", "price": "numeric", "other": "text"}
    found = match(choose(SCHEMA, {}), types, "facts")
    assert columns_hash(found) == columns_hash(found[::-1])
    others = [
        match(choose(SCHEMA, {}), types | {"price": "real"}, "facts"),
        match(choose(SCHEMA, {"flight": "flight"}), types, "facts"),
        match(choose(SCHEMA, dict.fromkeys(("flight", "minutes_late", "gate", "price"), "flight")), types, "facts"),
    ]
    assert len({columns_hash(each) for each in (found, *others)}) == 4


def test_statement_that_makes_a_table_has_each_type() -> None:
    schema = parse_row_schema("a:int64,b:float64,c:bool,d:utf8,e:binary,f:timestamp,g:list<utf8>,h:map<bool>,"
                              "i:struct<x:int64>,j:decimal<4>?")  # fmt: skip
    text = ddl('odd"name', choose(schema, {}))
    assert text.startswith('CREATE TABLE "odd""name" ("a" bigint NOT NULL, ')
    assert text.endswith('"i" jsonb NOT NULL, "j" numeric(38,4))')
    assert set(TYPES.values()) <= set(text.replace('"', "").replace(" NOT NULL", "").replace(",", "").split()) | {
        "double precision",
        "timestamp with time zone",
    }
    assert quoted("a.b") == '"a"."b"'
