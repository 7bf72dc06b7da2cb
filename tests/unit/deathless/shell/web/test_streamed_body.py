"""Bodies that are sent while they are made, over real sockets, in both versions of HTTP."""

from __future__ import annotations

import asyncio

import h11
import pytest
from http2_wire import Http2Wire, head, opened
from http_wire import Bench, bench, get, until

from deathless.shell.web.http2 import Http2Connection
from deathless.shell.web.request import Request
from deathless.shell.web.streamed_body import PIECE_BYTES_MAX, ClientLeft, StreamedBody

pytestmark = pytest.mark.asyncio
KIND = b"application/octet-stream"
LARGE = 64 << 20  # more than sockets and buffers between the two ends hold


async def begun(b: Bench, number: int = 0) -> StreamedBody:
    """The body of an answer to the request that came as this one."""
    await b.app.wait(number + 1)
    body = b.app.held[number].stream(200, content_type=KIND)
    assert body is not None
    return body


async def on_stream(b: Bench, window: int = 1 << 20) -> tuple[Http2Wire, int, StreamedBody]:
    """A request on a stream, and the body of its answer."""
    b.app.hold = True
    wire = await opened(b, initial_window_size=window)
    number = wire.ask(head())
    return wire, number, await begun(b)


async def test_pieces_go_out_as_they_are_made_and_the_connection_goes_on() -> None:
    async with bench() as b:
        b.app.hold = True
        wire = await b.connect()
        wire.send(get("/1"))
        body = await begun(b)
        await body.write(b"abc")
        seen = b""
        while not seen.endswith(b"abc\r\n"):
            seen += await wire.reader.read(1000)
        wire.rest = seen
        await body.write(b"d" * (PIECE_BYTES_MAX + 1))
        body.end()
        body.tear()  # not after its end
        answer = await wire.answer("GET")
        assert (answer.body, answer.headers["transfer-encoding"]) == (b"abc" + b"d" * (PIECE_BYTES_MAX + 1), "chunked")
        b.app.hold = False
        assert (await wire.ask(get("/2"))).body == b"GET /2||"


async def test_answers_behind_a_body_wait_for_its_end() -> None:
    async with bench() as b:
        b.app.hold = True
        wire = await b.connect()
        wire.send(get("/1") + get("/2"))
        await b.app.wait(2)
        b.app.answer(b.app.held[1])
        body = await begun(b)
        await body.write(b"first")
        body.end()
        assert [(await wire.answer("GET")).body for _ in range(2)] == [b"first", b"GET /2||"]


async def test_a_body_whose_turn_has_not_come_waits_and_goes_out_then() -> None:
    async with bench() as b:
        b.app.hold = True
        wire = await b.connect()
        wire.send(get("/1") + get("/2"))
        await b.app.wait(2)
        body = await begun(b, 1)
        writing = asyncio.ensure_future(body.write(b"second"))
        await b.settle(wire, b"")
        assert not writing.done()
        b.app.answer(b.app.held[0])
        await writing
        body.end()
        assert [(await wire.answer("GET")).body for _ in range(2)] == [b"GET /1||", b"second"]


async def test_a_torn_body_is_no_whole_answer() -> None:
    async with bench() as b:
        b.app.hold = True
        wire = await b.connect()
        wire.send(get("/1"))
        body = await begun(b)
        await body.write(b"abc")
        body.tear()
        with pytest.raises((h11.RemoteProtocolError, ConnectionResetError)):
            await wire.answer("GET")


async def test_who_does_not_read_holds_the_writer_up_and_is_cut_off_in_the_end() -> None:
    async with bench() as b:
        b.app.hold = True
        wire = await b.connect()
        wire.reader._transport.pause_reading()  # type: ignore[attr-defined]
        wire.send(get("/1"))
        body = await begun(b)
        writing = asyncio.ensure_future(body.write(bytes(LARGE)))
        (connection,) = b.server.connections
        await until(lambda: getattr(connection, "_write_paused", False))
        assert not writing.done()
        b.pass_time(b.server.limits.write_timeout_s + 1)
        with pytest.raises(ClientLeft):
            await writing
        with pytest.raises(ClientLeft):
            await body.write(b"more")


async def test_a_stream_takes_a_body_as_far_as_its_window_reaches() -> None:
    async with bench(http2=Http2Connection) as b:
        wire, number, body = await on_stream(b, 10)
        wire.open_windows = False
        writing = asyncio.ensure_future(body.write(b"x" * 25))
        await writing  # it waits with the stream
        writing = asyncio.ensure_future(body.write(b"y"))
        await wire.pong()
        assert (wire.streams[number].body, writing.done()) == (b"x" * 10, False)
        other = wire.ask(head("GET", "/2"))
        await b.app.wait(2)
        b.app.answer(b.app.held[1])
        wire.h2.increment_flow_control_window(100, number)
        wire.flush()
        await writing
        body.end()
        answer = await wire.answer(number)
        assert (answer.body, answer.ended, answer.reset) == (b"x" * 25 + b"y", True, None)
        assert b"content-length" not in answer.headers
        assert (await wire.answer(other)).status == 200


async def test_a_torn_body_resets_its_stream_and_no_other() -> None:
    async with bench(http2=Http2Connection) as b:
        wire, number, body = await on_stream(b)
        await body.write(b"abc")
        body.tear()
        answer = await wire.answer(number)
        assert (answer.body, answer.ended, answer.reset) == (b"abc", False, 2)
        b.app.hold = False
        assert (await wire.answer(wire.ask(head("GET", "/2")))).body == b"GET /2||"


async def test_who_gives_a_stream_up_ends_its_writer() -> None:
    async with bench(http2=Http2Connection) as b:
        wire, number, body = await on_stream(b, 1)
        wire.open_windows = False
        await body.write(b"xx")
        writing = asyncio.ensure_future(body.write(b"y"))
        wire.h2.reset_stream(number)
        wire.flush()
        with pytest.raises(ClientLeft):
            await writing


async def test_there_is_one_answer() -> None:
    class Line:
        date_line = b"date: now\r\n"
        transport = None

        def answered(self) -> None:
            """See Sender."""

    request = Request(Line())
    request.respond(200, b"")
    assert request.stream(200, content_type=KIND) is None
    request = Request(Line())
    request.close = True
    assert request.stream(200, content_type=KIND) is not None
    assert b"connection: close" in (request.taken() or b"")
    left = Request(Line())
    left.forget()
    assert left.stream(200, content_type=KIND) is None
