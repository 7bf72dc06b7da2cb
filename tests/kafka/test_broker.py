"""The broker that tests have: what it confirmed is there after kill -9, and two of them know nothing of each other."""

from lab.kafka import Broker
from tests.kafka.records import create, produce, read


def test_records_are_there_after_kill() -> None:
    with Broker() as one:
        create(one, "flights")
        produce(one, "flights", [b"a", b"b"])
        one.kill()
        one.start()
        produce(one, "flights", [b"c"])
        assert [(each.offset(), each.value()) for each in read(one, "flights", 3)] == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert not one.folder.exists()


def test_two_brokers_do_not_share_topics(broker: Broker) -> None:
    with Broker() as other:
        create(broker, "departures", partitions=2)
        create(other, "departures")
        produce(broker, "departures", [b"here"], partition=1)
        produce(other, "departures", [b"there"])
        assert [each.value() for each in read(broker, "departures", 1, partition=1)] == [b"here"]
        assert [each.value() for each in read(other, "departures", 1)] == [b"there"]
