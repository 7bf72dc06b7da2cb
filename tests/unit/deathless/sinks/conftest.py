"""A PostgreSQL for each module of tests, and a schema in it for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lab.postgresql import Server
from postgresql_server import started
from tests.unit.deathless.sinks.sink_lab import NUMBERS, Tables


@pytest.fixture(scope="module", name="server")
def server_of_this_module() -> Iterator[Server]:
    with started(fsync="off") as server:
        yield server


@pytest.fixture(name="tables")
def schema_of_this_test(server: Server) -> Tables:
    server.wait_ready()
    found = Tables(server, f"bench{next(NUMBERS)}")
    found.run(f"CREATE SCHEMA {found.name}")
    found.run("CREATE TABLE facts (number bigint NOT NULL UNIQUE, text text CHECK (text <> 'bad'))")
    return found
