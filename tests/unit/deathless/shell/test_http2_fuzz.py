"""Whatever bytes come, an HTTP/2 connection answers or ends, and takes only what h2 takes, however they are cut."""

from __future__ import annotations

import asyncio

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import hpack
import pytest
from http2_wire import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
    head,
)
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from deathless.shell.web.http2 import Http2Connection
from deathless.shell.web.protocol import HttpServer
from deathless.shell.web.request import HttpLimits, Request

pytestmark = pytest.mark.asyncio
Seen = list[tuple[bytes, bytes, bytes]]
ENCODER = hpack.Encoder()
ENCODER.header_table_size = 0  # heads that mean the same wherever they stand
GET, POST = ENCODER.encode(head()), ENCODER.encode(head("POST", "/a", (b"content-length", b"3")))
BAD = ENCODER.encode([*head(), (b"X", b"y")])


class Kept:
    """Keeps the requests; answers every other one at once, the rest later or never."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def handle(self, request: Request) -> None:
        self.requests.append(request)
        if len(self.requests) % 2:
            request.respond(200, b"x" * 200)


class Sink(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.ended = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.ended
        self.written += bytes(data)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def close(self) -> None:
        self.ended = True

    def abort(self) -> None:
        self.ended = True

    def is_closing(self) -> bool:
        return self.ended


def ours(data: bytes, cuts: list[int]) -> tuple[Seen, bytes, bool]:
    """Requests that we see, what we write, and whether we end the connection."""
    app, now = Kept(), 0.0
    server = HttpServer(app, HttpLimits(waiting_max=3, body_bytes_max=100), now=lambda: now, wall=lambda: 0.0)
    connection, sink = Http2Connection(server), Sink()
    server.connections[connection] = None
    connection.begin(sink, PREFACE, full=False)
    for cut in cuts:
        if not sink.ended:
            connection.data_received(data[:cut])
        data = data[cut:]
    if not sink.ended:
        connection.data_received(data)
    written, ended = sink.written, sink.ended
    for request in app.requests:
        request.respond(200, b"later")
    for _ in range(3):
        now += 1000.0
        server.sweep()
    assert sink.ended, "whoever says nothing more is not kept"
    connection.connection_lost(None)
    assert not server.connections
    return [(each.method, each.target, each.body) for each in app.requests], written, ended


def without_goaway(data: bytes) -> bytes:
    """What h2 may see: behind a GOAWAY it would take nothing, not even the rest of a body."""
    kept = b""
    while len(data) >= 9:
        size = 9 + int.from_bytes(data[:3], "big")
        kept += b"" if data[3] == GOAWAY else data[:size]
        data = data[size:]
    return kept + data


def judged(data: bytes) -> Seen:
    """Requests that h2 sees until it refuses, each when it is whole."""
    judge = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, validate_inbound_headers=False))
    judge.initiate_connection()
    begun: dict[int, tuple[dict[bytes, bytes], bytearray]] = {}
    whole: Seen = []
    data = PREFACE + without_goaway(data)
    for at in range(len(data)):  # byte by byte: a refusal costs nothing that came before it
        try:
            events = judge.receive_data(data[at : at + 1])
        except h2.exceptions.ProtocolError:
            break
        for event in events:
            if isinstance(event, h2.events.RequestReceived):
                begun[event.stream_id or 0] = (dict(event.headers or ()), bytearray())
            elif isinstance(event, h2.events.DataReceived):
                begun[event.stream_id or 0][1].extend(event.data or b"")
            elif isinstance(event, h2.events.StreamEnded):
                named, body = begun[event.stream_id or 0]
                whole.append((named.get(b":method", b""), named.get(b":path", b""), bytes(body)))
    return whole


STREAM = st.sampled_from([0, 1, 1, 3, 3, 5, 7, 9, 2])
FLAGS = st.sampled_from([0, END_STREAM, END_HEADERS, END_STREAM | END_HEADERS, 8, 0x20, 0xFF])
HELD = st.sampled_from([GET, POST, BAD, GET[:3], b"", b"abc", b"x" * 70, b"\0\0\0\1", b"\0\0\0\0", b"12345678"])
KINDS = st.sampled_from(
    [DATA, DATA, HEADERS, HEADERS, PRIORITY, RST_STREAM, SETTINGS, 5, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION, 99]
)
GOOD = st.builds(
    lambda stream, kind: {
        0: frame(HEADERS, END_STREAM | END_HEADERS, stream, GET),
        1: frame(HEADERS, END_HEADERS, stream, POST) + frame(DATA, END_STREAM, stream, b"abc"),
        2: frame(HEADERS, 0, stream, GET[:2]) + frame(CONTINUATION, END_HEADERS, stream, GET[2:]),
        3: frame(RST_STREAM, 0, stream, b"\0\0\0\x08"),
    }[kind],
    st.sampled_from([1, 3, 5, 7, 9, 11]),
    st.integers(0, 3),
)
ANY = st.builds(frame, KINDS, FLAGS, STREAM, HELD | st.binary(max_size=20))
SENT = st.lists(GOOD | ANY, max_size=10).map(b"".join) | st.binary(max_size=40)


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(SENT, st.lists(st.integers(0, 60), max_size=6))
@example(frame(GOAWAY, 0, 0, b"\0" * 8) + frame(HEADERS, END_STREAM | END_HEADERS, 1, GET), [26])
@example(frame(SETTINGS) + frame(HEADERS, END_STREAM | END_HEADERS, 1, GET), [3, 20])
async def test_whatever_comes_is_answered_or_ended_and_cutting_changes_nothing(data: bytes, cuts: list[int]) -> None:
    data = frame(SETTINGS) + data
    seen, written, ended = ours(data, [])
    assert ours(data, cuts)[0] == seen
    assert ours(data, cuts)[2] == ended
    allowed = judged(data)
    for each in seen:
        assert each in allowed, "stricter than h2 is allowed, another reading is not"
        allowed.remove(each)
    client = hpack.Decoder()
    at = 0
    while at < len(written):  # what we write is whole frames, and heads that can be read
        size = 9 + int.from_bytes(written[at : at + 3], "big")
        if written[at + 3] == HEADERS:
            assert dict(client.decode(written[at + 9 : at + size], raw=True))[b":status"].isdigit()
        at += size
    assert at == len(written)
