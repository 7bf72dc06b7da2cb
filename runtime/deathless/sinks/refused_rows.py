"""Rows that a table of PostgreSQL refuses: how they are kept beside the tip, and the statements about them.

Guarantees: what is unpacked is what was packed, with its columns. Does not: run statements (`postgresql` does). pyarrow
is imported when a row is packed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa

REFUSED_MAX: Final = 10_000  # rows of one sink and shard; with more the sink stops
READ_ROWS: Final = 250  # that are read of them at once
BEFORE_ALL: Final = {"after_incarnation": -(1 << 63), "after": 0}
"""Behind what the first of them are read; see `next`."""


def pack(batch: pa.RecordBatch) -> bytes:
    """Give the bytes of a batch, as a stream of Arrow."""
    import pyarrow as pa  # noqa: PLC0415 - who has no such row needs it not

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def unpack(data: bytes) -> pa.RecordBatch:
    """Give the batch of what `pack` gave."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()


def shown(data: bytes) -> str:
    """Give JSON of a row that was packed, for people."""
    (row,) = unpack(data).to_pylist(maps_as_pydicts="strict")
    return msgspec.json.encode(row, enc_hook=str).decode()


class RefusedStatements:
    """Statements about rows that are kept, for one schema."""

    def __init__(self, schema: str) -> None:
        sql = partial(_filled, schema)
        self.exist = sql("SELECT to_regclass('{refused}') IS NOT NULL AS there")
        self.create = sql(
            "CREATE TABLE IF NOT EXISTS {refused} (sink text, service_id text, shard integer, incarnation bigint,"
            " position bigint, at timestamp with time zone NOT NULL DEFAULT now(), why text NOT NULL,"
            " columns text NOT NULL, row bytea NOT NULL,"
            " PRIMARY KEY (sink, service_id, shard, incarnation, position))"
        )
        self.count = sql("SELECT count(*) AS kept FROM {refused} WHERE {row}")
        self.keep = sql(
            "INSERT INTO {refused} (sink, service_id, shard, incarnation, position, why, columns, row)"
            " VALUES (%(sink)s, %(service_id)s, %(shard)s,"
            " %(incarnation)s, %(position)s, %(why)s, %(columns)s, %(row)s)"
        )
        self.next = sql(
            "SELECT {of} FROM {refused} WHERE {row}"
            " AND (incarnation, position) > (%(after_incarnation)s, %(after)s)"
            " ORDER BY incarnation, position LIMIT {limit}"
        )
        self.again = sql(
            "UPDATE {refused} SET why = %(why)s, at = now()"
            " WHERE {row} AND position = %(position)s AND incarnation = %(incarnation)s"
        )
        self.lock = sql(
            "SELECT {of} FROM {refused} WHERE {row} AND position = %(position)s ORDER BY incarnation LIMIT 1 FOR UPDATE"
        )
        self.drop = sql(
            "DELETE FROM {refused} WHERE {row} AND position = %(position)s AND incarnation = %(incarnation)s"
        )


def _filled(schema: str, text: str) -> bytes:
    return text.format(
        refused=f'"{schema}".deathless_sink_refused',
        limit=READ_ROWS,
        of="position, incarnation, at, why, columns, row",
        row="sink = %(sink)s AND service_id = %(service_id)s AND shard = %(shard)s",
    ).encode()
