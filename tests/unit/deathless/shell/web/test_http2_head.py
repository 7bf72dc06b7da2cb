"""Heads of HTTP/2 become requests as those of HTTP/1.1 do; h2, which refuses more than a stream, is the judge."""

from __future__ import annotations

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived
from h2.exceptions import ProtocolError
from hpack import Encoder
from http2_wire import END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, frame, head
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deathless.shell.web.http2_head import Heads, read_head
from deathless.shell.web.request import HttpLimits, Request

Lines = list[tuple[bytes, bytes]]


class Line:
    date_line = b""
    transport = None

    def answered(self) -> None:
        """See Sender."""


def read(lines: Lines, limits: HttpLimits | None = None) -> tuple[Request, int]:
    """The request, and the status that refuses it; 0: none does."""
    request = Request(Line())
    decoded = [(bytes(each[0]), bytes(each[1])) for each in Heads().decode(Encoder().encode(lines), raw=True)]
    refusal = read_head(request, decoded, limits or HttpLimits())
    return request, 0 if refusal is None else refusal[0]


def judged(lines: Lines) -> Lines | None:
    """The head as h2 reads it; None: it refuses."""
    judge = H2Connection(H2Configuration(client_side=False))
    judge.initiate_connection()
    data = PREFACE + frame(SETTINGS) + frame(HEADERS, END_STREAM | END_HEADERS, 1, Encoder().encode(lines))
    try:
        events = judge.receive_data(data)
    except ProtocolError:
        return None
    heads = [each.headers for each in events if isinstance(each, RequestReceived)]
    return [(bytes(name), bytes(value)) for name, value in heads[0] or ()]


NAMES = [
    *(b":method", b":path", b":scheme", b":authority", b":status", b":protocol", b":", b"host", b"x-a", b"X-A", b"x a"),
    *(b"x:a", b"", b"te", b"connection", b"upgrade", b"transfer-encoding", b"content-length", b"cookie", b"expect"),
    *(b"content-length ", b"\xff", b"x\0"),
]
VALUES = [
    *(b"GET", b"/", b"/a?b", b"http", b"x", b"y", b"", b" x", b"x\t", b"a\0", b"a\r\nb: c", b"trailers", b"0", b"+0"),
    b"*",
]
LINES = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=5)


@settings(max_examples=400)
@given(LINES, LINES, st.permutations(head()))
@example([], [], head())
@example([], [(b"content-length", b"0")], head())
@example([], [(b"content-length ", b"0")], head())
def test_what_we_take_for_a_head_h2_takes_for_the_same(before: Lines, after: Lines, inside: Lines) -> None:
    lines = before + inside + after
    request, status = read(lines)
    if status:
        return
    found = judged(lines)
    assert found is not None, "stricter than h2 is allowed, more lenient is not"
    named = dict(found)
    target = request.target + (b"?" + request.query if request.query else b"")
    assert (request.method, target) == (named[b":method"], named[b":path"])
    assert request.headers[b"host"] == named.get(b":authority", named.get(b"host"))
    assert set(request.headers) == {name for name, _ in found if name[:1] != b":"} | {b"host"}


@given(st.lists(st.tuples(st.binary(max_size=12), st.binary(max_size=12)), max_size=4))
def test_whatever_a_head_holds_it_is_read_or_refused(lines: Lines) -> None:
    request, status = read(head() + lines)
    assert status in (0, 400, 413, 417)
    if not status:
        assert judged(head() + lines) is not None
        assert all(b"\n" not in value for value in request.headers.values())


def test_lines_that_come_again_are_joined() -> None:
    request, status = read([*head(path="/a?b=c?d"), (b"a", b"1"), (b"cookie", b"c"), (b"a", b"2"), (b"cookie", b"d")])
    assert status == 0
    assert request.headers == {b"host": b"x", b"a": b"1, 2", b"cookie": b"c; d"}
    assert (request.target, request.query, request.version, request.method) == (b"/a", b"b=c?d", "2", b"GET")


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ([*head(), (b"content-length", b"5")], 0), ([*head(), (b"content-length", b"11")], 413),
        ([*head(), (b"a", b"x" * 100)], 431), ([*head(), *[(b"a", b"")] * 5], 431), (head(path="/" + "a" * 60), 414),
        ([*head(), (b"expect", b"100-Continue")], 0), ([*head(), (b"expect", b"x")], 417),
        ([(b":method", b"CONNECT"), (b":authority", b"x")], 501), (head(method="G T"), 400),
    ],
)  # fmt: skip
def test_limits_are_those_of_http1(lines: Lines, status: int) -> None:
    limits = HttpLimits(target_bytes_max=50, header_bytes_max=90, headers_max=4, body_bytes_max=10)
    assert read(lines, limits)[1] == status
