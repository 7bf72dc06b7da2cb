"""The metrics of the sinks beside a replica, asked from their processes on local sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from deathless.base.config import ReplicaConfig
from deathless.shell.link.sink_status import STATUS_BYTES_MAX, SinkStatus
from deathless.shell.net.abstract_socket import driver_socket
from deathless.shell.net.status_port import ask_status
from deathless.shell.web.side_metrics import Numbers, expose

GAUGES: Final[Numbers[SinkStatus]] = {
    "problem": ("1 while the sink stores nothing; `deathless sinks list` says why.", lambda each: bool(each.code)),
    "lag_rows": ("Positions of the topic that the sink has not stored.", lambda each: each.lag),
    "lag_seconds": ("Age of the first row that the sink has not stored.", lambda each: each.lag_s),
    "held_bytes": ("Files of the topic with rows that the sink has not stored.", lambda each: each.held_bytes),
    "hold_dropped": (
        "1 while the sink keeps no rows from being deleted, because there were too many.",
        lambda each: each.hold_dropped,
    ),
}
COUNTERS: Final[Numbers[SinkStatus]] = {
    "rows": ("Rows that the sink has stored since its process began.", lambda each: each.rows),
    "blocks": ("Blocks that the sink has stored since its process began.", lambda each: each.blocks),
    "errors": ("Attempts of the sink that failed since its process began.", lambda each: each.errors),
}


def sink_socket(directory: str, owner: str, sink: str) -> str:
    """Give the name of the socket at which a sink's process says how it is; see `shell.net.abstract_socket`."""
    return driver_socket(directory, owner, f"sink/{sink}")


async def ask_sink(config: ReplicaConfig, sink: str) -> SinkStatus | None:
    """Ask the process of one sink how it is; None: it does not say."""
    return await ask_status(sink_socket(config.directory, config.owner, sink), SinkStatus, STATUS_BYTES_MAX)


async def sink_metrics(config: ReplicaConfig, labels: Mapping[str, str]) -> bytes:
    """Give the metrics of all sinks of a replica in the text format; nothing where it has none."""
    if not config.sinks:
        return b""
    names = [sink.name for sink in config.sinks]
    told = await asyncio.gather(*(ask_sink(config, name) for name in names))
    return expose_sinks(dict(zip(names, told, strict=True)), labels)


def expose_sinks(told: Mapping[str, SinkStatus | None], labels: Mapping[str, str]) -> bytes:
    """Give what sinks said, by name; None: one that did not."""
    return expose("sink", told, labels, GAUGES, COUNTERS)
