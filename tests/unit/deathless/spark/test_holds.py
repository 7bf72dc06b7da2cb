"""A pipeline keeps the rows behind the start of the batch that is computed, of topics that are known by name."""

from pathlib import Path

import pytest

from deathless.spark.holds import AGAIN_S, Holds
from deathless.spark.options import offer_services
from deathless.topics.reader import TopicReader
from deathless.topics.source import parse_source

SOURCE = f"{'a' * 32}.7"


def offsets(position: int, service: str = "airports") -> str:
    """A batch that ends there, of a topic and of a source that is none of ours."""
    ours = f'{{"topic":"departures","service":"{service}","shards":{{"0":["{SOURCE}",{position}]}}}}'
    return f'v1\n{{"batchTimestampMs":7}}\n{ours}\n{{"other":1}}\n-'


def held(folder: Path) -> list[tuple[str, int]]:
    """Holds of the topic."""
    reader = TopicReader(folder / "topics" / "departures", parse_source(SOURCE))
    return [(each.name, each.hold.position) for each in reader.holds() if each.hold is not None]


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a service with a topic."""
    monkeypatch.setenv("DEATHLESS_SERVICES", "")
    (tmp_path / "topics" / "departures" / SOURCE).mkdir(parents=True)
    offer_services({"airports": str(tmp_path)})
    return tmp_path


def test_rows_are_kept_from_the_start_of_the_batch_on(service: Path) -> None:
    """Of the first batch, from its end on: a driver that comes before it is decided begins anew."""
    now = [0.0]
    holds = Holds("delays", clock=lambda: now[0])
    holds.keep("alarms", "", offsets(5))
    assert held(service) == [("delays.alarms", 5)]
    holds.keep("alarms", offsets(5), offsets(9))
    holds.keep("log", offsets(7), offsets(9))
    assert held(service) == [("delays.alarms", 5), ("delays.log", 7)]
    holds.keep("alarms", offsets(9), offsets(12))
    assert held(service) == [("delays.alarms", 5), ("delays.log", 7)], "it costs a sync: once a second is enough"
    now[0] = AGAIN_S
    holds.keep("alarms", offsets(9), offsets(12))
    assert held(service) == [("delays.alarms", 9), ("delays.log", 7)]


def test_a_service_that_is_not_known_by_name_is_left_alone(service: Path) -> None:
    """Its rows were read from a folder that somebody named."""
    Holds("delays").keep("alarms", "", offsets(5, ""))
    Holds("delays").keep("alarms", "", offsets(5, "hotels"))
    assert held(service) == []
