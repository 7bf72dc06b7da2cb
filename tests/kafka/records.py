"""What tests do to a broker as its other clients do: topics made and deleted, records produced; and how they read.

Guarantees: what a function did stands at the broker when it returns.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from lab.kafka import Broker

from deathless.base.errors import DeathlessError, SourceUnavailable
from deathless.sources.kafka import reader
from deathless.sources.port import Batch, Partition, Point, Reader, Settings

WITHIN_S = 60.0
_PAUSE = threading.Event()


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


def source(broker: Broker, topic: str, **options: object) -> Reader:
    """A reader of a topic."""
    return reader(Settings("flights", {"bootstrapServers": broker.address, "topic": topic, **options}))


async def opened(source: Reader, *points: Point, number: int = 0) -> Partition:
    """Open a partition behind these points, as a host does: outages pass. A stream that is new when there are none."""
    end = time.monotonic() + WITHIN_S
    while True:
        try:
            partition = next(each for each in await source.partitions() if each.number == number)
            await source.open(partition, points or (Point(-1, b""),))
        except SourceUnavailable:
            assert time.monotonic() < end
            await asyncio.to_thread(_PAUSE.wait, 0.02)
        else:
            return partition


async def read_to(source: Reader, partition: Partition, last_id: int, *, records_max: int = 100) -> list[Batch]:
    """Read until everything up to an id was read; give the batches that brought something."""
    found: list[Batch] = []
    end = time.monotonic() + WITHIN_S
    while not found or found[-1].last_id < last_id:
        batch = await source.read(partition, records_max, 1 << 20)
        if batch.records or not found or batch.last_id > found[-1].last_id:
            found.append(batch)
        assert time.monotonic() < end, f"read up to {found[-1].last_id} only"
        await asyncio.to_thread(_PAUSE.wait, 0.02)
    return found


def values(batches: Iterable[Batch]) -> list[tuple[int, bytes | None]]:
    """Give ids and values."""
    return [(each.id, each.value) for batch in batches for each in batch.records]


async def raised(kind: type[DeathlessError], act: Callable[[], Awaitable[object]]) -> DeathlessError:
    """Do something again and again until it raises an error of this kind; outages in between pass."""
    end = time.monotonic() + WITHIN_S
    while time.monotonic() < end:
        try:
            await act()
        except SourceUnavailable as outage:
            if kind is SourceUnavailable:
                return outage
        except kind as error:
            return error
        await asyncio.to_thread(_PAUSE.wait, 0.02)
    raise AssertionError(f"no {kind.__name__}")
