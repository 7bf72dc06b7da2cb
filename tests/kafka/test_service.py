"""Records of a real Kafka reach a service, whose primary is killed twice and whose broker is killed once."""

import asyncio
import json
from pathlib import Path

from confluent_kafka import Producer
from lab.kafka import Broker
from replica_set import ReplicaSet, client_of, wait_for
from tests.kafka.records import WITHIN_S, create

from deathless.base.config import SourceConfig

MODULE = Path(__file__).parents[1] / "process" / "source_service.py"
KEYS = ("a", "b", "c", "d", "e")
PARTITIONS = 2


def taken(replicas: ReplicaSet) -> dict[str, list[int]]:
    """What each key holds."""

    async def ask() -> dict[str, list[int]]:
        async with client_of(replicas) as client:
            return {key: await client.query("look", key, result=list[int]) for key in KEYS}

    return asyncio.run(ask())


def publish(broker: Broker, first: int, behind: int) -> None:
    """Append numbered records; those of one key stand in one partition. Before each ten stand ten that were aborted."""
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": "flights", "log_level": 0})
    producer.init_transactions(WITHIN_S)
    for number in range(first, behind, 10):
        for kept in (False, True):
            producer.begin_transaction()
            for each in range(number, number + 10):
                key = KEYS[each % len(KEYS)]
                row = json.dumps({"key": key, "number": each if kept else -1})
                producer.produce("flights", key=key, value=row, partition=KEYS.index(key) % PARTITIONS)
            producer.flush(WITHIN_S)  # an abort with unsent records may end the producer (librdkafka issue 4849)
            (producer.commit_transaction if kept else producer.abort_transaction)(WITHIN_S)


def test_each_record_is_taken_in_once_and_in_order_whatever_is_killed(tmp_path: Path) -> None:
    options = {"topic": "flights", "group": "lag"}
    with Broker() as broker:
        create(broker, "flights", partitions=PARTITIONS)
        publish(broker, 0, 200)
        source = SourceConfig(
            name="flights",
            kind="kafka",
            input="numbers",
            key="key",
            options={"bootstrapServers": broker.address, **options},
        )
        with ReplicaSet(tmp_path, service="taker", module=f"{MODULE}:taker", sources=(source,)) as replicas:

            def wait_count(count: int) -> None:
                wait_for(lambda: sum(map(len, taken(replicas).values())) >= count, f"{count} rows", replicas.describe)

            wait_count(50)
            replicas.kill_worker(replicas.primary())
            wait_count(200)
            publish(broker, 200, 400)
            name = replicas.primary()
            replicas.kill_replica(name)
            replicas.start(name)
            wait_count(400)
            broker.kill()
            broker.start()
            publish(broker, 400, 600)
            wait_count(600)
            assert taken(replicas) == {key: list(range(at, 600, len(KEYS))) for at, key in enumerate(KEYS)}
