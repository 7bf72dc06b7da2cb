"""The metrics of the sinks beside a replica, asked from their processes on local sockets.

Guarantees: a sink that does not answer in time is `deathless_sink_up 0`; nothing is read of the shared directory, which
may hang. Does not: keep connections. Imports shell.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Final

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.codec.untrusted import read_json
from deathless.shell.link.sink_status import STATUS_BYTES_MAX, SinkStatus
from deathless.shell.net.abstract_socket import connect_local, driver_socket
from deathless.shell.web.metrics import MetricSet, Read

TIMEOUT_S: Final = 0.5
NOT_AT_WORK: Final = frozenset({"idle", "held"})
"""States of a sink that is not beside a primary, or may not store yet: the shard's other numbers say nothing of it."""


def sink_socket(directory: str, owner: str, sink: str) -> str:
    """Give the name of the socket at which a sink's process says how it is; see `shell.net.abstract_socket`."""
    return driver_socket(directory, owner, f"sink/{sink}")


class _Answer(asyncio.Protocol):
    """What a sink's process says until it ends the connection."""

    def __init__(self) -> None:
        self.data = b""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self.data += data[: STATUS_BYTES_MAX - len(self.data)]

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        with contextlib.suppress(asyncio.InvalidStateError):
            self.ended.set_result(None)


async def ask_sink(config: ReplicaConfig, sink: str) -> SinkStatus | None:
    """Ask the process of one sink how it is; None: it does not say."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            answer = await connect_local(_Answer, sink_socket(config.directory, config.owner, sink))
            await answer.ended
        return read_json(answer.data, SinkStatus)
    except (OSError, TimeoutError, msgspec.MsgspecError):
        return None


async def sink_metrics(config: ReplicaConfig, labels: Mapping[str, str]) -> bytes:
    """Give the metrics of all sinks of a replica in the text format; nothing where it has none."""
    if not config.sinks:
        return b""
    names = [sink.name for sink in config.sinks]
    told = await asyncio.gather(*(ask_sink(config, name) for name in names))
    return expose_sinks(dict(zip(names, told, strict=True)), labels)


def expose_sinks(told: Mapping[str, SinkStatus | None], labels: Mapping[str, str]) -> bytes:
    """Give what sinks said, by name; None: one that did not."""
    metrics = MetricSet("deathless", labels=labels)
    by_sink = ("sink",)
    up = {name: float(status is not None) for name, status in told.items()}
    metrics.gauge("sink_up", "1 while the process of the sink answers.", lambda: up, labels=by_sink)
    at_work = {name: each for name, each in told.items() if each is not None and each.state not in NOT_AT_WORK}
    gauges = {
        "sink_problem": ("1 while the sink stores nothing; `deathless sinks list` says why.",
                         {name: float(bool(each.code)) for name, each in at_work.items()}),
        "sink_lag_rows": ("Positions of the topic that the sink has not stored.",
                          {name: float(each.lag) for name, each in at_work.items()}),
        "sink_lag_seconds": ("Age of the first row that the sink has not stored.",
                             {name: each.lag_s for name, each in at_work.items()}),
        "sink_held_bytes": ("Files of the topic with rows that the sink has not stored.",
                            {name: float(each.held_bytes) for name, each in at_work.items()}),
        "sink_hold_dropped": ("1 while the sink keeps no rows from being deleted, because there were too many.",
                              {name: float(each.hold_dropped) for name, each in at_work.items()}),
    }  # fmt: skip
    for name, (text, values) in gauges.items():
        metrics.gauge(name, text, _constant(values), labels=by_sink)
    counters = {
        "sink_rows": ("Rows that the sink has stored since its process began.",
                      {name: float(each.rows) for name, each in at_work.items()}),
        "sink_blocks": ("Blocks that the sink has stored since its process began.",
                        {name: float(each.blocks) for name, each in at_work.items()}),
        "sink_errors": ("Attempts of the sink that failed since its process began.",
                        {name: float(each.errors) for name, each in at_work.items()}),
    }  # fmt: skip
    for name, (text, values) in counters.items():
        metrics.gauge(name, text, _constant(values), labels=by_sink, counts=True)
    return metrics.expose()


def _constant(values: Mapping[str, float]) -> Read:
    return lambda: values
