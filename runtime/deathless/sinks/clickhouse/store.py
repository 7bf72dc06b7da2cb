"""A store that is a table of ClickHouse: a block is planned, inserted, and then counted as stored.

    open    SELECT the fence's highest row            a higher epoch: Deposed, nothing is touched
            INSERT a higher one                       the fence
            KILL QUERY, and wait until the server     whoever looked at the fence before is done, or was ended;
            runs no statement of a former claim       whoever looks from now on inserts nothing
            SELECT the journal's last entry           a plan: the table says which rows of it there are
    write   SELECT the table's engine and columns     they are what they were at `open`
            INSERT the plan                           each of the three selects nothing unless
            INSERT the rows                           the fence's highest row is ours
            INSERT "stored", and SELECT it            it is there: the fence was ours all the time

Why the fence holds without transactions: a statement is among the server's running ones before it looks at the fence,
until its rows are visible. So behind a new row of the fence, each statement of a former claim either runs, and is
waited for, or is done, and its rows are counted, or will look at the fence, and inserts nothing. That is also true of
one whose rows are still on their way: the server reads them before the statement begins.

Why seeing "stored" is enough: a claim that has lost the fence never gets it back, so who held it at the last insert has
held it at those before.

Guarantees: what the port asks for, of one server with tables of the engine MergeTree. A server that is killed loses no
row that it had acknowledged, and keeps at most what `open` finds. Does not: help where the machine loses its power and
the table's settings do not let inserts reach the disk, where somebody deletes rows of a block that is in doubt, or
where something between us and the server repeats requests.

Imports the modules beside it, and columns of sinks; aiohttp, which is an extra, only when a store is made.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from deathless.base.config import SinkConfig
from deathless.base.errors import (
    Deposed,
    InvalidConfig,
    SinkServerChanged,
    SinkTableUnfit,
    SinkTipMismatch,
    SinkUnavailable,
)
from deathless.base.topics.row_schema import parse_row_schema
from deathless.sinks.clickhouse import journal, statements, table, values
from deathless.sinks.clickhouse.answers import numbers_of, rows_of, words_of
from deathless.sinks.clickhouse.client import Client, where_of
from deathless.sinks.clickhouse.journal import Entry, Holder
from deathless.sinks.clickhouse.statements import FSYNC, NO_SERVER, SETTINGS, Statements
from deathless.sinks.columns import Chosen, Written, columns_hash
from deathless.sinks.port import Block, BlockRefused, Claim, Decision, Key, Opened, Tip

if TYPE_CHECKING:
    import pyarrow as pa

CLAIMS_MAX: Final = 16  # times that a fence is raised above others who raise it just now
QUIET_S: Final = 120.0
"""Statements of former claims are waited for so long, and then again after a pause."""
QUIET_POLL_S: Final = 0.05


def store(config: SinkConfig) -> ClickhouseStore:
    """Make a store; connects nothing.

    Raises: InvalidConfig when an option is wrong, or aiohttp is not installed.
    """
    name = f"sink {config.name}"
    if bool(config.dsn) == bool(config.dsn_file):
        raise InvalidConfig(f"{name}: options: give dsn or dsnFile, one of them")
    try:
        given = config.dsn or (Path(config.folder) / config.dsn_file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{name}: options.dsnFile: {error}") from None
    try:
        where = where_of(given)
    except ValueError as error:
        raise InvalidConfig(f"{name}: options.{'dsn' if config.dsn else 'dsnFile'} is no URL: {error}") from None
    if config.dsn and where.password:
        raise InvalidConfig(
            f"{name}: options.dsn holds a password", remedy="write it into a file and name that as dsnFile"
        )
    return ClickhouseStore(config, Client(where), where.database)


class Server(msgspec.Struct, frozen=True):
    """What a server said of itself."""

    settings: dict[str, str]  # ours, as far as it knows them
    functions: frozenset[str]  # names that it knows: of functions, and of settings
    server: str  # which one it is
    account: str  # as whom it knows us; empty: it does not say


class Ours(msgspec.Struct):
    """A claim that was opened, and what is known since."""

    claim: Claim
    sql: Statements
    server: Server
    last: Entry  # of the journal
    chosen: list[Chosen] = []
    columns: list[Written] = []  # where these are in the table
    present: frozenset[int] = frozenset()  # positions above the tip that the table has already


class ClickhouseStore:
    """One sink's way into one table.

    Args:
        config: of the sink; its table, and the database of ours.
        client: of the server.
        database: of tables that are named without one; empty: the user's own.
    """

    def __init__(self, config: SinkConfig, client: Client, database: str = "") -> None:
        self._config = config
        self._client = client
        self._database = database
        self._ours: Ours | None = None  # None: not open
        self._known_names: frozenset[str] = frozenset()  # of settings and functions; empty: not asked yet

    async def open(self, claim: Claim, schema: str) -> Opened:
        """See Store."""
        await self.close()
        async with self._closing():
            ours = await self._claimed(claim, accept=False)
            ours.chosen = table.chosen_for(parse_row_schema(schema), self._config.columns)
            ours.columns = await self._match(ours.server, ours.chosen)
            await self._settle(ours)
            foreign = [
                f"service {each.called} (id {each.service_id[:8]})" for each in await self._others(ours) if each.tip > 0
            ]
        self._ours = ours
        return Opened(ours.last.tip, columns_hash(ours.columns), tuple(foreign), ours.last.retired)

    async def write(self, block: Block, expected: int) -> None:
        """See Store."""
        ours = self._ours
        if ours is None:
            raise SinkUnavailable("not connected")
        async with self._closing():
            if expected != ours.last.position:  # nobody else has moved it while the fence was ours
                raise SinkTipMismatch(
                    f"sink {ours.claim.key.sink}: the store stands at {ours.last.position}, and not at {expected}"
                )
            batches = [values.without(each, ours.present) for each in block.batches]
            batches = [each for each in batches if each.num_rows]
            last, block_id = ours.last, str(uuid.UUID(bytes=os.urandom(16)))
            if batches:
                await self._expect_unaltered(ours)
                rows = sum(each.num_rows for each in block.batches)
                ours.last = await self._append(ours, journal.PLAN, end=block.end, rows=rows, block=block_id,
                    former=",".join(last.blocks) if ours.present else "", why=columns_hash(ours.columns),
                    place=table.place_for(self._config.table, ours.columns).text,
                )  # fmt: skip
                await self._insert(ours, batches, block_id)
            claim = ours.claim
            ours.last = await self._append(ours, journal.STORED, position=block.end, block=block_id, former="",
                columns=columns_hash(ours.columns), incarnation=claim.incarnation,
            )  # fmt: skip
            await self._check(ours, block.end)
            ours.present = frozenset(each for each in ours.present if each >= block.end)

    async def tip(self, key: Key) -> Tip | None:
        """See Store."""
        async with self._asking(key) as (sql, server):
            found = await self._entries(server, sql.last()) if await self._exist(sql) else []
        return found[0].tip if found else None

    async def decisions(self, key: Key) -> Sequence[Decision]:
        """See Store."""
        async with self._asking(key) as (sql, server):
            found = await self._entries(server, sql.decisions()) if await self._exist(sql) else []
        return [Decision(each.at, each.what, each.position, each.end, each.why) for each in map(_decided, found)]

    async def skip(self, key: Key, expected: int, end: int, why: str) -> None:
        """See Store."""
        stands = await self.tip(key)
        _check_skip(key, stands, expected)
        async with self._closing():
            ours = await self._claimed(Claim(key, 0, 0, os.urandom(8).hex()), accept=False)
            await self._settle(ours)
            _check_skip(key, ours.last.tip, expected)
            ours.last = await self._append(ours, journal.SKIP, position=end, end=expected, why=why,
                former=",".join(ours.last.blocks),
            )  # fmt: skip
            await self._check(ours, end)
        await self.close()

    async def adopt(self, key: Key, incarnation: int, why: str) -> Tip:
        """See Store."""
        if await self.tip(key) is None:
            raise SinkTipMismatch(
                f"the store knows nothing of sink {key.sink}", remedy="it begins by itself once rows are published"
            )
        async with self._closing():
            ours = await self._claimed(Claim(key, incarnation, 0, os.urandom(8).hex()), accept=True)
            await self._settle(ours)
            last = ours.last
            same = last.incarnation == incarnation
            ours.last = await self._append(ours, journal.ADOPT, position=last.position if same else 0,
                former=",".join(last.blocks) if same else "", incarnation=incarnation, columns="",
                adoption=last.adoption + 1, retired="", why=why,
            )  # fmt: skip
            await self._check(ours, ours.last.position)
            for each in await self._others(ours):
                await self._retire(key, each)
        await self.close()
        return ours.last.tip

    async def close(self) -> None:
        """See Store."""
        self._ours = None
        await self._client.close()

    # ---- the server ------------------------------------------------------------------------------------------

    async def _run(self, server: Server | None, statement: str) -> bytes:
        """Run a statement without rows. Raises: SinkTableUnfit, SinkUnavailable."""
        try:
            return await self._client.run(statement, server.settings if server is not None else {})
        except BlockRefused as error:
            raise SinkUnavailable(str(error)) from error

    async def _known(self) -> Server:
        """Ask the server what it is. Raises: SinkTableUnfit, SinkUnavailable."""
        known = self._known_names
        if not known:
            known = self._known_names = frozenset(words_of(await self._run(None, statements.known())))
        settings = {name: value for name, value in SETTINGS.items() if name in known}
        account = "currentUser()" if "currentUser" in known else "''"
        unique = "toString(serverUUID())" if "serverUUID" in known else "''"
        told = await self._run(None, f"SELECT {unique}, hostName(), {account} FORMAT TabSeparated")
        server, host, user = words_of(told, 3)
        return Server(settings, known, host if server in {"", NO_SERVER} else server, user)

    @contextlib.asynccontextmanager
    async def _closing(self) -> AsyncIterator[None]:
        """Close after all but a refused row: what was sent may still be carried out, and `open` tells."""
        try:
            yield
        except BlockRefused:
            raise
        except BaseException:
            self._known_names = frozenset()  # it may be another server that starts now
            await self.close()
            raise

    @contextlib.asynccontextmanager
    async def _asking(self, key: Key) -> AsyncIterator[tuple[Statements, Server]]:
        """Give what reads, and claims nothing; what is open stays so."""
        try:
            yield Statements(self._config.schema, key, ""), await self._known()
        finally:
            if self._ours is None:
                await self._client.close()

    # ---- the fence -------------------------------------------------------------------------------------------

    async def _claimed(self, claim: Claim, *, accept: bool) -> Ours:
        """Raise the fence, and wait until nobody of before inserts any more; only then read the journal.

        Args:
            claim: of a sink; of an operator the epoch is 0, and means that of the sink.
            accept: another server or user than that of the sink is all right.

        Raises: Deposed, SinkServerChanged, SinkTableUnfit, SinkUnavailable.
        """
        # What was sent under an earlier claim, also one of the same writer, must be another's.
        claim = msgspec.structs.replace(claim, writer=f"{claim.writer}.{os.urandom(8).hex()}")
        server = await self._known()
        sql = Statements(self._config.schema, claim.key, claim.writer)
        if not await self._exist(sql):
            kept = [f"{name} = 1" for name in FSYNC if name in server.functions]
            for statement in sql.create(kept):
                await self._run(server, statement)
        holder = await self._raise(sql, server, claim, accept=accept)
        await self._quiet(sql, server)
        found = await self._entries(server, sql.last(journal.KEPT))
        fence = set(words_of(await self._run(server, sql.writers())))
        since = next((at for at, each in enumerate(found) if each.what == journal.ADOPT), len(found))
        if not accept:
            journal.check(found[:since][::-1], fence, claim.key.sink)
        claim = msgspec.structs.replace(claim, epoch=holder.epoch)
        if found:
            return Ours(claim, sql, server, found[0])
        begun = Ours(claim, sql, server, journal.first_entry(claim.writer, claim.epoch, claim.incarnation))
        await self._run(server, sql.append(begun.last))
        return begun

    async def _raise(self, sql: Statements, server: Server, claim: Claim, *, accept: bool) -> Holder:
        """Make our claim the highest of the fence."""
        for _ in range(CLAIMS_MAX):
            found = await self._holder(sql, server)
            if found is not None:
                _refuse_older(found, claim)
                if found.writer == claim.writer:
                    return found
                if not accept:
                    _refuse_elsewhere(found, server, claim.key)
            turn = found.turn + 1 if found is not None else 1
            epoch = claim.epoch or (found.epoch if found is not None else 0)
            await self._run(server, sql.raise_fence(Holder(epoch, turn, claim.writer, server.server, server.account)))
        raise SinkUnavailable("others claim the sink all the time")

    async def _holder(self, sql: Statements, server: Server) -> Holder | None:
        found = rows_of(await self._run(server, sql.holder()), Holder)
        return found[0] if found else None

    async def _quiet(self, sql: Statements, server: Server) -> None:
        """Wait until the server runs no statement of a former claim. Raises: SinkUnavailable."""
        end = time.monotonic() + QUIET_S
        while numbers_of(await self._run(server, sql.count_others())) != [0]:
            if time.monotonic() > end:
                raise SinkUnavailable("statements of a former process do not end")
            await self._run(server, sql.kill_others())
            await asyncio.sleep(QUIET_POLL_S)

    async def _check(self, ours: Ours, expected: int) -> None:
        """Compare the fence and the journal with what we know. Raises: Deposed, SinkTipMismatch."""
        sink = f"sink {ours.claim.key.sink}"
        told = rows_of(await self._run(ours.server, ours.sql.state()), _State)
        if not told:
            raise SinkTipMismatch(f"{sink}: its tip is gone from the store")
        found = told[0]
        if found.retired:
            raise Deposed(f"{sink}: its name was taken over by {found.retired}")
        if found.holder != ours.claim.writer:
            raise Deposed(f"{sink}: a process of epoch {found.holder_epoch} writes here; this is {ours.claim.epoch}")
        if found.position != expected or found.number != ours.last.number:
            raise SinkTipMismatch(f"{sink}: the store stands at {found.position}, and not at {expected}")

    # ---- the journal -----------------------------------------------------------------------------------------

    async def _append(self, ours: Ours, what: str, **changes: object) -> Entry:
        """Append an entry, if the fence is ours; whether it was, `_check` tells."""
        entry = journal.follows(ours.last, what, ours.claim.writer, ours.claim.epoch, **changes)
        await self._run(ours.server, ours.sql.append(entry))
        return entry

    async def _entries(self, server: Server, statement: str) -> list[Entry]:
        return rows_of(await self._run(server, statement), Entry)

    async def _settle(self, ours: Ours) -> None:
        """Find out what the table has above the tip; a block that is there as a whole is stored."""
        last = ours.last
        place = table.place_of(last.place)
        if not last.blocks:
            return
        if place is None or await self._seen(ours.server, place.table) is None:
            return
        told = await self._run(ours.server, statements.present(place, last.blocks))
        found = frozenset(each for each in numbers_of(told) if each >= last.position)
        if last.what == journal.PLAN and journal.settled(last, found):
            ours.last = await self._append(ours, journal.STORED, position=last.end, block=last.block,
                former="", columns=last.why,
            )  # fmt: skip
            found = frozenset(each for each in found if each >= last.end)
            await self._check(ours, last.end)
        ours.present = found

    async def _others(self, ours: Ours) -> list[_Other]:
        """Give other services under the sink's name that stand in our way."""
        key = ours.claim.key
        found = rows_of(await self._run(ours.server, ours.sql.others()), _Other)
        return [each for each in found if not each.gone and (each.called != key.service or each.shard == key.shard)]

    async def _retire(self, by: Key, other: _Other) -> None:
        """Let a service write no more under the sink's name."""
        key = Key(by.sink, other.called, other.shard, other.service_id)
        ours = await self._claimed(Claim(key, 0, 0, os.urandom(8).hex()), accept=True)
        ours.last = await self._append(ours, journal.RETIRE, retired=f"{by.service} {by.service_id}",
            former=",".join(ours.last.blocks),
        )  # fmt: skip

    async def _exist(self, sql: Statements) -> bool:
        return numbers_of(await self._run(None, sql.exist())) == [2]

    # ---- the table -------------------------------------------------------------------------------------------

    async def _match(self, server: Server, chosen: Sequence[Chosen]) -> list[Written]:
        """Find the table's columns, and make it if it is missing and the manifest says so.

        Raises: SinkEngineUnfit, SinkTableUnfit.
        """
        name = self._config.table
        seen = await self._seen(server, name)
        if seen is None:
            made = table.ddl(name, chosen, [f"{each} = 1" for each in FSYNC if each in server.functions])
            if not self._config.create:
                raise SinkTableUnfit(f"there is no table {name}", remedy=f"create it, or say `create: true`: {made}")
            await self._run(server, made.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1))
            seen = await self._seen(server, name)
        if seen is None:
            raise SinkUnavailable(f"table {name} went away")
        return table.match(chosen, seen, name)

    async def _expect_unaltered(self, ours: Ours) -> None:
        """See that the table is what it was when it was opened: the server makes values fit a type that was changed.

        Raises: SinkEngineUnfit, SinkTableUnfit.
        """
        name = self._config.table
        seen = await self._seen(ours.server, name)
        if seen is None:
            raise SinkTableUnfit(f"there is no table {name} any more")
        if table.match(ours.chosen, seen, name) != ours.columns:
            raise SinkTableUnfit(f"columns of table {name} were changed while the sink was at work")

    async def _seen(self, server: Server, name: str) -> table.TableSeen | None:
        asked, columns = statements.table_of(name, self._database)
        told = rows_of(await self._run(server, asked), _TableRow)
        if not told:
            return None
        row = told[0]
        views = [
            f"{owner}.{name}" for owner, name in zip(row.dependencies_database, row.dependencies_table, strict=True)
        ]
        found = rows_of(await self._run(server, columns), table.ColumnSeen)
        return table.TableSeen(row.engine, row.engine_full, tuple(views), tuple(found))

    async def _insert(self, ours: Ours, batches: Sequence[pa.RecordBatch], block: str) -> None:
        """Insert the rows, if the fence is ours. Raises: BlockRefused when one of them is refused for good."""
        first = batches[0]
        targets, selected = values.expressions(first.schema, ours.columns, block)
        rows = await asyncio.to_thread(lambda: b"".join(values.lines(each, ours.columns) for each in batches))
        number = ours.last.number
        try:
            await self._client.run(
                ours.sql.insert(self._config.table, targets, selected, number),
                ours.server.settings,
                name=ours.sql.name("rows", number),
                rows=rows,
                columns=values.structure(first.schema, ours.columns),
            )
        except BlockRefused:
            await self._settle(ours)  # of several parts, one may have been stored before the next one was refused
            raise


class _TableRow(msgspec.Struct):
    engine: str
    engine_full: str
    dependencies_database: list[str]
    dependencies_table: list[str]


class _State(msgspec.Struct):
    """The journal's last entry, and who holds the fence."""

    number: int
    position: int
    retired: str
    holder: str
    holder_epoch: int


class _Other(msgspec.Struct):
    """The last entry of another service under a sink's name."""

    service_id: str
    shard: int
    called: str
    tip: int
    gone: str


def _decided(entry: Entry) -> Entry:
    """Give a decision with what was given up: `position` to `end`."""
    if entry.what == journal.SKIP:
        return msgspec.structs.replace(entry, position=entry.end, end=entry.position)
    return entry


def _check_skip(key: Key, tip: Tip | None, expected: int) -> None:
    stands = tip.next_position if tip is not None else None
    if stands != expected:
        shown = "nothing is stored yet" if not stands else f"it stands at position {stands}"
        raise SinkTipMismatch(
            f"sink {key.sink} does not wait at position {expected}: {shown}",
            remedy=f"see `deathless sinks show {key.sink}`",
        )


def _refuse_older(found: Holder, claim: Claim) -> None:
    if claim.epoch and found.epoch > claim.epoch:
        raise Deposed(f"sink {claim.key.sink}: epoch {found.epoch} writes here; this is epoch {claim.epoch}")


def _refuse_elsewhere(found: Holder, server: Server, key: Key) -> None:
    """Refuse a server whose running statements are not those of before, or a user who may not see them."""
    if found.server != server.server:
        raise SinkServerChanged(
            f"sink {key.sink}: rows were written through the server {found.server}, and this is {server.server}"
        )
    if found.account and server.account and found.account != server.account:
        raise SinkServerChanged(
            f"sink {key.sink}: rows were written as user {found.account}, whose statements {server.account} may not see"
        )
