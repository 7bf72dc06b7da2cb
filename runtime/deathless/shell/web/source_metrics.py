"""The metrics of the sources beside a replica, asked from their processes on local sockets.

Guarantees: a source that does not answer in time is `deathless_source_up 0`; nothing is read of the shared directory,
which may hang. Does not: keep connections. Imports shell.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Final

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.codec.untrusted import read_json
from deathless.shell.link.source_status import STATUS_BYTES_MAX, SourceStatus
from deathless.shell.net.abstract_socket import connect_local, driver_socket
from deathless.shell.web.metrics import MetricSet, Read

TIMEOUT_S: Final = 0.5
NOT_AT_WORK: Final = frozenset({"idle", "held"})
"""States of a source that is not beside a primary, or may not read yet: its numbers say nothing."""


def source_socket(directory: str, owner: str, source: str) -> str:
    """Give the name of the socket at which a source's process says how it is; see `shell.net.abstract_socket`."""
    return driver_socket(directory, owner, f"source/{source}")


class _Answer(asyncio.Protocol):
    """What a source's process says until it ends the connection."""

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


async def ask_source(config: ReplicaConfig, source: str) -> SourceStatus | None:
    """Ask the process of one source how it is; None: it does not say."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            answer = await connect_local(_Answer, source_socket(config.directory, config.owner, source))
            await answer.ended
        return read_json(answer.data, SourceStatus)
    except (OSError, TimeoutError, msgspec.MsgspecError):
        return None


async def source_metrics(config: ReplicaConfig, labels: Mapping[str, str]) -> bytes:
    """Give the metrics of all sources of a replica in the text format; nothing where it has none."""
    if not config.sources:
        return b""
    names = [source.name for source in config.sources]
    told = await asyncio.gather(*(ask_source(config, name) for name in names))
    return expose_sources(dict(zip(names, told, strict=True)), labels)


def expose_sources(told: Mapping[str, SourceStatus | None], labels: Mapping[str, str]) -> bytes:
    """Give what sources said, by name; None: one that did not."""
    metrics = MetricSet("deathless", labels=labels)
    by_source = ("source",)
    up = {name: float(status is not None) for name, status in told.items()}
    metrics.gauge("source_up", "1 while the process of the source answers.", lambda: up, labels=by_source)
    at_work = {name: each for name, each in told.items() if each is not None and each.state not in NOT_AT_WORK}
    gauges = {
        "source_problem": ("1 while the source can't be read at all; `deathless sources list` says why.",
                           {name: float(bool(each.code)) for name, each in at_work.items()}),
        "source_streams_standing": ("Streams of the source that do not go on; `deathless sources list` says why.",
                                    {name: float(each.standing) for name, each in at_work.items()}),
        "source_behind": ("Ids that are outside and not taken in, where the kind of source tells.",
                          {name: float(sum(s.behind for s in each.streams)) for name, each in at_work.items()}),
    }  # fmt: skip
    for name, (text, values) in gauges.items():
        metrics.gauge(name, text, _constant(values), labels=by_source)
    counters = {
        "source_rows": ("Rows that the source has sent since its process began.",
                        {name: float(each.rows) for name, each in at_work.items()}),
        "source_errors": ("Attempts of the source to read that failed since its process began.",
                          {name: float(each.errors) for name, each in at_work.items()}),
    }  # fmt: skip
    for name, (text, values) in counters.items():
        metrics.gauge(name, text, _constant(values), labels=by_source, counts=True)
    return metrics.expose()


def _constant(values: Mapping[str, float]) -> Read:
    return lambda: values
