"""Schemas of rows: one text for one schema, and which may follow which."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.base.topics.row_schema import (
    DEPTH_MAX,
    PLAIN,
    TEXT_MAX,
    Column,
    RowSchema,
    RowType,
    columns_gone,
    parse_row_schema,
)

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,6}", fullmatch=True)


def _columns(types: st.SearchStrategy[RowType]) -> st.SearchStrategy[tuple[Column, ...]]:
    drawn = st.lists(st.builds(Column, NAMES, types), min_size=1, max_size=4, unique_by=lambda column: column.name)
    return drawn.map(tuple)


_FLAGS = st.booleans()
_LEAVES = st.builds(RowType, st.sampled_from(PLAIN), _FLAGS) | st.builds(
    RowType, st.just("decimal"), _FLAGS, st.integers(0, 38)
)
TYPES = st.recursive(
    _LEAVES,
    lambda inner: (
        st.builds(RowType, st.sampled_from(["list", "map"]), _FLAGS, st.just(0), inner)
        | st.builds(RowType, st.just("struct"), _FLAGS, st.just(0), st.none(), _columns(inner))
    ),
    max_leaves=8,
)
SCHEMAS = st.builds(RowSchema, _columns(TYPES))


@given(SCHEMAS)
def test_text_says_the_whole_schema(schema: RowSchema) -> None:
    assert parse_row_schema(schema.text) == schema and parse_row_schema(schema.text).text == schema.text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected the name of a column at character 0"),
        ("a", "expected ':' at character 1"),
        ("a:int32", "expected a type: int64"),
        ("a:int64,", "expected the name of a column at character 8"),
        ("a:int64 ", "expected a name or one of"),
        ("a:int64??", "expected the end at character 8"),
        ("a:int64,a:utf8", "column 'a' stands twice"),
        ("a:list", "expected '<'"),
        ("a:list<int64", "expected '>'"),
        ("a:decimal<39>", "expected digits behind the point, from 0 to 38"),
        ("a:decimal<02>", "expected digits behind the point"),
        ("a:struct<>", "expected the name of a column"),
        ("7:utf8", "expected the name of a column at character 0"),
        ("a:" + "list<" * (DEPTH_MAX + 2) + "utf8" + ">" * (DEPTH_MAX + 2), f"more than {DEPTH_MAX} deep"),
        ("a" * (TEXT_MAX + 1), "characters; 16,384 at most"),
    ],
)
def test_what_is_no_schema_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_row_schema(text)


@pytest.mark.parametrize(
    ("former", "present", "said"),
    [
        ("a:int64", "a:int64", ""),
        ("a:int64", "a:int64,b:utf8?", ""),
        ("a:int64", "a:int64,b:utf8", "column 'b' is new, and must be of a type that may be null"),
        ("a:int64,b:utf8", "a:int64", "column 'b' is gone, and may not be null"),
        ("a:int64,b:utf8?,c:bool?", "a:int64", ""),
        ("a:int64,b:utf8", "b:utf8,a:int64", "column 'a' was in the place of 'b'"),
        ("a:int64", "a:int64?", "column 'a' was of type int64, and is of type int64?"),
        ("a:struct<x:int64>", "a:struct<x:int64,y:utf8?>", "column 'a' was of type struct"),
    ],
)
def test_only_columns_that_may_be_null_come_and_go_behind_the_others(former: str, present: str, said: str) -> None:
    found = parse_row_schema(present).misfit(parse_row_schema(former))
    assert found.startswith(said) and bool(found) == bool(said)


def test_columns_that_are_gone_are_named() -> None:
    former, present = parse_row_schema("a:int64,b:utf8?,c:bool?"), parse_row_schema("a:int64")
    assert columns_gone(former, present) == ["b", "c"] and columns_gone(present, former) == []
