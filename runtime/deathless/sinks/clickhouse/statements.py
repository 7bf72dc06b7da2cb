"""The statements of a sink to ClickHouse. Pure.

Each statement that inserts is **guarded**: it selects nothing unless the fence has our claim as its highest row. It
begins with a comment that names the sink and the claim, by which it is found among the server's running statements.

Guarantees: names and texts are quoted. Does not: send anything. Imports the journal and the table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

from deathless.sinks.clickhouse.client import ROWS
from deathless.sinks.clickhouse.journal import Entry, Holder
from deathless.sinks.clickhouse.table import Place, quoted, quoted_name, quoted_text
from deathless.sinks.port import Key

SETTINGS: Final = {
    # An insert is done when it is answered, as one part where it can be, and none is dropped for what it holds.
    "async_insert": "0",
    "insert_deduplicate": "0",
    "deduplicate_insert": "disable",
    "deduplicate_insert_select": "disable",
    "max_threads": "1",
    "max_insert_threads": "1",
    "min_insert_block_size_rows": "100000000",
    "min_insert_block_size_bytes": "0",
    # Null is refused where there can be none, instead of being another value.
    "insert_null_as_default": "0",
    "input_format_null_as_default": "0",
    # A count that was cut short would be taken for the truth.
    "max_rows_to_read": "0",
    "max_bytes_to_read": "0",
    "max_result_rows": "0",
    "max_result_bytes": "0",
    "read_overflow_mode": "throw",
    "result_overflow_mode": "throw",
    "timeout_overflow_mode": "throw",
    "limit": "0",
    "offset": "0",
    "final": "0",
    "additional_table_filters": "",
    "use_query_cache": "0",
    "output_format_json_quote_64bit_integers": "0",
}
"""Of every statement, as far as the server knows them: a profile may say otherwise."""
FUNCTIONS: Final = ("currentUser", "serverUUID", "fromUnixTimestamp64Micro")
FSYNC: Final = ("fsync_after_insert", "fsync_part_directory")
"""Settings of MergeTree that let an insert reach the disk before it is acknowledged."""
NO_SERVER: Final = "00000000-0000-0000-0000-000000000000"
_KEY: Final = "sink String, service_id String, shard Int32"
_ENTRY: Final = (
    "number Int64, what String, writer String, epoch Int64, position Int64, `end` Int64, rows Int64, block String,"
    " former String, place String, incarnation Int64, columns String, adoption Int64, retired String, why String"
)
_COLUMNS: Final = ", ".join(each.split()[0] for each in _ENTRY.split(", "))


class Statements:
    """Statements of one sink and shard.

    Args:
        schema: the database of our tables.
        key: whose.
        writer: our claim.
    """

    def __init__(self, schema: str, key: Key, writer: str) -> None:
        self.journal = f"{quoted_name(schema)}.deathless_sinks"
        self.fence = f"{quoted_name(schema)}.deathless_fence"
        self._schema = schema
        self._key = key
        self._writer = writer
        whole = f"{schema}/{key.sink}/{key.service_id}/{key.shard}"
        self.digest = hashlib.blake2b(whole.encode(), digest_size=8).hexdigest()
        self._row = (
            f"sink = {quoted_text(key.sink)} AND service_id = {quoted_text(key.service_id)} AND shard = {key.shard}"
        )
        self._values = f"{quoted_text(key.sink)}, {quoted_text(key.service_id)}, toInt32({key.shard})"
        self._latest = f"FROM {self.fence} WHERE {self._row} ORDER BY epoch DESC, turn DESC, writer DESC LIMIT 1"
        self._guard = f"(SELECT writer {self._latest}) = {quoted_text(writer)}"
        self._mark = f"/* deathless sink {self.digest} {writer} "

    # ---- our tables ------------------------------------------------------------------------------------------

    def exist(self) -> str:
        """Count those of our tables that there are."""
        return (
            f"SELECT count() FROM system.tables WHERE database = {quoted_text(self._schema)} AND name IN"
            " ('deathless_sinks', 'deathless_fence')"
        )

    def create(self, kept: Sequence[str]) -> tuple[str, ...]:
        """Make our tables; `kept`: settings of theirs that let an insert reach the disk before it is acknowledged."""
        more = f", {', '.join(kept)}" if kept else ""
        return (
            f"CREATE DATABASE IF NOT EXISTS {quoted_name(self._schema)}",
            (
                f"CREATE TABLE IF NOT EXISTS {self.fence} ({_KEY}, epoch Int64, turn Int64, writer String,"
                " server String, account String, at DateTime DEFAULT now()) ENGINE = MergeTree"
                f" ORDER BY (sink, service_id, shard, epoch) SETTINGS index_granularity = 8192{more}"
            ),
            (
                f"CREATE TABLE IF NOT EXISTS {self.journal} ({_KEY}, service String, slot Int64, {_ENTRY},"
                " at DateTime DEFAULT now()) ENGINE = ReplacingMergeTree(number)"
                f" ORDER BY (sink, service_id, shard, slot) SETTINGS index_granularity = 8192{more}"
            ),
        )

    # ---- the fence -------------------------------------------------------------------------------------------

    def holder(self) -> str:
        """Give the highest row of the fence."""
        return f"SELECT epoch, turn, writer, server, account {self._latest} FORMAT JSONEachRow"

    def raise_fence(self, holder: Holder) -> str:
        """Append a row to the fence."""
        return (
            f"INSERT INTO {self.fence} (sink, service_id, shard, epoch, turn, writer, server, account) SELECT"
            f" {self._values}, toInt64({holder.epoch}), toInt64({holder.turn}), {quoted_text(holder.writer)},"
            f" {quoted_text(holder.server)}, {quoted_text(holder.account)}"
        )

    def writers(self) -> str:
        """Give everybody who ever held the fence."""
        return f"SELECT DISTINCT writer FROM {self.fence} WHERE {self._row} FORMAT TabSeparated"

    def kill_others(self) -> str:
        """End statements of former claims."""
        return f"KILL QUERY WHERE {self._others()} ASYNC"

    def count_others(self) -> str:
        """Count statements of former claims that the server still runs."""
        return f"SELECT count() FROM system.processes WHERE {self._others()}"

    def _others(self) -> str:
        mark = f"/* deathless sink {self.digest} "
        return f"position(query, {quoted_text(mark)}) = 1 AND position(query, {quoted_text(self._mark)}) != 1"

    # ---- the journal -----------------------------------------------------------------------------------------

    def last(self, count: int = 1) -> str:
        """Give the journal's last entries, the latest first."""
        return (
            f"SELECT {_COLUMNS}, toString(at) AS at FROM {self.journal} WHERE {self._row}"
            f" ORDER BY number DESC LIMIT {count} FORMAT JSONEachRow"
        )

    def state(self) -> str:
        """Give the journal's last entry, and who holds the fence."""
        held = f"(SELECT writer {self._latest}) AS holder, (SELECT epoch {self._latest}) AS holder_epoch"
        return (
            f"SELECT number, position, retired, {held} FROM {self.journal} WHERE {self._row}"
            " ORDER BY number DESC LIMIT 1 FORMAT JSONEachRow"
        )

    def decisions(self) -> str:
        """Give what operators decided, the latest first."""
        return (
            f"SELECT {_COLUMNS}, toString(at) AS at FROM {self.journal} WHERE {self._row} AND slot < 0"
            " ORDER BY number DESC LIMIT 200 FORMAT JSONEachRow"
        )

    def append(self, entry: Entry) -> str:
        """Append an entry, if the fence is ours."""
        values = [
            f"toInt64({value})" if isinstance(value, int) else quoted_text(value)
            for value in (
                entry.number, entry.what, entry.writer, entry.epoch, entry.position, entry.end, entry.rows, entry.block,
                entry.former, entry.place, entry.incarnation, entry.columns, entry.adoption, entry.retired, entry.why,
            )
        ]  # fmt: skip
        return (
            f"{self._mark}{entry.what} {entry.number} */ INSERT INTO {self.journal}"
            f" (sink, service_id, shard, service, slot, {_COLUMNS}) SELECT {self._values},"
            f" {quoted_text(self._key.service)}, toInt64({entry.slot}), {', '.join(values)} FROM system.one"
            f" WHERE {self._guard}"
        )

    def others(self) -> str:
        """Give the last entry of each other service and shard under the sink's name."""
        return (
            "SELECT service_id, shard, argMax(service, number) AS called, argMax(position, number) AS tip,"
            f" argMax(retired, number) AS gone FROM {self.journal} WHERE sink = {quoted_text(self._key.sink)}"
            f" AND service_id != {quoted_text(self._key.service_id)} GROUP BY service_id, shard"
            " ORDER BY called, service_id, shard FORMAT JSONEachRow"
        )

    # ---- rows ------------------------------------------------------------------------------------------------

    def insert(self, table: str, targets: str, selected: str, number: int) -> str:
        """Insert the rows that are sent with it, if the fence is ours."""
        return (
            f"{self._mark}rows {number} */ INSERT INTO {quoted(table)} ({targets}) SELECT {selected} FROM {ROWS}"
            f" WHERE {self._guard}"
        )

    def name(self, what: str, number: int) -> str:
        """Give what the server shows a statement as: each name is used once."""
        return f"deathless-{self.digest}-{self._writer}-{what}-{number}"


def present(place: Place, blocks: Sequence[str]) -> str:
    """Give the positions that a table has under these ids."""
    ids = ", ".join(f"toUUID({quoted_text(each)})" for each in blocks)
    return (
        f"SELECT toInt64({quoted_name(place.position)}) FROM {quoted(place.table)} WHERE {quoted_name(place.block)}"
        f" IN ({ids}) FORMAT TabSeparated"
    )


def table_of(table: str, database: str) -> tuple[str, str]:
    """Give the statements that describe a table, and its columns."""
    schema, _, name = table.rpartition(".")
    owner = quoted_text(schema or database) if schema or database else "currentDatabase()"
    row = f"database = {owner} AND {{}} = {quoted_text(name)}"
    described = "engine, engine_full, dependencies_database, dependencies_table"
    return (
        f"SELECT {described} FROM system.tables WHERE {row.format('name')} FORMAT JSONEachRow",
        f"SELECT name, type, default_kind FROM system.columns WHERE {row.format('table')} FORMAT JSONEachRow",
    )


def known() -> str:
    """Give the statement that tells which of our settings and functions the server has."""
    settings, functions, kept = (", ".join(map(quoted_text, each)) for each in (SETTINGS, FUNCTIONS, FSYNC))
    return (
        f"SELECT name FROM system.settings WHERE name IN ({settings})"
        f" UNION ALL SELECT name FROM system.functions WHERE name IN ({functions})"
        f" UNION ALL SELECT name FROM system.merge_tree_settings WHERE name IN ({kept}) FORMAT TabSeparated"
    )
