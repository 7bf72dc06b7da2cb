"""What a batch does: its rows are staged, then it is decided, from where the query stands."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.unit.deathless.spark.spark_lab import Frame, InMemory, plan
from tests.unit.deathless.spark.spark_lab import run as run_batch

from deathless.base.errors import InvalidArgument, StateMissing, StateRefused
from deathless.pipelines.ledger import DriverDeposed, PositionTaken
from deathless.spark.options import SERVICES
from deathless.spark.queries import Query
from deathless.spark.sink import ServiceSink, rows_of

QUERY = Query(name="alarms", frame=cast("Any", None), service="carriers", method="late")
KEEPS = replace(QUERY, stateful=True)


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


def run_with_state(sink: ServiceSink, batch: int, at: int, *minutes: int) -> None:
    """Run a batch of a topic's rows, as Spark does where a query keeps state."""
    (sink.folder / "state/0/0").mkdir(parents=True, exist_ok=True)
    (sink.folder / "commits").mkdir(exist_ok=True)
    (sink.folder / f"state/0/0/{batch + 1}.delta").write_text(f"{sink.number}", encoding="utf-8")
    if batch:
        (sink.folder / "commits" / str(batch - 1)).touch()
    place = {"topic": "t", "service": "airports", "shards": {"0": ["x", at]}}
    run_batch(sink, batch, at, place, key=["UA"] * len(minutes), minutes=list(minutes))


@pytest.fixture
def airports(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that is known."""
    monkeypatch.setenv(SERVICES, '{"airports": "/nowhere"}')


@pytest.mark.usefixtures("airports")
def test_a_query_that_keeps_state_goes_on_from_the_state_that_was_decided(tmp_path: Path) -> None:
    """The empty first batch is not decided, the last decided one is computed again, and both give no rows."""
    service, kept = InMemory(), []
    first, second = (
        ServiceSink(KEEPS, service, number, tmp_path, lambda _, *texts: kept.append(at_of(*texts))) for number in (1, 2)
    )
    first.open()
    for batch, at, minutes in ((0, 10, ()), (1, 11, (1,)), (2, 12, (2,)), (3, 13, (3,))):
        run_with_state(first, batch, at, *minutes)
    tip = service.held.tip
    assert tip is not None
    assert (tip.batch, tip.state, at_of(tip.before, "")) == (3, first.folder.name, 12)
    second.open()
    with pytest.raises(DriverDeposed):
        run_with_state(first, 4, 15, 5)
    run_with_state(second, 3, 13, 3)
    run_with_state(second, 4, 14, 4)
    assert service.rows() == [("UA", {"minutes": n}) for n in (1, 2, 3, 4)]
    assert kept == [10, 10, 10, 11, 12, 12, 12], "the batch that may be computed again keeps its rows"
    assert service.held.tip is not None
    assert service.held.tip.state == second.folder.name
    assert not first.folder.exists()


def at_of(start: str, end: str) -> int:
    """The position in the text of offsets: of the first one, unless it is empty."""
    return int(json.loads((start or end).splitlines()[2])["shards"]["0"][1])


@pytest.mark.usefixtures("airports")
def test_state_is_not_begun_anew_where_there_should_be_some(tmp_path: Path) -> None:
    """A query that has decided batches without it, or whose folder is gone, is told so."""
    service = InMemory()
    plain = ServiceSink(QUERY, service, 1, tmp_path / "plain")
    plain.open()
    run(plain, 0, 10, 1)
    with pytest.raises(StateMissing, match="without keeping state"):
        ServiceSink(KEEPS, service, 2, tmp_path).open()


@pytest.mark.usefixtures("airports")
@pytest.mark.parametrize("service", ["", "elsewhere"])
def test_state_of_rows_that_nobody_keeps_is_refused(tmp_path: Path, service: str) -> None:
    """A driver that takes over has to read rows of the last decided batch again."""
    sink = ServiceSink(KEEPS, InMemory(), 1, tmp_path)
    sink.open()
    with pytest.raises(StateRefused, match="something else than topics of services"):
        run_batch(sink, 0, 10, {"topic": "t", "service": service, "shards": {}}, key=[])


@pytest.mark.parametrize("key", [None, 7, ""])
def test_a_row_without_a_key_is_refused(key: object) -> None:
    """No handler would know whose it is."""
    with pytest.raises(InvalidArgument, match="key of a row must be a text"):
        list(rows_of(QUERY, cast("Any", Frame(key=[key], minutes=[1]))))
