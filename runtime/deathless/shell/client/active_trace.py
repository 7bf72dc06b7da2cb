"""Where the trace context of a client's message comes from: the span that is active where it calls, or a header.

Nothing of OpenTelemetry is imported here: where the application has not done that, no span can be active, and a call
costs a look into a dictionary.

Guarantees: a context, or none; never an error. Does not: begin a span. Imports codec, base.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from typing import Final

from deathless.base.config import TracingConfig
from deathless.codec.messages import TRACE_BYTES
from deathless.codec.traces import TRACE_ID_BYTES, begun, from_traceparent, traced
from deathless.shell.web.request import Request

_API: Final = "opentelemetry.trace"
_CHANCE: Final = random.SystemRandom().random


def active() -> bytes:
    """Give the context of the active span; b"" for none."""
    api = sys.modules.get(_API)
    if api is None:
        return b""
    context = api.get_current_span().get_span_context()
    if not context.is_valid:
        return b""
    return from_traceparent(f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}")


def with_trace(call: bytes, trace: bytes, bytes_max: int) -> bytes:
    """Give an encoded call with a context; without it where there is none, or where the call would be too long."""
    if not trace or len(call) + TRACE_BYTES > bytes_max:
        return call
    return traced(call, trace)


def tracer(
    tracing: TracingConfig | None,
    bytes_max: int = 0,
    *,
    entropy: Callable[[int], bytes] = os.urandom,
    chance: Callable[[], float] = _CHANCE,
) -> Callable[[Request, bytes], bytes]:
    """Give what makes the call of an HTTP request a part of a trace; of none, where traces are off.

    A caller's decision, in the header `traceparent`, is kept. Where no caller took one, `sample_ratio` of the requests
    begin a trace, and the others are in none.

    Args:
        tracing: None: traces are off.
        bytes_max: longest message.
        entropy: gives so many random bytes.
        chance: gives a random number in [0, 1).
    """
    if tracing is None:
        return lambda _, call: call
    ratio = tracing.sample_ratio

    def trace(request: Request, call: bytes) -> bytes:
        context = from_traceparent(request.headers.get(b"traceparent", b"").decode("latin-1").strip())
        if not context and chance() < ratio:
            context = begun(entropy(TRACE_ID_BYTES), sampled=True)
        return with_trace(call, context, bytes_max)

    return trace
