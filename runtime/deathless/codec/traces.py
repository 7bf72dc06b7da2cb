"""Trace contexts as messages carry them, and the spans that turns give (docs/design/0010-traces.md).

    offset size trace context, TRACE_BYTES in all
    0      16   trace id
    16     8    span id of who sent the message; zeros: the trace begins with it
    24     1    flags of W3C Trace Context; bit 0: the trace is sampled

A CALL carries it behind its arguments, told by the flag TRACED of its header; FORK and REQUEST carry it as the last
field of their envelope. So it is a part of the log, and every replica hands the same one on.

Guarantees: `untraced` gives the bytes of the message as they would be without it; what can't be read is no trace.
Does not: draw ids, export anything. Imports base and codec.
"""

from __future__ import annotations

import enum
import hashlib
import re
from typing import Final, NamedTuple

from deathless.codec.messages import HEADER_BYTES, TRACE_BYTES, TRACED, U64, Kind

TRACE_ID_BYTES: Final = 16
SPAN_BYTES: Final = 8
NO_SPAN: Final = bytes(SPAN_BYTES)
"""In place of the sender's span: there is none."""

_TRACE_ID: Final = slice(0, TRACE_ID_BYTES)
_PARENT: Final = slice(16, 24)
_FLAGS: Final = 24
_SAMPLED: Final = 1
_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_NO_VERSION: Final = "ff"


class SpanKind(enum.IntEnum):
    """What a span is of."""

    CALL = 1  # a handler that a client or another handler waits for
    FORK = 2  # a handler that nobody waits for
    REQUEST = 3  # a handler's call, from asking to the reply
    ACTIVITY = 4  # an activity, from asking to its outcome, with all attempts


class Span(NamedTuple):
    """Something that was executed and is over. When it was over is for who confirms it to say."""

    kind: int
    trace: bytes  # the trace, the parent, and the flags
    span: bytes  # its own id
    service: str  # who worked: ours, or whom we asked
    method: str  # handler or activity
    key: str
    invocation: int  # lsn of the message that began it, at ours
    operation: int  # of the invocation; 0: the handler itself
    attempt: int  # the last one of an activity; else 0
    start_us: int  # logical time
    error: bytes  # recorded error as a reply has it, without its status; empty: it went well


def is_sampled(trace: bytes) -> bool:
    """Are spans of this context to be exported? Not of what is none."""
    return len(trace) == TRACE_BYTES and bool(trace[_FLAGS] & _SAMPLED)


def readable(trace: bytes) -> bytes:
    """Give a context that came from outside, b"" when it is none."""
    return trace if len(trace) == TRACE_BYTES and any(trace[_TRACE_ID]) else b""


def begun(trace_id: bytes, *, sampled: bool) -> bytes:
    """Give the context of a trace that begins with the message."""
    assert len(trace_id) == TRACE_ID_BYTES
    return trace_id + NO_SPAN + bytes([_SAMPLED if sampled else 0])


def within(trace: bytes, span: bytes) -> bytes:
    """Give the context of what a span causes."""
    return trace[_TRACE_ID] + span + trace[_FLAGS:]


def parts(trace: bytes) -> tuple[bytes, bytes, int]:
    """Take a context apart: trace id, span id of the sender, flags."""
    return trace[_TRACE_ID], trace[_PARENT], trace[_FLAGS]


def span_id(seed: bytes, shard: int, invocation: int, operation: int) -> bytes:
    """Give the id of a span: the same in every replica, so that who begins one need not be who ends it.

    Args:
        seed: 32 bytes of the service.
        shard: of the service.
        invocation: lsn of the message that began it.
        operation: of that invocation, from 1; 0: the handler itself.
    """
    place = U64.pack(shard) + U64.pack(invocation) + U64.pack(operation)
    return hashlib.blake2b(place, digest_size=SPAN_BYTES, key=seed, person=b"span").digest()


def from_traceparent(text: str) -> bytes:
    """Read the header `traceparent` of W3C Trace Context, level 1; b"" when it must be ignored."""
    found = _TRACEPARENT.fullmatch(text)
    if found is None:
        return b""
    version, trace_id, parent, flags, rest = found.groups()
    if version == _NO_VERSION or (version == "00" and rest):
        return b""
    trace, span = bytes.fromhex(trace_id), bytes.fromhex(parent)
    if not any(trace) or not any(span):
        return b""
    return trace + span + bytes([int(flags, 16) & _SAMPLED])


def traceparent(trace: bytes) -> str:
    """Give a context as the header `traceparent`; empty for none."""
    if not trace:
        return ""
    return f"00-{trace[_TRACE_ID].hex()}-{trace[_PARENT].hex()}-{trace[_FLAGS]:02x}"


def traced(call: bytes, trace: bytes) -> bytes:
    """Give a CALL with a context."""
    assert len(trace) == TRACE_BYTES
    assert call[:2] == bytes([Kind.CALL, 0]), "only a CALL without one takes one"
    return bytes([Kind.CALL, TRACED]) + call[2:] + trace


def untraced(message: bytes) -> tuple[bytes, bytes]:
    """Give a message as it is without its context, and the context; b"" when its header tells of none."""
    if message[:2] != bytes([Kind.CALL, TRACED]) or len(message) < HEADER_BYTES + TRACE_BYTES:
        return message, b""
    return bytes([Kind.CALL, 0]) + message[2:-TRACE_BYTES], message[-TRACE_BYTES:]
