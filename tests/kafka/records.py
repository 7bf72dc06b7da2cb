"""What tests do to a broker as its other clients do: topics made and deleted, records produced.

Guarantees: what a function did stands at the broker when it returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from lab.kafka import Broker

WITHIN_S = 60.0


def admin(broker: Broker) -> AdminClient:
    """Who may change topics."""
    return AdminClient({"bootstrap.servers": broker.address})


def create(broker: Broker, topic: str, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
    """Make a topic."""
    wanted = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
    client = admin(broker)  # what was asked ends with it
    client.create_topics([wanted], operation_timeout=WITHIN_S)[topic].result(WITHIN_S)


def delete(broker: Broker, topic: str) -> None:
    """Delete a topic."""
    client = admin(broker)
    client.delete_topics([topic], operation_timeout=WITHIN_S)[topic].result(WITHIN_S)


def produce(
    broker: Broker, topic: str, values: Iterable[bytes | None], *, partition: int = 0, key: bytes = b"k"
) -> None:
    """Append records of one key."""
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 0, "acks": "all"})
    for value in values:
        producer.produce(topic, value=value, key=b"k", partition=partition)
    assert producer.flush(WITHIN_S) == 0


def read(broker: Broker, topic: str, count: int, *, partition: int = 0) -> list[Message]:
    """Give the first records of a partition, aborted ones left out."""
    settings = {"bootstrap.servers": broker.address, "group.id": "reader", "enable.auto.commit": False}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, partition, 0)])
    try:
        found: list[Message] = consumer.consume(count, timeout=WITHIN_S)
    finally:
        consumer.close()
    assert all(each.error() is None for each in found)
    return found
