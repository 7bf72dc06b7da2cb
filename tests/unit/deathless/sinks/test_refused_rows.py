"""Rows that a table refuses are kept with their columns; the statements about them name the schema's tables."""

from __future__ import annotations

import pytest

from deathless.sinks.refused_rows import RefusedStatements, pack, shown, unpack

pa = pytest.importorskip("pyarrow", reason="rows are packed with pyarrow: pip install deathless[topics]")


def test_what_is_unpacked_is_what_was_packed() -> None:
    columns = {"_position": [3], "text": ["bad"], "data": [b"\xff"], "marks": [[("a", 1)]]}
    types = [
        ("_position", pa.int64()),
        ("text", pa.utf8()),
        ("data", pa.binary()),
        ("marks", pa.map_(pa.utf8(), pa.int64())),
    ]
    batch = pa.RecordBatch.from_pydict(columns, schema=pa.schema(types))
    assert unpack(pack(batch)).equals(batch)
    assert shown(pack(batch)) == '{"_position":3,"text":"bad","data":"/w==","marks":{"a":1}}'


def test_statements_are_about_the_schemas_own_table() -> None:
    statements = RefusedStatements("mine")
    for each in (
        statements.create,
        statements.keep,
        statements.next,
        statements.again,
        statements.lock,
        statements.drop,
    ):
        assert b'"mine".deathless_sink_refused' in each
        assert b"{" not in each
