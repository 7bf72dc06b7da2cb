"""What tests of sinks share: a schema with a table for each test, stores that write there, claims and blocks."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, cast

import msgspec
import psycopg
from lab.postgresql import Server

from deathless.base.config import SinkConfig
from deathless.sinks.conformance import KEY, block_of
from deathless.sinks.port import Claim
from deathless.sinks.postgresql import PostgresqlStore, store

NUMBERS = itertools.count(1)
CLAIM = Claim(KEY, 1, 5, "w1")
LATER = msgspec.structs.replace(CLAIM, epoch=6, writer="w2")
SCHEMA = "number:int64,text:utf8"
SINK = SinkConfig(
    name="facts", topic="numbers", topic_directory="", store="postgresql", table="facts", dsn="host=nowhere"
)
__all__ = ["CLAIM", "KEY", "LATER", "NUMBERS", "SCHEMA", "SINK", "Tables", "block_of"]


@dataclass
class Tables:
    """A schema of its own on the server of this module, with a table for rows."""

    server: Server
    name: str

    @property
    def dsn(self) -> str:
        return self.server.dsn + f" options='-c search_path={self.name}'"

    def config(self, **changes: object) -> SinkConfig:
        given = cast("Any", {"dsn": self.dsn, "schema": self.name, **changes})
        return msgspec.structs.replace(SINK, **given)

    def store(self, **changes: object) -> PostgresqlStore:
        return store(self.config(**changes))

    def run(self, query: str, *values: object) -> list[Any]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            done = connection.execute(query.encode(), values or None)
            return done.fetchall() if done.description else []

    def numbers(self, table: str = "facts") -> list[int]:
        return [row[0] for row in self.run(f"SELECT number FROM {table} ORDER BY number")]

    def position(self) -> int:
        found: int = self.run("SELECT next_position FROM deathless_sinks")[0][0]
        return found
