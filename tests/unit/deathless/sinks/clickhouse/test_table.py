"""Which tables of ClickHouse a sink may write to."""

from __future__ import annotations

import msgspec
import pytest

from deathless.base.errors import SinkEngineUnfit, SinkTableUnfit
from deathless.base.topics.row_schema import parse_row_schema
from deathless.sinks.clickhouse.table import (
    ColumnSeen,
    Place,
    TableSeen,
    chosen_for,
    ddl,
    fits,
    match,
    place_for,
    place_of,
    quoted,
    quoted_text,
)

SCHEMA = parse_row_schema("number:int64,text:utf8?,at:timestamp,sum:decimal<2>,parts:list<int64>")
CHOSEN = chosen_for(SCHEMA, {})
SEEN = TableSeen(
    "MergeTree",
    "MergeTree ORDER BY number",
    (),
    (
        ColumnSeen("number", "Int64"),
        ColumnSeen("text", "LowCardinality(Nullable(String))"),
        ColumnSeen("at", "DateTime64(6, 'UTC')"),
        ColumnSeen("sum", "Decimal(38, 2)", "DEFAULT"),
        ColumnSeen("parts", "String"),
        ColumnSeen("_position", "Int64"),
        ColumnSeen("_block", "UUID"),
    ),
)


def with_column(name: str, **changes: str) -> TableSeen:
    columns = [msgspec.structs.replace(each, **changes) if each.name == name else each for each in SEEN.columns]
    return msgspec.structs.replace(SEEN, columns=tuple(columns))


def test_block_and_position_are_written_in_any_case() -> None:
    assert [each.target for each in CHOSEN][-2:] == ["_position", "_block"]
    named = chosen_for(SCHEMA, {"n": "number", "b": "_block", "p": "_position"})
    assert [(each.target, each.source.name) for each in named] == [("n", "number"), ("p", "_position"), ("b", "_block")]
    assert [each.target for each in chosen_for(SCHEMA, {"b": "_block"})] == ["_position", "b"]


def test_table_that_holds_every_value_is_taken() -> None:
    written = match(CHOSEN, SEEN, "facts")
    assert [each.type for each in written] == [each.type for each in SEEN.columns]
    place = place_for("facts", written)
    assert place == Place("facts", "_block", "_position")
    assert (place_of(place.text), place_of("")) == (place, None)


@pytest.mark.parametrize(
    ("engine", "why"),
    [
        ("ReplicatedMergeTree", "replicas"),
        ("SharedMergeTree", "replicas"),
        ("ReplacingMergeTree", "merges"),
        ("SummingMergeTree", "merges"),
        ("Distributed", "later"),
        ("Memory", "memory"),
        ("Log", "not tried"),
    ],
)
def test_engine_that_can_not_keep_the_promise_is_refused_by_name(engine: str, why: str) -> None:
    with pytest.raises(SinkEngineUnfit, match=f"{engine}.*{why}"):
        match(CHOSEN, msgspec.structs.replace(SEEN, engine=engine), "facts")


def test_table_that_forgets_or_feeds_views_is_refused() -> None:
    with pytest.raises(SinkEngineUnfit, match="TTL"):
        match(CHOSEN, msgspec.structs.replace(SEEN, engine_full="MergeTree ORDER BY a TTL at + toIntervalDay(1)"), "t")
    with pytest.raises(SinkEngineUnfit, match=r"feeds default\.v"):
        match(CHOSEN, msgspec.structs.replace(SEEN, dependents=("default.v",)), "t")


@pytest.mark.parametrize(
    ("column", "kind"),
    [("number", "Int32"), ("at", "DateTime"), ("at", "DateTime64(3)"), ("sum", "Decimal(18, 2)"),
     ("text", "Enum8('a')"), ("_block", "String"), ("_position", "UInt8"), ("parts", "Array(Int64)")],
)  # fmt: skip
def test_type_that_would_change_values_is_refused(column: str, kind: str) -> None:
    with pytest.raises(SinkTableUnfit, match="does not hold every value"):
        match(CHOSEN, with_column(column, type=kind), "facts")


def test_column_that_is_missing_or_takes_no_values_is_refused_with_what_helps() -> None:
    with pytest.raises(SinkTableUnfit, match="takes no values"):
        match(CHOSEN, with_column("number", default_kind="MATERIALIZED"), "facts")
    less = msgspec.structs.replace(SEEN, columns=SEEN.columns[1:-1])
    with pytest.raises(
        SinkTableUnfit, match=r"ADD COLUMN `number` Int64; ALTER TABLE `a`\.`facts` ADD COLUMN `_block` UUID"
    ):
        match(CHOSEN, less, "a.facts")


def test_statement_makes_a_table_that_is_taken() -> None:
    made = ddl("a.facts", CHOSEN, ["fsync_after_insert = 1"])
    assert made == (
        "CREATE TABLE `a`.`facts` (`number` Int64, `text` Nullable(String), `at` DateTime64(6), `sum` Decimal(38, 2), "
        "`parts` String, `_position` Int64, `_block` UUID) ENGINE = MergeTree ORDER BY `_position` "
        "SETTINGS fsync_after_insert = 1"
    )
    assert all(
        fits(each.source, "Nullable(String)")
        for each in CHOSEN
        if each.source.type.kind == "utf8" and each.target == "text"
    )


def test_names_and_texts_are_quoted() -> None:
    assert quoted("a.b`c") == "`a`.`b\\`c`"
    assert quoted_text("it's \\ \0") == "'it\\'s \\\\ \\0'"
