"""Rows on their way over HTTP: an Arrow IPC stream that says how far it covers, and lines of JSON.

    schema | batch, next=4 | batch, next=9 | batch without rows, next=20, rows=7 | end of stream

Each batch says in its metadata which position is the one behind those that it covers. The last one has no rows: it says
that all was covered up to the end that was asked for, also where the last positions hold no row, and how many rows
there were. An Arrow stream without it is not whole, whatever a library says that meets its end between two batches.

Guarantees: `received` gives rows of the positions asked for, each batch once it was seen whole, or raises AnswerTorn.
Does not: know HTTP. Imports base, `arrow` and pyarrow.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import IO, TYPE_CHECKING

import msgspec

from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.base.topics.row_schema import Column, RowSchema, RowType
from deathless.base.topics.state import NEXT, ROWS
from deathless.topics.arrow import ORDINARY, library

if TYPE_CHECKING:
    import pyarrow as pa


class AnswerTorn(Exception):
    """What came is not all that was asked for, or not that at all."""


class _Pieces(io.RawIOBase):
    """A file that is taken away as it is written."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        """See io.IOBase."""
        return True

    def write(self, data: object) -> int:
        """See io.RawIOBase."""
        part = bytes(memoryview(data))  # type: ignore[arg-type]  # whatever pyarrow gives is a buffer
        self._parts.append(part)
        self._size += len(part)
        return len(part)

    def tell(self) -> int:
        """See io.IOBase."""
        return self._size

    def take(self) -> bytes:
        """Give what was written since the last time."""
        taken = b"".join(self._parts)
        self._parts.clear()
        return taken


def arrow_pieces(parts: Iterable[tuple[int, pa.RecordBatch]], schema: pa.Schema, end: int) -> Iterator[bytes]:
    """Give the bytes of an Arrow stream, a piece for each batch.

    Args:
        parts: batches in `schema`, each with the position behind the last one that it covers; see `TopicReader.parts`.
        schema: of all batches.
        end: position up to which `parts` covers.
    """
    pa = library()
    sink = _Pieces()
    rows = 0
    with pa.ipc.new_stream(sink, schema) as writer:
        for position, batch in parts:
            rows += batch.num_rows
            writer.write_batch(batch, custom_metadata={NEXT: b"%d" % position})
            yield sink.take()
        none = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
        writer.write_batch(none, custom_metadata={NEXT: b"%d" % end, ROWS: b"%d" % rows})
    yield sink.take()


def json_pieces(parts: Iterable[tuple[int, pa.RecordBatch]]) -> Iterator[bytes]:
    """Give lines of JSON, a piece for each batch: bytes are base64, and numbers that JSON has no form for are null."""
    for _, batch in parts:
        rows = batch.to_pylist(maps_as_pydicts="strict")
        yield b"".join(msgspec.json.encode(row) + b"\n" for row in rows)


def received(
    source: IO[bytes], start: int, end: int, safeguards: Safeguards = ALL_SAFEGUARDS
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Read an Arrow stream with the rows of positions from `start` up to `end`.

    Gives each batch with the position behind the last one that it covers; the last batch has no rows, and covers up to
    `end`.

    Raises: AnswerTorn; what `source` raises, but for OSError.
    """
    pa = library()
    try:
        yield from _received(source, start, end, safeguards)
    except (pa.ArrowException, OSError, EOFError, KeyError, ValueError) as error:
        raise AnswerTorn(f"it is no whole stream of rows: {error}") from None


def _received(source: IO[bytes], start: int, end: int, safeguards: Safeguards) -> Iterator[tuple[int, pa.RecordBatch]]:
    pa = library()
    reader = pa.ipc.open_stream(source)
    at = reader.schema.get_field_index(ORDINARY[1])
    position, rows = start, 0
    while True:
        try:
            batch, told = reader.read_next_batch_with_custom_metadata()
        except StopIteration:
            if not safeguards.rows_to_their_end:
                return
            raise AnswerTorn(f"it ends behind position {position - 1}, before {end}") from None
        if told is None:
            raise AnswerTorn("a batch does not say what it covers")
        batch.validate(full=True)
        behind = int(told[NEXT])
        if ROWS in told:
            if behind != end or batch.num_rows or int(told[ROWS]) != rows:
                raise AnswerTorn(f"it holds {rows} rows up to {behind}, and not {told[ROWS]!r} up to {end}")
            yield end, batch
            return
        if not position < behind <= end or not batch.num_rows or not _within(batch, at, position, behind):
            raise AnswerTorn(f"a batch does not cover {position} to {behind - 1}")
        position, rows = behind, rows + batch.num_rows
        yield behind, batch


def _within(batch: pa.RecordBatch, at: int, start: int, end: int) -> bool:
    """Do the rows stand at these positions, as far as they say where they stand?"""
    if at < 0:
        return True
    positions = batch.column(at)
    if positions[0].as_py() < start or positions[-1].as_py() >= end:
        return False
    compute = import_module("pyarrow.compute")  # which has no types
    return bool(compute.all(compute.greater(positions[1:], positions[:-1]), min_count=0).as_py())


def schema_text(schema: pa.Schema) -> str:
    """Give the text of the row schema whose columns these are; `arrow.arrow_schema` is its inverse.

    Columns that every row has are left out. Raises: ValueError for a type that no row has.
    """
    return RowSchema(tuple(_column(field) for field in schema if field.name not in ORDINARY)).text


def _column(field: pa.Field) -> Column:
    return Column(field.name, _row_type(field))


def _row_type(field: pa.Field) -> RowType:
    pa = library()
    kind, nullable = field.type, field.nullable
    plain = {
        pa.int64(): "int64", pa.float64(): "float64", pa.bool_(): "bool", pa.utf8(): "utf8", pa.binary(): "binary",
        pa.timestamp("us", tz="UTC"): "timestamp",
    }  # fmt: skip
    if kind in plain:
        return RowType(plain[kind], nullable)
    if pa.types.is_decimal128(kind):
        return RowType("decimal", nullable, scale=kind.scale)
    if pa.types.is_map(kind):
        return RowType("map", nullable, item=_row_type(kind.item_field))
    if pa.types.is_list(kind):
        return RowType("list", nullable, item=_row_type(kind.value_field))
    if pa.types.is_struct(kind):
        return RowType("struct", nullable, columns=tuple(_column(kind.field(n)) for n in range(kind.num_fields)))
    raise ValueError(f"column {field.name!r} is {kind}, which no column of a topic is")
