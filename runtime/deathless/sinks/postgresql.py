"""A store that is a table of PostgreSQL: rows by COPY, and the tip in the same transaction.

    open    SELECT the tip's epoch                             a higher one: Deposed, nothing is touched
            end sessions of ours that hold the tip's row       a process that is frozen in its transaction
            UPDATE deathless_sinks SET epoch, writer           the fence, in a transaction of its own
            end all other sessions of this sink                a frozen one may hold rows of the table
            SELECT the tip, other services' tips, the table's columns
    write   BEGIN; COPY the rows;
            UPDATE deathless_sinks SET next_position           where epoch, writer and position are as we know them
            COMMIT

Why the compare-and-swap is the transaction's last statement: who began before the fence, and wakes after it, has
copied rows and finds the tip another's, so that all of it is rolled back. The transaction is READ COMMITTED, in which
an UPDATE looks at the row as it is once it has its lock. It is looked at once before the rows as well, to copy nothing
in vain.

Guarantees: rows and tip are one transaction; a commit has reached the disk, also where the role or the database has
`synchronous_commit = off`; constraints are checked within the transaction, also deferred ones. A connection that ends
before COMMIT is answered leaves it open what was stored: the next `open` tells. Nothing is prepared by name.
Does not: help where the server runs with `fsync = off`, or another role's session holds locks of the table (an attempt
then ends after LOCK_TIMEOUT, and is made again).

Imports columns and the port; psycopg, which is an extra, only when a store is made.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from deathless.base.config import SinkConfig
from deathless.base.driver_kinds.quoting import unquoted
from deathless.base.driver_kinds.sql_states import says_no_to_row, says_no_to_statement
from deathless.base.errors import (
    Deposed,
    InvalidConfig,
    SinkEngineUnfit,
    SinkRowNotKept,
    SinkRowRefused,
    SinkTableUnfit,
    SinkTipMismatch,
    SinkUnavailable,
)
from deathless.base.topics.row_schema import parse_row_schema
from deathless.sinks.columns import Chosen, Written, choose, columns_hash, ddl, match, quoted
from deathless.sinks.json_text import json_texts
from deathless.sinks.port import Block, BlockRefused, Claim, Decision, Key, Opened, RefusedRow, Tip
from deathless.sinks.refused_rows import BEFORE_ALL, REFUSED_MAX, RefusedStatements, pack, shown, unpack

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    Row: TypeAlias = dict[str, Any]  # a result's row, by column

CONNECTION: Final = {
    # A server that is gone without a word is noticed, unless the DSN says otherwise.
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
LOCK_TIMEOUT: Final = "15s"
_OTHER_KINDS: Final = {"f": "is a foreign table: its server may have committed rows where the tip was rolled back"}
_KINDS: Final = (
    b"WITH RECURSIVE whole AS (SELECT to_regclass(%(table)s)::oid AS oid UNION ALL"
    b" SELECT inhrelid FROM pg_inherits JOIN whole ON inhparent = whole.oid"
    b" JOIN pg_class AS above ON above.oid = whole.oid AND above.relkind = 'p')"
    b" SELECT pg_class.oid::regclass::text AS name, relkind::text AS kind, relpersistence::text AS persistence"
    b" FROM pg_class JOIN whole USING (oid) ORDER BY name"
)
TEXT_MAX: Final = 500  # characters of a server's message that are told on
_SECRET: Final = ("password", "sslpassword")


def store(config: SinkConfig) -> PostgresqlStore:
    """Make a store; connects nothing.

    Raises: InvalidConfig when an option is wrong, or psycopg is not installed.
    """
    name = f"sink {config.name}"
    try:
        import psycopg  # noqa: PLC0415 - an extra: only who has such a sink needs it
        from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415 - as above
    except ImportError as error:
        raise InvalidConfig(f"{name}: {error}", remedy="pip install deathless[postgresql]") from None
    if bool(config.dsn) == bool(config.dsn_file):
        raise InvalidConfig(f"{name}: options: give dsn or dsnFile, one of them")
    try:
        given = config.dsn or (Path(config.folder) / config.dsn_file).read_text(encoding="utf-8").strip()
        where = conninfo_to_dict(given)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{name}: options.dsnFile: {error}") from None
    except psycopg.Error as error:
        option = "dsn" if config.dsn else "dsnFile"
        raise InvalidConfig(f"{name}: options.{option} is no connection string: {unquoted(_text(error))}") from None
    if config.dsn and any(where.get(secret) for secret in _SECRET):
        raise InvalidConfig(
            f"{name}: options.dsn holds a password", remedy="write it into a file and name that as dsnFile"
        )
    logging.getLogger("psycopg").setLevel(logging.ERROR)  # it warns of what we tell
    return PostgresqlStore(config, where)


class PostgresqlStore:
    """One sink's way into one table.

    Args:
        config: of the sink; its table, and the schema of ours.
        where: parameters of the connection, as libpq names them.
    """

    def __init__(self, config: SinkConfig, where: Mapping[str, Any]) -> None:
        self._config = config
        self._where = where
        self._sql = _Statements(config.schema)
        self._deciding = _OperatorsStatements(config.schema)
        self._refusing = RefusedStatements(config.schema)
        self._schema = ""  # text of that of the rows
        self._connection: AsyncConnection[Row] | None = None  # None: not connected
        self._claim: Claim | None = None  # None: not opened
        self._columns: list[Written] = []

    async def open(self, claim: Claim, schema: str) -> Opened:
        """See Store."""
        self._claim = claim
        async with self._errors():
            connection = await self._connect(claim.key)
            await self._fence(connection, claim)
            self._columns, self._schema = await self._match(connection, schema), schema
            opened = await self._read(connection, claim)
        return msgspec.structs.replace(opened, columns=columns_hash(self._columns))

    async def write(self, block: Block, expected: int) -> None:
        """See Store."""
        claim = self._claim
        if claim is None or self._connection is None:
            raise SinkUnavailable("not connected")
        connection = self._connection
        async with self._errors(), connection.transaction():
            await connection.execute(self._sql.durable)
            await connection.execute(self._sql.immediate)
            self._check(await self._one(connection, self._sql.look, claim.key), expected)
            await self._copy(connection, block)
            await self._move(connection, claim, expected, block.end)

    async def give_up(self, block: Block, expected: int, why: str) -> None:
        """See KeepsRefused."""
        claim = self._claim
        if claim is None or self._connection is None:
            raise SinkUnavailable("not connected")
        connection = self._connection
        (batch,) = block.batches
        async with self._errors(), connection.transaction():
            await connection.execute(self._sql.durable)
            self._check(await self._one(connection, self._sql.look, claim.key), expected)
            kept = await self._one(connection, self._refusing.count, claim.key)
            if kept is not None and kept["kept"] >= REFUSED_MAX:
                told = f"sink {claim.key.sink}: position {block.start} is refused: {why}"
                raise SinkRowRefused(f"{told}; {kept['kept']} such rows are kept, at most {REFUSED_MAX}")
            row = {"position": block.start, "why": why[:TEXT_MAX], "columns": self._schema, "row": pack(batch)}
            await connection.execute(self._refusing.keep, {**_row(claim.key), "incarnation": claim.incarnation, **row})
            await self._move(connection, claim, expected, block.end)

    async def _move(self, connection: AsyncConnection[Row], claim: Claim, expected: int, end: int) -> None:
        """Move the tip as the last statement of a transaction. Raises: Deposed, SinkTipMismatch, SinkUnavailable."""
        moved = {
            **_row(claim.key), "epoch": claim.epoch, "writer": claim.writer, "expected": expected,
            "next_position": end, "columns": columns_hash(self._columns), "incarnation": claim.incarnation,
        }  # fmt: skip
        done = await connection.execute(self._sql.move, moved)
        if done.rowcount != 1:
            self._check(await self._one(connection, self._sql.look, claim.key), expected)
            raise SinkUnavailable("the tip was moved meanwhile")

    async def refused(self, key: Key) -> Sequence[RefusedRow]:
        """See KeepsRefused."""
        async with self._asking(key) as connection:
            found: list[RefusedRow] = []
            if not await self._keeps(connection):
                return found
            after = BEFORE_ALL
            while rows := await (await connection.execute(self._refusing.next, {**_row(key), **after})).fetchall():
                found += [
                    RefusedRow(row["position"], row["incarnation"], str(row["at"]), row["why"], shown(row["row"]))
                    for row in rows
                ]
                after = {"after_incarnation": found[-1].incarnation, "after": found[-1].position}
        return found

    async def retry(self, key: Key, position: int, why: str) -> None:
        """See KeepsRefused."""
        row: Row = {}
        async with self._asking(key) as connection:
            try:
                async with connection.transaction():
                    row = await self._kept(connection, key, position)
                    await connection.execute(self._sql.durable)
                    await connection.execute(self._sql.immediate)
                    self._columns = await self._match(connection, row["columns"])
                    await self._copy(connection, Block(position, position + 1, [unpack(row["row"])]))
                    await self._see_to(connection, key, row, Decision("", "retry", position, position, why))
            except BlockRefused as error:
                which = {"position": position, "incarnation": row["incarnation"]}
                await connection.execute(self._refusing.again, {**_row(key), **which, "why": str(error)[:TEXT_MAX]})
                raise SinkRowRefused(f"sink {key.sink}: position {position} is refused again: {error}") from error

    async def discard(self, key: Key, position: int, why: str) -> None:
        """See KeepsRefused."""
        async with self._asking(key) as connection, connection.transaction():
            row = await self._kept(connection, key, position)
            await self._see_to(connection, key, row, Decision("", "discard", position, position, why))

    async def _kept(self, connection: AsyncConnection[Row], key: Key, position: int) -> Row:
        """Give a row that is kept, which nobody else sees to meanwhile. Raises: SinkRowNotKept."""
        found: Row | None = None
        if await self._keeps(connection):
            asked = {**_row(key), "position": position}
            found = await (await connection.execute(self._refusing.lock, asked)).fetchone()
        if found is None:
            raise SinkRowNotKept(f"sink {key.sink}: no refused row of position {position} is kept")
        return found

    async def _see_to(self, connection: AsyncConnection[Row], key: Key, row: Row, made: Decision) -> None:
        await connection.execute(
            self._refusing.drop, {**_row(key), "position": row["position"], "incarnation": row["incarnation"]}
        )
        text = f"position {row['position']} {made.text}".rstrip()
        await self._decide(connection, key, msgspec.structs.replace(made, text=text))

    async def _keeps(self, connection: AsyncConnection[Row]) -> bool:
        found = await (await connection.execute(self._refusing.exist)).fetchone()
        return found is not None and bool(found["there"])

    async def tip(self, key: Key) -> Tip | None:
        """See Store."""
        async with self._asking(key) as connection:
            if not await self._exist(connection):
                return None
            found = await self._one(connection, self._sql.look, key)
        return None if found is None else _tip(found)

    async def decisions(self, key: Key) -> Sequence[Decision]:
        """See Store."""
        async with self._asking(key) as connection:
            if not await self._exist(connection):
                return []
            rows = await (await connection.execute(self._deciding.decisions, _row(key))).fetchall()
        return [
            Decision(str(row["at"]), row["what"], row["first_position"], row["next_position"], row["why"])
            for row in rows
        ]

    async def skip(self, key: Key, expected: int, end: int, why: str) -> None:
        """See Store."""
        async with self._asking(key) as connection, connection.transaction():
            found = await self._one(connection, self._sql.lock, key) if await self._exist(connection) else None
            stands = found["next_position"] if found is not None else None
            if stands != expected:
                shown = "nothing is stored yet" if not stands else f"it stands at position {stands}"
                raise SinkTipMismatch(
                    f"sink {key.sink} does not wait at position {expected}: {shown}",
                    remedy=f"see `deathless sinks show {key.sink}`",
                )
            await connection.execute(self._deciding.set_position, {**_row(key), "next_position": end})
            await self._decide(connection, key, Decision("", "skip", expected, end, why))

    async def adopt(self, key: Key, incarnation: int, why: str) -> Tip:
        """See Store."""
        async with self._asking(key) as connection, connection.transaction():
            found = await self._one(connection, self._sql.lock, key) if await self._exist(connection) else None
            if found is None:
                raise SinkTipMismatch(
                    f"the store knows nothing of sink {key.sink}", remedy="it begins by itself once rows are published"
                )
            before = _tip(found)
            same = before.incarnation == incarnation
            tip = Tip(before.next_position if same else 0, incarnation, "", before.adoption + 1)
            await connection.execute(
                self._deciding.adopt, {**_row(key), "incarnation": incarnation, "next_position": tip.next_position}
            )
            await connection.execute(self._deciding.retire, {**_row(key), "by": f"{key.service} {key.service_id}"})
            await self._decide(connection, key, Decision("", "adopt", tip.next_position, tip.next_position, why))
        return tip

    async def close(self) -> None:
        """See Store."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):  # it is given up; the server ends what it held
                await connection.close()

    # ---- the connection --------------------------------------------------------------------------------------

    async def _connect(self, key: Key) -> AsyncConnection[Row]:
        from psycopg import AsyncConnection, IsolationLevel  # noqa: PLC0415 - it is there: the factory has looked
        from psycopg.conninfo import make_conninfo  # noqa: PLC0415 - as above
        from psycopg.rows import dict_row  # noqa: PLC0415 - as above

        await self.close()
        where = {**CONNECTION, **self._where, "application_name": session_name(key), "client_encoding": "UTF8"}
        connection = self._connection = await AsyncConnection[dict[str, Any]].connect(
            make_conninfo("", **where), autocommit=True, row_factory=dict_row, prepare_threshold=None
        )
        await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
        return connection

    @contextlib.asynccontextmanager
    async def _asking(self, key: Key) -> AsyncIterator[AsyncConnection[Row]]:
        """Give a connection of an operator's, under another name than the sink's own."""
        async with self._errors():
            yield await self._connect(msgspec.structs.replace(key, sink=f"{key.sink} operator"))
        await self.close()

    @contextlib.asynccontextmanager
    async def _errors(self) -> AsyncIterator[None]:
        """Tell a server's errors as the port names them; the connection is given up after all but a refused row."""
        import psycopg  # noqa: PLC0415 - as above

        try:
            yield
        except BlockRefused:  # rolled back, and the connection is as good as before
            raise
        except psycopg.Error as error:
            await self.close()
            if says_no_to_statement(error.sqlstate or ""):
                raise SinkTableUnfit(f"table {self._config.table}: {_text(error)}") from error
            raise SinkUnavailable(_text(error)) from error
        except BaseException:  # Deposed; or cancelled
            await self.close()
            raise

    # ---- the fence and the tip -------------------------------------------------------------------------------

    async def _fence(self, connection: AsyncConnection[Row], claim: Claim) -> None:
        """Make the tip ours, durably, before anything is read of it. Raises: Deposed."""
        from psycopg.errors import LockNotAvailable  # noqa: PLC0415 - as above

        await self._create(connection)
        found = await self._one(connection, self._sql.look, claim.key)
        if found is not None:
            _refuse_older(found["epoch"], claim)
            try:
                async with connection.transaction():
                    await self._one(connection, self._sql.try_lock, claim.key)
            except LockNotAvailable:
                await connection.execute(self._sql.end_others)
        given = {**_row(claim.key), "epoch": claim.epoch, "writer": claim.writer, "incarnation": claim.incarnation}
        async with connection.transaction():
            await connection.execute(self._sql.durable)
            await connection.execute(self._sql.introduce, given)
            done = await connection.execute(self._sql.fence, given)
            if done.rowcount != 1:
                found = await self._one(connection, self._sql.look, claim.key)
                _refuse_older(found["epoch"] if found is not None else 0, claim)
                raise SinkUnavailable("the sink's tip went away")
        await connection.execute(self._sql.end_others)

    def _check(self, found: Row | None, expected: int) -> None:
        """Refuse to write unless the tip is ours, where we know it. Raises: Deposed, SinkTipMismatch."""
        claim = self._claim
        assert claim is not None
        sink = f"sink {claim.key.sink}"
        if found is None:
            raise SinkTipMismatch(f"{sink}: its tip is gone from the store")
        if found["retired"]:
            raise Deposed(f"{sink}: its name was taken over by {found['retired']}")
        if (found["epoch"], found["writer"]) != (claim.epoch, claim.writer):
            raise Deposed(f"{sink}: a process of epoch {found['epoch']} writes here; this is epoch {claim.epoch}")
        if found["next_position"] != expected:
            raise SinkTipMismatch(f"{sink}: the store stands at {found['next_position']}, and not at {expected}")

    async def _read(self, connection: AsyncConnection[Row], claim: Claim) -> Opened:
        found = await self._one(connection, self._sql.look, claim.key)
        if found is None:
            raise SinkUnavailable("the sink's tip went away")
        others = await (await connection.execute(self._sql.others, _row(claim.key))).fetchall()
        foreign = tuple(f"service {each['service']} (id {each['service_id'][:8]})" for each in others)
        return Opened(_tip(found), "", foreign, found["retired"])

    async def _create(self, connection: AsyncConnection[Row]) -> None:
        """Make our tables where they are missing; where they are there, a role needs no right to make any."""
        if not await self._exist(connection):
            async with connection.transaction():
                for statement in self._sql.create:
                    await connection.execute(statement)
        if self._config.on_refusal == "deadLetter" and not await self._keeps(connection):
            async with connection.transaction():
                await connection.execute(self._sql.alone)
                await connection.execute(self._refusing.create)

    async def _exist(self, connection: AsyncConnection[Row]) -> bool:
        found = await (await connection.execute(self._sql.exist)).fetchone()
        return found is not None and bool(found["there"])

    async def _one(self, connection: AsyncConnection[Row], query: bytes, key: Key) -> Row | None:
        return await (await connection.execute(query, _row(key))).fetchone()

    async def _decide(self, connection: AsyncConnection[Row], key: Key, made: Decision) -> None:
        what = {"what": made.what, "first": made.first, "next_position": made.next, "why": made.text}
        await connection.execute(self._deciding.decide, {**_row(key), **what})

    # ---- the table -------------------------------------------------------------------------------------------

    async def _match(self, connection: AsyncConnection[Row], schema: str) -> list[Written]:
        """Find the table's columns, and make it if it is missing and the manifest says so. Raises: SinkTableUnfit."""
        table = self._config.table
        chosen = choose(parse_row_schema(schema), self._config.columns)
        types = await self._types(connection)
        if types is None:
            if not self._config.create:
                raise SinkTableUnfit(
                    f"there is no table {table}", remedy=f"create it, or say `create: true`: {ddl(table, chosen)}"
                )
            await self._make(connection, chosen)
            types = await self._types(connection) or {}
        await self._check_kept(connection)
        return match(chosen, types, table)

    async def _check_kept(self, connection: AsyncConnection[Row]) -> None:
        """Look whether the table, with its partitions, keeps rows as the tip is kept. Raises: SinkEngineUnfit."""
        name = {"table": quoted(self._config.table)}
        for row in await (await connection.execute(_KINDS, name)).fetchall():
            why = _OTHER_KINDS.get(row["kind"], "")
            if row["persistence"] == "u":
                why = f"is UNLOGGED: a server that crashes empties it; `ALTER TABLE {row['name']} SET LOGGED`"
            if why:
                raise SinkEngineUnfit(
                    f"table {self._config.table}: {row['name']} {why}", remedy="write to another table"
                )

    async def _make(self, connection: AsyncConnection[Row], chosen: Sequence[Chosen]) -> None:
        """Make the table; the sinks of several shards may do so at a time."""
        async with connection.transaction():
            await connection.execute(self._sql.alone)
            if await self._types(connection) is None:
                await connection.execute(ddl(self._config.table, chosen).encode())

    async def _types(self, connection: AsyncConnection[Row]) -> dict[str, str] | None:
        """Give the types of the table's columns; None: there is no table."""
        name = {"table": quoted(self._config.table)}
        found = await (await connection.execute(self._sql.table, name)).fetchone()
        if found is None or found["oid"] is None:
            return None
        rows = await (await connection.execute(self._sql.columns, {"oid": found["oid"]})).fetchall()
        return {row["name"]: row["type"] for row in rows}

    async def _copy(self, connection: AsyncConnection[Row], block: Block) -> None:
        """Copy the rows. Raises: BlockRefused when one of them is refused for good."""
        import psycopg  # noqa: PLC0415 - as above

        names = ", ".join(quoted_column(each.target) for each in self._columns)
        statement = f"COPY {quoted(self._config.table)} ({names}) FROM STDIN"
        try:
            async with connection.cursor() as cursor:
                async with cursor.copy(statement.encode()) as copy:
                    for batch in block.batches:
                        values = [_values(batch.column(each.source), each) for each in self._columns]
                        for row in zip(*values, strict=True):
                            await copy.write_row(row)
                stored = cursor.rowcount
        except psycopg.Error as error:
            if connection.closed or not refuses_row(error):
                raise
            raise BlockRefused(_text(error)) from error
        rows = sum(batch.num_rows for batch in block.batches)
        if 0 <= stored != rows:  # what a trigger passes over has no error
            raise BlockRefused(f"the table took {stored} of {rows} rows: a trigger of it passes rows over")


def refuses_row(error: Exception) -> bool:
    """Is this no for good to a row, because of what it holds?"""
    import psycopg  # noqa: PLC0415 - as above

    if not isinstance(error, psycopg.Error):
        return False
    if error.sqlstate is None:  # psycopg's own: a value that can't be sent
        return isinstance(error, psycopg.DataError | psycopg.NotSupportedError)
    return says_no_to_row(error.sqlstate)


def session_name(key: Key) -> str:
    """Give the name of a sink's sessions: the same for every process of one sink and shard, and for no other."""
    whole = f"{key.sink}/{key.service_id}/{key.shard}"
    digest = hashlib.blake2b(whole.encode(), digest_size=8).hexdigest()
    return f"deathless sink {digest} {key.service}/{key.sink}".encode()[:63].decode(errors="ignore")


def quoted_column(name: str) -> str:
    """Give a column's name as a statement writes it."""
    return '"' + name.replace('"', '""') + '"'


def _values(column: Any, written: Written) -> Sequence[object]:
    values: list[object] = column.to_pylist(maps_as_pydicts="strict")
    return json_texts(values, written.target) if written.as_json else values


def _row(key: Key) -> dict[str, object]:
    """What a tip is found by, and of whom it is."""
    return {"sink": key.sink, "service": key.service, "shard": key.shard, "service_id": key.service_id}


def _tip(found: Mapping[str, Any]) -> Tip:
    return Tip(found["next_position"], found["incarnation"], found["columns"], found["adoption"])


def _refuse_older(epoch: int, claim: Claim) -> None:
    if epoch > claim.epoch:
        raise Deposed(f"sink {claim.key.sink}: epoch {epoch} writes here; this is epoch {claim.epoch}")


def _text(error: BaseException) -> str:
    """Give what an error says, with its SQLSTATE, in one line."""
    state = getattr(error, "sqlstate", None)
    text = " ".join(str(error).split())[:TEXT_MAX] or type(error).__name__
    return f"{text} (SQLSTATE {state})" if state else text


class _Statements:
    """Our own statements, for one schema."""

    def __init__(self, schema: str) -> None:
        sql = partial(_filled, schema)
        # What is acknowledged must be on the disk: a transaction's own setting is above the role's and the database's.
        self.durable = sql(
            "SELECT set_config('lock_timeout', '" + LOCK_TIMEOUT + "', true),"
            " CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true)"
            " END"
        )
        self.immediate = sql("SET CONSTRAINTS ALL IMMEDIATE")
        self.exist = sql(
            "SELECT to_regclass('{sinks}') IS NOT NULL AND to_regclass('{decisions}') IS NOT NULL AS there"
        )
        self.alone = sql("SELECT pg_advisory_xact_lock(hashtext('deathless: tables of sinks'))")
        self.create = (
            self.alone,
            sql('CREATE SCHEMA IF NOT EXISTS "{schema}"'),
            sql(
                "CREATE TABLE IF NOT EXISTS {sinks} (sink text, service_id text, shard integer, service text NOT NULL,"
                " incarnation bigint NOT NULL, epoch bigint NOT NULL, writer text NOT NULL,"
                " next_position bigint NOT NULL, columns text NOT NULL, adoption bigint NOT NULL,"
                " retired text NOT NULL, PRIMARY KEY (sink, service_id, shard))"
            ),
            sql(
                "CREATE TABLE IF NOT EXISTS {decisions} (id bigserial PRIMARY KEY, sink text NOT NULL,"
                " service_id text NOT NULL, shard integer NOT NULL, at timestamp with time zone NOT NULL DEFAULT now(),"
                " what text NOT NULL, first_position bigint NOT NULL, next_position bigint NOT NULL, why text NOT NULL)"
            ),
        )
        known = "SELECT epoch, writer, incarnation, next_position, columns, adoption, retired FROM {sinks} WHERE {row}"
        self.look = sql(known)
        self.lock = sql(known + " FOR UPDATE")
        self.try_lock = sql(known + " FOR UPDATE NOWAIT")
        self.end_others = sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            " AND application_name = current_setting('application_name')"
            " AND usename = current_user AND datname = current_database()"
        )
        self.introduce = sql(
            "INSERT INTO {sinks} (sink, service_id, shard, service, incarnation, epoch, writer, next_position, columns,"
            " adoption, retired) VALUES (%(sink)s, %(service_id)s, %(shard)s, %(service)s, %(incarnation)s, %(epoch)s,"
            " '', 0, '', 0, '') ON CONFLICT DO NOTHING"
        )
        self.fence = sql(
            "UPDATE {sinks} SET epoch = %(epoch)s, writer = %(writer)s, service = %(service)s"
            " WHERE {row} AND epoch <= %(epoch)s"
        )
        self.move = sql(
            "UPDATE {sinks} SET next_position = %(next_position)s, columns = %(columns)s,"
            " incarnation = %(incarnation)s WHERE {row} AND epoch = %(epoch)s AND writer = %(writer)s"
            " AND next_position = %(expected)s AND retired = ''"
        )
        self.others = sql(
            "SELECT service, service_id FROM {sinks} WHERE sink = %(sink)s AND service_id <> %(service_id)s"
            " AND (service <> %(service)s OR shard = %(shard)s) AND retired = '' AND next_position > 0"
            " ORDER BY service, service_id"
        )
        self.table = sql("SELECT to_regclass(%(table)s)::oid AS oid")
        self.columns = sql(
            "SELECT attname AS name, format_type(atttypid, atttypmod) AS type FROM pg_attribute"
            " WHERE attrelid = %(oid)s AND attnum > 0 AND NOT attisdropped"
        )


class _OperatorsStatements:
    """Statements of those who decide, for one schema."""

    def __init__(self, schema: str) -> None:
        sql = partial(_filled, schema)
        self.set_position = sql("UPDATE {sinks} SET next_position = %(next_position)s, writer = '' WHERE {row}")
        self.adopt = sql(
            "UPDATE {sinks} SET next_position = %(next_position)s, incarnation = %(incarnation)s, columns = '',"
            " writer = '', adoption = adoption + 1, retired = '' WHERE {row}"
        )
        self.retire = sql(
            "UPDATE {sinks} SET retired = %(by)s WHERE sink = %(sink)s AND service_id <> %(service_id)s"
            " AND (service <> %(service)s OR shard = %(shard)s) AND retired = ''"
        )
        self.decide = sql(
            "INSERT INTO {decisions} (sink, service_id, shard, what, first_position, next_position, why) VALUES"
            " (%(sink)s, %(service_id)s, %(shard)s, %(what)s, %(first)s, %(next_position)s, %(why)s)"
        )
        self.decisions = sql(
            "SELECT at, what, first_position, next_position, why FROM {decisions} WHERE {row}"
            " ORDER BY id DESC LIMIT 200"
        )


def _filled(schema: str, text: str) -> bytes:
    """Give a statement with the names of our tables."""
    return text.format(
        sinks=f'"{schema}".deathless_sinks',
        decisions=f'"{schema}".deathless_sink_decisions',
        schema=schema,
        row="sink = %(sink)s AND service_id = %(service_id)s AND shard = %(shard)s",
    ).encode()
