"""A sink that writes to PostgreSQL: the effect and the position in one transaction, so exactly once, whatever dies.

    BEGIN
    SELECT epoch, next_position FROM deathless.positions ... FOR UPDATE     a higher epoch: Deposed
    each delivery's statement, in order                                     below next_position: passed by
    INSERT INTO deathless.answers ...; UPDATE deathless.positions ...
    COMMIT

Guarantees: a batch is one transaction. A statement that PostgreSQL refuses for good, by its SQLSTATE, rolls all of it
back and is told by its position (DeliveryRefused); what else goes wrong is SinkUnavailable, and the next `open` reads
what became of it. Constraints are checked with each statement, also deferred ones, so that a violation is the fault of
one message and not of a COMMIT. A commit has reached the disk, also where the role or the database has
`synchronous_commit = off`. A driver that is frozen within its transaction holds our row locked: a newer one ends that
session. Nothing is prepared by name, so a pooler may stand between.

Does not: keep the order between two drivers; help where the server itself runs with `fsync = off`, or was restored
from an older backup (it then asks for positions that the service has forgotten, which operators see).

Imports the port; psycopg, which is an extra, only when a sink is made.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import re
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import msgspec

from deathless.base.driver_kinds.quoting import unquoted
from deathless.base.driver_kinds.sql_states import says_no_to_row, says_no_to_statement
from deathless.base.errors import InvalidConfig
from deathless.codec.wire import ok_reply
from deathless.drivers.port import (
    Answer,
    Delivery,
    DeliveryRefused,
    Deposed,
    Opened,
    Reference,
    Settings,
    SinkUnavailable,
    Source,
)

if TYPE_CHECKING:
    from psycopg import AsyncConnection, AsyncCursor

    Row: TypeAlias = dict[str, Any]  # a result's row, by column

CONNECTION: Final = {
    # A server that is gone without a word is noticed, unless the DSN says otherwise.
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
TEXT_MAX: Final = 500  # characters of a server's message that are told on
_CONTROL: Final = frozenset(
    {"ABORT", "BEGIN", "COMMIT", "COPY", "END", "PREPARE", "RELEASE", "ROLLBACK", "SAVEPOINT", "SET", "START"}
)
_PARAMETER: Final = re.compile(r"%%|%\(\w+\)[sbt]")
_COMMENT: Final = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_SECRET: Final = ("password", "sslpassword")
_encode: Final = msgspec.msgpack.Encoder(enc_hook=str).encode


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """What the manifest says below `options`."""

    statements: Annotated[dict[str, str], msgspec.Meta(min_length=1)]  # by method: SQL with %(name)s of key, arguments
    dsn: str = ""  # where the database is, without a password
    dsn_file: str = ""  # a file with it, which may hold a password
    schema: Annotated[str, msgspec.Meta(pattern="^[a-z_][a-z0-9_]{0,62}$")] = "deathless"  # of our two tables


def sink(settings: Settings) -> PostgresqlSink:
    """Make a sink; connects nothing.

    Raises: InvalidConfig when an option is wrong, or psycopg is not installed.
    """
    options = settings.typed(Options)
    try:
        import psycopg  # noqa: PLC0415 - an extra: only who has such a driver needs it
        from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415 - as above
    except ImportError as error:
        raise _invalid(settings, f"{error}; `pip install deathless[postgresql]`") from None
    for method, statement in options.statements.items():
        if problem := statement_problem(statement):
            raise _invalid(settings, f"options.statements.{method}: {problem}")
    if bool(options.dsn) == bool(options.dsn_file):
        raise _invalid(settings, "options: give dsn or dsnFile, one of them")
    try:
        where = conninfo_to_dict(options.dsn or settings.secret(options.dsn_file))
    except psycopg.Error as error:
        option = "dsn" if options.dsn else "dsnFile"
        raise _invalid(settings, f"options.{option} is no connection string: {unquoted(_text(error))}") from None
    if options.dsn and any(where.get(name) for name in _SECRET):
        raise _invalid(settings, "options.dsn holds a password: write it into a file and name that as dsnFile")
    logging.getLogger("psycopg").setLevel(logging.ERROR)  # it warns of each refusal that comes in a pipeline
    return PostgresqlSink(settings.driver, options, where)


def statement_problem(statement: str) -> str:
    """Say what is wrong with a statement, as far as that shows without a server; empty: nothing."""
    words = _COMMENT.sub(" ", statement).split(None, 1)
    if not words:
        return "is empty"
    if (word := words[0].rstrip(";").upper()) in _CONTROL:
        return f"{word} is not for a statement: each message is part of a transaction of ours"
    if "%" in _PARAMETER.sub("", statement):
        return "parameters are written %(name)s, a percent sign %%"
    return ""


class _Refused(Exception):
    """One of several statements was refused for good; which one, they tell when they run one by one."""


class PostgresqlSink:
    """One driver's way into one database.

    Args:
        driver: its name, a part of the position's key: two drivers of a service may share a database.
        options: checked.
        where: parameters of the connection, as libpq names them.
    """

    def __init__(self, driver: str, options: Options, where: dict[str, Any]) -> None:
        self._driver = driver
        self._statements = {method: statement.encode() for method, statement in options.statements.items()}
        self._where = where
        self._sql = _Queries(options.schema)
        self._source: Source | None = None  # None: not opened yet
        self._connection: AsyncConnection[Row] | None = None  # None: not connected
        self._turn = asyncio.Lock()  # a connection has one transaction at a time

    async def open(self, source: Source, first: int) -> Opened:
        """Connect, claim our row for this epoch, and read where to go on."""
        async with self._turn:
            self._source = source
            await self._disconnect()
            async with self._errors():
                self._connection = await self._connect(source)
                await self._create(self._connection)
                return await self._claim(self._connection, source, first)

    async def deliver(self, deliveries: Sequence[Delivery]) -> Sequence[Answer]:
        """Run the statements and keep the position, in one transaction."""
        if not deliveries:
            return []
        try:
            return await self._deliver(deliveries, len(deliveries))
        except _Refused:
            return await self._deliver(deliveries, 1)

    async def _deliver(self, deliveries: Sequence[Delivery], at_once: int) -> list[Answer]:
        async with self._transaction() as (connection, next_position):
            old = [each.position for each in deliveries if each.position < next_position]
            new = deliveries[len(old) :]
            known = await self._answers(connection, old[0], old[-1]) if old else []
            answers: list[Answer] = []
            for start in range(0, len(new), at_once):
                answers += await self._run(connection, new[start : start + at_once])
            if new:
                await self._keep(connection, answers, new[-1].position)
        return known + answers

    async def pass_over(self, position: int, answer: Answer | None) -> None:
        """Keep the position behind one without an effect, and its answer."""
        async with self._transaction() as (connection, next_position):
            if position >= next_position:
                await self._keep(connection, [answer] if answer else [], position)

    async def confirmed(self, through: int) -> None:
        """Forget answers; that need not reach the disk at once, for a second confirmation changes nothing."""
        async with self._transaction() as (connection, _):
            await connection.execute(b"SET LOCAL synchronous_commit = off")
            await connection.execute(self._sql.forget, {**self._row(), "through": through})

    async def close(self) -> None:
        """Disconnect."""
        await self._disconnect()

    # ---- the connection --------------------------------------------------------------------------------------

    async def _connect(self, source: Source) -> AsyncConnection[Row]:
        from psycopg import AsyncConnection  # noqa: PLC0415 - it is there: the factory has looked
        from psycopg.conninfo import make_conninfo  # noqa: PLC0415 - as above
        from psycopg.rows import dict_row  # noqa: PLC0415 - as above

        where = {**CONNECTION, **self._where}
        where |= {"application_name": self._session_name(source), "client_encoding": "UTF8"}
        return await AsyncConnection[dict[str, Any]].connect(
            make_conninfo("", **where), autocommit=True, row_factory=dict_row, prepare_threshold=None
        )

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):  # it is given up; the server ends what it held
                await connection.close()

    def _session_name(self, source: Source) -> str:
        """The same for every process of this driver and source, and for no other. PostgreSQL keeps 63 bytes of it."""
        whole = f"{self._driver}/{source.service}/{source.shard}/{source.service_id.hex()}/{source.incarnation}"
        digest = hashlib.blake2b(whole.encode(), digest_size=8).hexdigest()
        return f"deathless {digest} {source.service}/{self._driver}".encode()[:63].decode(errors="ignore")

    @contextlib.asynccontextmanager
    async def _errors(self) -> AsyncIterator[None]:
        """Give what is no refusal as SinkUnavailable, without the connection: what the server has seen is unknown."""
        import psycopg  # noqa: PLC0415 - as above

        try:
            yield
        except (DeliveryRefused, _Refused):  # rolled back, and the connection is as good as before
            raise
        except psycopg.Error as error:
            await self._disconnect()
            raise SinkUnavailable(_text(error)) from error
        except BaseException:  # Deposed; or cancelled
            await self._disconnect()
            raise

    # ---- transactions ----------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _transaction(self) -> AsyncIterator[tuple[AsyncConnection[Row], int]]:
        """Hold our row in a transaction of this epoch; gives it and the next position.

        Raises: Deposed, SinkUnavailable.
        """
        async with self._turn, self._errors():
            connection = self._connection
            if connection is None:
                raise SinkUnavailable("not connected")
            async with connection.transaction():
                await connection.execute(b"SET CONSTRAINTS ALL IMMEDIATE")
                yield connection, await self._lock(connection)

    async def _lock(self, connection: AsyncConnection[Row]) -> int:
        """Lock our row; gives the next position. Raises: Deposed, SinkUnavailable."""
        found = await self._one(connection, self._sql.lock)
        if found is None:
            raise SinkUnavailable("our row is missing from the table of positions")
        self._refuse_older(found["epoch"])
        return int(found["next_position"])

    def _refuse_older(self, epoch: int) -> None:
        assert self._source is not None
        if epoch > self._source.epoch:
            raise Deposed(f"epoch {epoch} of {self._source.service} writes here; this is epoch {self._source.epoch}")

    async def _create(self, connection: AsyncConnection[Row]) -> None:
        """Make schema and tables where they are missing; where they are there, a role needs no right to make any."""
        found = await self._one(connection, self._sql.exist)
        if found is not None and found["there"]:
            return
        async with connection.transaction():
            for statement in self._sql.create:
                await connection.execute(statement)

    async def _claim(self, connection: AsyncConnection[Row], source: Source, first: int) -> Opened:
        """Raise the row to our epoch, so that an older driver is refused from now on; read where to go on."""
        found = await self._one(connection, self._sql.look)
        if found is not None:
            self._refuse_older(found["epoch"])
            await self._clear_the_way(connection)
        async with connection.transaction():
            await connection.execute(self._sql.patience)
            await connection.execute(self._sql.introduce, {**self._row(), "epoch": source.epoch, "first": first})
            next_position = await self._lock(connection)
            await connection.execute(self._sql.claim, {**self._row(), "epoch": source.epoch})
            answers = await self._answers(connection, 0, next_position)
        return Opened(next_position, answers)

    async def _clear_the_way(self, connection: AsyncConnection[Row]) -> None:
        """End the other sessions of this driver if one of them holds our row: its process may be frozen for ever."""
        from psycopg.errors import LockNotAvailable  # noqa: PLC0415 - as above

        try:
            async with connection.transaction():
                await self._one(connection, self._sql.try_lock)
        except LockNotAvailable:
            await connection.execute(self._sql.end_others)

    # ---- our tables ------------------------------------------------------------------------------------------

    def _row(self) -> dict[str, Any]:
        """What every row of this driver and source begins with."""
        source = self._source
        assert source is not None
        return {
            "driver": self._driver,
            "service": source.service,
            "shard": source.shard,
            "service_id": source.service_id,
            "incarnation": source.incarnation,
        }

    async def _one(self, connection: AsyncConnection[Row], query: bytes) -> Row | None:
        return await (await connection.execute(query, self._row())).fetchone()

    async def _answers(self, connection: AsyncConnection[Row], first: int, last: int) -> list[Answer]:
        """Read what is kept of these positions."""
        found = await connection.execute(self._sql.answers, {**self._row(), "first": first, "last": last})
        return [
            Answer(row["position"], Reference(row["invocation"], row["operation"]), row["reply"])
            for row in await found.fetchall()
        ]

    async def _keep(self, connection: AsyncConnection[Row], answers: Sequence[Answer], position: int) -> None:
        """Keep answers, and that all up to this position is done."""
        if answers:
            columns = {
                "positions": [each.position for each in answers],
                "invocations": [each.reference.invocation for each in answers],
                "operations": [each.reference.operation for each in answers],
                "replies": [each.reply for each in answers],
            }
            await connection.execute(self._sql.answer, {**self._row(), **columns})
        await connection.execute(self._sql.move, {**self._row(), "next_position": position + 1})

    # ---- the statements --------------------------------------------------------------------------------------

    async def _run(self, connection: AsyncConnection[Row], deliveries: Sequence[Delivery]) -> list[Answer]:
        """Run the statements in one go, so that many cost few round trips.

        A pipeline speaks the extended protocol alone, in which one statement is one command: none can end our
        transaction by carrying a second one.

        Raises: DeliveryRefused when the only one is refused for good, _Refused when one of several is.
        """
        try:
            async with connection.pipeline():
                cursors = [
                    await connection.execute(self._statement(each), parameters(each.key, each.arguments))
                    for each in deliveries
                ]
            return [
                Answer(each.position, each.reference, ok_reply(_encode(await _first_row(cursor))))
                for each, cursor in zip(deliveries, cursors, strict=True)
                if each.reference is not None
            ]
        except Exception as error:
            if connection.closed or not refuses(error):
                raise
            if len(deliveries) > 1:
                raise _Refused from error
            raise DeliveryRefused(_text(error), position=deliveries[0].position) from error

    def _statement(self, delivery: Delivery) -> bytes:
        try:
            return self._statements[delivery.method]
        except KeyError:
            raise LookupError(f"driver {self._driver} has no statement for {delivery.method}") from None


def parameters(key: str, arguments: dict[str, object]) -> dict[str, object]:
    """Give what a statement's %(name)s stand for: the arguments, objects and lists as jsonb, and the key."""
    from psycopg.types.json import Jsonb  # noqa: PLC0415 - as above

    found = {name: Jsonb(value) if isinstance(value, dict | list) else value for name, value in arguments.items()}
    return {**found, "key": key}


async def _first_row(cursor: AsyncCursor[Row]) -> Row | None:
    """Give the first row that a statement returned; None: it returns none."""
    return await cursor.fetchone() if cursor.description else None


def refuses(error: Exception) -> bool:
    """Is this no for good, because of what the message or its statement is? Everything else may pass."""
    import psycopg  # noqa: PLC0415 - as above

    if not isinstance(error, psycopg.Error):  # a value that PostgreSQL has no type for, or a reply that can't be told
        return isinstance(error, LookupError | TypeError | ValueError | OverflowError | msgspec.MsgspecError)
    if error.sqlstate is None:  # psycopg's own: the value can't be sent or read, or a parameter is missing
        return isinstance(error, psycopg.DataError | psycopg.ProgrammingError | psycopg.NotSupportedError)
    return says_no_to_row(error.sqlstate) or says_no_to_statement(error.sqlstate)


def _text(error: BaseException) -> str:
    """Give what an error says, with its SQLSTATE, in one line."""
    state = getattr(error, "sqlstate", None)
    text = " ".join(str(error).split())[:TEXT_MAX] or type(error).__name__
    return f"{text} (SQLSTATE {state})" if state else text


def _invalid(settings: Settings, why: str) -> InvalidConfig:
    return InvalidConfig(f"driver {settings.driver}: {why}")


class _Queries:
    """Our own statements, for one schema."""

    def __init__(self, schema: str) -> None:
        def sql(text: str) -> bytes:
            columns = ("driver", "service", "shard", "service_id", "incarnation")
            row = " AND ".join(f"{name} = %({name})s" for name in columns)
            given = ", ".join(f"%({name})s" for name in columns)
            return text.format(
                positions=f'"{schema}".positions',
                answers=f'"{schema}".answers',
                schema=schema,
                columns=", ".join(columns),
                given=given,
                row=row,
            ).encode()

        self.patience = sql("SET LOCAL lock_timeout = '10s'")
        self.exist = sql(
            "SELECT to_regclass('{positions}') IS NOT NULL AND to_regclass('{answers}') IS NOT NULL AS there"
        )
        self.create = (
            sql("SELECT pg_advisory_xact_lock(hashtext('deathless: tables of drivers'))"),
            sql('CREATE SCHEMA IF NOT EXISTS "{schema}"'),
            sql(
                "CREATE TABLE IF NOT EXISTS {positions} (driver text, service text, shard integer, service_id bytea,"
                " incarnation bigint, epoch bigint NOT NULL, next_position bigint NOT NULL, PRIMARY KEY ({columns}))"
            ),
            sql(
                "CREATE TABLE IF NOT EXISTS {answers} (driver text, service text, shard integer, service_id bytea,"
                " incarnation bigint, position bigint, invocation bigint NOT NULL, operation bigint NOT NULL,"
                " reply bytea NOT NULL, PRIMARY KEY ({columns}, position))"
            ),
        )
        self.look = sql("SELECT epoch FROM {positions} WHERE {row}")
        # What is acknowledged must be on the disk: a transaction's own setting is above the role's and the database's.
        self.lock = sql(
            "SELECT epoch, next_position, CASE current_setting('synchronous_commit')"
            " WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END"
            " FROM {positions} WHERE {row} FOR UPDATE"
        )
        self.try_lock = sql("SELECT epoch FROM {positions} WHERE {row} FOR UPDATE NOWAIT")
        self.end_others = sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            " AND application_name = current_setting('application_name')"
            " AND usename = current_user AND datname = current_database()"
        )
        self.introduce = sql(
            "INSERT INTO {positions} ({columns}, epoch, next_position) VALUES ({given}, %(epoch)s, %(first)s)"
            " ON CONFLICT DO NOTHING"
        )
        self.claim = sql("UPDATE {positions} SET epoch = %(epoch)s WHERE {row}")
        self.move = sql("UPDATE {positions} SET next_position = %(next_position)s WHERE {row}")
        self.answer = sql(
            "INSERT INTO {answers} ({columns}, position, invocation, operation, reply) SELECT {given}, given.*"
            " FROM unnest(%(positions)s::bigint[], %(invocations)s::bigint[], %(operations)s::bigint[],"
            " %(replies)s::bytea[]) AS given"
        )
        self.answers = sql(
            "SELECT position, invocation, operation, reply FROM {answers}"
            " WHERE {row} AND position BETWEEN %(first)s AND %(last)s ORDER BY position"
        )
        self.forget = sql("DELETE FROM {answers} WHERE {row} AND position <= %(through)s")
