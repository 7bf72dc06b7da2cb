"""Batches that go to a table of a real PostgreSQL, each once, whoever dies between the plan and its decision."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from tests.unit.deathless.sinks.sink_lab import Tables
from tests.unit.deathless.spark.spark_lab import InMemory, columns, run

from deathless.base.errors import (
    Deposed,
    PeerUnreachable,
    SinkColumnsChanged,
    SinkRowRefused,
    SinkTaken,
    SinkTipMismatch,
    SinkUnavailable,
)
from deathless.pipelines.ledger import Batch, DriverDeposed
from deathless.spark.queries import Query, Table
from deathless.spark.table import TableSink


class Rows:
    """A frame, of which only the columns are looked at."""

    def __init__(self, **types: str) -> None:
        self.schema = columns(**types)


class Drivers:
    """Drivers of one pipeline, which store batches in one table."""

    def __init__(self, tables: Tables, folder: Path, service: InMemory | None = None) -> None:
        self.service = service or InMemory()
        self._tables, self._folder = tables, folder
        self.sinks: list[TableSink] = []

    def start(self, driver: int, **types: str) -> TableSink:
        """Start one: it stores rows of these columns."""
        sink = self.sink(driver, **types)
        sink.open()
        return sink

    def sink(self, driver: int, **types: str) -> TableSink:
        table = Table(
            name="facts", store="postgresql", dsn=self._tables.dsn, dsn_file="", schema=self._tables.name, create=False
        )
        frame = cast("Any", Rows(**(types or {"number": "long", "text": "string"})))
        query = Query(name="facts", frame=frame, table=table)
        sink = TableSink(query, self.service, driver, self._folder / f"q{len(self.sinks)}")
        self.sinks.append(sink)
        return sink

    def close(self) -> None:
        for sink in self.sinks:
            sink.close()


@pytest.fixture(name="drivers")
def drivers_of_this_test(tables: Tables, tmp_path: Path) -> Any:
    drivers = Drivers(tables, tmp_path)
    yield drivers
    drivers.close()


def store(sink: TableSink, batch: int, *numbers: int, text: str = "x") -> None:
    """Have a driver run a batch of rows with these numbers."""
    run(sink, batch, 10 + batch, number=list(numbers), text=[text] * len(numbers))


def test_batches_follow_each_other_and_are_counted_with_their_rows(drivers: Drivers, tables: Tables) -> None:
    """An empty one as well, so that the query moves on."""
    sink = drivers.start(1)
    store(sink, 0, 1, 2)
    run(sink, 1, 11)
    store(sink, 2, 3)
    assert (tables.numbers(), tables.position(), drivers.service.held.batches, sink.decided) == ([1, 2, 3], 3, 3, 3)
    assert drivers.service.held.tip is not None
    assert drivers.service.held.tip.rows == 1


def test_a_batch_that_was_stored_though_nobody_was_told_is_not_stored_again(
    drivers: Drivers, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The successor finds it in the store's count, and begins behind it."""
    first = drivers.start(1)
    store(first, 0, 1)

    def lost(_query: str, _batch: Batch) -> bool:
        raise PeerUnreachable("gone")

    with monkeypatch.context() as patched:
        patched.setattr(drivers.service, "commit", lost)
        with pytest.raises(PeerUnreachable):
            store(first, 1, 2)
    second = drivers.start(2)
    assert drivers.service.held.batches == 2
    store(second, 2, 3)
    assert tables.numbers() == [1, 2, 3]


def test_a_batch_that_was_planned_and_not_stored_is_planned_anew(drivers: Drivers, tables: Tables) -> None:
    """With the rows that there are by then."""
    first = drivers.start(1)
    store(first, 0, 1)
    drivers.service.plan("facts", Batch(1, 0, position(drivers), "elsewhere", [], 1, "q", "v1"))
    second = drivers.start(2)
    store(second, 1, 2, 3)
    assert (tables.numbers(), drivers.service.held.batches) == ([1, 2, 3], 2)


def position(drivers: Drivers) -> str:
    """Where the query stands."""
    assert drivers.service.held.tip is not None
    return drivers.service.held.tip.position


def test_a_driver_that_was_replaced_behind_its_plan_stores_nothing(
    drivers: Drivers, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its successor has read the count, and would not know of it; then it plans nothing either."""
    first = drivers.start(1)
    planned = drivers.service.plan

    def freeze(query: str, batch: Batch) -> bool:
        done = planned(query, batch)
        monkeypatch.setattr(drivers.service, "plan", planned)
        store(drivers.start(2), 0, 1, 2)
        return done

    monkeypatch.setattr(drivers.service, "plan", freeze)
    with pytest.raises((Deposed, SinkUnavailable)):  # the server has ended its session
        store(first, 0, 1)
    with pytest.raises(DriverDeposed):
        store(first, 0, 1)
    assert (tables.numbers(), drivers.service.held.batches) == ([1, 2], 1)


def test_a_store_that_was_restored_to_an_older_state_is_named_until_it_is_adopted(
    drivers: Drivers, tables: Tables
) -> None:
    """Its rows of later are gone; with the operator's word those that follow are stored."""
    first = drivers.start(1)
    store(first, 0, 1)
    store(first, 1, 2)
    tables.run("DELETE FROM facts WHERE number = 2")
    tables.run("UPDATE deathless_sinks SET next_position = 1")
    with pytest.raises(SinkTipMismatch, match="the table has 1 batches, and the pipeline has decided 2"):
        drivers.start(2)
    drivers.service.held.adopt = "the backup has to do"
    store(drivers.start(2), 2, 3)
    assert (tables.numbers(), tables.position(), drivers.service.held.adopt) == ([1, 3], 3, "")


def test_another_pipeline_of_the_name_is_refused_until_it_is_adopted(
    drivers: Drivers, tables: Tables, tmp_path: Path
) -> None:
    """It began anew, so all rows would come again; the former one stores nothing more once it was adopted."""
    first = drivers.start(1)
    store(first, 0, 1)
    others = Drivers(tables, tmp_path / "others", InMemory(incarnation=8))
    with pytest.raises(SinkTaken, match="the store has batches under this name of service delays"):
        others.start(1)
    tables.run("DELETE FROM facts")
    others.service.held.adopt = "the table is empty"
    store(others.start(1), 0, 1)
    with pytest.raises(Deposed):
        store(first, 1, 2)
    with pytest.raises(SinkTaken, match="has taken its table over"):
        drivers.start(2)
    others.close()
    assert tables.numbers() == [1]


def test_other_columns_are_refused_until_they_are_adopted(drivers: Drivers, tables: Tables) -> None:
    """Changed code would store them in silence."""
    store(drivers.start(1), 0, 1)
    with pytest.raises(SinkColumnsChanged):
        drivers.start(2, number="long")
    drivers.service.held.adopt = "texts are of no use"
    run(drivers.start(2, number="long"), 1, 11, number=[2])
    assert tables.numbers() == [1, 2]


def test_a_row_that_the_table_refuses_lets_nothing_of_its_batch_in(drivers: Drivers, tables: Tables) -> None:
    """The query stands there; once the table takes it, it goes on."""
    sink = drivers.start(1)
    with pytest.raises(SinkRowRefused, match="the table refuses a row of batch 0"):
        run(sink, 0, 10, number=[1, 2], text=["x", "bad"])
    assert tables.numbers() == []
    tables.run("ALTER TABLE facts DROP CONSTRAINT facts_text_check")
    run(drivers.start(1), 0, 10, number=[1, 2], text=["x", "bad"])
    assert tables.numbers() == [1, 2]


def test_a_query_that_is_stopped_claims_no_table(drivers: Drivers, tables: Tables) -> None:
    """It may be stopped because the table's server is gone."""
    drivers.service.held.stopped = "by its operator"
    assert drivers.sink(1).open() == "by its operator"
    assert tables.run("SELECT to_regclass('deathless_sinks')") == [(None,)]
