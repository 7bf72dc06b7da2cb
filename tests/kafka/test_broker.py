"""The broker that tests have: two of them know nothing of each other, and what it confirmed is there after kill -9."""

from lab.kafka import Broker
from tests.kafka.records import create, produce, read


def test_two_brokers_do_not_share_topics(broker: Broker) -> None:
    with Broker() as other:
        create(broker, "departures", partitions=2)
        create(other, "departures")
        produce(broker, "departures", [b"here"], partition=1)
        produce(other, "departures", [b"there"])
        assert [each.value() for each in read(broker, "departures", 1, partition=1)] == [b"here"]
        assert [each.value() for each in read(other, "departures", 1)] == [b"there"]
        other.kill()
        other.start()
        produce(other, "departures", [b"once more"])
        assert [(each.offset(), each.value()) for each in read(other, "departures", 2)] == [
            (0, b"there"),
            (1, b"once more"),
        ]
    assert not other.folder.exists()
