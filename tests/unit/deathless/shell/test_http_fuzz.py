"""What we take for requests is what h11 takes for requests, whatever bytes come, however they are cut.

We may be stricter. Two leniencies of llhttp are allowed, which change neither target nor framing: more than one space
before the version in the request line (RFC 9112, 3, allows it), and ends of lines before a request (2.2 asks a server
to ignore empty lines there; llhttp takes a lone CR or LF for one).
"""

from __future__ import annotations

import asyncio
import re

import h11
import pytest
from http_wire import post
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from deathless.shell.web.protocol import HttpServer
from deathless.shell.web.request import HttpLimits, Request

pytestmark = pytest.mark.asyncio
SPACES = re.compile(rb"^([A-Z]+ \S+) {2,}(HTTP/1\.[01]\r\n)", re.MULTILINE)


class Kept:
    """Keeps the requests and answers each."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def handle(self, request: Request) -> None:
        self.requests.append(request)
        request.respond(200, b"")


PIECES = [
    b"GET ",
    b"POST ",
    b"HEAD ",
    b"/",
    b"/a/b/c",
    b"?q=1",
    b"*",
    b"http://h/p",
    b"http://h",
    b" HTTP/1.1",
    b" HTTP/1.0",
    b" HTTP/2.0",
    b"\r\n",
    b"\n",
    b"\r",
    b"Host: x\r\n",
    b"Host:y\r\n",
    b"Content-Length: 3\r\n",
    b"Content-Length: +3\r\n",
    b"Content-Length: 3, 3\r\n",
    b"Content-Length : 3\r\n",
    b"content-length: 0\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: identity\r\n",
    b"Transfer-Encoding: chunked, chunked\r\n",
    b"Transfer-Encoding:\x0bchunked\r\n",
    b"Connection: close\r\n",
    b"Connection: keep-alive\r\n",
    b"X: y\r\n",
    b" folded\r\n",
    b"X: \x00\r\n",
    b"X: \xff\r\n",
    b"abc",
    b"3\r\nabc\r\n",
    b"0\r\n\r\n",
    b"0x3\r\nabc\r\n",
    b"3 \r\nabc\r\n",
    b"-1\r\n",
    b"\r\n\r\n",
    b"T: t\r\n",
    b"\x00",
    b"a",
]
GOOD = b"POST /a/b/c HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"


def judged(data: bytes) -> list[tuple[bytes, bytes, bytes]]:
    """Requests that h11 sees in `data` until it refuses or wants more."""
    judge = behind_line_ends(data)
    seen: list[tuple[bytes, bytes, bytes]] = []
    request: h11.Request | None = None
    body = b""
    while True:
        try:
            event = judge.next_event()
        except h11.RemoteProtocolError:
            return seen
        if isinstance(event, h11.Request):
            request, body = event, b""
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            assert request is not None
            seen.append((request.method, request.target, body))
            judge.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
            judge.send(h11.EndOfMessage())
            if judge.our_state is not h11.DONE or judge.their_state is not h11.DONE:
                return seen
            judge = behind_line_ends(judge.trailing_data[0])
        else:
            return seen


def behind_line_ends(data: bytes) -> h11.Connection:
    """A judge who gets what follows the ends of lines that `data` begins with."""
    judge = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    judge.receive_data(data.lstrip(b"\r\n"))
    return judge


class Sink(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        pass

    def close(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def ours(server: HttpServer, app: Kept, data: bytes, cut: int) -> list[tuple[bytes, bytes, bytes]]:
    """Requests that we see in `data`, which comes in two pieces."""
    app.requests.clear()
    connection = server.make()
    connection.connection_made(Sink())
    for piece in (data[:cut], data[cut:]):
        if piece:
            connection.data_received(piece)
    connection.connection_lost(None)
    return [(r.method, r.target + (b"?" + r.query if r.query else b""), r.body) for r in app.requests]


STREAMS = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=14).map(b"".join),
    st.tuples(st.integers(0, len(GOOD) - 1), st.binary(max_size=3)).map(
        lambda c: GOOD[: c[0]] + c[1] + GOOD[c[0] + 1 :] + GOOD
    ),
    st.binary(max_size=60),
)


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(STREAMS, st.integers(0, 80))
@example(GOOD + GOOD, 10)
@example(GOOD + b"\r" + GOOD, 0)
@example(b"\n\r\n" + GOOD, 0)
async def test_what_we_take_for_requests_h11_takes_for_the_same(data: bytes, cut: int) -> None:
    app = Kept()
    server = HttpServer(app, HttpLimits(waiting_max=1000), now=lambda: 0.0, wall=lambda: 0.0)
    seen = ours(server, app, data, cut)
    expected = [(method, path_of(target), body) for method, target, body in judged(SPACES.sub(rb"\1 \2", data))]
    assert seen == expected[: len(seen)], "stricter than h11 is allowed, another reading is not"


def path_of(target: bytes) -> bytes:
    """The path of a target in absolute form (RFC 9112, 3.2.2)."""
    if target.startswith((b"http://", b"https://")):
        rest = target.partition(b"//")[2]
        start = min(rest.find(mark) if mark in rest else len(rest) for mark in (b"/", b"?"))
        return rest[start:] if rest[start : start + 1] == b"/" else b"/" + rest[start:]
    return target


@settings(max_examples=100)
@given(st.binary(max_size=40), st.integers(0, 200), st.integers(1, 5))
async def test_cutting_a_stream_anywhere_changes_nothing(body: bytes, cut: int, times: int) -> None:
    app = Kept()
    server = HttpServer(app, HttpLimits(waiting_max=1000), now=lambda: 0.0, wall=lambda: 0.0)
    data = post("/a?b=c", body) * times
    assert ours(server, app, data, cut) == [(b"POST", b"/a?b=c", body)] * times == judged(data)
