"""The process that exports spans, before a collector that takes OTLP."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence

import msgspec
import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from tests.unit.deathless.shell.collector import Collector

from deathless.codec.traces import Span, SpanKind, begun, from_traceparent
from deathless.codec.wire import error_reply
from deathless.shell.worker.span_exporter import Counting, readable, session
from deathless.shell.worker.spans import Ended, Totals

TRACE = from_traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
SPAN = Span(SpanKind.CALL, TRACE, b"\x01" * 8, "bank", "add", "alice", 5, 0, 0, 1_000_000, b"")
RESOURCE = Resource({"service.name": "bank"})


@pytest.mark.parametrize(
    ("kind", "name", "otel"),
    [
        (SpanKind.CALL, "bank/add", "SERVER"),
        (SpanKind.FORK, "bank/add", "CONSUMER"),
        (SpanKind.REQUEST, "bank/add", "CLIENT"),
        (SpanKind.ACTIVITY, "activity add", "INTERNAL"),
    ],
)
def test_names_and_kinds(kind: SpanKind, name: str, otel: str) -> None:
    found = readable(SPAN._replace(kind=kind), 1_000_500, RESOURCE)
    assert (found.name, found.kind.name) == (name, otel)
    assert found.context is not None
    assert found.parent is not None
    assert f"{found.context.trace_id:x}" == "af7651916cd43dd8448eb211c80319c"
    assert (found.context.span_id, found.parent.span_id) == (0x0101010101010101, 0xB7AD6B7169203331)
    assert (found.start_time, found.end_time) == (1_000_000_000, 1_000_500_000)


def test_attributes_of_a_handler() -> None:
    assert dict(readable(SPAN, 0, RESOURCE).attributes or {}) == {
        "rpc.system": "deathless", "rpc.service": "bank", "rpc.method": "add", "deathless.key": "alice",
        "deathless.invocation": 5,
    }  # fmt: skip


def test_attributes_of_an_activity() -> None:
    found = readable(SPAN._replace(kind=SpanKind.ACTIVITY, operation=2, attempt=3), 0, RESOURCE)
    assert dict(found.attributes or {}) == {
        "deathless.activity": "add", "deathless.attempts": 3, "deathless.key": "alice", "deathless.invocation": 5,
        "deathless.operation": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (error_reply("DL3014", "ValueError", "no")[1:], "ValueError", "no"),
        (error_reply("DL1002", "", "full")[1:], "DL1002", "full"),
        (b"\xc1", "unknown", "the error can't be read"),
    ],
)
def test_an_error_is_the_status_of_its_span(error: bytes, kind: str, text: str) -> None:
    found = readable(SPAN._replace(error=error), 0, RESOURCE)
    assert (found.attributes or {})["error.type"] == kind
    assert (found.status.is_ok, found.status.description) == (False, text)


def test_a_span_that_begins_a_trace_has_no_parent() -> None:
    assert readable(SPAN._replace(trace=begun(b"\x01" * 16, sampled=True)), 0, RESOURCE).parent is None


def test_a_span_does_not_end_before_it_begins() -> None:
    """Logical time may be ahead of this machine's clock."""
    assert readable(SPAN, 999_999, RESOURCE).end_time == 1_000_000_000


class Inner(SpanExporter):
    """Fails as told."""

    def __init__(self, results: Sequence[SpanExportResult | Exception]) -> None:
        self._results = list(results)
        self.down = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    def shutdown(self) -> None:
        self.down = True


def test_failures_in_a_row_are_one_line_and_a_count(caplog: pytest.LogCaptureFixture) -> None:
    good, bad = SpanExportResult.SUCCESS, SpanExportResult.FAILURE
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    inner = Inner([good, bad, bad, ValueError("what a library raises"), good, bad])
    counting = Counting(inner, theirs)
    batch = [readable(SPAN, 0, RESOURCE)] * 2
    with ours, theirs, caplog.at_level(logging.INFO, "deathless.traces"):
        told = []
        for _ in range(6):
            counting.export(batch)
            told.append(msgspec.msgpack.decode(ours.recv(100), type=Totals))
        ours.close()
        counting.shutdown()
    assert told == [Totals(2, 0), Totals(2, 2), Totals(2, 4), Totals(2, 6), Totals(4, 6), Totals(4, 8)]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "WARNING"]
    assert inner.down


class Exporter:
    """The process, and our end of its socket."""

    def __init__(self, endpoint: str, **environment: str) -> None:
        self.pair, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pair.settimeout(60)
        with theirs:
            command = [sys.executable, "-m", "deathless.shell.worker.span_exporter", str(theirs.fileno()), "bank", "r0"]
            self.process = subprocess.Popen(
                [*command, endpoint, "info"],
                pass_fds=(theirs.fileno(),),
                env={**os.environ, **environment},
                stderr=subprocess.PIPE,
            )

    def send(self, *spans: Span) -> None:
        self.pair.send(msgspec.msgpack.encode(Ended(1_000_500, list(spans))))

    def totals(self) -> Totals:
        return msgspec.msgpack.decode(self.pair.recv(1000), type=Totals)

    def end(self) -> str:
        """Let it go; gives its log."""
        self.pair.close()
        _, log = self.process.communicate(timeout=60)
        return log.decode()


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as found:
        yield found


def test_what_was_handed_over_leaves_when_the_worker_is_gone(collector: Collector) -> None:
    exporter = Exporter(collector.endpoint, OTEL_BSP_SCHEDULE_DELAY="3600000")
    exporter.send(SPAN, SPAN._replace(span=b"\x02" * 8))
    exporter.pair.shutdown(socket.SHUT_WR)  # as a worker that is killed
    assert exporter.totals() == Totals(2, 0)
    assert exporter.end() == ""
    seen = collector.wait(2)
    assert [(each.service, each.replica, each.name) for each in seen] == [("bank", "r0", "bank/add")] * 2


def test_the_environment_says_where_the_collector_is_and_who_we_are_besides(collector: Collector) -> None:
    exporter = Exporter("", OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint, OTEL_BSP_SCHEDULE_DELAY="1")
    exporter.send(SPAN)
    assert exporter.totals() == Totals(1, 0)
    assert len(collector.wait(1)) == 1
    assert exporter.end() == ""


def test_an_answer_without_an_end_is_not_read(collector: Collector) -> None:
    collector.endless = True
    exporter = Exporter(collector.endpoint, OTEL_BSP_SCHEDULE_DELAY="1")
    for exported in (1, 2):
        exporter.send(SPAN)
        assert exporter.totals() == Totals(exported, 0)
    assert exporter.end() == ""


def test_a_provider_of_credentials_brings_a_session_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER", "gcp")
    assert session() is None


def test_a_collector_that_refuses_is_one_line_and_a_count(collector: Collector) -> None:
    collector.status = 400
    exporter = Exporter(collector.endpoint, OTEL_BSP_SCHEDULE_DELAY="1")
    for failed in (1, 2, 3):
        exporter.send(SPAN)
        assert exporter.totals() == Totals(0, failed)
    log = [msgspec.json.decode(line) for line in exporter.end().splitlines()]
    assert [(line["level"], line["code"]) for line in log] == [("warning", "DL1021")]
