"""The ClickHouse store against a real server, and against the engine of today, both of which are killed."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest
from tests.clickhouse.clickhouse_breaking import breaking
from tests.clickhouse.clickhouse_lab import CLAIM, LATER, SCHEMA, Tables

from deathless.base.errors import (
    DeathlessError,
    Deposed,
    SinkEngineUnfit,
    SinkJournalUnsound,
    SinkServerChanged,
    SinkTableUnfit,
    SinkUnavailable,
)
from deathless.sinks.clickhouse.statements import Statements
from deathless.sinks.conformance import KEY, World, block_of, check
from deathless.sinks.port import BlockRefused, Claim


def acting(tables: Tables, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a test, and close every store that it made."""

    async def whole() -> None:
        try:
            await work()
        finally:
            for each in tables.made:
                await each.close()

    asyncio.run(whole())


def is_engine(tables: Tables) -> bool:
    return not tables.run("SELECT version()").startswith("18.")


@pytest.mark.parametrize("seed", range(3))
def test_store_passes_the_conformance_kit(tables: Tables, seed: int) -> None:
    steps = 6 if is_engine(tables) else 24
    acting(tables, lambda: check(World(tables.store, tables.stored, refused="bad"), seed=seed, steps=steps))


async def stored_to(tables: Tables, end: int, epoch: int = 9) -> int:
    """Go on as a sink would, from its tip to `end`."""
    one = tables.store()
    tip = (await one.open(Claim(KEY, 1, epoch, os.urandom(4).hex()), SCHEMA)).tip.next_position
    if tip < end:
        await one.write(block_of(max(tip, 1), end), tip)
    await one.close()
    return max(tip, end)


@pytest.mark.parametrize("after", [False, True])
def test_client_that_dies_at_any_statement_stores_each_row_once(tables: Tables, *, after: bool) -> None:
    async def work() -> None:
        for at in [11, 12, 13, 14] if is_engine(tables) else range(1, 20):
            one, client = breaking(tables, at, after=after)
            tip = 0
            try:
                tip = (await one.open(Claim(KEY, 1, at, "w"), SCHEMA)).tip.next_position
                await one.write(block_of(max(tip, 1), tip + 3), tip)
            except DeathlessError:
                assert client.count >= at
            await one.close()
        tip = await stored_to(tables, 70, 50)
        assert tables.numbers() == [each for each in range(1, tip) if each % 7]

    acting(tables, work)


def test_server_that_is_killed_in_the_midst_of_a_block_stores_each_row_once(tables: Tables) -> None:
    async def work() -> None:
        chance = random.Random(1)
        for number in range(1 if is_engine(tables) else 6):
            one, client = breaking(tables, 0, after=True)
            tip = (await one.open(Claim(KEY, 1, number + 1, "w"), SCHEMA)).tip.next_position
            start = max(tip, 1)
            client.kill_at(client.count + number % 3 + 1, chance.randrange(60), tables.server)
            with pytest.raises(DeathlessError):
                await one.write(block_of(start, start + 50), tip)
            tables.server.start()
        tip = await stored_to(tables, 420, 50)
        assert tables.numbers() == [each for each in range(1, tip) if each % 7]

    acting(tables, work)


def fence_of(tables: Tables) -> list[str]:
    return tables.run("SELECT writer FROM {db}.deathless_fence ORDER BY epoch, turn").split()


async def slow_insert(tables: Tables, writer: str, *, guarded: bool = True) -> str:
    """Insert rows 1 to 3 under a claim, in a statement that looks at the fence and then takes four seconds."""
    sql = Statements(tables.name, KEY, writer)
    found = sql.insert(f"{tables.name}.facts", "number, text", "number + sleepEachRow(1.3), 'late'", 1)
    numbers = "(SELECT toInt64(number + 1) AS number FROM system.numbers LIMIT 3)"
    statement = found.replace("FROM _rows", f"FROM {numbers}")
    if not guarded:
        statement = statement[: statement.rindex(" WHERE (SELECT")]
    try:
        return await asyncio.to_thread(tables.server.run, statement, max_block_size="1")
    except RuntimeError as error:
        return str(error)


async def runs(tables: Tables) -> None:
    """Return once an insert of rows is among the running statements."""
    asked = "SELECT count() FROM system.processes WHERE position(query, '/* deathless sink') = 1"
    while await asyncio.to_thread(tables.run, asked) == "0\n":  # noqa: ASYNC110 - the server tells nobody
        await asyncio.sleep(0)


def test_insert_that_runs_while_the_fence_is_raised_is_over_before_the_journal_is_read(tables: Tables) -> None:
    async def work() -> None:
        one = tables.store()
        await one.open(CLAIM, SCHEMA)
        late = asyncio.ensure_future(slow_insert(tables, fence_of(tables)[-1]))
        await runs(tables)
        two = tables.store()
        await two.open(LATER, SCHEMA)
        seen = tables.numbers()
        await late
        assert tables.numbers() == seen, "no row came behind the look"
        await two.close()
        await one.close()

    acting(tables, work)


def test_without_the_wait_a_row_comes_behind_the_look(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_wait(*_: object) -> None:
        """Read the journal at once."""

    async def work() -> None:
        one = tables.store()
        await one.open(CLAIM, SCHEMA)
        late = asyncio.ensure_future(slow_insert(tables, fence_of(tables)[-1]))
        await runs(tables)
        two = tables.store()
        monkeypatch.setattr(two, "_quiet", no_wait)
        await two.open(LATER, SCHEMA)
        seen = tables.numbers()
        await late
        assert (seen, tables.numbers()) == ([], [1, 2, 3])

    acting(tables, work)


@pytest.mark.parametrize("guarded", [True, False])
def test_insert_that_arrives_behind_the_fence_inserts_nothing_by_its_condition_alone(
    tables: Tables, *, guarded: bool
) -> None:
    async def work() -> None:
        one, two = tables.store(), tables.store()
        await one.open(CLAIM, SCHEMA)
        late = fence_of(tables)[-1]
        await two.open(LATER, SCHEMA)
        await slow_insert(tables, late, guarded=guarded)
        assert tables.numbers() == ([] if guarded else [1, 2, 3])
        with pytest.raises(Deposed):
            await one.write(block_of(1, 4), 0)
        await two.close()

    acting(tables, work)


def test_block_that_is_there_in_part_is_completed(tables: Tables) -> None:
    async def work() -> None:
        one, _ = breaking(tables, 1000, after=True)
        await one.open(CLAIM, SCHEMA)
        await one.write(block_of(1, 4), 0)
        two, client = breaking(tables, 0, after=True)
        await two.open(LATER, SCHEMA)
        client.break_at_rows()
        with pytest.raises(SinkUnavailable):
            await two.write(block_of(4, 12), 4)
        assert tables.numbers() == [1, 2, 3, 4, 5, 6, 8, 9, 10, 11], "they are there, and nobody was told"
        tables.run("ALTER TABLE {db}.facts DELETE WHERE number IN (5, 9)")
        while tables.numbers() != [1, 2, 3, 4, 6, 8, 10, 11]:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)
        three = tables.store()
        opened = await three.open(msgspec.structs.replace(LATER, writer="w3"), SCHEMA)
        assert opened.tip.next_position == 4
        await three.write(block_of(4, 7), 4)
        await three.write(block_of(7, 13), 7)
        await three.close()
        assert tables.numbers() == [1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12]

    acting(tables, work)


def test_values_arrive_as_they_were(tables: Tables) -> None:
    texts = {1: "a\tb\nc\\d'e\r\0ü", 2: "\\N", 3: ""}

    async def work() -> None:
        one = tables.store()
        await one.open(CLAIM, SCHEMA)
        await one.write(block_of(1, 4, lambda at: texts[at]), 0)
        await one.close()
        found = tables.run("SELECT hex(text) FROM {db}.facts ORDER BY number").split("\n")[:3]
        assert [bytes.fromhex(each).decode() for each in found] == [texts[1], texts[2], texts[3]]

    acting(tables, work)


@pytest.mark.parametrize(
    ("columns", "engine", "error"),
    [
        ("number Int64, text String, _block UUID, _position Int64", "Memory", SinkEngineUnfit),
        ("number Int64, text String, _block UUID, _position Int64", "ReplacingMergeTree", SinkEngineUnfit),
        ("number Int32, text String, _block UUID, _position Int64", "MergeTree", SinkTableUnfit),
        ("number Int64, text String", "MergeTree", SinkTableUnfit),
    ],
)
def test_table_that_can_not_keep_the_promise_is_refused(
    tables: Tables, columns: str, engine: str, error: type[DeathlessError]
) -> None:
    async def work() -> None:
        order = "" if engine == "Memory" else " ORDER BY number"
        tables.run(f"CREATE TABLE {{db}}.t ({columns}) ENGINE = {engine}{order}")
        with pytest.raises(error):
            await tables.store(table=f"{tables.name}.t").open(CLAIM, SCHEMA)

    acting(tables, work)


def test_table_that_feeds_a_view_is_refused(tables: Tables) -> None:
    async def work() -> None:
        tables.run(
            "CREATE MATERIALIZED VIEW {db}.v ENGINE = MergeTree ORDER BY number AS SELECT number FROM {db}.facts"
        )
        with pytest.raises(SinkEngineUnfit, match=r"feeds .*\.v"):
            await tables.store().open(CLAIM, SCHEMA)

    acting(tables, work)


@pytest.mark.parametrize(
    ("altered", "says"),
    [
        ("ALTER TABLE {db}.facts MODIFY COLUMN number UInt8", "column number .* is UInt8"),
        ("ALTER TABLE {db}.facts MODIFY COLUMN text Nullable(String)", "columns of table .* were changed"),
        (
            "CREATE MATERIALIZED VIEW {db}.v ENGINE = MergeTree ORDER BY number AS SELECT number FROM {db}.facts",
            "feeds",
        ),
    ],
    ids=["narrowed", "other type", "view"],
)
def test_table_that_is_altered_while_a_sink_writes_gets_no_changed_row(tables: Tables, altered: str, says: str) -> None:
    """The server would store 300 as 44 in a UInt8, without a word."""
    if "MODIFY COLUMN number" in altered:
        tables.run("DROP TABLE {db}.facts")
        tables.run(
            "CREATE TABLE {db}.facts (number Int64, text String, _block UUID, _position Int64)"
            " ENGINE = MergeTree ORDER BY _position"
        )

    async def work() -> None:
        one = tables.store()
        await one.open(CLAIM, SCHEMA)
        await one.write(block_of(1, 4), 0)
        tables.run(altered)
        with pytest.raises((SinkTableUnfit, SinkEngineUnfit), match=says):
            await one.write(block_of(4, 6), 4)
        assert tables.numbers() == [1, 2, 3]

    acting(tables, work)


def test_missing_table_is_made_if_the_manifest_says_so(tables: Tables) -> None:
    async def work() -> None:
        one = tables.store(table=f"{tables.name}.new", create=True)
        with pytest.raises(SinkTableUnfit, match="CREATE TABLE"):
            await tables.store(table=f"{tables.name}.new").open(CLAIM, SCHEMA)
        await one.open(CLAIM, SCHEMA)
        await one.write(block_of(1, 4), 0)
        await one.close()
        assert tables.numbers("new") == [1, 2, 3]

    acting(tables, work)


def test_refused_row_leaves_nothing_of_its_block(tables: Tables) -> None:
    async def work() -> None:
        one = tables.store()
        await one.open(CLAIM, SCHEMA)
        with pytest.raises(BlockRefused, match="395"):
            await one.write(block_of(1, 6, lambda at: "bad" if at == 4 else "fine"), 0)
        assert tables.numbers() == []
        await one.write(block_of(1, 4), 0)
        await one.close()
        assert tables.numbers() == [1, 2, 3]

    acting(tables, work)


def test_another_server_or_a_foreign_entry_stops_the_sink_until_it_is_adopted(tables: Tables) -> None:
    async def work() -> None:
        await stored_to(tables, 4)
        tables.run(
            "INSERT INTO {db}.deathless_fence (sink, service_id, shard, epoch, turn, writer, server) SELECT sink,"
            " service_id, shard, epoch, turn + 1, 'x', 'elsewhere' FROM {db}.deathless_fence"
        )
        with pytest.raises(SinkServerChanged, match="elsewhere"):
            await stored_to(tables, 7, 20)
        await tables.store().adopt(KEY, 1, "moved")
        assert await stored_to(tables, 7, 20) == 7
        tables.run(
            "INSERT INTO {db}.deathless_sinks SELECT sink, service_id, shard, service, slot + 1, number + 1, 'stored',"
            " 'nobody', epoch, position, `end`, 0, '', '', place, incarnation, columns, adoption, retired, '', at"
            " FROM {db}.deathless_sinks ORDER BY number DESC LIMIT 1"
        )
        with pytest.raises(SinkJournalUnsound, match="foreign writer, nobody"):
            await stored_to(tables, 10, 21)
        await tables.store().adopt(KEY, 1, "looked at")
        assert await stored_to(tables, 10, 21) == 10
        assert tables.numbers() == [1, 2, 3, 4, 5, 6, 8, 9]

    acting(tables, work)
