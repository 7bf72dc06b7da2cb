"""What tests with ClickHouse share: a database with a table for each test, stores that write there, and claims."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
from lab.clickhouse import Server

from deathless.base.config import SinkConfig
from deathless.sinks.clickhouse.store import ClickhouseStore, store
from deathless.sinks.conformance import KEY
from deathless.sinks.port import Claim

NUMBERS = itertools.count(1)
CLAIM = Claim(KEY, 1, 5, "w1")
LATER = msgspec.structs.replace(CLAIM, epoch=6, writer="w2")
SCHEMA = "number:int64,text:utf8"
SINK = SinkConfig(name="facts", topic="numbers", topic_directory="", store="clickhouse", table="facts", dsn="http://no")


@dataclass
class Tables:
    """A database of its own, with a table for rows."""

    server: Server
    name: str
    made: list[ClickhouseStore] = field(default_factory=list)

    def config(self, **changes: object) -> SinkConfig:
        given = {"dsn": self.server.url, "table": f"{self.name}.facts", "schema": self.name, **changes}
        return msgspec.structs.replace(SINK, **cast("Any", given))

    def store(self, **changes: object) -> ClickhouseStore:
        self.made.append(store(self.config(**changes)))
        return self.made[-1]

    def run(self, statement: str) -> str:
        return self.server.run(statement.replace("{db}", self.name))

    def numbers(self, table: str = "facts") -> list[int]:
        return [int(each) for each in self.run(f"SELECT number FROM {{db}}.{table} ORDER BY number").split()]

    async def stored(self) -> list[int]:
        return self.numbers()
