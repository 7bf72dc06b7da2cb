"""A collector of traces: an HTTP server that takes OTLP as its specification says, and keeps the spans."""

from __future__ import annotations

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

KINDS = {1: "internal", 2: "server", 3: "client", 4: "producer", 5: "consumer"}


class Seen(NamedTuple):
    """One span."""

    trace: str
    span: str
    parent: str  # empty: none
    kind: str
    name: str
    service: str
    replica: str
    error: str
    attributes: dict[str, str | int]
    start_ns: int
    end_ns: int


class Collector:
    """Listens on a free port while it is entered.

    Attributes:
        spans: all, in the order in which they came.
        status: what it answers.
        endless: the answer has a body that does not end.
    """

    def __init__(self) -> None:
        self.spans: list[Seen] = []
        self.requests = 0
        self.status = 200
        self.endless = False
        self.changed = threading.Condition()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                assert (self.path, self.headers["content-type"]) == ("/v1/traces", "application/x-protobuf")
                collector.take(body)
                self.send_response(collector.status)
                if not collector.endless:
                    self.send_header("content-length", "0")
                self.end_headers()
                with contextlib.suppress(ConnectionError):
                    while collector.endless:
                        self.wfile.write(b"x" * 65536)
                self.close_connection = True

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its name in the base class
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def take(self, body: bytes) -> None:
        """Take one request in."""
        request = ExportTraceServiceRequest.FromString(body)
        with self.changed:
            self.requests += 1
            if self.status == 200:
                self.spans += spans_of(request)
            self.changed.notify_all()

    def wait(self, count: int, deadline_s: float = 60.0) -> list[Seen]:
        """Wait until so many spans came; gives all."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.spans) >= count, deadline_s), self.spans
            return list(self.spans)

    def wait_requests(self, count: int, deadline_s: float = 60.0) -> None:
        """Wait until so many requests came."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.requests >= count, deadline_s)


def spans_of(request: ExportTraceServiceRequest) -> list[Seen]:
    """All spans of a request."""
    found: list[Seen] = []
    for each in request.resource_spans:
        resource = {entry.key: entry.value.string_value for entry in each.resource.attributes}
        for scope in each.scope_spans:
            assert scope.scope.name == "deathless"
            for span in scope.spans:
                attributes: dict[str, str | int] = {
                    entry.key: entry.value.string_value or entry.value.int_value for entry in span.attributes
                }
                found.append(
                    Seen(
                        trace=span.trace_id.hex(),
                        span=span.span_id.hex(),
                        parent=span.parent_span_id.hex(),
                        kind=KINDS[span.kind],
                        name=span.name,
                        service=resource["service.name"],
                        replica=resource["service.instance.id"],
                        error=span.status.message if span.status.code == 2 else "",
                        attributes=attributes,
                        start_ns=span.start_time_unix_nano,
                        end_ns=span.end_time_unix_nano,
                    )
                )
    return found
