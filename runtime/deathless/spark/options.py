"""Options of the source, read: which topic of which service, and how much of it at once.

    option              meaning
    topic               name of the topic
    folder              the service's directory, which driver and executors see
    service             instead of `folder`: a service that SERVICES names, as the agent of a pipeline does
    startingPositions   `earliest` (default) or `latest`: where a new stream begins
    maxRowsPerBatch     of a stream, over all shards (default 1,000,000)
    hold                name under which a stream keeps the rows that it has not taken (default: none are kept for it)

Guarantees: an option that is not known, or has no such value, is refused by name. Imports topics.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from deathless.base.errors import InvalidArgument
from deathless.base.shards import shard_directory
from deathless.shell.client.driver import count_shards
from deathless.topics.reader import TopicReader
from deathless.topics.source import TopicSource, hold_name, parse_source, topic_directory

SERVICES: Final = "DEATHLESS_SERVICES"
"""Environment variable: JSON, from the name of a service to its directory."""

MAX_ROWS: Final = 1_000_000
_STARTS: Final = ("earliest", "latest")
_OPTIONS: Final = ("topic", "folder", "service", "startingPositions", "maxRowsPerBatch", "hold")


class Settings(NamedTuple):
    """The options, read."""

    topic: str
    folder: str
    shards: int
    start: str
    max_rows: int
    hold: str
    service: str  # empty: the folder was given

    def reader(self, shard: int, source: str = "") -> TopicReader:
        """Give what reads a shard; of one source, if it is named. Raises: InvalidArgument."""
        directory = topic_directory(shard_directory(self.folder, shard, self.shards), self.topic)
        return TopicReader(directory, None if not source else _source(source))


def read_options(options: Mapping[str, str]) -> Settings:
    """Read the options of a source. Raises: InvalidArgument."""
    known = {
        name.lower() for name in _OPTIONS
    }  # Spark's mapping takes any spelling, and gives the names in small letters
    unknown = sorted(name for name in options if name.lower() not in known)
    if unknown:
        raise InvalidArgument(f"the source has no option {unknown[0]!r}; there are {', '.join(_OPTIONS)}")
    topic = options.get("topic", "")
    if not topic:
        raise InvalidArgument("the option 'topic' is missing: the name of the topic that is read")
    start = options.get("startingPositions", _STARTS[0])
    if start not in _STARTS:
        raise InvalidArgument(f"startingPositions is one of {', '.join(_STARTS)}, not {start!r}")
    folder = _folder(options)
    shards = count_shards([f"dir:{folder}"])
    hold, service = options.get("hold", ""), options.get("service", "")
    if hold:
        hold_name(hold)
    return Settings(topic, folder, shards, start, _rows(options), hold, service)


def _folder(options: Mapping[str, str]) -> str:
    folder, service = options.get("folder", ""), options.get("service", "")
    if bool(folder) == bool(service):
        raise InvalidArgument("give either the option 'folder', the service's directory, or 'service', its name")
    if folder:
        return str(Path(folder).absolute())
    services = known_services()
    if service not in services:
        known = ", ".join(sorted(services)) or "none"
        raise InvalidArgument(
            f"service {service!r} is not known here; there are: {known}", remedy="name it, or give the option 'folder'"
        )
    return services[service]


def offer_services(services: Mapping[str, str]) -> None:
    """Have processes that this one starts know services by name."""
    os.environ[SERVICES] = msgspec.json.encode(dict(services)).decode()


def known_services() -> dict[str, str]:
    """Give the directories of services that are known by name."""
    return msgspec.json.decode(os.environ.get(SERVICES, "{}"), type=dict[str, str])


def _rows(options: Mapping[str, str]) -> int:
    text = options.get("maxRowsPerBatch", str(MAX_ROWS))
    if not text.isdecimal() or not int(text):
        raise InvalidArgument(f"maxRowsPerBatch is a number of rows above 0, not {text!r}")
    return int(text)


def _source(text: str) -> TopicSource:
    found = parse_source(text)
    if found is None:
        raise InvalidArgument(f"{text!r} names no source of a topic")
    return found
