"""The brokers that tests have: two of them know nothing of each other, and nothing of one is left."""

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
    assert not other.folder.exists()
