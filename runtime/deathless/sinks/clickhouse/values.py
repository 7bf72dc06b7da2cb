"""Rows of a block as ClickHouse reads them: lines of text with tabs, beside what each column of them is.

Every value arrives as it was. A float64 travels as the 64 bits that it is, since the server's own reading of decimals
is inexact unless it is told otherwise; a timestamp as microseconds since 1970; what has parts as JSON.

Guarantees: one line for each row. Does not: know tables. Imports the port, and pyarrow when rows are written.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from deathless.sinks.clickhouse.table import BLOCK, POSITION, quoted_name
from deathless.sinks.columns import Written
from deathless.sinks.json_text import json_texts
from deathless.sinks.port import BlockRefused

if TYPE_CHECKING:
    import pyarrow as pa

NULL: Final = "\\N"
SECONDS_MIN: Final = -2_208_988_800  # 1900-01-01, the first that DateTime64 has
SECONDS_MAX: Final = 10_413_791_999  # 2299-12-31 23:59:59, the last one
_ESCAPES: Final = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"), ("\0", "\\0"))


def structure(batch_schema: pa.Schema, written: Sequence[Written]) -> str:
    """Give the columns of the text, as ClickHouse declares them."""
    sent = [each for each in written if each.source != BLOCK.name]
    return ", ".join(f"c{at} Nullable({_sent(batch_schema.field(each.source).type)})" for at, each in enumerate(sent))


def expressions(batch_schema: pa.Schema, written: Sequence[Written], block: str) -> tuple[str, str]:
    """Give the columns of an INSERT, and what is selected for them out of the text; both with commas.

    Args:
        batch_schema: of the rows.
        written: columns, in order.
        block: the id of the block.
    """
    targets, selected, at = [], [], 0
    for each in written:
        targets.append(quoted_name(each.target))
        if each.source == BLOCK.name:
            selected.append(f"toUUID('{block}')")
            continue
        selected.append(_selected(f"c{at}", batch_schema.field(each.source).type, each.type))
        at += 1
    return ", ".join(targets), ", ".join(selected)


def lines(batch: pa.RecordBatch, written: Sequence[Written]) -> bytes:
    """Give the rows of a batch, a line for each. Raises: BlockRefused for a time out of range, or no JSON."""
    pc = import_module("pyarrow.compute")  # which has no types

    if not batch.num_rows:
        return b""
    for each in written:
        if each.type.startswith(("DateTime64", "Nullable(DateTime64")):
            _check_times(batch.column(each.source), each.target)
    columns = [_texts(batch.column(each.source), each.target) for each in written if each.source != BLOCK.name]
    joined = pc.binary_join_element_wise(*columns, b"\t") if len(columns) > 1 else columns[0]
    return b"\n".join(joined.to_pylist()) + b"\n"


def without(batch: pa.RecordBatch, present: Collection[int]) -> pa.RecordBatch:
    """Give the rows whose positions the table does not have yet."""
    if not present:
        return batch
    import pyarrow as pa  # noqa: PLC0415 - as above

    positions = batch.column(POSITION).to_pylist()
    return batch.filter(pa.array([each not in present for each in positions], pa.bool_()))


def _check_times(column: Any, target: str) -> None:
    import pyarrow as pa  # noqa: PLC0415 - as above

    pc = import_module("pyarrow.compute")  # which has no types

    if column.null_count == len(column):
        return
    ends = pc.min_max(column.cast(pa.int64())).as_py()
    if ends["min"] < SECONDS_MIN * 1_000_000 or ends["max"] >= (SECONDS_MAX + 1) * 1_000_000:
        raise BlockRefused(f"column {target}: DateTime64 has the years 1900 to 2299 alone")


def _sent(kind: Any) -> str:
    """Give the type that a column of the text has."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    types = pa.types
    if types.is_boolean(kind):
        return "UInt8"
    if types.is_decimal(kind):
        return f"Decimal(38, {kind.scale})"
    if types.is_integer(kind) or types.is_floating(kind) or types.is_timestamp(kind):
        return "Int64"
    return "String"


def _selected(name: str, kind: Any, target: str) -> str:
    """Give what turns the text's column into the table's."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    if pa.types.is_floating(kind):
        return f"reinterpretAsFloat64({name})"
    if pa.types.is_timestamp(kind) and "DateTime64" in target:
        return f"fromUnixTimestamp64Micro({name})"
    return name


def _texts(column: Any, target: str) -> Any:
    """Give a column's values as text of the server's own kind, with its escapes."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    pc = import_module("pyarrow.compute")  # which has no types

    kind, types = column.type, pa.types
    if types.is_floating(kind):
        column = column.view(pa.int64())
    elif types.is_timestamp(kind):
        column = column.cast(pa.int64())
    elif types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif types.is_nested(kind):
        column = pa.array(json_texts(column.to_pylist(maps_as_pydicts="strict"), target), pa.string())
    if types.is_string(column.type) or types.is_binary(column.type):
        column = column.cast(pa.binary())
        for plain, escaped in _ESCAPES:
            column = pc.replace_substring(column, pattern=plain, replacement=escaped)
    else:
        column = column.cast(pa.string()).cast(pa.binary())
    return pc.fill_null(column, NULL.encode())
