"""Rows as ClickHouse reads them."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal

import pytest

pa = pytest.importorskip("pyarrow", reason="blocks are made with pyarrow: pip install deathless[topics]")

from deathless.sinks.clickhouse.values import expressions, lines, structure, without  # noqa: E402
from deathless.sinks.columns import Written  # noqa: E402
from deathless.sinks.port import BlockRefused  # noqa: E402

TIME = pa.timestamp("us", tz="UTC")
BATCH = pa.record_batch(
    {
        "n": pa.array([1, None], pa.int64()),
        "x": pa.array([0.1, None], pa.float64()),
        "b": pa.array([True, None], pa.bool_()),
        "t": pa.array(["a\tb\nc\\d\r\0", "\\N"], pa.utf8()),
        "at": pa.array([dt.datetime(2026, 1, 2, tzinfo=dt.UTC), None], TIME),
        "sum": pa.array([Decimal("-1.50"), None], pa.decimal128(38, 2)),
        "parts": pa.array([[1, 2], None], pa.list_(pa.int64())),
        "raw": pa.array([b"\xff\t", None], pa.binary()),
        "_position": pa.array([7, 8], pa.int64()),
    }
)
WRITTEN = [
    *(Written(name, name, "String") for name in ("n", "x", "b", "t")),
    Written("at", "at", "DateTime64(6)"),
    *(Written(name, name, "String") for name in ("sum", "parts", "raw", "_position")),
    Written("id", "_block", "UUID"),
]


def test_each_value_is_sent_so_that_none_is_changed() -> None:
    first, second, _ = lines(BATCH, WRITTEN).split(b"\n")
    bits = struct.unpack("<q", struct.pack("<d", 0.1))[0]
    wanted = ["1", str(bits), "1", "a\\tb\\nc\\\\d\\r\\0", "1767312000000000", "-1.50", "[1,2]"]
    assert first.split(b"\t") == [*(each.encode() for each in wanted), b"\xff\\t", b"7"]
    assert second == b"\\N\t\\N\t\\N\t\\\\N\t\\N\t\\N\t\\N\t\\N\t8"
    assert lines(BATCH.slice(0, 0), WRITTEN) == b""


def test_server_is_told_what_each_column_is() -> None:
    assert structure(BATCH.schema, WRITTEN) == (
        "c0 Nullable(Int64), c1 Nullable(Int64), c2 Nullable(UInt8), c3 Nullable(String), c4 Nullable(Int64), "
        "c5 Nullable(Decimal(38, 2)), c6 Nullable(String), c7 Nullable(String), c8 Nullable(Int64)"
    )
    targets, selected = expressions(BATCH.schema, WRITTEN, "B")
    assert targets == "`n`, `x`, `b`, `t`, `at`, `sum`, `parts`, `raw`, `_position`, `id`"
    assert selected == "c0, reinterpretAsFloat64(c1), c2, c3, fromUnixTimestamp64Micro(c4), c5, c6, c7, c8, toUUID('B')"


@pytest.mark.parametrize(("year", "fine"), [(1900, True), (2299, True), (1899, False), (2300, False)])
def test_time_that_the_column_does_not_have_is_refused(year: int, fine: bool) -> None:
    batch = pa.record_batch({"at": pa.array([dt.datetime(year, 6, 1, tzinfo=dt.UTC)], TIME)})
    written = [Written("at", "at", "Nullable(DateTime64(6))")]
    if fine:
        assert lines(batch, written)
    else:
        with pytest.raises(BlockRefused, match="1900 to 2299"):
            lines(batch, written)
    assert lines(batch, [Written("at", "at", "Int64")])


def test_times_that_are_all_null_are_fine() -> None:
    batch = pa.record_batch({"at": pa.array([None], TIME)})
    assert lines(batch, [Written("at", "at", "Nullable(DateTime64(6))")]) == b"\\N\n"


def test_rows_that_the_table_has_are_left_out() -> None:
    assert without(BATCH, []) is BATCH
    assert without(BATCH, [7, 9]).column("_position").to_pylist() == [8]
