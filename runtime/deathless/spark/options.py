"""Options of the source, read: which topic of which service, and how much of it at once.

    option              meaning
    topic               name of the topic
    folder              the service's directory, which driver and executors see
    url                 instead of `folder`: HTTP ports of its replicas, divided by commas
    service             instead of both: a service that SERVICES names or that stands in BESIDE, as the agent of a
                        pipeline says
    tokenFile           file with the token to show at `url` (default: the one that TOKEN_FILE names)
    caFile              file with the authorities that are trusted at `url`
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
from deathless.base.tls import TlsConfig
from deathless.codec.untrusted import read_json
from deathless.shell.client.driver import count_shards
from deathless.topics.http_port import HttpPort
from deathless.topics.reader import TopicReader
from deathless.topics.remote import RemoteTopic, list_topics
from deathless.topics.row_source import RowSource
from deathless.topics.source import TopicSource, hold_name, parse_source, topic_directory

SERVICES: Final = "DEATHLESS_SERVICES"
"""Environment variable: JSON, from the name of a service to its directory, or to the URL of its HTTP port."""
BESIDE: Final = "DEATHLESS_SERVICES_FOLDER"
"""Environment variable: folder in which the directories of services stand, each under the service's name."""
TOKEN_FILE: Final = "DEATHLESS_CALLER_TOKEN_FILE"  # noqa: S105  the name of a variable, which names a file
"""Environment variable: file with the token that is shown to HTTP ports."""

TLS_FILES: Final = ("DEATHLESS_CALLER_CA_FILE", "DEATHLESS_CALLER_CERTIFICATE_FILE", "DEATHLESS_CALLER_KEY_FILE")
"""Environment variables: files with the authorities that are trusted at HTTP ports, and what is shown there."""

MAX_ROWS: Final = 1_000_000
_STARTS: Final = ("earliest", "latest")
_OPTIONS: Final = (
    "topic", "folder", "url", "service", "tokenFile", "caFile", "startingPositions", "maxRowsPerBatch", "hold",
)  # fmt: skip


class _Shown(NamedTuple):
    """Files with what is shown and trusted at HTTP ports."""

    token_file: str
    ca_file: str
    certificate_file: str
    key_file: str


class Settings(NamedTuple):
    """The options, read."""

    topic: str
    place: str  # the service's directory, or URLs
    shards: int
    start: str
    max_rows: int
    hold: str
    service: str  # empty: the place was given
    token_file: str = ""
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""

    def reader(self, shard: int, source: str = "") -> RowSource:
        """Give what reads a shard; of one source, if it is named. Raises: InvalidArgument."""
        if _is_remote(self.place):
            return self._remote(shard, source)
        return self._local(shard, source)

    def published(self, shard: int) -> bool:
        """Say whether a shard has published anything. Raises: as the reader's methods."""
        if _is_remote(self.place):
            return bool(self._remote(shard).state().source)
        return bool(self._local(shard).sources())

    def _local(self, shard: int, source: str = "") -> TopicReader:
        directory = topic_directory(shard_directory(self.place, shard, self.shards), self.topic)
        return TopicReader(directory, None if not source else _source(source))

    def _remote(self, shard: int, source: str = "") -> RemoteTopic:
        urls = self.place.split(",")
        made = "" if not source else _source(source)
        return RemoteTopic(
            urls,
            self.topic,
            shard,
            made,
            token_file=self.token_file,
            ca_file=self.ca_file,
            certificate_file=self.certificate_file,
            key_file=self.key_file,
        )


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
    place = _place(options)
    ca, certificate, key = (os.environ.get(name, "") for name in TLS_FILES)
    token = options.get("tokenFile", os.environ.get(TOKEN_FILE, ""))
    shown = _Shown(token, options.get("caFile", ca), certificate, key)
    shards = _shards(topic, place, shown)
    hold, service = options.get("hold", ""), options.get("service", "")
    if hold:
        hold_name(hold)
    return Settings(topic, place, shards, start, _rows(options), hold, service, *shown)


def _place(options: Mapping[str, str]) -> str:
    folder, url, service = (options.get(name, "") for name in ("folder", "url", "service"))
    if sum(map(bool, (folder, url, service))) != 1:
        raise InvalidArgument(
            "give one of the options 'folder' (the service's directory), 'url' (its HTTP port) and 'service' (its name)"
        )
    if url and not _is_remote(url):
        raise InvalidArgument(f"url begins with http:// or https://, not as {url!r}")
    if folder or url:
        return url or str(Path(folder).absolute())
    services = known_services()
    if service not in services:
        known = ", ".join(sorted(services)) or "none"
        raise InvalidArgument(
            f"service {service!r} is not known here; there are: {known}", remedy="name it, or give the option 'folder'"
        )
    return services[service]


def _is_remote(place: str) -> bool:
    return place.startswith(("http://", "https://"))


def _shards(topic: str, place: str, shown: _Shown) -> int:
    """Give how many shards the service has. Raises: InvalidArgument; as `HttpPort.ask`."""
    if not _is_remote(place):
        return count_shards([f"dir:{place}"])
    port = HttpPort(
        place.split(","),
        token_file=shown.token_file,
        ca_file=shown.ca_file,
        certificate_file=shown.certificate_file,
        key_file=shown.key_file,
    )
    topics = list_topics(port)
    shards = [each.shard for each in topics if each.topic == topic]
    if not shards:
        raise InvalidArgument(
            f"topic {topic!r} is not among those that may be read at {place}", remedy="see spec.topics[].readers"
        )
    return max(shards) + 1


def offer_services(services: Mapping[str, str], beside: str = "") -> None:
    """Have processes that this one starts know services by name.

    Args:
        services: from the name to the directory, or to URLs divided by commas.
        beside: folder whose services are known too, whenever they come to stand there; empty: none.
    """
    os.environ[SERVICES] = msgspec.json.encode(dict(services)).decode()
    os.environ[BESIDE] = beside


def offer_tls(tls: TlsConfig) -> None:
    """Have processes that this one starts show and trust these files at HTTP ports."""
    for name, path in zip(TLS_FILES, (tls.ca, tls.certificate, tls.key), strict=True):
        os.environ[name] = path


def known_services() -> dict[str, str]:
    """Give the directories, or URLs, of services that are known by name. Raises: InvalidArgument."""
    try:
        named = read_json(os.environ.get(SERVICES, "").encode() or b"{}", dict[str, str])
    except msgspec.MsgspecError as error:
        raise InvalidArgument(f"{SERVICES} holds no services: {error}", remedy='write {"name": "folder"}') from None
    return {**services_in(os.environ.get(BESIDE, "")), **named}


def services_in(folder: str) -> dict[str, str]:
    """Give the directories of the services that stand in a folder, by name; an empty one has none."""
    found = Path(folder).glob("*/service.json") if folder else ()
    return {path.parent.name: str(path.parent) for path in found}


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
