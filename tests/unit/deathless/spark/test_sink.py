"""What a batch does: its rows are staged, then it is decided, from where the query stands."""

from pathlib import Path
from typing import Any, cast

import pytest
from tests.unit.deathless.spark.spark_lab import Frame, InMemory, plan
from tests.unit.deathless.spark.spark_lab import run as run_batch

from deathless.base.errors import InvalidArgument
from deathless.pipelines.ledger import DriverDeposed, PositionTaken
from deathless.spark.queries import Query
from deathless.spark.sink import ServiceSink, rows_of

QUERY = Query(name="alarms", frame=cast("Any", None), service="carriers", method="late")


def run(sink: ServiceSink, batch: int, at: int, *minutes: int) -> None:
    """Run a batch."""
    run_batch(sink, batch, at, key=["UA"] * len(minutes), minutes=list(minutes))


def test_batches_of_one_run_follow_each_other(tmp_path: Path) -> None:
    """An empty one moves the query on as well."""
    service, told = InMemory(), []
    sink = ServiceSink(QUERY, service, 1, tmp_path / "q", lambda *texts: told.append(texts))
    sink.open()
    run(sink, 0, 10, 1, 2)
    run(sink, 1, 11)
    run(sink, 2, 12, 3)
    assert service.rows() == [("UA", {"minutes": n}) for n in (1, 2, 3)]
    assert sink.decided == 3
    assert [(start[-9:], end[-9:]) for _, start, end in told] == [
        ("", '{"at":10}'),
        ('{"at":10}', '{"at":11}'),
        ('{"at":11}', '{"at":12}'),
    ]


def test_another_driver_goes_on_where_the_query_stands(tmp_path: Path) -> None:
    """And the one before it decides nothing more: neither the batch that is decided already nor the next one."""
    service = InMemory()
    first, second = (ServiceSink(QUERY, service, number, tmp_path / str(number)) for number in (1, 2))
    first.open()
    run(first, 0, 10, 1)
    plan(first.folder, 1, 11)
    second.open()
    run(second, 1, 12, 2, 3)
    with pytest.raises(DriverDeposed):
        run(first, 1, 11, 2)
    assert isinstance(first.error, DriverDeposed)
    assert service.rows() == [("UA", {"minutes": n}) for n in (1, 2, 3)]


def test_a_checkpoint_that_is_older_than_what_was_decided_decides_nothing(tmp_path: Path) -> None:
    """Even under the same number: positions are compared, not numbers of batches."""
    service = InMemory()
    first, second = (ServiceSink(QUERY, service, 1, tmp_path / each) for each in ("a", "b"))
    first.open()
    second.open()
    run(first, 0, 10, 1)
    with pytest.raises(PositionTaken):
        run(second, 0, 11, 1)
    assert service.rows() == [("UA", {"minutes": 1})]


def test_a_batch_that_is_repeated_is_decided_once(tmp_path: Path) -> None:
    """Spark repeats what it has no word of."""
    service = InMemory()
    sink = ServiceSink(QUERY, service, 1, tmp_path / "q")
    sink.open()
    run(sink, 0, 10, 1)
    run(sink, 0, 10, 1, 2)
    assert service.rows() == [("UA", {"minutes": 1})]


@pytest.mark.parametrize("key", [None, 7, ""])
def test_a_row_without_a_key_is_refused(key: object) -> None:
    """No handler would know whose it is."""
    with pytest.raises(InvalidArgument, match="key of a row must be a text"):
        list(rows_of(QUERY, cast("Any", Frame(key=[key], minutes=[1]))))
