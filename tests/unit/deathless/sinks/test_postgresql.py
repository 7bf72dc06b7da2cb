"""The PostgreSQL store against a real server, whose sessions are killed, frozen and cut between every two steps."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from postgresql_server import Relay
from tests.unit.deathless.sinks.sink_lab import CLAIM, KEY, LATER, SCHEMA, Tables, block_of

from deathless.base.errors import (
    DeathlessError,
    Deposed,
    InvalidConfig,
    SinkEngineUnfit,
    SinkRowNotKept,
    SinkRowRefused,
    SinkTableUnfit,
    SinkTipMismatch,
    SinkUnavailable,
)
from deathless.sinks import postgresql, refused_rows
from deathless.sinks.conformance import World, check
from deathless.sinks.port import Block, BlockRefused, Claim, Key
from deathless.sinks.postgresql import PostgresqlStore

ADVISORY = 77
WAITS = """
CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql AS
  'BEGIN PERFORM pg_advisory_xact_lock_shared(77); RETURN NEW; END';
CREATE TRIGGER hang BEFORE INSERT ON facts FOR EACH ROW EXECUTE FUNCTION hang();
"""


async def waits(tables: Tables) -> None:
    """Return once a session waits for the lock."""
    while not tables.run("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"):  # noqa: ASYNC110
        await asyncio.sleep(0)


def acting(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


@pytest.mark.parametrize("seed", range(8))
def test_store_passes_the_conformance_kit(tables: Tables, seed: int) -> None:
    async def stored() -> list[int]:
        async with await psycopg.AsyncConnection.connect(tables.dsn) as connection:
            found = await connection.execute(b"SELECT number FROM facts")
            return [row[0] for row in await found.fetchall()]

    made = partial(tables.store, on_refusal="deadLetter")
    acting(lambda: check(World(made, stored, refused="bad", keeps=True), seed=seed))


def test_rows_and_tip_are_one_transaction(tables: Tables) -> None:
    async def work() -> None:
        one = tables.store()
        opened = await one.open(CLAIM, SCHEMA)
        assert (opened.tip.next_position, opened.tip.columns, opened.foreign, opened.retired) == (0, "", (), "")
        await one.write(block_of(1, 5), 0)
        with pytest.raises(BlockRefused, match="23514"):
            await one.write(block_of(5, 9, lambda at: "bad" if at == 8 else "fine"), 5)
        assert (tables.numbers(), tables.position()) == ([1, 2, 3, 4], 5)
        await one.write(block_of(5, 9), 5)  # the connection is as good as before
        again = await one.open(CLAIM, SCHEMA)
        assert (again.tip.next_position, again.tip.columns) == (9, opened.columns)
        await one.close()

    acting(work)
    assert tables.numbers() == [1, 2, 3, 4, 5, 6, 8]


@pytest.mark.parametrize("first", range(3))
def test_connection_cut_between_every_two_steps_stores_each_row_once(tables: Tables, first: int) -> None:
    """Every third step of opening and two blocks; the other two thirds are other tests."""

    async def whole(relay: Relay, key: Key, start: int) -> None:
        one = tables.store(dsn=relay.dsn + f" options='-c search_path={tables.name}'")
        position = -1
        while position < start + 6:
            try:
                opened = await one.open(Claim(key, 1, 1, os.urandom(4).hex()), SCHEMA)
                position = opened.tip.next_position
                for begin in range(max(position, start), start + 6, 3):
                    await one.write(block_of(begin, begin + 3), position)
                    position = begin + 3
            except SinkUnavailable:
                continue
        await one.close()

    async def work() -> None:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="deathless-relay-"))
        relay = stack.enter_context(Relay(tables.server, Path(folder)))
        for round_ in range(200):
            relay.cut_after(first + 3 * round_)
            key = Key("facts", "shop", round_, f"{round_:032x}")
            await whole(relay, key, 1 + 10 * round_)
            wanted = [at for at in range(1 + 10 * round_, 7 + 10 * round_) if at % 7]
            assert [at for at in tables.numbers() if at > 10 * round_] == wanted
            if not relay.cut:
                assert round_ > 3, "some were cut"
                return
        raise AssertionError("there is no end to it")

    with contextlib.ExitStack() as stack:
        acting(work)


@pytest.mark.parametrize("is_ended", [True, False])
def test_writer_that_began_before_the_fence_is_refused_at_its_commit(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, is_ended: bool
) -> None:
    """The former one waits in the midst of its rows; the later one ends its session, or can't, and fences as well."""
    tables.run(WAITS)

    async def work() -> None:
        former, later = tables.store(), tables.store()
        if not is_ended:
            monkeypatch.setattr(postgresql, "session_name", lambda key: "another")
        await former.open(CLAIM, SCHEMA)
        monkeypatch.undo()
        with psycopg.connect(tables.dsn, autocommit=True) as held:
            held.execute(b"SELECT pg_advisory_lock(77)")
            begun = asyncio.ensure_future(former.write(block_of(1, 4), 0))
            await waits(tables)
            assert (await later.open(LATER, SCHEMA)).tip.next_position == 0
        with pytest.raises(SinkUnavailable if is_ended else Deposed):
            await begun
        assert tables.numbers() == []
        await later.write(block_of(1, 5), 0)
        with pytest.raises(Deposed):
            await former.open(CLAIM, SCHEMA)
        await later.close()

    acting(work)
    assert tables.numbers() == [1, 2, 3, 4]


def test_writer_that_is_frozen_behind_its_last_statement_is_ended(tables: Tables) -> None:
    """It holds the tip's row: a later one ends its session, and does not wait."""

    async def frozen(former: PostgresqlStore, later: PostgresqlStore) -> None:
        assert former._connection is not None
        async with former._errors(), former._connection.transaction():
            await former._one(former._connection, former._sql.lock, KEY)
            assert (await later.open(LATER, SCHEMA)).tip.next_position == 0
            await former._connection.execute(b"SELECT 1")

    async def work() -> None:
        former, later = tables.store(), tables.store()
        await former.open(CLAIM, SCHEMA)
        with pytest.raises(SinkUnavailable):
            await frozen(former, later)
        await later.write(block_of(1, 3), 0)
        await later.close()

    acting(work)
    assert tables.numbers() == [1, 2]


def test_commit_is_durable_where_the_role_says_otherwise(tables: Tables) -> None:
    tables.run(
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN NEW.text := current_setting(''synchronous_commit''); RETURN NEW; END'"
    )
    tables.run("CREATE TRIGGER note BEFORE INSERT ON facts FOR EACH ROW EXECUTE FUNCTION note()")

    async def work() -> None:
        one = tables.store(dsn=tables.server.dsn + f" options='-c search_path={tables.name} -c synchronous_commit=off'")
        await one.open(CLAIM, SCHEMA)
        await one.write(block_of(1, 2), 0)
        await one.close()

    acting(work)
    assert tables.run("SELECT text FROM facts") == [("on",)]


def test_server_that_is_killed_keeps_what_was_stored(tables: Tables) -> None:
    async def work() -> None:
        one = tables.store()
        await one.open(CLAIM, SCHEMA)
        await one.write(block_of(1, 4), 0)
        for pid in tables.server.backends():
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(SinkUnavailable):
            await one.write(block_of(4, 6), 4)
        tables.server.wait_ready()
        assert (await one.open(CLAIM, SCHEMA)).tip.next_position == 4
        await one.write(block_of(4, 6), 4)
        await one.close()

    acting(work)
    assert tables.numbers() == [1, 2, 3, 4, 5]


# ---- tables -----------------------------------------------------------------------------------------------------


def open_error(tables: Tables, schema: str = SCHEMA, **options: object) -> DeathlessError:
    found: list[DeathlessError] = []

    async def work() -> None:
        one = tables.store(**options)
        with pytest.raises(DeathlessError) as raised:
            await one.open(CLAIM, schema)
        found.append(raised.value)
        await one.close()

    acting(work)
    return found[0]


def test_table_that_is_missing_is_told_with_the_statement_that_makes_it(tables: Tables) -> None:
    error = open_error(tables, table="others")
    assert isinstance(error, SinkTableUnfit)
    statement = str(error).partition("`create: true`: ")[2].removesuffix(")")
    assert statement == 'CREATE TABLE "others" ("number" bigint NOT NULL, "text" text NOT NULL)'
    tables.run(statement)

    async def work() -> None:
        one = tables.store(table="others")
        await one.open(CLAIM, SCHEMA)
        await one.write(block_of(1, 3), 0)
        await one.close()

    acting(work)
    assert tables.numbers("others") == [1, 2]


def test_column_that_is_missing_is_told(tables: Tables) -> None:
    error = open_error(tables, "number:int64,gate:utf8?")
    assert isinstance(error, SinkTableUnfit)
    assert 'ALTER TABLE "facts" ADD COLUMN "gate" text' in str(error)
    assert isinstance(open_error(tables, columns={"number": "minutes"}), SinkTableUnfit)


def test_table_is_made_where_the_manifest_says_so_with_each_type(tables: Tables) -> None:
    from deathless.topics.arrow import Row, record_batch  # noqa: PLC0415 - with pyarrow alone

    schema = "a:int64,b:float64?,c:bool,d:binary,e:timestamp,f:decimal<2>,g:list<int64>?,h:map<utf8>,i:struct<x:int64>"
    values = [2**62, None, True, b"\x00\xff", 1_000_000, "12.50", [1, 2], {"k": "v"}, [7]]
    batch = record_batch(schema, 3, [Row(9, "key", 5, values)])
    columns = {name: name for name in "abcdefghi"} | {"p": "_position", "s": "_shard", "k": "_key", "t": "_time"}

    async def work() -> None:
        one = tables.store(table="made", create=True, columns=columns)
        await one.open(CLAIM, schema)
        await one.write(block_of(1, 2).__class__(9, 10, [batch]), 0)
        await one.close()

    acting(work)
    found = tables.run("SELECT a, b, c, d, extract(epoch FROM e)::int, f::text, g, h, i, p, s, k FROM made")
    assert found == [
        (2**62, None, True, b"\x00\xff", 1, "12.50", [1, 2], {"k": "v"}, {"x": 7}, 9, 3, "key"),
    ]


def test_value_that_a_column_does_not_take_is_refused(tables: Tables) -> None:
    tables.run("ALTER TABLE facts ALTER COLUMN number TYPE smallint")

    async def work() -> None:
        one = tables.store()
        await one.open(CLAIM, SCHEMA)
        with pytest.raises(BlockRefused, match="22003"):
            await one.write(block_of(40_000, 40_001), 0)
        with pytest.raises(BlockRefused):  # PostgreSQL's texts have no NUL
            await one.write(block_of(1, 2, lambda at: "\0"), 0)
        await one.write(block_of(1, 2), 0)
        with pytest.raises(BlockRefused, match="23505"):
            await one.write(block_of(1, 2), 2)
        await one.close()

    acting(work)


REFUSES_THREE = """
CREATE FUNCTION at_three() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN IF NEW.number = 3 THEN {does}; END IF; RETURN NEW; END $$;
CREATE TRIGGER at_three BEFORE INSERT ON facts FOR EACH ROW EXECUTE FUNCTION at_three();
"""


@pytest.mark.parametrize(
    ("made", "says"),
    [
        ("CREATE INDEX ON facts (text)", "54000"),  # a text that no index takes
        (REFUSES_THREE.format(does="RAISE EXCEPTION 'no' USING ERRCODE = '45000'"), "45000"),
        (REFUSES_THREE.format(does="CASE NEW.number WHEN 1 THEN NULL; END CASE"), "20000"),
        (REFUSES_THREE.format(does="RETURN NULL"), "took 3 of 4 rows"),
    ],
    ids=["index", "code of a user's own", "case", "passed over"],
)
def test_row_that_the_table_never_takes_is_refused_alone_and_no_row_is_missed(
    tables: Tables, made: str, says: str
) -> None:
    long = os.urandom(20_000).hex()
    tables.run(made)

    async def work() -> None:
        one = tables.store()
        await one.open(CLAIM, SCHEMA)
        with pytest.raises(BlockRefused, match=says):
            await one.write(block_of(1, 5, lambda at: long if at == 3 else "fine"), 0)
        await one.write(block_of(1, 3), 0)  # the connection is as good as before
        with pytest.raises(BlockRefused, match=says.replace("3 of 4", "0 of 1")):
            await one.write(block_of(3, 4, lambda _at: long), 3)
        assert tables.position() == 3
        await one.close()

    acting(work)
    assert tables.numbers() == [1, 2]


@pytest.mark.parametrize(
    ("made", "says"),
    [
        ("ALTER TABLE facts SET UNLOGGED", "facts is UNLOGGED.*SET LOGGED"),
        (
            (
                "DROP TABLE facts; CREATE TABLE facts (number bigint, text text) PARTITION BY LIST (text);"
                "CREATE UNLOGGED TABLE fine PARTITION OF facts FOR VALUES IN ('fine');"
                "CREATE TABLE others PARTITION OF facts DEFAULT"
            ),
            "fine is UNLOGGED",
        ),
        (
            (
                "DROP TABLE facts; CREATE EXTENSION IF NOT EXISTS file_fdw; CREATE SERVER IF NOT EXISTS far FOREIGN"
                " DATA WRAPPER file_fdw; CREATE FOREIGN TABLE facts (number bigint, text text) SERVER far"
                " OPTIONS (filename '/dev/null')"
            ),
            "foreign table",
        ),
    ],
    ids=["unlogged", "unlogged partition", "foreign"],
)
def test_table_that_may_lose_what_the_tip_counts_is_refused_by_name(tables: Tables, made: str, says: str) -> None:
    tables.run(made)

    async def work() -> None:
        one = tables.store()
        with pytest.raises(SinkEngineUnfit, match=says):
            await one.open(CLAIM, SCHEMA)
        await one.close()

    acting(work)


def test_number_that_json_lacks_is_a_refused_row_and_not_null(tables: Tables) -> None:
    pa = pytest.importorskip("pyarrow")
    tables.run("ALTER TABLE facts ADD legs jsonb")

    async def work() -> None:
        one = tables.store()
        await one.open(CLAIM, "number:int64,legs:list<float64>")
        batch = pa.record_batch({"number": [1, 2], "legs": [[1.0], [float("nan")]]})
        with pytest.raises(BlockRefused, match="column legs holds nan"):
            await one.write(Block(1, 3, [batch]), 0)
        await one.write(Block(1, 2, [batch.slice(0, 1)]), 0)  # the connection is as good as before
        await one.close()

    acting(work)
    assert (tables.numbers(), tables.position()) == ([1], 2)


def test_table_that_is_dropped_meanwhile_is_no_refused_row(tables: Tables) -> None:
    async def work() -> None:
        one = tables.store()
        await one.open(CLAIM, SCHEMA)
        tables.run("DROP TABLE facts")
        with pytest.raises(SinkTableUnfit):
            await one.write(block_of(1, 2), 0)
        await one.close()

    acting(work)


# ---- operators --------------------------------------------------------------------------------------------------


def test_service_under_the_name_of_another_one_is_told_and_takes_it_over_when_adopted(tables: Tables) -> None:
    other = Claim(Key("facts", "shop", 0, "f" * 32), 1, 1, "w9")

    async def work() -> None:
        first, second = tables.store(), tables.store()
        await first.open(CLAIM, SCHEMA)
        await first.write(block_of(1, 3), 0)
        assert (await second.open(other, SCHEMA)).foreign == ("service shop (id 01234567)",)
        assert (await first.open(CLAIM, SCHEMA)).foreign == (), "who has stored nothing stands in nobody's way"
        await second.adopt(other.key, 1, "it was created anew")
        with pytest.raises(Deposed, match="taken over"):
            await first.write(block_of(3, 4), 3)
        assert (await first.open(CLAIM, SCHEMA)).retired == "shop " + "f" * 32
        assert (await second.open(other, SCHEMA)).foreign == ()
        assert [each.what for each in await second.decisions(other.key)] == ["adopt"]
        await first.close()
        await second.close()

    acting(work)


def test_other_shards_of_a_service_are_no_others(tables: Tables) -> None:
    async def work() -> None:
        first, second = tables.store(), tables.store()
        await first.open(CLAIM, SCHEMA)
        await first.write(block_of(1, 3), 0)
        shard = Claim(Key("facts", "shop", 1, "e" * 32), 1, 1, "w9")
        assert (await second.open(shard, SCHEMA)).foreign == ()
        await first.close()
        await second.close()

    acting(work)


def test_rows_of_another_incarnation_begin_anew_when_adopted(tables: Tables) -> None:
    async def work() -> None:
        one = tables.store()
        with pytest.raises(SinkTipMismatch):
            await one.adopt(KEY, 2, "nothing is there yet")
        assert await one.tip(KEY) is None
        assert await one.decisions(KEY) == []
        await one.open(CLAIM, SCHEMA)
        await one.write(block_of(1, 3), 0)
        tip = await one.adopt(KEY, 2, "restored")
        assert (tip.next_position, tip.incarnation, tip.adoption) == (0, 2, 1)
        assert await one.tip(KEY) == tip
        await one.close()

    acting(work)


# ---- what is wrong with options -----------------------------------------------------------------------------------


def test_options_that_are_wrong_are_refused_by_name(tables: Tables, tmp_path: Path) -> None:
    (tmp_path / "broken.dsn").write_text("postgresql://u:secret@[::1")
    secret = tmp_path / "facts.dsn"
    secret.write_text(tables.dsn + "\n")
    postgresql.store(tables.config(dsn="", dsn_file="facts.dsn", folder=str(tmp_path)))
    for changes in (
        {"dsn": ""},
        {"dsn_file": "also"},
        {"dsn": "", "dsn_file": "/nowhere/facts.dsn"},
        {"dsn": "no dsn"},
        {"dsn": "", "dsn_file": "broken.dsn", "folder": str(tmp_path)},
        {"dsn": "host=db password=secret"},
    ):
        with pytest.raises(InvalidConfig, match="sink facts") as raised:
            tables.store(**changes)
        assert "secret" not in str(raised.value)


def test_server_that_is_away_is_waited_for(tables: Tables) -> None:
    error = open_error(tables, dsn="host=/nowhere-at-all")
    assert isinstance(error, SinkUnavailable)


def test_row_that_is_refused_is_kept_and_stored_once_the_table_is_mended(tables: Tables) -> None:
    async def work() -> None:
        one, operator = tables.store(on_refusal="deadLetter"), tables.store()
        assert await operator.refused(KEY) == []
        await one.open(CLAIM, SCHEMA)
        await one.write(block_of(1, 3), 0)
        await one.give_up(block_of(3, 4, lambda _at: "bad"), 3, "it is bad")
        await one.write(block_of(4, 6), 4)
        [kept] = await operator.refused(KEY)
        assert (kept.position, kept.incarnation, kept.why) == (3, 1, "it is bad")
        assert '"number":3,"text":"bad"' in kept.row
        with pytest.raises(SinkRowRefused, match="23514"):
            await operator.retry(KEY, 3, "too early")
        [refused] = await operator.refused(KEY)
        assert "23514" in refused.why, "the reason is that of now"
        tables.run("ALTER TABLE facts DROP CONSTRAINT facts_text_check")
        await operator.retry(KEY, 3, "mended")
        assert (tables.numbers(), await operator.refused(KEY)) == ([1, 2, 3, 4, 5], [])
        for again in (operator.retry(KEY, 3, ""), operator.discard(KEY, 3, "")):
            with pytest.raises(SinkRowNotKept, match="position 3"):
                await again
        assert [(each.what, each.text) for each in await operator.decisions(KEY)] == [("retry", "position 3 mended")]
        await one.write(block_of(6, 7), 6)
        await one.close()

    acting(work)


def test_refused_rows_are_listed_to_their_end(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_rows, "READ_ROWS", 2)

    async def work() -> None:
        one, operator = tables.store(on_refusal="deadLetter"), tables.store()
        await one.open(CLAIM, SCHEMA)
        for at in range(1, 6):
            await one.give_up(block_of(at, at + 1, lambda _at: "bad"), at if at > 1 else 0, "it is bad")
        assert [each.position for each in await operator.refused(KEY)] == [1, 2, 3, 4, 5]
        await one.close()

    acting(work)


def test_deposed_sink_keeps_no_refused_row_and_one_whose_list_is_full_stops(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        former, later = tables.store(on_refusal="deadLetter"), tables.store(on_refusal="deadLetter")
        await former.open(CLAIM, SCHEMA)
        await later.open(LATER, SCHEMA)
        bad = block_of(1, 2, lambda _at: "bad")
        with pytest.raises((Deposed, SinkUnavailable)):
            await former.give_up(bad, 0, "no")
        assert await later.refused(KEY) == []
        await later.open(LATER, SCHEMA)
        await later.give_up(bad, 0, "no")
        monkeypatch.setattr(postgresql, "REFUSED_MAX", 1)
        with pytest.raises(SinkRowRefused, match="1 such rows are kept"):
            await later.give_up(block_of(2, 3, lambda _at: "bad"), 2, "no")
        assert tables.position() == 2
        await later.discard(KEY, 1, "nobody needs it")
        assert await later.refused(KEY) == []

    acting(work)
