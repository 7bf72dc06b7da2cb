"""The way of spans out of a worker: it never waits, it never fails, and what is lost is counted."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine

import msgspec
import pytest

from deathless.base.config import ReplicaConfig, TracingConfig
from deathless.codec.traces import Span, SpanKind, begun
from deathless.shell.worker import spans as module
from deathless.shell.worker.spans import PACKET_BYTES_MAX, PACKET_SPANS_MAX, Ended, Spans, exporter_command

CONFIG = ReplicaConfig(
    service="bank", module="m:m", directory="/tmp", replica="r0", tracing=TracingConfig(endpoint="http://c:4318")
)
SPAN = Span(SpanKind.CALL, begun(b"\x01" * 16, sampled=True), b"\x02" * 8, "bank", "add", "a", 1, 0, 0, 5, b"")
COUNTS = """
import socket, sys
import msgspec
from deathless.shell.worker.spans import Ended, Totals
pair, count = socket.socket(fileno=int(sys.argv[1])), 0
while data := pair.recv(1 << 20):
    ended = msgspec.msgpack.decode(data, type=Ended)
    assert ended.end_us == 7
    count += len(ended.spans)
    pair.send(msgspec.msgpack.encode(Totals(count, 1)))
"""
ENDS = "import sys"
SLEEPS = "import signal; signal.pause()"
HANGS_UP = "import os, signal, sys; os.close(int(sys.argv[1])); signal.pause()"


def command(script: str) -> Callable[[int], list[str]]:
    return lambda descriptor: [sys.executable, "-c", script, str(descriptor)]


async def until(spans: Spans, wanted: Callable[[dict[str, object]], bool]) -> None:
    """Wait until the numbers are so."""
    while not wanted(spans.status()):  # noqa: ASYNC110  gives way, does not sleep
        await asyncio.sleep(0)


def run(work: Callable[[], Coroutine[object, object, Spans]]) -> None:
    """Run a test; its process is gone at the end."""

    async def whole() -> None:
        spans = await asyncio.wait_for(work(), 60)
        spans.close()
        for process in spans._leaving:
            process.kill()
            process.wait()

    asyncio.run(whole())


def test_spans_are_handed_over_and_counted() -> None:
    async def main() -> Spans:
        spans = Spans(CONFIG, command(COUNTS))
        assert spans.status() == {"spans_exported": 0, "spans_lost": 0}
        spans.export([SPAN] * (2 * PACKET_SPANS_MAX + 1), 7)
        spans.export([SPAN], 7)
        count = 2 * PACKET_SPANS_MAX + 2
        await until(spans, lambda status: status == {"spans_exported": count, "spans_lost": 1})
        return spans

    run(main)


def test_without_a_section_nothing_is_started() -> None:
    async def main() -> Spans:
        spans = Spans(msgspec.structs.replace(CONFIG, tracing=None), command(ENDS))
        spans.export([SPAN], 7)
        assert (spans.status(), spans._process) == ({}, None)
        return spans

    run(main)


def test_without_the_library_nothing_is_started_and_it_is_told_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> Spans:
        spans = Spans(CONFIG, command(ENDS))
        spans.export([SPAN], 7)
        assert (spans.status(), spans._process) == ({}, None)
        return spans

    monkeypatch.setattr(module, "find_spec", lambda name: None)
    run(main)
    assert "deathless[otel]" in str(caplog.records[0].__dict__["do"])


def test_an_exporter_that_does_not_read_costs_spans_and_no_time() -> None:
    async def main() -> Spans:
        spans = Spans(CONFIG, command(SLEEPS))
        many = [SPAN._replace(error=b"x" * 1000)] * PACKET_SPANS_MAX
        for _ in range(1000):
            spans.export(many, 7)
        lost = spans.status()["spans_lost"]
        assert isinstance(lost, int)
        assert 0 < lost < 1000 * PACKET_SPANS_MAX
        return spans

    run(main)


def test_a_packet_that_is_too_large_is_lost() -> None:
    async def main() -> Spans:
        spans = Spans(CONFIG, command(SLEEPS))
        spans.export([SPAN._replace(error=bytes(PACKET_BYTES_MAX))], 7)
        assert spans.status() == {"spans_exported": 0, "spans_lost": 1}
        return spans

    run(main)


def test_an_exporter_that_ended_is_started_again_after_a_pause() -> None:
    async def main() -> Spans:
        commands = [command(ENDS), command(COUNTS)]

        def next_one(descriptor: int) -> list[str]:
            return commands.pop(0)(descriptor)

        spans = Spans(CONFIG, next_one)
        spans.export([SPAN], 7)
        while spans._pair is not None:  # noqa: ASYNC110  gives way, does not sleep
            await asyncio.sleep(0)
        spans.export([SPAN], 7)
        assert len(commands) == 1
        lost = spans.status()["spans_lost"]
        assert lost == 1
        spans._again_at = 0.0
        spans.export([SPAN], 7)
        assert commands == []
        await until(spans, lambda status: status["spans_exported"] == 1)
        return spans

    run(main)


def test_an_exporter_that_hung_up_and_has_not_ended_is_waited_for() -> None:
    async def main() -> Spans:
        commands = [command(HANGS_UP), command(COUNTS)]

        def next_one(descriptor: int) -> list[str]:
            return commands.pop(0)(descriptor)

        spans = Spans(CONFIG, next_one)
        spans.export([SPAN], 7)
        while spans._pair is not None:  # noqa: ASYNC110  gives way, does not sleep
            await asyncio.sleep(0)
        (process,) = spans._leaving
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222  it has been killed
        spans._again_at = 0.0
        spans.export([SPAN], 7)
        spans.close()
        assert process.returncode == -signal.SIGKILL
        assert process not in spans._leaving
        return spans

    run(main)


def test_a_process_that_cannot_be_started_costs_spans() -> None:
    async def main() -> Spans:
        spans = Spans(CONFIG, lambda _: ["/no/such/program"])
        spans.export([SPAN], 7)
        assert spans.status() == {"spans_exported": 0, "spans_lost": 1}
        return spans

    run(main)


def test_what_an_exporter_is_started_with() -> None:
    assert exporter_command(CONFIG)(5)[1:] == [
        "-m", "deathless.shell.worker.span_exporter", "5", "bank", "r0", "http://c:4318", "info",
    ]  # fmt: skip


def test_a_packet_reads_back() -> None:
    packet = Ended(7, [SPAN])
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(packet), type=Ended) == packet
