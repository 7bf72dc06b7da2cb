"""The metrics of the sources beside a replica, asked from their processes on local sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from deathless.base.config import ReplicaConfig
from deathless.shell.link.source_status import STATUS_BYTES_MAX, SourceStatus
from deathless.shell.net.abstract_socket import driver_socket
from deathless.shell.net.status_port import ask_status
from deathless.shell.web.side_metrics import Numbers, expose

GAUGES: Final[Numbers[SourceStatus]] = {
    "problem": (
        "1 while the source can't be read at all; `deathless sources list` says why.",
        lambda each: bool(each.code),
    ),
    "streams_standing": (
        "Streams of the source that do not go on; `deathless sources list` says why.",
        lambda each: each.standing,
    ),
    "behind": (
        "Ids that are outside and not taken in, where the kind of source tells.",
        lambda each: sum(stream.behind for stream in each.streams),
    ),
    "connections": ("Connections of clients, where a kind of source has some.", lambda each: each.connections),
}
COUNTERS: Final[Numbers[SourceStatus]] = {
    "rows": ("Rows that the source has sent since its process began.", lambda each: each.rows),
    "errors": ("Attempts of the source to read that failed since its process began.", lambda each: each.errors),
}


def source_socket(directory: str, owner: str, source: str) -> str:
    """Give the name of the socket at which a source's process says how it is; see `shell.net.abstract_socket`."""
    return driver_socket(directory, owner, f"source/{source}")


async def ask_source(config: ReplicaConfig, source: str) -> SourceStatus | None:
    """Ask the process of one source how it is; None: it does not say."""
    return await ask_status(source_socket(config.directory, config.owner, source), SourceStatus, STATUS_BYTES_MAX)


async def source_metrics(config: ReplicaConfig, labels: Mapping[str, str]) -> bytes:
    """Give the metrics of all sources of a replica in the text format; nothing where it has none."""
    if not config.sources:
        return b""
    names = [source.name for source in config.sources]
    told = await asyncio.gather(*(ask_source(config, name) for name in names))
    return expose_sources(dict(zip(names, told, strict=True)), labels)


def expose_sources(told: Mapping[str, SourceStatus | None], labels: Mapping[str, str]) -> bytes:
    """Give what sources said, by name; None: one that did not."""
    return expose("source", told, labels, GAUGES, COUNTERS)
