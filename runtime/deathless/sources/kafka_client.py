"""One consumer of confluent-kafka for one partition, and what is asked of it; what waits for an answer needs a thread.

Whether the leader epoch of a place ended below it is asked by a seek. An assignment asks that only where the consumer
did not know the partition's leader before.

Guarantees: a consumer is used by one thread at a time, also where its caller has given up waiting for it, and closed
once. Does not: know ids, notes or topics that were made anew. Imports the port; confluent-kafka when one is made.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Final

from deathless.sources import kafka_place
from deathless.sources.kafka_place import EPOCH_UNKNOWN, Check, Kept
from deathless.sources.port import SourceUnavailable

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

REQUEST_S: Final = 10.0  # how long brokers have for one answer
POLL_S: Final = 0.2

Outage = Callable[["KafkaError"], SourceUnavailable]


class Client:
    """A consumer of one partition.

    Args:
        settings: of librdkafka.
        topic: whose partition it is.
        number: which.
        outage: makes the error of what passes.

    Raises: SourceUnavailable when a file that the settings name can't be read.
    """

    def __init__(self, settings: dict[str, object], topic: str, number: int, outage: Outage) -> None:
        from confluent_kafka import Consumer, KafkaException  # noqa: PLC0415 - an extra

        try:
            self._consumer: Consumer | None = Consumer(settings)
        except KafkaException as error:
            raise outage(error.args[0]) from None
        self._topic = topic
        self._number = number
        self._outage = outage
        self._lock = Lock()

    def kept(self) -> Kept:
        """Ask what the partition has; waits. Raises: SourceUnavailable."""
        from confluent_kafka import KafkaException  # noqa: PLC0415 - an extra

        with self._lock:
            try:
                return Kept(*self._used().get_watermark_offsets(self._at(), timeout=REQUEST_S))
            except KafkaException as error:
                raise self._outage(error.args[0]) from None

    def begin(self, check: Check) -> Message:
        """Begin to read at a place: give the first that comes, a record or the word that there is none; waits.

        Raises: SourceGap when the brokers refuse the place; SourceUnavailable.
        """
        with self._lock:
            consumer = self._used()
            consumer.assign([self._at(check.offset)])
            first = self._first(consumer)
            if first is not None and check.epoch != EPOCH_UNKNOWN:
                self._ask(consumer, check)
                first = self._first(consumer)
        if first is None:
            raise kafka_place.lost(check, self.kept())
        return first

    def _ask(self, consumer: Consumer, check: Check) -> None:
        """Have the brokers asked for an epoch; what has come before is dropped. Raises: SourceUnavailable."""
        from confluent_kafka import KafkaException  # noqa: PLC0415 - an extra

        try:
            consumer.seek(self._at(check.offset, check.epoch))
        except KafkaException as error:
            raise self._outage(error.args[0]) from None

    def _first(self, consumer: Consumer) -> Message | None:
        """Give the first that comes; None: the place is refused. Raises: SourceUnavailable."""
        end = time.monotonic() + REQUEST_S
        while time.monotonic() < end:
            message: Message | None = consumer.poll(POLL_S)
            if message is None:
                continue
            error = message.error()
            if error is None or error.name() == kafka_place.END:
                return message
            if error.name() in kafka_place.LOST:
                return None
            if error.name() not in kafka_place.PASSED_OVER:
                raise self._outage(error)
        raise SourceUnavailable(f"{self._topic}/{self._number}: nothing comes within {REQUEST_S:g} s")

    def fetch(self, count: int) -> list[Message]:
        """Give what has come, at most so many; never blocks once `begin` has returned."""
        with self._lock:
            found: list[Message] = self._used().consume(count, 0)
        return found

    def end(self) -> int:
        """Give the offset at which the partition ended when it was fetched from last; 0: not known. Never blocks."""
        consumer = self._consumer
        if consumer is None:
            return 0
        _, high = consumer.get_watermark_offsets(self._at(), cached=True)
        return max(0, int(high))

    def commit(self, offset: int) -> None:
        """Tell the group that everything below an offset was taken in; never blocks, and says nothing if it fails."""
        consumer = self._consumer
        if consumer is not None:
            with contextlib.suppress(Exception):
                consumer.commit(offsets=[self._at(offset)], asynchronous=True)

    def close(self) -> None:
        """Let go, once what another thread does with it has ended; waits."""
        with self._lock:
            consumer, self._consumer = self._consumer, None
            if consumer is not None:
                consumer.close()

    def _used(self) -> Consumer:
        if self._consumer is None:
            raise SourceUnavailable(f"{self._topic}/{self._number} was let go of")
        return self._consumer

    def _at(self, offset: int = 0, epoch: int = EPOCH_UNKNOWN) -> TopicPartition:
        from confluent_kafka import TopicPartition  # noqa: PLC0415 - an extra

        known = {} if epoch == EPOCH_UNKNOWN else {"leader_epoch": epoch}
        return TopicPartition(self._topic, self._number, offset, **known)


def epoch_of(message: Message) -> int:
    """Give the leader epoch of a record; EPOCH_UNKNOWN: its format knows none."""
    epoch = message.leader_epoch()
    return EPOCH_UNKNOWN if epoch is None or epoch < 0 else int(epoch)
