"""What the tests of the PostgreSQL sink share: tables, statements, messages, and a schema for each test."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import msgspec
import psycopg
from lab.postgresql import Server

from deathless.drivers.port import (
    Answer,
    Delivery,
    Reference,
    Settings,
    Source,
)
from deathless.drivers.postgresql import PostgresqlSink, sink

SOURCE = Source("payments", 0, b"0123456789abcdef", 1, 5)
NEWER = msgspec.structs.replace(SOURCE, epoch=6)
ADVISORY = 77
NUMBERS = itertools.count(1)
DDL = """
CREATE TABLE ledger (id text PRIMARY KEY, cents bigint NOT NULL CHECK (cents < 1000000));
CREATE TABLE written (id bigserial PRIMARY KEY, number bigint, text text);
CREATE TABLE parent (id text PRIMARY KEY);
CREATE TABLE child (id text REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
CREATE FUNCTION fail(state text) RETURNS void LANGUAGE plpgsql AS
  'BEGIN RAISE EXCEPTION ''it says no'' USING ERRCODE = state; END';
"""
STATEMENTS = {
    "insert": "INSERT INTO ledger VALUES (%(key)s, %(cents)s) RETURNING id, cents",
    "write": "INSERT INTO written (number, text) VALUES (%(number)s, %(text)s) RETURNING number",
    "quiet": "INSERT INTO ledger VALUES (%(key)s, %(cents)s)",
    "orphan": "INSERT INTO child VALUES (%(key)s)",
    "fail": "SELECT fail(%(state)s)",
    "wait": f"SELECT pg_advisory_xact_lock_shared({ADVISORY}), 'waited' AS what",
    "setting": "SELECT current_setting('synchronous_commit') AS found",
    "echo": "SELECT %(value)s AS value",
    "values": "SELECT 1::numeric AS n, DATE '2024-02-29' AS d, '\\x00ff'::bytea AS b, '{\"a\": [1]}'::jsonb AS j,"
    " INTERVAL '1 day' AS i, '10.0.0.1'::inet AS a, NULL AS z, ARRAY[1, 2] AS l",
    "far": "SELECT 'infinity'::timestamptz AS never",
    "two": "INSERT INTO ledger VALUES ('two', 1); COMMIT",
    "broken": "INSRT INTO ledger VALUES (1)",
    "nowhere": "INSERT INTO nowhere VALUES (1)",
    "many": "SELECT (SELECT generate_series(1, 2))",
}


@dataclass
class Bench:
    """A schema of its own on the server of this module, with the tables of the service and ours."""

    server: Server
    name: str

    @property
    def search(self) -> str:
        return f" options='-c search_path={self.name}'"

    @property
    def dsn(self) -> str:
        return self.server.dsn + self.search

    def sink(self, driver: str = "ledger", dsn: str = "", **options: object) -> PostgresqlSink:
        named = {"dsn": dsn or self.dsn, "statements": STATEMENTS, "schema": self.name, **options}
        return sink(Settings(driver, named))

    def run(self, query: str, *values: object) -> list[Any]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            done = connection.execute(query.encode(), values or None)
            return done.fetchall() if done.description else []

    def ledger(self) -> list[str]:
        return [row[0] for row in self.run("SELECT id FROM ledger ORDER BY id")]


def message(
    position: int, method: str = "insert", *, key: str = "", asked: bool = True, **arguments: object
) -> Delivery:
    named = {"cents": position, **arguments} if method in {"insert", "quiet"} else arguments
    reference = Reference(100 + position, 1) if asked else None
    return Delivery(position, method, key or f"m{position:04}", named, reference, 0, f"i{position}")


def value_of(answer: Answer) -> Any:
    assert answer.reply[:1] == b"\x00"
    return msgspec.msgpack.decode(answer.reply[1:])


def acting(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())
