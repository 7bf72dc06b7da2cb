"""A process that exports spans: `python -m deathless.shell.worker.span_exporter FD SERVICE REPLICA ENDPOINT LEVEL`.

It reads spans from the worker's socket, makes OpenTelemetry's of them, and hands these to its batch processor and its
exporter for OTLP over HTTP. Names, attributes and kinds are those of docs/design/0010-traces.md. The variables OTEL_*
of the environment mean what they mean to the SDK.

Guarantees: a collector that is away costs one line of the log, and a count that the worker is told; ends when the
worker does, after one last attempt to send. Does not: keep anything on a disk.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from typing import Final

import msgspec
import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, TraceFlags
from opentelemetry.trace import SpanKind as OtelKind
from opentelemetry.trace.status import Status, StatusCode

from deathless.base.errors import CorruptFrame, TracesLost
from deathless.codec.traces import NO_SPAN, Span, SpanKind, parts
from deathless.codec.wire import ReplyError, decode_struct
from deathless.shell.process.logs import configure
from deathless.shell.process.output import never_wait
from deathless.shell.worker.spans import PACKET_BYTES_MAX, Ended, Totals

_LOG: Final = logging.getLogger("deathless.traces")
TRACES_PATH: Final = "/v1/traces"
# What names a session of the user's own.
CREDENTIALS: Final = (
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER",
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_TRACES_CREDENTIAL_PROVIDER",
)
LAST_MS: Final = 5000  # what is left when the worker ends has so long to leave
NICE: Final = 10
_KINDS: Final = {
    SpanKind.CALL: OtelKind.SERVER,
    SpanKind.FORK: OtelKind.CONSUMER,
    SpanKind.REQUEST: OtelKind.CLIENT,
    SpanKind.ACTIVITY: OtelKind.INTERNAL,
}
_SCOPE: Final = InstrumentationScope("deathless")


def readable(span: Span, end_us: int, resource: Resource) -> ReadableSpan:
    """Give a span as the SDK has it.

    Args:
        span: as a turn gave it.
        end_us: wall time when it was confirmed, microseconds. Logical time may be ahead of that, so it ends no earlier
            than it begins.
        resource: whose it is.
    """
    trace_id, parent, flags = parts(span.trace)

    def context(span_id: bytes, *, remote: bool) -> SpanContext:
        number = int.from_bytes(trace_id, "big")
        return SpanContext(number, int.from_bytes(span_id, "big"), remote, TraceFlags(flags))

    attributes: dict[str, str | int] = {"deathless.key": span.key, "deathless.invocation": span.invocation}
    if span.kind == SpanKind.ACTIVITY:
        name = f"activity {span.method}"
        attributes |= {"deathless.activity": span.method, "deathless.attempts": span.attempt}
    else:
        name = f"{span.service}/{span.method}"
        attributes |= {"rpc.system": "deathless", "rpc.service": span.service, "rpc.method": span.method}
    if span.operation:
        attributes["deathless.operation"] = span.operation
    status = Status(StatusCode.UNSET)
    if span.error:
        kind, text = _error(span.error)
        attributes["error.type"] = kind
        status = Status(StatusCode.ERROR, text)
    return ReadableSpan(
        name,
        context=context(span.span, remote=False),
        parent=context(parent, remote=True) if parent != NO_SPAN else None,
        resource=resource,
        attributes=attributes,
        kind=_KINDS[SpanKind(span.kind)],
        status=status,
        start_time=span.start_us * 1000,
        end_time=max(span.start_us, end_us) * 1000,
        instrumentation_scope=_SCOPE,
    )


def _error(body: bytes) -> tuple[str, str]:
    try:
        error = decode_struct(ReplyError, body)
    except CorruptFrame:
        return "unknown", "the error can't be read"
    return error.type or error.code or "unknown", error.text


class Counting(SpanExporter):
    """Counts what another one did, and tells of its first failure in a row.

    Args:
        inner: does it.
        tell: told after each batch, with totals.
    """

    def __init__(self, inner: SpanExporter, tell: socket.socket) -> None:
        self._inner = inner
        self._tell = tell
        self._exported = self._failed = 0
        self._failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """See SpanExporter."""
        try:
            result = self._inner.export(spans)
        except Exception:  # noqa: BLE001  whatever a library raises, the service goes on
            result = SpanExportResult.FAILURE
        failed = result is not SpanExportResult.SUCCESS
        if failed:
            self._failed += len(spans)
        else:
            self._exported += len(spans)
        if failed and not self._failing:
            _LOG.warning("spans can't be exported", extra={"code": TracesLost.code, "spans": len(spans)})
        elif self._failing and not failed:
            _LOG.info("spans are exported again", extra={"failed": self._failed})
        self._failing = failed
        with contextlib.suppress(OSError):  # the worker is gone, or busy: totals come again
            self._tell.send(msgspec.msgpack.encode(Totals(self._exported, self._failed)), socket.MSG_DONTWAIT)
        return result

    def shutdown(self) -> None:
        """See SpanExporter."""
        self._inner.shutdown()


def serve(pair: socket.socket, resource: Resource, processor: BatchSpanProcessor) -> None:
    """Hand on what comes until the worker is gone."""
    while data := _receive(pair):
        ended = msgspec.msgpack.decode(data, type=Ended)
        for span in ended.spans:
            processor.on_end(readable(span, ended.end_us, resource))


def _receive(pair: socket.socket) -> bytes:
    try:
        return pair.recv(PACKET_BYTES_MAX)
    except ConnectionError:
        return b""


def session() -> requests.Session | None:
    """Give a session that reads no body of an answer, which may be of any length: the status says enough.

    Gives None where the environment names a provider of credentials, whose session the SDK uses then.
    """
    if any(os.environ.get(name) for name in CREDENTIALS):
        return None
    found = requests.Session()
    found.hooks["response"].append(lambda response, **_: response.close())
    return found


def main(arguments: list[str]) -> None:
    """Export until the worker is gone.

    Args:
        arguments: number of the inherited socket, service, replica, base URL of the collector (empty: as the
            environment says), log level.
    """
    descriptor, service, replica, endpoint, level = arguments
    configure(level, replica, "traces")
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # a line for each attempt; we write one for all
    logging.getLogger("urllib3").setLevel(logging.CRITICAL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICE)
    pair = socket.socket(fileno=int(descriptor))
    resource = Resource.create({"service.name": service, "service.instance.id": replica})
    inner = OTLPSpanExporter(endpoint=endpoint.rstrip("/") + TRACES_PATH if endpoint else None, session=session())
    processor = BatchSpanProcessor(Counting(inner, pair))
    serve(pair, resource, processor)
    # A collector that is away must not keep a process whose worker is gone.
    limit = threading.Timer(LAST_MS / 1000, os._exit, (1,))
    limit.daemon = True
    limit.start()
    processor.shutdown()  # type: ignore[no-untyped-call]  # the SDK says nothing of what it gives
    limit.cancel()


if __name__ == "__main__":
    never_wait()
    main(sys.argv[1:])
