"""A store is made by its name."""

import msgspec
import pytest
from tests.unit.deathless.sinks.sink_lab import SINK

from deathless.base.errors import InvalidConfig
from deathless.sinks.postgresql import PostgresqlStore
from deathless.sinks.stores import make_store


def test_a_store_is_made_by_its_name() -> None:
    assert isinstance(make_store(SINK), PostgresqlStore)


def test_a_store_that_there_is_not_is_named() -> None:
    with pytest.raises(InvalidConfig, match="no store 'paper'"):
        make_store(msgspec.structs.replace(SINK, store="paper"))
