"""Fills a topic of Kafka with rows, reads it once, and prints how many records per second that reading gave.

`python -m bench.kafka_load ADDRESS TOPIC COUNT`, with Kafka's Python client on the module path.
"""

from __future__ import annotations

import sys
import time
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.connector_load import row

WITHIN_S: Final = 120.0
MANY: Final = 10_000


def fill(address: str, topic: str, count: int) -> None:
    """Make the topic, with one partition, and write all rows. Raises: RuntimeError when not all arrived."""
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])[topic].result(WITHIN_S)
    producer = Producer({"bootstrap.servers": address, "linger.ms": 50, "queue.buffering.max.messages": count + 1})
    for number in range(count):
        producer.produce(topic, value=row(number))
        if number % MANY == 0:
            producer.poll(0)
    left = producer.flush(WITHIN_S)
    if left:
        raise RuntimeError(f"{left} records did not arrive")


def read(address: str, topic: str, count: int) -> float:
    """Give the records per second of one that reads all and keeps none."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = 0
    began = time.perf_counter()
    while found < count:
        found += len(consumer.consume(MANY, timeout=1.0))
        if time.perf_counter() - began > WITHIN_S:
            raise RuntimeError(f"{found} records of {count} came")
    took = time.perf_counter() - began
    consumer.close()
    return count / took


if __name__ == "__main__":
    given, topic, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
    fill(given, topic, number)
    print(read(given, topic, number))
