"""Plays flights into a topic of Kafka, in the order of their plan: key the origin, value JSON.

Guarantees: each flight is in the topic once when `play` is done, though the broker is killed meanwhile: the producer is
idempotent, and sends again by itself. Does not: survive its own death.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from examples.flights.answers import Flight

TOPIC = "flights"
PARTITIONS = 2


def read(archive: Path) -> list[Flight]:
    """Read the flights of 2013 from the package's archive, in the order in which they are played."""
    with zipfile.ZipFile(archive) as opened, opened.open("flights.csv") as file:
        rows = list(csv.DictReader(io.TextIOWrapper(file, "utf-8")))
    rows.sort(
        key=lambda row: (
            int(row["month"]), int(row["day"]), int(row["sched_dep_time"]), row["carrier"], int(row["flight"])
        )
    )  # fmt: skip
    return [Flight(row["carrier"], row["origin"], int(row["flight"]), _minutes(row["dep_delay"])) for row in rows]


def _minutes(text: str) -> int | None:
    return None if text in ("", "NA") else int(float(text))


def records(flights: Iterable[Flight]) -> Iterator[tuple[bytes, bytes]]:
    """Give key and value of each."""
    for each in flights:
        value = {"carrier": each.carrier, "origin": each.origin, "flight": each.flight, "minutes": each.minutes}
        yield each.origin.encode(), json.dumps(value).encode()


def make_topic(address: str) -> None:
    """Make the topic. Raises: what Kafka's client raises."""
    from confluent_kafka.admin import AdminClient, NewTopic  # noqa: PLC0415  beside the environment

    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)


def play(address: str, flights: Iterable[Flight]) -> None:
    """Play all of them. Raises: RuntimeError where one could not be delivered."""
    from confluent_kafka import Producer  # noqa: PLC0415  as above

    lost: list[str] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            lost.append(str(error))

    settings = {
        "bootstrap.servers": address,
        "enable.idempotence": True,
        "linger.ms": 20,
        "message.timeout.ms": 3_600_000,
        "log_level": 0,
    }
    producer = Producer(settings)
    for key, value in records(flights):
        while True:
            try:
                producer.produce(TOPIC, value, key, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.5)
        producer.poll(0)
    while producer.flush(1.0):
        pass
    if lost:
        raise RuntimeError(f"{len(lost)} flights were not delivered to Kafka: {lost[0]}")
