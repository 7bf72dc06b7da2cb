"""Topics of Kafka as sources: each partition is a stream, and the offset of a record is its id.

    look (topic id) --> kept offsets --> place --> a client of its own --> batch --> look again --> given out
                                          |                                             |
                                          '-- SourceGap                                 '-- SourceGap: another topic

Partitions are assigned by hand: no group of consumers decides who reads, and no offset that Kafka stores is ever read.
librdkafka goes on in a topic that was made anew under the same name as if nothing had happened. So what was fetched is
given out only after the brokers were asked for the topic's id, later than they answered the fetch, and said the one
that the note has.

Guarantees: see sources.port; records of transactions that were aborted are not given. Does not: read keys that have a
passphrase, follow more than one topic, or connect before it is asked to.

Imports the port; confluent-kafka, which is an extra, only when a reader is made.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from deathless.base.errors import InvalidConfig
from deathless.shell.disk.small_files import read_small
from deathless.sources import kafka_options, kafka_place
from deathless.sources.kafka_client import REQUEST_S, Client, epoch_of
from deathless.sources.kafka_options import Options
from deathless.sources.kafka_place import Check, Note
from deathless.sources.port import Batch, Partition, Point, Record, Settings, SourceUnavailable

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message
    from confluent_kafka.admin import AdminClient

LOOK_AGAIN_S: Final = 5.0  # how often a partition without new records is looked after
FETCH_MAX: Final = 1000  # records taken from librdkafka at once
THREADS: Final = 16  # in which partitions are opened and closed; more of them take turns

T = TypeVar("T")


def reader(settings: Settings) -> KafkaReader:
    """Make a reader; connects nothing.

    Raises: InvalidConfig when an option is wrong, or confluent-kafka is not installed.
    """
    options = settings.typed(Options)
    kafka_options.check(settings.source, options)
    try:
        import confluent_kafka  # noqa: F401, PLC0415 - an extra: only who has such a source needs it
    except ImportError as error:
        raise InvalidConfig(f"source {settings.source}: {error}; `pip install deathless[kafka]`") from None
    return KafkaReader(Cluster(settings, options), options)


class Topic(NamedTuple):
    """What brokers said of the topic."""

    id: bytes
    leaders: dict[int, bool]  # by partition: it has one

    def expect(self, number: int) -> None:
        """Look whether a partition can be read. Raises: SourceUnavailable."""
        if not self.leaders.get(number):
            missing = "has no leader now" if number in self.leaders else "is not there"
            raise SourceUnavailable(f"partition {number} {missing}")


class Cluster:
    """The brokers and one topic of theirs. One answer serves all who asked before the question was sent."""

    def __init__(self, settings: Settings, options: Options) -> None:
        self._settings = settings
        self._options = options
        self._admin: AdminClient | None = None
        self._asking = asyncio.Lock()
        self._asked = self._answered = 0
        self._answer: Topic | SourceUnavailable = SourceUnavailable("nobody was asked yet")
        self._said = ""  # the last that the library said of its connections

    async def look(self) -> Topic:
        """Give what brokers say of the topic after this call. Raises: SourceUnavailable."""
        self._asked += 1
        mine = self._asked
        async with self._asking:
            if self._answered < mine:
                asked = self._asked
                try:
                    self._answer = await self._describe()
                except SourceUnavailable as outage:
                    self._answer = outage
                self._answered = asked
            if isinstance(self._answer, SourceUnavailable):
                raise SourceUnavailable(self._answer.message)
            return self._answer

    async def _describe(self) -> Topic:
        from confluent_kafka import KafkaException, TopicCollection  # noqa: PLC0415 - an extra
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - an extra

        name = self._options.topic
        try:
            if self._admin is None:
                self._admin = AdminClient(self._connection())
            asked = self._admin.describe_topics(TopicCollection([name]), request_timeout=REQUEST_S)[name]
            told = await asyncio.wrap_future(asked)
        except KafkaException as error:
            if self._admin is not None:
                self._admin.poll(0)  # it may have said why
            self._admin = None  # the next one reads the password again
            raise self.outage(error.args[0]) from None
        self._said = ""
        topic = told.topic_id
        parts = (topic.get_most_significant_bits(), topic.get_least_significant_bits())
        number = b"".join((each % 2**64).to_bytes(8, "big") for each in parts)
        if not any(number):
            raise SourceUnavailable(f"topic {name}: its brokers give it no id; they are older than Kafka 2.8")
        return Topic(number, {each.id: each.leader is not None for each in told.partitions})

    def client(self, number: int) -> Client:
        """Give a new client for a partition. Raises: SourceUnavailable when a file can't be read."""
        settings = {**self._connection(), **kafka_options.reading(self._settings.source, self._options)}
        return Client(settings, self._options.topic, number, self.outage)

    def _connection(self) -> dict[str, object]:
        password = ""
        if self._options.sasl is not None:
            try:
                password = read_small(self._settings.path(self._options.sasl.password_file)).decode().strip()
            except (OSError, UnicodeDecodeError) as error:
                raise SourceUnavailable(f"{self._options.sasl.password_file}: {error}") from None
        named = kafka_options.files(self._options).items()
        paths = {setting: str(self._settings.path(path)) for setting, path in named}
        settings = kafka_options.connection(self._settings.source, self._options, password)
        return {**settings, **paths, "error_cb": self._hear}

    def _hear(self, error: KafkaError) -> None:
        if error.name() != "_ALL_BROKERS_DOWN":  # which follows what says more
            self._said = str(error.str())

    def outage(self, error: KafkaError) -> SourceUnavailable:
        """Give the error of what passes."""
        heard = f" ({self._said})" if self._said else ""
        where = f"topic {self._options.topic} at {self._options.bootstrap_servers}"
        return SourceUnavailable(f"{where}: {error.str()}{heard}")


@dataclass(slots=True)
class _Open:
    """A partition that is open."""

    client: Client
    number: int
    topic: bytes
    note: Note  # that holds at `last_id`
    taken_id: int  # records up to here are not given again
    last_id: int  # everything up to here was given
    seen_id: int  # the last record that was given, or where reading began
    looked_at: float  # when the topic was asked for last, monotonic seconds
    fetched: deque[Message] = field(default_factory=deque)
    broken: bool = False  # a read did not come to its end

    def offset(self) -> int:
        """What is to be read next."""
        return self.last_id + 1 - self.note.shift


class KafkaReader:
    """Reads the partitions of one topic; see `sources.port.Reader`."""

    def __init__(self, cluster: Cluster, options: Options) -> None:
        self._cluster = cluster
        self._options = options
        self._open: dict[int, _Open] = {}
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="kafka")

    async def partitions(self) -> Sequence[Partition]:
        """Give what the topic has; see `sources.port.Reader`."""
        topic = await self._cluster.look()
        return [Partition(number=each, name=f"{self._options.topic}/{each}") for each in sorted(topic.leaders)]

    async def open(self, partition: Partition, points: Sequence[Point]) -> None:
        """Be ready to read behind the first of these points; see `sources.port.Reader`."""
        await self.leave(partition)
        topic = await self._cluster.look()
        topic.expect(partition.number)
        client = self._cluster.client(partition.number)
        try:
            kept = await self._run(client.kept)
            place = kafka_place.place(points, topic.id, kept, oldest=self._options.begin == "oldest")
            for check in place.others:
                await self._run(partial(self._prove, partition.number, check))
            first = await self._run(partial(client.begin, place.start))
        except BaseException:
            await self._run(client.close)
            raise
        last = place.last_id
        opened = _Open(client, partition.number, topic.id, place.note, last, last, last, time.monotonic())
        opened.fetched.append(first)
        self._open[partition.number] = opened

    async def read(self, partition: Partition, records_max: int, bytes_max: int) -> Batch:
        """Give what follows; see `sources.port.Reader`."""
        opened = self._open.get(partition.number)
        if opened is None or opened.broken:
            raise SourceUnavailable(f"partition {partition.number} is to be opened anew")
        opened.broken = True  # until this has come to its end
        if not opened.fetched:
            opened.fetched.extend(opened.client.fetch(min(records_max, FETCH_MAX)))
        before = opened.last_id
        records = self._take(opened, records_max, bytes_max)
        if opened.last_id == before and opened.fetched:
            await self._fail(opened, opened.fetched[0].error())
        now = time.monotonic()
        if opened.last_id != before or now - opened.looked_at >= LOOK_AGAIN_S:
            await self._look_again(opened)
            opened.looked_at = now
        end = opened.client.end()
        opened.broken = False
        note = kafka_place.reach(opened.note, opened.seen_id, opened.last_id)
        return Batch(records, opened.last_id, note.encode(), end + note.shift if end else 0)

    def _take(self, opened: _Open, records_max: int, bytes_max: int) -> list[Record]:
        """Take records off what was fetched, up to an error."""
        records: list[Record] = []
        size = 0
        encoded = opened.note.encode()
        while opened.fetched and len(records) < records_max:
            message = opened.fetched[0]
            error = message.error()
            if error is not None:
                if error.name() == kafka_place.END:
                    opened.last_id = max(opened.last_id, message.offset() - 1 + opened.note.shift)
                elif error.name() not in kafka_place.PASSED_OVER:
                    break
                opened.fetched.popleft()
                continue
            number = message.offset() + opened.note.shift
            key, value = message.key(), message.value()
            size += len(key or b"") + len(value or b"")
            if records and size > bytes_max:
                break
            opened.fetched.popleft()
            if number <= opened.taken_id:
                continue  # fetched once more, to see that it is there
            assert number > opened.last_id, "a record comes behind the word that there is none"
            note = kafka_place.follow(opened.note, epoch_of(message))
            if note is not opened.note:
                opened.note, encoded = note, note.encode()
            opened.last_id = opened.seen_id = number
            records.append(Record(id=number, value=value, key=key, note=encoded))
        return records

    async def _look_again(self, opened: _Open) -> None:
        """See that what was fetched before is of the topic that was opened. Raises: SourceGap, SourceUnavailable."""
        topic = await self._cluster.look()
        kafka_place.expect_topic(topic.id, opened.topic)
        topic.expect(opened.number)

    async def _fail(self, opened: _Open, error: KafkaError) -> None:
        if error.name() not in kafka_place.LOST:
            raise self._cluster.outage(error)
        await self._look_again(opened)  # perhaps it is another topic
        kept = await self._run(opened.client.kept)
        raise kafka_place.lost(Check(opened.offset(), opened.note.epoch), kept)

    async def taken_in(self, partition: Partition, last_id: int) -> None:
        """Tell the group how far this is, if the options name one; see `sources.port.Reader`."""
        opened = self._open.get(partition.number)
        if opened is None or not self._options.group:
            return
        opened.client.commit(max(0, last_id + 1 - opened.note.shift))

    async def adopt(self, partition: Partition, last_id: int, at: str) -> Point:
        """Give the point from which an offset follows; see `sources.port.Reader`."""
        topic = await self._cluster.look()
        topic.expect(partition.number)
        client = self._cluster.client(partition.number)
        try:
            kept = await self._run(client.kept)
        finally:
            await self._run(client.close)
        return kafka_place.adopted(at, topic.id, kept, last_id)

    async def leave(self, partition: Partition) -> None:
        """Let go of a partition; see `sources.port.Reader`."""
        opened = self._open.pop(partition.number, None)
        if opened is not None:
            await self._run(opened.client.close)

    async def close(self) -> None:
        """Let go of everything; see `sources.port.Reader`."""
        for opened in list(self._open.values()):
            await self.leave(Partition(number=opened.number, name=""))
        self._threads.shutdown(wait=False)

    async def _run(self, act: Callable[[], T]) -> T:
        """Do what blocks in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, act)

    def _prove(self, number: int, check: Check) -> None:
        """See that a place is there; runs in a thread. Raises: SourceGap, SourceUnavailable."""
        client = self._cluster.client(number)
        try:
            client.begin(check)
        finally:
            client.close()
