"""Partitions of a real Kafka as streams: each record once by its offset, and a gap that is told and never read over."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import NewPartitions
from lab.kafka import Broker
from tests.kafka.records import (
    WITHIN_S,
    admin,
    create,
    delete,
    opened,
    produce,
    raised,
    read_to,
    source,
    values,
)

from deathless.base.errors import InvalidArgument, SourceRecordsGone, SourceTopicReplaced, SourceUnavailable
from deathless.sources.kafka_place import decode_note
from deathless.sources.port import Point, Reader


def run(test: Callable[[Reader], Awaitable[None]], reader: Reader) -> None:
    """Run a test with a reader, and close it."""

    async def whole() -> None:
        try:
            await test(reader)
        finally:
            await reader.close()

    asyncio.run(whole())


def numbered(first: int, behind: int, word: str = "") -> list[bytes]:
    return [f"{word}{each}".encode() for each in range(first, behind)]


def test_partition_is_read_from_its_beginning_and_from_the_middle(broker: Broker) -> None:
    create(broker, "middle")
    produce(broker, "middle", numbered(0, 10))

    async def test(reader: Reader) -> None:
        partition = await opened(reader)
        assert (partition.number, partition.name) == (0, "middle/0")
        batches = await read_to(reader, partition, 9, records_max=3)
        assert values(batches) == list(enumerate(numbered(0, 10)))
        assert max(len(each.records) for each in batches) == 3
        note = batches[0].records[-1].note
        assert {each.note for batch in batches for each in batch.records} == {note}, "it costs nothing in the log"
        await opened(reader, Point(4, note), Point(6, note))
        assert values(await read_to(reader, partition, 9)) == list(enumerate(numbered(0, 10)))[5:]
        produce(broker, "middle", [b"new"])
        [*_, last] = await read_to(reader, partition, 10)
        assert (values([last]), last.end) == ([(10, b"new")], 11)

    run(test, source(broker, "middle"))


def test_keys_and_values_are_given_as_they_stand(broker: Broker) -> None:
    create(broker, "odd")
    producer = Producer({"bootstrap.servers": broker.address})
    producer.produce("odd", key=None, value=b"no key", headers={"a": b"b"}, timestamp=1000)
    producer.produce("odd", key=b"gone", value=None)
    producer.produce("odd", key=b"", value=b"")
    assert producer.flush(WITHIN_S) == 0

    async def test(reader: Reader) -> None:
        records = [each for batch in await read_to(reader, await opened(reader), 2) for each in batch.records]
        assert [(each.key, each.value) for each in records] == [(None, b"no key"), (b"gone", None), (b"", b"")]

    run(test, source(broker, "odd"))


def test_batches_have_no_more_bytes_than_asked_for_or_one_record(broker: Broker) -> None:
    create(broker, "large")
    produce(broker, "large", [b"x" * 10, b"y" * 500, b"z" * 10, b"z" * 10])

    async def test(reader: Reader) -> None:
        partition = await opened(reader)
        sizes: list[int] = []
        while sum(sizes) < 4:
            batch = await reader.read(partition, 100, 100)
            sizes += [len(batch.records)] if batch.records else []
            await asyncio.sleep(0)
        assert sizes == [1, 1, 2]

    run(test, source(broker, "large"))


def test_records_that_were_compacted_are_no_gap(broker: Broker) -> None:
    config = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    create(broker, "compacted", config={**config, "min.compaction.lag.ms": "0", "max.compaction.lag.ms": "100"})
    produce(broker, "compacted", numbered(0, 50))

    async def test(reader: Reader) -> None:
        count = 50
        found: list[tuple[int, bytes | None]] = [(0, b"0")]
        while found[0][0] == 0:  # the cleaner spares the segment that is written: each pass begins another one
            produce(broker, "compacted", numbered(count, count + 1))
            count += 1
            partition = await opened(reader)
            found = values(await read_to(reader, partition, count - 1))
        ids = [number for number, _ in found]
        assert ids == sorted(ids)
        assert len(ids) < count
        assert found[-1] == (count - 1, str(count - 1).encode())

    run(test, source(broker, "compacted"))


def test_aborted_transactions_are_not_given_and_open_ones_are_waited_for(broker: Broker) -> None:
    create(broker, "transactions")
    produce(broker, "transactions", [b"before"])
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": "t", "log_level": 0})
    producer.init_transactions(WITHIN_S)

    def transaction(*records: bytes) -> None:
        producer.begin_transaction()
        for each in records:
            producer.produce("transactions", value=each, partition=0)
        assert producer.flush(WITHIN_S) == 0

    async def test(reader: Reader) -> None:
        partition = await opened(reader)
        transaction(b"a1", b"a2")
        produce(broker, "transactions", [b"beside"])
        assert [each.last_id for each in await read_to(reader, partition, 0)] == [0], "no mark within a transaction"
        producer.abort_transaction(WITHIN_S)
        assert values(await read_to(reader, partition, 4)) == [(3, b"beside")], "4 is the marker"
        transaction(b"c1")
        producer.commit_transaction(WITHIN_S)
        [*_, last] = batches = await read_to(reader, partition, 6)
        assert values(batches) == [(5, b"c1")]
        assert (last.last_id, decode_note(last.note).seen) == (6, 5)
        await opened(reader, Point(last.last_id, last.note))
        produce(broker, "transactions", [b"behind"])
        assert values(await read_to(reader, partition, 7)) == [(7, b"behind")]

    run(test, source(broker, "transactions"))


@pytest.mark.parametrize("count", [2, 30], ids=["shorter", "longer"])
def test_topic_that_was_made_anew_is_told_also_while_it_is_read(broker: Broker, count: int) -> None:
    topic = f"anew-{count}"
    create(broker, topic)
    produce(broker, topic, numbered(0, 10))

    async def test(reader: Reader) -> None:
        partition = await opened(reader)
        [*_, last] = await read_to(reader, partition, 9)
        delete(broker, topic)
        create(broker, topic)
        produce(broker, topic, numbered(0, count, "other"))

        async def read_on() -> None:
            try:
                assert not (await reader.read(partition, 100, 1 << 20)).records
            except SourceUnavailable:
                await reader.open(partition, [Point(last.last_id, last.note)])

        await raised(SourceTopicReplaced, read_on)
        await raised(SourceTopicReplaced, lambda: opened(reader, Point(last.last_id, last.note)))

    run(test, source(broker, topic))


def test_operator_lets_a_stream_go_on_in_a_topic_that_was_made_anew(broker: Broker) -> None:
    create(broker, "adopted")
    produce(broker, "adopted", numbered(0, 3))

    async def test(reader: Reader) -> None:
        partition = await opened(reader)
        await read_to(reader, partition, 2)
        delete(broker, "adopted")
        create(broker, "adopted")
        produce(broker, "adopted", numbered(0, 5, "other"))
        with pytest.raises(InvalidArgument, match="offset 6"):
            await reader.adopt(partition, 2, "6")
        point = await reader.adopt(partition, 2, "1")
        await opened(reader, point, point)
        [*_, last] = batches = await read_to(reader, partition, 7)
        assert values(batches) == list(enumerate(numbered(1, 5, "other"), 4)), "ids ascend behind the mark, which is 3"
        assert last.end == 8
        await opened(reader, Point(6, last.note), Point(7, last.note))
        assert values(await read_to(reader, partition, 7)) == [(7, b"other4")]
        assert (await reader.adopt(partition, 2, "newest")).last_id == 4

    run(test, source(broker, "adopted"))


def test_records_that_expired_before_they_were_read_are_a_gap_until_an_operator_decides(broker: Broker) -> None:
    create(broker, "expired")
    produce(broker, "expired", numbered(0, 10))

    def expire(offset: int) -> None:
        client = admin(broker)
        [done] = client.delete_records([TopicPartition("expired", 0, offset)]).values()
        done.result(WITHIN_S)

    async def test(reader: Reader) -> None:
        partition = await opened(reader)
        [first, *_] = await read_to(reader, partition, 3, records_max=4)
        note = decode_note(first.note).encode()
        expire(4)
        await opened(reader, Point(3, note))
        assert values(await read_to(reader, partition, 9)) == list(enumerate(numbered(0, 10)))[4:], "nothing is missing"
        expire(6)
        await raised(SourceRecordsGone, lambda: opened(reader, Point(3, note)))
        await raised(SourceRecordsGone, lambda: opened(reader, Point(3, note), Point(9, note)))
        await raised(SourceRecordsGone, lambda: opened(reader))
        point = await reader.adopt(partition, 3, "oldest")
        await opened(reader, point)
        assert values(await read_to(reader, partition, 9)) == list(enumerate(numbered(0, 10)))[6:]

    run(test, source(broker, "expired"))
    oldest = source(broker, "expired", begin="oldest")

    async def begin(reader: Reader) -> None:
        partition = await opened(reader)
        [*_, last] = batches = await read_to(reader, partition, 9)
        assert values(batches)[0] == (6, b"6")
        expire(8)
        await raised(SourceRecordsGone, lambda: opened(reader, Point(-1, b""), Point(9, last.note)))

    run(begin, oldest)


def test_records_that_expire_while_they_are_read_are_a_gap(broker: Broker) -> None:
    create(broker, "slow")
    produce(broker, "slow", [b"x" * 900_000] * 30)  # more than is fetched ahead

    async def test(reader: Reader) -> None:
        partition = await opened(reader)
        await read_to(reader, partition, 0, records_max=1)
        client = admin(broker)
        [done] = client.delete_records([TopicPartition("slow", 0, 29)]).values()
        done.result(WITHIN_S)
        found: list[int] = []

        async def read_on() -> None:
            found.extend(each.id for each in (await reader.read(partition, 100, 1 << 20)).records)

        await raised(SourceRecordsGone, read_on)
        assert found == list(range(1, 1 + len(found)))
        assert len(found) < 28

    run(test, source(broker, "slow"))


def test_partition_that_is_new_is_read_from_its_beginning(broker: Broker) -> None:
    create(broker, "grows")

    async def test(reader: Reader) -> None:
        assert [each.name for each in await reader.partitions()] == ["grows/0"]
        client = admin(broker)
        client.create_partitions([NewPartitions("grows", 2)])["grows"].result(WITHIN_S)
        produce(broker, "grows", [b"first"], partition=1)
        assert [each.name for each in await reader.partitions()] == ["grows/0", "grows/1"]
        partition = await opened(reader, number=1)
        assert values(await read_to(reader, partition, 0)) == [(0, b"first")]

    run(test, source(broker, "grows"))


def test_topic_that_is_not_there_is_waited_for(broker: Broker) -> None:
    async def test(reader: Reader) -> None:
        with pytest.raises(SourceUnavailable, match="Unknown topic"):
            await reader.partitions()
        create(broker, "later")
        assert len(await reader.partitions()) == 1

    run(test, source(broker, "later"))


def test_offsets_are_committed_where_a_group_is_named_and_never_read(broker: Broker) -> None:
    create(broker, "lag")
    produce(broker, "lag", numbered(0, 4))

    async def test(reader: Reader) -> None:
        partition = await opened(reader)
        await read_to(reader, partition, 3)
        await reader.taken_in(partition, 2)
        client = admin(broker)
        stored: list[int] = []
        while stored != [3]:
            asked = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions("lag-of-flights")])
            told = (await asyncio.wrap_future(asked["lag-of-flights"])).topic_partitions
            stored = [each.offset for each in told]
        await opened(reader)
        assert values(await read_to(reader, partition, 3))[0] == (0, b"0")

    run(test, source(broker, "lag", group="lag-of-flights"))
