"""HTTP/2: streams, windows, limits, order, time and floods, over real sockets, with h2 at the other end."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme
from h2.errors import ErrorCodes
from http2_wire import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    PREFACE,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Http2Wire,
    StreamSeen,
    frame,
    head,
    opened,
)
from http_wire import Bench, Wire, bench, get, post, until

from deathless.base.config import TlsConfig
from deathless.shell.net.tls import server_context, shown_name
from deathless.shell.web.http2 import ALPN, Http2Connection
from deathless.shell.web.http2_frames import IDLE_MAX, RESETS_MAX
from deathless.shell.web.request import Request

pytestmark = pytest.mark.asyncio
CALM, WRONG = ErrorCodes.ENHANCE_YOUR_CALM, ErrorCodes.PROTOCOL_ERROR


@asynccontextmanager
async def spoken(**changes: object) -> AsyncIterator[Bench]:
    async with bench(http2=Http2Connection, **changes) as b:  # type: ignore[arg-type]  # each test knows its fields
        yield b


# ---- requests and answers --------------------------------------------------------------------------------------


async def test_request_reaches_the_application_as_one_of_http1_does_and_is_answered() -> None:
    async with spoken() as b:
        wire = await opened(b)
        more = [(b"x-a", b"1"), (b"x-a", b"2"), (b"cookie", b"a"), (b"cookie", b"b")]
        number = wire.ask(head("POST", "/bank/alice?x=1", *more), b'{"amount": 5}')
        answer = await wire.answer(number)
        assert (answer.status, answer.body) == (200, b'POST /bank/alice|x=1|{"amount": 5}')
        assert answer.headers[b"date"] == b"Thu, 01 Jan 1970 00:00:00 GMT"
        assert answer.headers[b"content-length"] == b"34"
        assert b"connection" not in answer.headers
        got = b.app.requests[0].headers
        assert (got[b"x-a"], got[b"cookie"], got[b"host"]) == (b"1, 2", b"a; b", b"x")
        assert (await wire.answer(wire.ask(head("GET", "/again")))).body == b"GET /again||"


async def test_an_answer_without_a_body_has_no_headers_of_one() -> None:
    async with spoken() as b:
        b.app.hold = True
        wire = await opened(b)
        number = wire.ask(head("POST", "/a"), b"x")
        await b.app.wait(1)
        b.app.held[0].respond(204, b"", headers=[(b"x-a", b"1")])
        answer = await wire.answer(number)
        assert (answer.status, answer.body, answer.headers[b"x-a"]) == (204, b"", b"1")
        assert not {b"content-length", b"content-type"} & answer.headers.keys()


async def test_bytes_may_come_one_by_one() -> None:
    async with spoken() as b:
        wire = await opened(b)
        number = wire.h2.get_next_available_stream_id()
        wire.streams[number] = StreamSeen()
        wire.h2.send_headers(number, head("POST", "/a"))
        wire.h2.send_data(number, b"body", end_stream=True)
        for byte in wire.h2.data_to_send():
            wire.raw(bytes([byte]))
            await wire.writer.drain()
        assert (await wire.answer(number)).body == b"POST /a||body"


async def test_preface_in_pieces_is_told_from_a_request_of_http1() -> None:
    async with spoken() as b:
        old, new = await b.connect(), await b.connect()
        for byte in post("/a", b"body"):
            await b.settle(old, bytes([byte]))
        assert (await old.answer()).body == b"POST /a||body"
        for byte in PREFACE + frame(SETTINGS):
            await b.settle(new, bytes([byte]))
        assert (await new.reader.readexactly(9))[3] == SETTINGS
        wire = await b.connect()
        assert (await wire.ask(b"PRI * HTTP/2.0\r\n\r\nsm\r\n\r\n")).status in (400, 505)


async def test_port_without_http2_refuses_its_preface() -> None:
    async with bench() as b:
        wire = await b.connect()
        assert (await wire.ask(PREFACE)).status in (400, 505)


async def test_streams_are_answered_whoever_is_ready_first() -> None:
    async with spoken() as b:
        b.app.hold = True
        wire = await opened(b)
        numbers = [wire.ask(head("POST", f"/{n}"), b"") for n in range(3)]
        await b.app.wait(3)
        for request in reversed(b.app.held):
            b.app.answer(request)
            assert request.answered
            b.app.answer(request)  # one answer
        assert [(await wire.answer(n)).body for n in numbers] == [b"POST /0||", b"POST /1||", b"POST /2||"]


async def test_head_is_answered_like_get_without_the_body() -> None:
    async with spoken() as b:
        wire = await opened(b)
        answer = await wire.answer(wire.ask(head("HEAD", "/x")))
        assert (answer.body, answer.headers[b"content-length"]) == (b"", b"%d" % len(b"HEAD /x||"))


async def test_body_is_asked_for_when_the_client_waits_for_that_and_trailers_count_for_nothing() -> None:
    async with spoken() as b:
        wire = await opened(b)
        number = wire.ask(head("POST", "/a", (b"expect", b"100-continue")), end=False)
        while not wire.streams[number].informational:
            assert await wire.read()
        wire.h2.send_data(number, b"body")
        wire.h2.send_headers(number, [(b"trailer", b"t")], end_stream=True)
        wire.flush()
        assert (await wire.answer(number)).body == b"POST /a||body"
        assert b"trailer" not in b.app.requests[0].headers


async def test_large_bodies_cross_in_both_directions_at_once() -> None:
    async with spoken(body_bytes_max=1 << 20) as b:
        wire = await opened(b)
        numbers = [wire.ask(head("POST", f"/{n}"), end=False) for n in range(3)]
        rest = {number: bytes([number]) * 400_000 for number in numbers}
        while rest:
            for number in list(rest):
                room = min(wire.h2.local_flow_control_window(number), wire.h2.max_outbound_frame_size)
                piece, rest[number] = rest[number][:room], rest[number][room:]
                if piece:
                    wire.h2.send_data(number, piece, end_stream=not rest[number])
                if not rest[number]:
                    del rest[number]
            wire.flush()
            if rest and not any(wire.h2.local_flow_control_window(number) for number in rest):
                assert await wire.read()
        for n, number in enumerate(numbers):
            assert (await wire.answer(number)).body == b"POST /%d||" % n + bytes([number]) * 400_000


async def test_small_window_of_one_stream_holds_no_other_up() -> None:
    async with spoken() as b:
        wire = await opened(b, initial_window_size=10)
        wire.open_windows = False
        slow, quick = wire.ask(head("POST", "/slow"), b"x" * 100), wire.ask(head("POST", "/q"), b"")
        assert (await wire.answer(quick)).body == b"POST /q||"
        assert wire.streams[slow].body == b"POST /slow"
        wire.h2.increment_flow_control_window(1000, slow)
        wire.flush()
        assert (await wire.answer(slow)).body == b"POST /slow||" + b"x" * 100


async def test_window_that_settings_open_is_used() -> None:
    async with spoken() as b:
        wire = await opened(b, initial_window_size=0)
        number = wire.ask(head())
        await wire.pong()
        assert (wire.streams[number].status, wire.streams[number].body) == (200, b"")
        wire.h2.update_settings({4: 100})
        wire.flush()
        assert (await wire.answer(number)).body == b"GET /||"


# ---- one bad stream --------------------------------------------------------------------------------------------

BAD = {
    "upper case": (400, [*head(), (b"X-A", b"1")]),
    "a space in a name": (400, [*head(), (b"x a", b"1")]),
    "a name that is empty": (400, [*head(), (b"", b"1")]),
    "a line end in a value": (400, [*head(), (b"x-a", b"1\r\nx-b: 2")]),
    "a space around a value": (400, [*head(), (b"x-a", b" 1")]),
    "of the connection": (400, [*head(), (b"connection", b"close")]),
    "transfer-encoding": (400, [*head(), (b"transfer-encoding", b"chunked")]),
    "te": (400, [*head(), (b"te", b"gzip")]),
    "twice": (400, [*head(), (b"authorization", b"1"), (b"authorization", b"2")]),
    "two lengths": (400, [*head(), (b"content-length", b"0"), (b"content-length", b"0")]),
    "no number": (400, [*head(), (b"content-length", b"+0")]),
    "a length that is not kept": (400, [*head(), (b"content-length", b"3")]),
    "two methods": (400, [(b":method", b"GET"), *head()]),
    "an unknown one": (400, [(b":protocol", b"x"), *head()]),
    "behind others": (400, [(b"x-a", b"1"), *head()]),
    "no path": (400, [each for each in head() if each[0] != b":path"]),
    "no scheme": (400, [each for each in head() if each[0] != b":scheme"]),
    "no method": (400, [each for each in head() if each[0] != b":method"]),
    "no host": (400, [each for each in head() if each[0] != b":authority"]),
    "another host": (400, [*head(), (b"host", b"y")]),
    "an empty path": (400, head(path="")),
    "no path but a star": (400, head(path="*")),
    "a space in the path": (400, head(path="/a b")),
    "connect": (501, [(b":method", b"CONNECT"), (b":authority", b"x")]),
    "a long path": (414, head(path="/" + "a" * 300)),
    "a long head": (431, [*head(), (b"x-a", b"a" * 1200)]),
    "many lines": (431, [*head(), *[(b"x-%d" % n, b"") for n in range(20)]]),
    "a long body": (413, [*head("POST"), (b"content-length", b"1000000")]),
    "another expectation": (417, [*head("POST"), (b"expect", b"more")]),
}


@pytest.mark.parametrize(("status", "lines"), BAD.values(), ids=BAD.keys())
async def test_request_that_can_not_be_read_is_refused_alone(status: int, lines: list[tuple[bytes, bytes]]) -> None:
    async with spoken() as b:
        b.app.hold = True
        wire = await opened(b)
        before = wire.ask(head("POST", "/before"), b"")
        bad, after = wire.ask(lines), wire.ask(head("POST", "/after"), b"")
        answer = await wire.answer(bad)
        assert (answer.status, answer.ended, b'"code":"DL' in answer.body) == (status, True, True)
        assert b.refused == [status]
        await b.app.wait(2)
        for request in b.app.held:
            b.app.answer(request)
        assert (await wire.answer(before)).body == b"POST /before||"
        assert (await wire.answer(after)).body == b"POST /after||"


@pytest.mark.parametrize("announced", [True, False])
async def test_body_above_the_maximum_is_refused_while_it_comes(announced: bool) -> None:
    async with spoken() as b:
        wire = await opened(b)
        more = [(b"content-length", b"6000")] if announced else []
        number = wire.ask(head("POST", "/a", *more), b"x" * 6000, end=False)
        answer = await wire.answer(number)
        assert (answer.status, answer.ended, answer.reset) == (413, True, None)  # a reset would cost some the answer
        b.pass_time(2)
        await wire.pong()
        assert answer.reset == ErrorCodes.NO_ERROR
        assert (await wire.answer(wire.ask(head()))).status == 200


@pytest.mark.parametrize("trailers", [True, False])
async def test_stream_that_was_refused_is_forgotten_when_the_client_has_said_everything(trailers: bool) -> None:
    async with spoken() as b:
        wire = await opened(b)
        number = wire.ask(head("POST", "/a"), b"x" * 6000, end=False)
        assert (await wire.answer(number)).status == 413
        if trailers:
            wire.h2.send_headers(number, [(b"a", b"b")], end_stream=True)
        else:
            wire.h2.end_stream(number)
        await wire.pong()
        b.pass_time(2)
        await wire.pong()
        assert (wire.streams[number].reset, b.app.requests) == (None, [])


async def test_stream_too_many_is_refused_and_may_be_sent_again() -> None:
    async with spoken() as b:
        b.app.hold = True
        wire = await opened(b, settled=False)  # it does not know the maximum of 4 yet
        numbers = [wire.ask(head("POST", f"/{n}"), b"") for n in range(5)]
        assert (await wire.answer(numbers[4])).reset == ErrorCodes.REFUSED_STREAM
        assert wire.h2.remote_settings.max_concurrent_streams == 4
        assert len(b.app.requests) == 4
        b.app.answer(b.app.held[0])
        assert (await wire.answer(numbers[0])).status == 200
        wire.ask(head("POST", "/again"), b"")
        await b.app.wait(5)


async def test_handler_that_fails_costs_its_request_alone() -> None:
    async with spoken() as b:
        wire = await opened(b)
        answer = b.app.answer
        missing: dict[Request, None] = {}
        b.app.answer = missing.pop  # type: ignore[assignment]
        assert (await wire.answer(wire.ask(head()))).status == 500
        b.app.answer = answer  # type: ignore[method-assign]
        assert (await wire.answer(wire.ask(head()))).status == 200


async def test_client_that_gives_a_request_up_gets_no_answer_and_does_no_harm() -> None:
    async with spoken() as b:
        b.app.hold = True
        wire = await opened(b)
        given_up, other = wire.ask(head("POST", "/a"), b""), wire.ask(head("POST", "/b"), b"")
        await b.app.wait(2)
        wire.h2.reset_stream(given_up, ErrorCodes.CANCEL)
        await wire.pong()
        assert b.app.held[0].answered
        for request in b.app.held:
            b.app.answer(request)
        assert (await wire.answer(other)).status == 200
        assert wire.streams[given_up].status == 0


async def test_client_that_left_gets_no_answer_and_does_no_harm() -> None:
    async with spoken() as b:
        b.app.hold = True
        wire = await opened(b)
        wire.ask(head())
        await b.app.wait(1)
        reset = struct.pack("ii", 1, 0)
        wire.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        wire.writer.transport.abort()
        await until(lambda: not b.server.connections)
        b.app.answer(b.app.held[0])
        assert b.app.held[0].transport is None


# ---- floods ----------------------------------------------------------------------------------------------------


def rapid_resets(wire: Http2Wire) -> bytes:
    for _ in range(RESETS_MAX + 1):
        number = wire.h2.get_next_available_stream_id()
        wire.h2.send_headers(number, head(), end_stream=False)
        wire.h2.reset_stream(number)
    return wire.h2.data_to_send()


def whole(wire: Http2Wire, number: int, lines: list[tuple[bytes, bytes]]) -> bytes:
    """A whole request, sent past h2."""
    return frame(HEADERS, END_STREAM | END_HEADERS, 2 * number + 1, wire.h2.encoder.encode(lines))


def quick_resets(wire: Http2Wire) -> bytes:
    """Of whole requests, each of which may be answered before its reset is read."""
    return b"".join(
        whole(wire, n, head("HEAD")) + frame(RST_STREAM, 0, 2 * n + 1, b"\0\0\0\x08") * 20 for n in range(IDLE_MAX)
    )


def made_resets(wire: Http2Wire) -> bytes:
    """The server is made to end them, since each is malformed."""
    return b"".join(whole(wire, n, [(b":path", b"/")]) for n in range(RESETS_MAX + 1))


def endless_head(pieces: int, body: bytes) -> bytes:
    return frame(HEADERS, END_STREAM, 1, b"\x82") + frame(CONTINUATION, 0, 1, body) * pieces


def empty_bodies(wire: Http2Wire) -> bytes:
    wire.h2.send_headers(1, head("POST"))
    return wire.h2.data_to_send() + frame(DATA, 0, 1) * (IDLE_MAX + 1)


def huge_head(wire: Http2Wire) -> bytes:
    """HPACK bomb: a line that the table remembers, named again and again."""
    encoded = wire.h2.encoder.encode([*head(), (b"x-a", b"a" * 3000)])
    return frame(HEADERS, END_STREAM | END_HEADERS, 1, encoded + b"\xbe" * 900)


FLOODS = {
    "rapid reset": rapid_resets,
    "resets of what was answered": quick_resets,
    "resets that it makes us send": made_resets,
    "settings": lambda _: frame(SETTINGS) * (IDLE_MAX + 1),
    "settings acknowledged": lambda _: frame(SETTINGS, ACK) * (IDLE_MAX + 1),
    "pings": lambda _: frame(PING, 0, 0, b"12345678") * (IDLE_MAX + 1),
    "priorities": lambda _: frame(PRIORITY, 0, 1, b"\0\0\0\0\1") * (IDLE_MAX + 1),
    "windows": lambda _: frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\1") * (IDLE_MAX + 1),
    "unknown frames": lambda _: frame(99) * (IDLE_MAX + 1),
    "resets of nothing": lambda _: (
        frame(HEADERS, END_HEADERS, 1, b"\x82") + frame(RST_STREAM, 0, 1, b"\0\0\0\0") * (IDLE_MAX + 1)
    ),
    "continuations": lambda _: endless_head(20, b"\x82"),
    "empty continuations": lambda _: endless_head(2000, b""),
    "large continuations": lambda _: endless_head(4, b"\x82" * 2000),
    "empty data": empty_bodies,
    "a head that grows when it is unpacked": huge_head,
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS.keys())
async def test_connection_that_only_makes_work_is_ended(flood: object) -> None:
    async with spoken() as b:
        wire, other = await opened(b), await opened(b)
        wire.judged = False
        wire.raw(flood(wire))  # type: ignore[operator]  # see FLOODS
        assert [code for code, _ in await wire.end()] == [CALM]
        assert (await other.answer(other.ask(head()))).status == 200


async def test_frames_are_forgiven_with_time_and_with_requests() -> None:
    async with spoken() as b:
        wire = await opened(b)
        assert (await wire.answer(wire.ask(head()))).status == 200
        for _ in range(5):
            wire.raw(frame(PING, ACK, 0, b"12345678") * (IDLE_MAX - 20))
            await wire.pong()
            b.pass_time(11)
            assert (await wire.answer(wire.ask(head()))).status == 200
        for _ in range(RESETS_MAX * 2):
            assert (await wire.answer(wire.ask(head()))).status == 200
            wire.h2.reset_stream(wire.ask(head("POST"), end=False))
            wire.flush()
        await wire.pong()
        assert not wire.over


BROKEN = {
    "a frame that is too large": (frame(DATA, 0, 1, b"x" * 16385), ErrorCodes.FRAME_SIZE_ERROR),
    "a frame that says so": (b"\xff\xff\xff" + frame(DATA, 0, 1)[3:], ErrorCodes.FRAME_SIZE_ERROR),
    "a body of no request": (frame(DATA, 0, 1, b"x" * 100), WRONG),
    "a head of a server": (frame(HEADERS, END_HEADERS, 2, b"\x82"), WRONG),
    "a head that can't be unpacked": (frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff"), WRONG),
    "another frame in a head": (frame(HEADERS, 0, 1, b"\x82") + frame(PING, 0, 0, b"12345678"), WRONG),
    "a window of nothing": (frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\0"), WRONG),
}  # fmt: skip


@pytest.mark.parametrize(("data", "code"), BROKEN.values(), ids=BROKEN.keys())
async def test_connection_that_breaks_the_protocol_is_told_and_ended(data: bytes, code: ErrorCodes) -> None:
    async with spoken() as b:
        wire = await opened(b)
        wire.raw(data)
        assert [told for told, _ in await wire.end()] == [code]


async def test_table_that_the_client_offers_is_used_in_part() -> None:
    async with spoken() as b:
        wire = await opened(b, header_table_size=1 << 30)
        assert (await wire.answer(wire.ask(head()))).status == 200
        connection = next(iter(b.server.connections))
        assert isinstance(connection, Http2Connection)
        assert connection._library.encoder.header_table_size == 4096


async def test_one_connection_too_many_is_closed() -> None:
    async with spoken(connections_max=2) as b:
        b.app.hold = True
        for _ in range(2):
            (await opened(b)).ask(head())
        await b.app.wait(2)
        wire = await Wire.connect(b.address)  # its version is not known yet
        wire.send(PREFACE)
        assert (await wire.answer("GET")).status == 503


# ---- time ------------------------------------------------------------------------------------------------------


async def test_client_that_takes_nothing_of_one_answer_loses_that_one() -> None:
    async with spoken() as b:
        wire = await opened(b, initial_window_size=4)
        wire.open_windows = False
        number = wire.ask(head())
        await wire.pong()
        b.pass_time(31)
        assert (await wire.answer(number)).reset == ErrorCodes.CANCEL
        assert not b.server.stopping
        await wire.pong()
        assert not wire.over


async def test_body_that_does_not_come_is_refused_after_its_time() -> None:
    async with spoken() as b:
        wire = await opened(b)
        b.app.hold = True
        number, waiting = wire.ask(head("POST"), b"a", end=False), wire.ask(head())
        await b.app.wait(1)
        b.pass_time(31)
        assert (await wire.answer(number)).status == 408
        b.app.answer(b.app.held[0])
        assert (await wire.answer(waiting)).status == 200


@pytest.mark.parametrize(
    "part", [frame(HEADERS, 0, 1, b"\x82"), frame(HEADERS, END_HEADERS, 1, b"\x82" * 9)[:-1], b"\0"],
    ids=["a head without its end", "a part of a frame", "a byte"],
)  # fmt: skip
async def test_head_that_does_not_come_ends_the_connection_after_its_time(part: bytes) -> None:
    async with spoken() as b:
        b.app.hold = True
        wire = await opened(b)
        wire.ask(head())  # so that it is not ended for being idle
        await b.app.wait(1)
        await wire.pong()
        wire.raw(part)
        for _ in range(20):
            await asyncio.sleep(0)
        b.pass_time(11)
        assert [code for code, _ in await wire.end()] == [CALM]


async def test_idle_connection_is_closed_after_its_time() -> None:
    async with spoken() as b:
        quiet, heard = await opened(b), await opened(b)
        assert (await heard.answer(heard.ask(head()))).status == 200
        await quiet.pong()
        b.pass_time(11)
        assert await quiet.end() == [(ErrorCodes.NO_ERROR, 0)]
        await heard.pong()
        b.pass_time(65)
        assert await heard.end() == [(ErrorCodes.NO_ERROR, 1)]


async def test_preface_that_does_not_come_is_not_waited_for() -> None:
    async with spoken() as b:
        wire = await b.connect()
        await b.settle(wire, PREFACE[:10])
        b.pass_time(11)
        assert await wire.ended()


async def test_client_that_does_not_read_is_not_read_and_at_last_cut_off() -> None:
    async with spoken(body_bytes_max=1 << 22, waiting_max=64) as b:
        wire = await opened(b, initial_window_size=(1 << 31) - 1)
        wire.h2.increment_flow_control_window(1 << 30)
        sock = wire.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        b.app.answer = lambda request: request.respond(200, b"x" * (1 << 22))  # type: ignore[method-assign]
        for _ in range(8):
            wire.ask(head())
        connection = next(iter(b.server.connections))
        assert isinstance(connection, Http2Connection)
        await until(lambda: connection._write_since is not None)
        b.pass_time(31)
        await until(lambda: not b.server.connections)


async def test_refused_client_that_does_not_hang_up_is_cut_off() -> None:
    async with spoken() as b:
        wire = await opened(b)
        wire.raw(frame(DATA, 0, 1, b"x" * 100))
        await wire.end()
        assert b.server.connections
        b.pass_time(2)
        await until(lambda: not b.server.connections)


# ---- the end ---------------------------------------------------------------------------------------------------


async def test_orderly_stop_answers_what_was_read_and_says_so() -> None:
    async with spoken() as b:
        b.app.hold = True
        wire, idle = await opened(b), await opened(b)
        number = wire.ask(head("POST", "/a"), b"")
        await b.app.wait(1)
        stopping = asyncio.ensure_future(b.server.stop(30))
        assert await idle.end() == [(0, (1 << 31) - 1), (0, 0)]
        late = wire.ask(head("POST", "/late"), b"")
        assert (await wire.answer(late)).reset == ErrorCodes.REFUSED_STREAM
        b.app.answer(b.app.held[0])
        assert (await wire.answer(number)).body == b"POST /a||"
        assert await wire.end() == [(0, (1 << 31) - 1), (0, 1)]
        wire.writer.close()
        idle.writer.close()
        await stopping
        assert len(b.app.requests) == 1


async def test_stop_that_lingers_takes_requests_that_cross_its_first_word() -> None:
    async with spoken() as b:
        wire = await opened(b)
        await wire.pong()
        stopping = asyncio.ensure_future(b.server.stop(30, 30))
        while not wire.goaway:
            assert await wire.read()
        assert (await wire.answer(wire.ask(head()))).status == 200
        wire.writer.close()
        await stopping


async def test_client_that_says_goodbye_gets_its_answers_and_then_the_end() -> None:
    async with spoken() as b:
        b.app.hold = True
        wire = await opened(b)
        number = wire.ask(head())
        await b.app.wait(1)
        wire.raw(frame(7, 0, 0, b"\0" * 8))
        await wire.pong()
        b.app.answer(b.app.held[0])
        assert (await wire.answer(number)).status == 200
        assert await wire.end() == []


async def test_half_closed_client_still_gets_its_answers() -> None:
    async with spoken() as b:
        b.app.hold = True
        wire = await opened(b)
        number = wire.ask(head())
        wire.ask(head("POST"), end=False)
        await b.app.wait(1)
        wire.writer.write_eof()
        wire.said_all = True
        connection = next(iter(b.server.connections))
        assert isinstance(connection, Http2Connection)
        await until(lambda: connection._half_closed)
        b.app.answer(b.app.held[0])
        assert (await wire.answer(number)).status == 200
        assert await wire.end() == []


# ---- TLS -------------------------------------------------------------------------------------------------------


async def test_tls_agrees_on_the_version_and_the_callers_certificate_is_seen(tmp_path: Path) -> None:
    authority = trustme.CA()
    leaf, caller = authority.issue_cert("127.0.0.1"), authority.issue_cert(common_name="alice")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    leaf.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    leaf.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    files = {
        "ca": str(tmp_path / "ca.pem"),
        "certificate": str(tmp_path / "cert.pem"),
        "key": str(tmp_path / "key.pem"),
    }
    settings = TlsConfig(**files, require_client_certificate=True)
    async with spoken(tls=server_context(settings, ALPN), connections_max=4) as b:
        for offered, version in ((["h2", "http/1.1"], "2"), (["http/1.1"], "1.1"), ([], "1.1")):
            context = ssl.create_default_context()
            authority.configure_trust(context)
            caller.configure_cert(context)
            if offered:
                context.set_alpn_protocols(offered)
            if version == "2":
                two = await Http2Wire.connect(b.address, context)
                assert (await two.answer(two.ask(head()))).status == 200
            else:
                one = await Wire.connect(b.address, ssl=context, server_hostname="127.0.0.1")
                assert (await one.ask(get("/"))).status == 200
            assert b.app.requests[-1].version == version
            assert shown_name(b.app.requests[-1].transport) == "alice"


async def test_one_connection_too_many_that_agreed_on_http2_is_told_in_http2(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "all.pem"))
    context = ssl.create_default_context()
    authority.configure_trust(context)
    context.set_alpn_protocols(["h2"])
    settings = TlsConfig(certificate=str(tmp_path / "all.pem"))
    async with spoken(tls=server_context(settings, ALPN), connections_max=2) as b:
        b.app.hold = True
        wires = [await Http2Wire.connect(b.address, context) for _ in range(2)]
        for wire in wires:
            wire.ask(head())
        await b.app.wait(2)
        assert await (await Http2Wire.connect(b.address, context)).end() == [(CALM, 0)]
        for request in b.app.held:
            b.app.answer(request)
        assert [(await wire.answer(1)).status for wire in wires] == [200, 200]
