"""Metrics of sinks: numbers of those at work, and that one which says nothing shows."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from deathless.base.config import ReplicaConfig, SinkConfig
from deathless.shell.link.sink_status import SinkStatus
from deathless.shell.net.abstract_socket import listen_local
from deathless.shell.web.sink_metrics import ask_sink, expose_sinks, sink_metrics, sink_socket

STATUS = SinkStatus(
    sink="facts", topic="departures", state="ready", position=5, next=9, oldest_us=2_000_000, at_us=5_500_000,
    held_bytes=70, rows=4, blocks=2, errors=1,
)  # fmt: skip
SINK = SinkConfig(name="facts", topic="departures", topic_directory="", store="postgresql", table="facts")


def config(folder: Path, *sinks: SinkConfig) -> ReplicaConfig:
    return ReplicaConfig(service="airports", module="m:m", directory=str(folder), replica="r0", sinks=sinks)


class Saying(asyncio.Protocol):
    """Says something to whoever connects, and ends."""

    def __init__(self, said: bytes) -> None:
        self._said = said

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._said)
        transport.close()


def test_numbers_of_a_sink_at_work_are_shown_by_its_name() -> None:
    text = expose_sinks({"facts": STATUS}, {"service": "airports"}).decode()
    for line in (
        'deathless_sink_up{service="airports",sink="facts"} 1.0',
        'deathless_sink_problem{service="airports",sink="facts"} 0.0',
        'deathless_sink_lag_rows{service="airports",sink="facts"} 4.0',
        'deathless_sink_lag_seconds{service="airports",sink="facts"} 3.5',
        'deathless_sink_held_bytes{service="airports",sink="facts"} 70.0',
        'deathless_sink_hold_dropped{service="airports",sink="facts"} 0.0',
        'deathless_sink_rows_total{service="airports",sink="facts"} 4.0',
        'deathless_sink_blocks_total{service="airports",sink="facts"} 2.0',
        'deathless_sink_errors_total{service="airports",sink="facts"} 1.0',
    ):
        assert line in text


def test_sink_beside_no_primary_says_nothing_of_the_topic() -> None:
    idle = msgspec.structs.replace(STATUS, state="idle", code="DL3070")
    text = expose_sinks({"facts": idle, "others": None}, {}).decode()
    assert 'deathless_sink_up{sink="facts"} 1.0' in text
    assert 'deathless_sink_up{sink="others"} 0.0' in text
    assert "sink_lag_rows{" not in text


def test_process_is_asked_on_its_local_socket(tmp_path: Path) -> None:
    found = config(tmp_path, SINK)

    async def asked(said: bytes) -> SinkStatus | None:
        name = sink_socket(found.directory, found.owner, "facts")
        server = await listen_local(lambda: Saying(said), name)
        try:
            return await ask_sink(found, "facts")
        finally:
            server.close()

    assert asyncio.run(asked(msgspec.json.encode(STATUS))) == STATUS
    assert asyncio.run(asked(b"{}")) is None
    assert asyncio.run(ask_sink(found, "facts")) is None
    assert b'sink="facts"} 0.0' in asyncio.run(sink_metrics(found, {}))
    assert asyncio.run(sink_metrics(config(tmp_path), {})) == b""
