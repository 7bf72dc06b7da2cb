"""Rows as Arrow has them: schemas, and record batches made of rows as they travel.

    _shard int32, _position int64, _key utf8, _time timestamp[us, UTC]     of every row, never null
    then the columns of the row schema

pyarrow is imported where it is used, so that what needs only names and positions runs without it.

Guarantees: one row schema gives one Arrow schema; a value that does not fit raises RowMisfit with its row. Does not:
check nulls inside of lists, maps and structs (the turn that published the row did). Imports base and pyarrow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from deathless.base.errors import InvalidArgument, InvalidConfig
from deathless.base.topics.row_schema import Column, RowType, parse_row_schema

if TYPE_CHECKING:
    from types import ModuleType

    import pyarrow as pa

DECIMAL_DIGITS: Final = 38
ORDINARY: Final = ("_shard", "_position", "_key", "_time")


class Row(NamedTuple):
    """One row as it travels."""

    position: int
    key: str
    time_us: int
    values: Sequence[object]


class RowMisfit(Exception):
    """A row is none of its schema; `at` says which one of those given."""

    def __init__(self, at: int, why: str) -> None:
        super().__init__(why)
        self.at = at


def library() -> ModuleType:
    """Give pyarrow. Raises: InvalidConfig when it is not installed."""
    try:
        import pyarrow as pa  # noqa: PLC0415  see the module
    except ImportError as error:
        raise InvalidConfig(f"rows of topics need pyarrow: {error}", remedy="pip install deathless[topics]") from None
    module: ModuleType = pa
    return module


@lru_cache(64)
def arrow_schema(text: str) -> pa.Schema:
    """Give the Arrow schema of a row schema's text; of an empty one, the ordinary columns alone.

    Raises: InvalidConfig when pyarrow is not installed; ValueError when the text is no schema.
    """
    pa = library()
    fields = [
        pa.field("_shard", pa.int32(), nullable=False),
        pa.field("_position", pa.int64(), nullable=False),
        pa.field("_key", pa.utf8(), nullable=False),
        pa.field("_time", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
    columns = parse_row_schema(text).columns if text else ()
    return pa.schema(fields + [_field(column) for column in columns])


def _field(column: Column) -> pa.Field:
    return library().field(column.name, _type(column.type), nullable=column.type.nullable)


def _type(kind: RowType) -> pa.DataType:
    pa = library()
    match kind.kind:
        case "timestamp":
            return pa.timestamp("us", tz="UTC")
        case "decimal":
            return pa.decimal128(DECIMAL_DIGITS, kind.scale)
        case "list":
            assert kind.item is not None
            return pa.list_(pa.field("item", _type(kind.item), nullable=kind.item.nullable))
        case "map":
            assert kind.item is not None
            return pa.map_(pa.utf8(), pa.field("value", _type(kind.item), nullable=kind.item.nullable))
        case "struct":
            return pa.struct([_field(column) for column in kind.columns])
        case "bool":
            return pa.bool_()
        case plain:
            return getattr(pa, plain)()


def record_batch(text: str, shard: int, rows: Sequence[Row]) -> pa.RecordBatch:
    """Make a record batch of rows of one schema.

    Raises: RowMisfit; ValueError when the text is no schema; InvalidConfig when pyarrow is not installed.
    """
    pa = library()
    schema = arrow_schema(text)
    columns = parse_row_schema(text).columns
    for at, row in enumerate(rows):
        if len(row.values) != len(columns):
            raise RowMisfit(at, f"it has {len(row.values)} values, and its schema {len(columns)} columns")
    arrays = [
        pa.array([shard] * len(rows), pa.int32()),
        pa.array([row.position for row in rows], pa.int64()),
        _array("_key", schema.field(2).type, [row.key for row in rows]),
        _array("_time", schema.field(3).type, [row.time_us for row in rows]),
    ]
    for number, column in enumerate(columns):
        kind = schema.field(len(ORDINARY) + number).type
        prepare = _prepare(column.type)
        values = [row.values[number] for row in rows]
        array = _array(column.name, kind, values, prepare)
        if array.null_count and not column.type.nullable:
            raise RowMisfit(values.index(None), f"column {column.name!r} is null")
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(
    name: str, kind: pa.DataType, values: Sequence[object], prepare: Callable[[object], object] | None = None
) -> pa.Array:
    """Make one column; when that fails, row by row, to say which one it is."""
    try:
        return _made(kind, values, prepare)
    except _MISFITS as error:
        why = str(error)
    for at, value in enumerate(values):
        try:
            _made(kind, [value], prepare)
        except _MISFITS as error:
            raise RowMisfit(at, f"column {name!r}: {error}") from None
    raise RowMisfit(0, f"column {name!r}: {why}")


_MISFITS: Final = (ValueError, TypeError, OverflowError, AttributeError, KeyError, InvalidOperation)
"""What making a column raises for values that are none; Arrow's own errors are among them."""


def _made(kind: pa.DataType, values: Sequence[object], prepare: Callable[[object], object] | None) -> pa.Array:
    found = values if prepare is None else [None if value is None else prepare(value) for value in values]
    array: pa.Array = library().array(found, kind)
    return array


def _prepare(kind: RowType) -> Callable[[object], object] | None:
    """Give what makes of a value as it travels the one that pyarrow takes; None: it is the same."""
    if kind.kind == "decimal":
        return _decimal
    if kind.kind == "struct":
        names = [column.name for column in kind.columns]
        parts = [_prepare(column.type) for column in kind.columns]
        return lambda value: _struct(names, parts, value)
    if kind.item is None:
        return None
    inner = _prepare(kind.item)
    if kind.kind == "map":
        return lambda value: [(key, _one(inner, item)) for key, item in _mapping(value).items()]
    return None if inner is None else lambda value: [_one(inner, item) for item in _sequence(value)]


def _one(prepare: Callable[[object], object] | None, value: object) -> object:
    return value if prepare is None or value is None else prepare(value)


def _decimal(value: object) -> Decimal:
    if not isinstance(value, str):
        raise TypeError(f"a decimal travels as text, and this is {type(value).__name__}")
    return Decimal(value)


def _struct(names: Sequence[str], parts: Sequence[Callable[[object], object] | None], value: object) -> object:
    values = _sequence(value)
    if len(values) != len(names):
        raise ValueError(f"a struct of {len(names)} columns has {len(values)} values")
    return {name: _one(part, each) for name, part, each in zip(names, parts, values, strict=True)}


def _sequence(value: object) -> Sequence[object]:
    if not isinstance(value, list | tuple):
        raise TypeError(f"a list is wanted, and this is {type(value).__name__}")
    return value


def _mapping(value: object) -> dict[object, object]:
    if not isinstance(value, dict):
        raise TypeError(f"a map is wanted, and this is {type(value).__name__}")
    return value


def encode_batch(batch: pa.RecordBatch) -> bytes:
    """Give the payload of a block."""
    return bytes(batch.serialize())


def decode_batch(payload: bytes, text: str) -> pa.RecordBatch:
    """Read the payload of a block, which was seen whole. Raises: ValueError when it is none of this schema."""
    pa = library()
    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(payload), arrow_schema(text))
        batch.validate()
    except (pa.ArrowException, OSError, EOFError, TypeError) as error:
        raise ValueError(str(error)) from None
    return batch


def fit(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Give a batch the columns of another schema: those that it lacks are null, others are left out.

    Raises: InvalidArgument when a column is of another type, or lacks and can't be null.
    """
    pa = library()
    if batch.schema.equals(schema):
        return batch
    arrays = []
    for field in schema:
        at = batch.schema.get_field_index(field.name)
        if at < 0:
            if not field.nullable:
                raise InvalidArgument(f"these rows have no column {field.name!r}", remedy=_APART)
            arrays.append(pa.nulls(batch.num_rows, field.type))
            continue
        if batch.schema.field(at).type != field.type:
            raise InvalidArgument(
                f"column {field.name!r} of these rows is {batch.schema.field(at).type}, not {field.type}", remedy=_APART
            )
        arrays.append(batch.column(at))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


_APART: Final = "leave the column out, or read rows of the former schema by themselves"
