"""A PostgreSQL for each module of tests, and a schema in it for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lab.postgresql import Server
from postgresql_bench import DDL, NUMBERS, Bench
from postgresql_server import started


@pytest.fixture(scope="module", name="server")
def server_of_this_module() -> Iterator[Server]:
    with started(fsync="off") as server:
        yield server


@pytest.fixture(name="bench")
def schema_of_this_test(server: Server) -> Bench:
    server.wait_ready()
    found = Bench(server, f"bench{next(NUMBERS)}")
    found.run(f"CREATE SCHEMA {found.name}")
    found.run(DDL)
    return found
