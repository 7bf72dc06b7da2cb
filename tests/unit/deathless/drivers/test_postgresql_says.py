"""The PostgreSQL sink: what the server says, values, rights and options."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import psycopg
import pytest
from postgresql_bench import SOURCE, STATEMENTS, Bench, acting, message, value_of

from deathless.base.errors import InvalidConfig
from deathless.drivers.port import (
    Answer,
    Delivery,
    DeliveryRefused,
    Opened,
    Reference,
    Settings,
    SinkUnavailable,
)
from deathless.drivers.postgresql import refuses, sink, statement_problem

# ---- what PostgreSQL says -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refused", "says"),
    [
        (message(2, key="m0001"), "23505"),
        (message(2, cents=None), "23502"),
        (message(2, cents=1000000), "23514"),
        (message(2, cents="many"), "22P02"),
        (message(2, cents=2**70), "22003"),
        (message(2, cents=["1"]), "42804"),
        (message(2, "orphan"), "23503"),
        (message(2, "fail", state="P0001"), "it says no"),
        (message(2, "fail", state="44000"), "it says no"),
        (message(2, "fail", state="45000"), "it says no"),
        (message(2, "fail", state="54000"), "it says no"),
        (message(2, "many"), "21000"),
        (message(2, "broken"), "42601"),
        (message(2, "nowhere"), "42P01"),
        (message(2, "two"), "42601"),
        (message(2, "echo"), "value"),
        (message(2, "echo", value="\0"), "NUL"),
        (message(2, "echo", value={"a": b"no text"}), "JSON"),
        (message(2, "echo", value=object()), "adapt"),
        (message(2, "far"), "timestamp"),
        (message(2, "missing"), "no statement for missing"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.method,
)
def test_what_is_refused_for_good_is_told_by_its_position(bench: Bench, refused: Delivery, says: str) -> None:
    async def work() -> None:
        one = bench.sink()
        await one.open(SOURCE, 1)
        await one.deliver([message(1)])
        for batch in ([refused], [refused, message(3)]):
            with pytest.raises(DeliveryRefused, match=says) as told:
                await one.deliver(batch)
            assert told.value.position == 2
        assert bench.ledger() == ["m0001"], "nothing of the batch counts"
        await one.pass_over(2, Answer(2, Reference(102, 1), b"\x01refused"))
        await one.deliver([message(3)])
        assert [each.position for each in (await one.open(SOURCE, 1)).answers] == [1, 2, 3]
        await one.close()
        assert bench.ledger() == ["m0001", "m0003"]

    acting(work)


def test_refused_one_among_many_is_found_wherever_it_stands(bench: Bench) -> None:
    async def work() -> None:
        one = bench.sink()
        await one.open(SOURCE, 1)
        for bad in range(1, 9):
            batch = [message(n, "fail" if n == bad else "insert", state="22012") for n in range(1, 9)]
            with pytest.raises(DeliveryRefused) as told:
                await one.deliver(batch)
            assert told.value.position == bad
        await one.close()
        assert bench.ledger() == []

    acting(work)


@pytest.mark.parametrize(
    "state", ["40001", "40P01", "53100", "53300", "55P03", "57014", "57P01", "25006", "58030", "XX000"]
)
def test_what_may_pass_is_no_refusal(bench: Bench, state: str) -> None:
    async def work() -> None:
        one = bench.sink()
        await one.open(SOURCE, 1)
        with pytest.raises(SinkUnavailable, match=state):
            await one.deliver([message(1), message(2, "fail", state=state)])
        assert await one.open(SOURCE, 1) == Opened(1, [])
        await one.deliver([message(1)])
        await one.close()
        assert bench.ledger() == ["m0001"]

    acting(work)


def test_error_of_our_own_tables_is_no_refusal_of_a_message(bench: Bench) -> None:
    async def work() -> None:
        one = bench.sink()
        await one.open(SOURCE, 1)
        bench.run("DELETE FROM positions")
        with pytest.raises(SinkUnavailable, match="missing from the table of positions"):
            await one.deliver([message(1)])
        await one.open(SOURCE, 1)
        bench.run("DROP TABLE answers")
        with pytest.raises(SinkUnavailable, match="42P01"):
            await one.deliver([message(1)])
        assert await one.open(SOURCE, 1) == Opened(1, [])  # they are made again
        await one.close()
        assert bench.ledger() == []

    acting(work)


def test_values_come_and_go_as_their_types_say(bench: Bench) -> None:
    async def work() -> None:
        one = bench.sink()
        await one.open(SOURCE, 1)
        given = ["text", 7, 2**40, 1.5, True, None, b"\x00\xff", {"a": [1, None]}, [1, "b"], "1 % of \u00fc"]
        answers = await one.deliver([message(n, "echo", value=value) for n, value in enumerate(given, 1)])
        assert [value_of(each)["value"] for each in answers] == given
        (answer,) = await one.deliver([message(20, "values")])
        expected = {"n": "1", "d": "2024-02-29", "b": b"\x00\xff", "j": {"a": [1]}, "i": "P1D", "a": "10.0.0.1"}
        assert value_of(answer) == {**expected, "z": None, "l": [1, 2]}
        await one.close()

    acting(work)


def test_commit_waits_for_the_disk_whatever_the_role_says(bench: Bench) -> None:
    async def work() -> None:
        one = bench.sink(dsn=as_role(bench, "SUPERUSER"))
        bench.run(f"ALTER ROLE {bench.name} SET synchronous_commit = off")
        await one.open(SOURCE, 1)
        (answer,) = await one.deliver([message(1, "setting")])
        await one.confirmed(1)
        (after,) = await one.deliver([message(2, "setting")])
        await one.close()
        assert value_of(answer) == value_of(after) == {"found": "on"}

    acting(work)


def as_role(bench: Bench, rights: str = "") -> str:
    """Make a role named like the test's schema; gives how it connects."""
    bench.run(f"CREATE ROLE {bench.name} LOGIN {rights}")
    return bench.dsn.replace("user=deathless", f"user={bench.name}")


def test_role_without_the_right_to_make_tables_uses_those_that_are_there(bench: Bench) -> None:
    async def work() -> None:
        mine, role = f"{bench.name}_mine", bench.name
        humble = bench.sink(dsn=as_role(bench), schema=mine)
        with pytest.raises(SinkUnavailable, match="42501"):
            await humble.open(SOURCE, 1)
        owner = bench.sink(schema=mine)
        await owner.open(SOURCE, 1)
        await owner.close()
        bench.run(f"GRANT USAGE ON SCHEMA {mine}, {bench.name} TO {role}")
        bench.run(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {mine} TO {role}")
        bench.run(f"GRANT INSERT, SELECT ON ledger TO {role}")
        assert await humble.open(SOURCE, 1) == Opened(1, [])
        await humble.deliver([message(1)])
        await humble.close()
        assert bench.ledger() == ["m0001"]

    acting(work)


def test_two_drivers_that_make_the_tables_at_once_both_succeed(bench: Bench) -> None:
    async def work() -> None:
        sinks = [bench.sink(f"driver{n}", schema=f"{bench.name}_new") for n in range(8)]
        assert await asyncio.gather(*(each.open(SOURCE, 1) for each in sinks)) == [Opened(1, [])] * 8
        for each in sinks:
            await each.close()

    acting(work)


def test_server_that_is_not_there_is_unavailable_and_close_says_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        one = sink(Settings("ledger", {"dsn": f"host={tmp_path} user=x", "statements": STATEMENTS}))
        with pytest.raises(SinkUnavailable, match="connection"):
            await one.open(SOURCE, 1)
        with pytest.raises(SinkUnavailable, match="not connected"):
            await one.deliver([message(1)])
        await one.close()

    acting(work)


# ---- options --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"statements": {"a": "SELECT 1"}}, "dsn or dsnFile"),
        ({"dsn": "host=a", "dsnFile": "b", "statements": {"a": "SELECT 1"}}, "dsn or dsnFile"),
        ({"dsn": "host=a"}, "statements"),
        ({"dsn": "host=a", "statements": {}}, "statements"),
        ({"dsn": "host=a", "statements": {"a": "SELECT 1"}, "schmea": "x"}, "schmea"),
        ({"dsn": "host=a", "statements": {"a": "SELECT 1"}, "schema": 'x"; DROP'}, "schema"),
        ({"dsn": "host=a password=p", "statements": {"a": "SELECT 1"}}, "password"),
        ({"dsn": "postgresql://u:p@h/d", "statements": {"a": "SELECT 1"}}, "password"),
        ({"dsn": "nonsense", "statements": {"a": "SELECT 1"}}, "options.dsn"),
        ({"dsnFile": "missing", "statements": {"a": "SELECT 1"}}, "missing"),
        ({"dsn": "host=a", "statements": {"pay": "COMMIT"}}, r"statements\.pay: COMMIT"),
    ],
)
def test_options_that_can_not_work_are_refused_at_the_start(
    options: dict[str, object], says: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidConfig, match=f"driver ledger.*{says}"):
        sink(Settings("ledger", options, str(tmp_path)))


@pytest.mark.parametrize(
    "text",
    ["postgresql://u:s3cr3t@[::1", "postgresql://u:s3cr3t%zz@h/d", "host=db password=my s3cr3t", "host=db s3cr3t=p"],
)
def test_nothing_that_stands_in_the_file_is_told(text: str, tmp_path: Path) -> None:
    """libpq quotes what it can't read, and what is said of options stands in logs and in the status of a pod."""
    (tmp_path / "dsn").write_text(text)
    with pytest.raises(InvalidConfig, match=r"options\.dsnFile is no connection string") as told:
        sink(Settings("ledger", {"dsnFile": "dsn", "statements": {"a": "SELECT 1"}}, str(tmp_path)))
    assert "s3cr3t" not in str(told.value)


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("INSERT INTO a VALUES (%(key)s)", ""),
        ("SELECT 5 %% 3, %(x)s", ""),
        ("/* why */ WITH a AS (SELECT 1) SELECT 1 -- end", ""),
        ("", "empty"),
        ("-- nothing", "empty"),
        ("begin", "BEGIN"),
        ("/* x */ commit; select 1", "COMMIT"),
        ("SET x = 1", "SET"),
        ("SELECT 5 % 3", "%%"),
        ("SELECT %s", "%%"),
        ("SELECT %(a)d", "%%"),
    ],
)
def test_statement_is_looked_at_before_any_message_comes(statement: str, problem: str) -> None:
    assert problem in statement_problem(statement)
    assert bool(problem) == bool(statement_problem(statement))


def test_file_with_the_password_is_read(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "dsn").write_text(f"{bench.dsn} password=secret\n")

    async def work() -> None:
        one = sink(Settings("ledger", {"dsnFile": "dsn", "statements": STATEMENTS}, str(tmp_path)))
        assert await one.open(SOURCE, 1) == Opened(1, [])
        await one.close()

    acting(work)


def test_without_psycopg_the_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(InvalidConfig, match=r"deathless\[postgresql\]"):
        sink(Settings("ledger", {"dsn": "host=a", "statements": STATEMENTS}))


def test_bug_of_ours_is_no_refusal() -> None:
    assert not refuses(AssertionError())
    assert not refuses(psycopg.OperationalError())
