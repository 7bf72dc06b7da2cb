"""What tests with ClickHouse need: a server that they share, and a database in it for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lab.clickhouse import Missing, Server
from tests.clickhouse.clickhouse_lab import NUMBERS, Tables


@pytest.fixture(scope="session", params=["server", "engine"])
def clickhouse(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of 2018, and the engine of today behind our own HTTP."""
    try:
        server = Server(engine=request.param == "engine")
    except Missing as missing:
        pytest.skip(str(missing))
    with server:
        yield server


@pytest.fixture
def tables(clickhouse: Server) -> Tables:
    """A database of this test's own, with a table for rows."""
    clickhouse.revive()
    found = Tables(clickhouse, f"bench{next(NUMBERS)}")
    found.run(f"CREATE DATABASE {found.name}")
    found.run(
        "CREATE TABLE {db}.facts (number Int64, text String, _block UUID, _position Int64,"
        " checked UInt8 MATERIALIZED throwIf(text = 'bad')) ENGINE = MergeTree ORDER BY number"
    )
    return found
