"""A store is made by its name."""

import msgspec
import pytest
from tests.unit.deathless.sinks.sink_lab import SINK

from deathless.base.errors import InvalidConfig
from deathless.sinks.port import KeepsRefused
from deathless.sinks.postgresql import PostgresqlStore
from deathless.sinks.stores import make_store


def test_a_store_is_made_by_its_name() -> None:
    assert isinstance(make_store(SINK), PostgresqlStore)


def test_a_store_that_there_is_not_is_named() -> None:
    with pytest.raises(InvalidConfig, match="no store 'paper'"):
        make_store(msgspec.structs.replace(SINK, store="paper"))


def test_a_store_that_keeps_no_rows_that_it_refuses_is_named() -> None:
    kept = msgspec.structs.replace(SINK, on_refusal="deadLetter")
    assert isinstance(make_store(kept), KeepsRefused)
    elsewhere = msgspec.structs.replace(kept, store="clickhouse", dsn="http://u@h:8123/?database=d")
    with pytest.raises(InvalidConfig, match="clickhouse keeps no rows that it refuses"):
        make_store(elsewhere)
