"""Metrics of sources: numbers of those at work, and that one which says nothing shows."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
from tests.unit.deathless.shell.web.test_sink_metrics import Saying

from deathless.base.config import ReplicaConfig, SourceConfig
from deathless.shell.link.source_status import SourceStatus, StreamStatus
from deathless.shell.net.abstract_socket import listen_local
from deathless.shell.web.source_metrics import ask_source, expose_sources, source_metrics, source_socket

STREAMS = (
    StreamStatus(stream=0, name="flights/0", state="reading", taken_in=4, end=9),
    StreamStatus(stream=1, name="flights/1", state="reading", taken_in=4, end=6, code="DL3081", problem="DL3081 why"),
)
STATUS = SourceStatus(
    source="flights", kind="files", input="flights", state="stopped", streams=STREAMS, rows=4, errors=1, connections=3
)
SOURCE = SourceConfig(name="flights", kind="files", input="flights")


def config(folder: Path, *sources: SourceConfig) -> ReplicaConfig:
    return ReplicaConfig(service="airports", module="m:m", directory=str(folder), replica="r0", sources=sources)


def test_numbers_of_a_source_at_work_are_shown_by_its_name() -> None:
    text = expose_sources({"flights": STATUS}, {"service": "airports"}).decode()
    for line in (
        'deathless_source_up{service="airports",source="flights"} 1.0',
        'deathless_source_problem{service="airports",source="flights"} 0.0',
        'deathless_source_streams_standing{service="airports",source="flights"} 1.0',
        'deathless_source_behind{service="airports",source="flights"} 5.0',
        'deathless_source_connections{service="airports",source="flights"} 3.0',
        'deathless_source_rows_total{service="airports",source="flights"} 4.0',
        'deathless_source_errors_total{service="airports",source="flights"} 1.0',
    ):
        assert line in text


def test_a_source_beside_no_primary_says_nothing_of_streams() -> None:
    idle = msgspec.structs.replace(STATUS, state="idle")
    text = expose_sources({"flights": idle, "others": None}, {}).decode()
    assert 'deathless_source_up{source="flights"} 1.0' in text
    assert 'deathless_source_up{source="others"} 0.0' in text
    assert "source_behind{" not in text


def test_a_process_is_asked_on_its_local_socket(tmp_path: Path) -> None:
    found = config(tmp_path, SOURCE)

    async def asked(said: bytes) -> SourceStatus | None:
        server = await listen_local(lambda: Saying(said), source_socket(found.directory, found.owner, "flights"))
        try:
            return await ask_source(found, "flights")
        finally:
            server.close()

    assert asyncio.run(asked(msgspec.json.encode(STATUS))) == STATUS
    assert asyncio.run(asked(b"{}")) is None
    assert asyncio.run(ask_source(found, "flights")) is None
    assert b'source="flights"} 0.0' in asyncio.run(source_metrics(found, {}))
    assert asyncio.run(source_metrics(config(tmp_path), {})) == b""
