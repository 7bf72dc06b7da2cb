"""Where the trace context of a client's message comes from."""

from __future__ import annotations

import pytest
from opentelemetry import trace as otel
from opentelemetry.sdk.trace import TracerProvider

from deathless.base.config import TracingConfig
from deathless.codec.messages import TRACE_BYTES, Kind, encode
from deathless.codec.traces import begun, from_traceparent, is_sampled, traceparent, untraced
from deathless.shell.client import active_trace
from deathless.shell.client.active_trace import active, tracer, with_trace
from deathless.shell.web.request import Request

HEADER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CALL = encode(Kind.CALL, method=b"add", args=b"\x80")
ROOM = 1000


class Asked(Request):
    """A request of which the headers matter alone."""

    def __init__(self, header: str = "") -> None:
        self.headers = {b"traceparent": header.encode()} if header else {}


def context_of(header: str, config: TracingConfig | None, chance: float = 0.5) -> bytes:
    trace = tracer(config, ROOM, entropy=lambda size: b"\x05" * size, chance=lambda: chance)
    return untraced(trace(Asked(header), CALL))[1]


def test_a_request_keeps_its_callers_trace_and_decision() -> None:
    assert traceparent(context_of(HEADER, TracingConfig(sample_ratio=0.0))) == HEADER
    assert traceparent(context_of(f" {HEADER} ", TracingConfig())) == HEADER
    unsampled = HEADER[:-2] + "00"
    assert traceparent(context_of(unsampled, TracingConfig(sample_ratio=1.0))) == unsampled


@pytest.mark.parametrize("header", ["", "rubbish", HEADER + "\xe9"])
@pytest.mark.parametrize(
    ("ratio", "chance", "begins"), [(0.0, 0.0, False), (0.5, 0.4, True), (0.5, 0.5, False), (1.0, 0.99, True)]
)
def test_a_request_without_a_trace_begins_one_as_often_as_it_is_told(
    header: str, ratio: float, chance: float, begins: bool
) -> None:
    found = context_of(header, TracingConfig(sample_ratio=ratio), chance)
    assert found == (begun(b"\x05" * 16, sampled=True) if begins else b"")


def test_a_request_is_in_no_trace_where_they_are_off() -> None:
    assert tracer(None)(Asked(HEADER), CALL) == CALL


def test_ids_are_drawn_from_the_system() -> None:
    trace = tracer(TracingConfig(), ROOM)
    assert len({trace(Asked(), CALL) for _ in range(10)}) == 10


def test_a_call_that_would_be_too_long_goes_without() -> None:
    context = from_traceparent(HEADER)
    fits = len(CALL) + TRACE_BYTES
    assert untraced(with_trace(CALL, context, fits)) == (CALL, context)
    assert with_trace(CALL, context, fits - 1) == CALL
    assert with_trace(CALL, b"", fits) == CALL


def test_the_span_that_is_active_is_the_sender() -> None:
    assert active() == b""
    with TracerProvider().get_tracer("test").start_as_current_span("work") as span:
        found = active()
    context = span.get_span_context()
    assert traceparent(found) == f"00-{context.trace_id:032x}-{context.span_id:016x}-01"
    assert is_sampled(found)


def test_a_span_that_is_not_sampled_is_told_as_such() -> None:
    unsampled = otel.NonRecordingSpan(otel.SpanContext(5, 6, is_remote=False))
    with otel.use_span(unsampled):
        assert traceparent(active()) == f"00-{5:032x}-{6:016x}-00"


def test_no_span_is_active_where_nothing_was_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active_trace, "_API", "no.such.module")
    with TracerProvider().get_tracer("test").start_as_current_span("work"):
        assert active() == b""
