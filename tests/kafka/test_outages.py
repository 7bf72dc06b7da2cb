"""A broker that is killed while it is read, and one that comes back with an older copy of its disk."""

import asyncio
import shutil

import pytest
from confluent_kafka import Producer
from lab.kafka import Broker
from tests.kafka.records import WITHIN_S, create, opened, produce, raised, read_to, source, values

from deathless.base.errors import SourceLogCut, SourceUnavailable
from deathless.sources import kafka, kafka_client
from deathless.sources.port import Point


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """See soon that a broker is away."""
    for module in (kafka, kafka_client):
        monkeypatch.setattr(module, "REQUEST_S", 2.0)
    monkeypatch.setattr(kafka, "LOOK_AGAIN_S", 0.2)


def test_reading_goes_on_behind_a_kill() -> None:
    async def test(broker: Broker) -> None:
        reader = source(broker, "flights")
        partition = await opened(reader)
        batches = await read_to(reader, partition, 1)
        point = Point(1, batches[-1].note)
        broker.kill()
        await raised(SourceUnavailable, lambda: reader.read(partition, 100, 1 << 20))
        await raised(SourceUnavailable, lambda: reader.open(partition, [point]))
        broker.start()
        aborted(broker, "flights")  # ids 2 and 3, of another leader epoch than what stands before
        partition = await opened(reader, point)
        [*_, last] = await read_to(reader, partition, 3)
        partition = await opened(reader, Point(3, last.note), Point(3, last.note))
        produce(broker, "flights", [b"c"])
        assert values(await read_to(reader, partition, 4)) == [(4, b"c")]
        await reader.close()

    with Broker() as broker:
        create(broker, "flights")
        produce(broker, "flights", [b"a", b"b"])
        asyncio.run(test(broker))


def aborted(broker: Broker, topic: str) -> None:
    """Append a record that is never given, and its marker."""
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": "t", "log_level": 0})
    producer.init_transactions(WITHIN_S)
    producer.begin_transaction()
    producer.produce(topic, value=b"never", partition=0)
    assert producer.flush(WITHIN_S) == 0
    producer.abort_transaction(WITHIN_S)


def test_log_that_was_cut_is_told_whether_it_is_shorter_or_longer_now() -> None:
    async def test(broker: Broker) -> None:
        reader = source(broker, "flights")
        partition = await opened(reader)
        [*_, last] = await read_to(reader, partition, 1)
        kept = Point(1, last.note)
        copy_of(broker)
        broker.start()
        produce(broker, "flights", [b"lost", b"lost too"])
        [*_, last] = await read_to(reader, await opened(reader, kept), 3)
        gone = Point(3, last.note)
        broker.kill()
        shutil.rmtree(broker.data)
        (broker.folder / "copy").rename(broker.data)
        broker.start()
        assert "ends at 2" in str(await raised(SourceLogCut, lambda: opened(reader, gone)))
        broker.kill()
        broker.start()  # leads in an epoch that the records which are lost did not have
        produce(broker, "flights", [b"other"] * 5)
        assert "epoch" in str(await raised(SourceLogCut, lambda: opened(reader, gone)))
        assert "epoch" in str(await raised(SourceLogCut, lambda: opened(reader, kept, gone))), "of another shard"
        partition = await opened(reader, kept)
        assert values(await read_to(reader, partition, 6)) == [(each, b"other") for each in range(2, 7)]
        await reader.close()

    def copy_of(broker: Broker) -> None:
        broker.kill()
        shutil.copytree(broker.data, broker.folder / "copy")

    with Broker() as broker:
        create(broker, "flights")
        produce(broker, "flights", [b"a", b"b"])
        asyncio.run(test(broker))
