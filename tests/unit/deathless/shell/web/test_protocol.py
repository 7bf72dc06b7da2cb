"""HTTP/1.1 framing, limits, order and time, over real sockets, with h11 as the judge."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest
from http_wire import LIMITS, Wire, bench, get, post, until

from deathless.shell.net.listening import split_address
from deathless.shell.web.protocol import SLICE, HttpConnection

pytestmark = pytest.mark.asyncio


# ---- requests and answers --------------------------------------------------------------------------------------


async def test_request_reaches_the_application_whole_and_is_answered() -> None:
    async with bench() as b:
        wire = await b.connect()
        answer = await wire.ask(post("/bank/alice/deposit?x=1", b'{"amount": 5}', "X-A: 1", "X-A: 2"))
        assert answer.body == b'POST /bank/alice/deposit|x=1|{"amount": 5}'
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["date"] == "Thu, 01 Jan 1970 00:00:00 GMT"
        assert b.app.requests[0].headers[b"x-a"] == b"1, 2"
        assert (await wire.ask(get("/again"))).body == b"GET /again||"


async def test_bytes_may_come_one_by_one() -> None:
    async with bench() as b:
        wire = await b.connect()
        for byte in post("/a?b", b"body"):
            wire.send(bytes([byte]))
            await wire.writer.drain()
        assert (await wire.answer()).body == b"POST /a|b|body"


async def test_pipelined_requests_are_answered_in_their_order_whoever_is_ready_first() -> None:
    async with bench() as b:
        b.app.hold = True
        wire = await b.connect()
        wire.send(post("/1") + post("/2") + post("/3"))
        await b.app.wait(3)
        for request in reversed(b.app.held):
            b.app.answer(request)
        assert [(await wire.answer()).body[:7] for _ in range(3)] == [b"POST /1", b"POST /2", b"POST /3"]


async def test_second_answer_to_a_request_is_dropped() -> None:
    async with bench() as b:
        b.app.hold = True
        wire = await b.connect()
        wire.send(get("/1"))
        await b.app.wait(1)
        b.app.answer(b.app.held[0])
        b.app.answer(b.app.held[0])
        assert b.app.held[0].answered
        assert (await wire.answer("GET")).status == 200
        b.app.hold = False
        assert (await wire.ask(get("/2"))).body == b"GET /2||"


async def test_head_is_answered_like_get_without_the_body() -> None:
    async with bench() as b:
        wire = await b.connect()
        answer = await wire.ask(get("/x", method="HEAD"))
        assert answer.body == b""
        assert answer.headers["content-length"] == str(len(b"HEAD /x||"))
        assert (await wire.ask(get("/y"))).body == b"GET /y||"


async def test_chunked_body_with_trailers_is_put_together() -> None:
    async with bench() as b:
        wire = await b.connect()
        head = b"POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n"
        answer = await wire.ask(head + b"3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: t\r\n\r\n")
        assert answer.body == b"POST /c||abcde"
        assert b"trailer" not in b.app.requests[0].headers
        assert (await wire.ask(get("/y"))).status == 200


async def test_absolute_target_counts_by_its_path() -> None:
    async with bench() as b:
        wire = await b.connect()
        assert (await wire.ask(b"GET http://h/p?q HTTP/1.1\r\nHost: x\r\n\r\n")).body == b"GET /p|q|"
        assert (await wire.ask(b"GET https://h HTTP/1.1\r\nHost: x\r\n\r\n")).body == b"GET /||"


# ---- the end of a connection -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "kept"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", True),
        (b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", True),
    ],
)
async def test_connection_is_kept_as_the_request_says(head: bytes, kept: bool) -> None:
    async with bench() as b:
        wire = await b.connect()
        answer = await wire.ask(head)
        assert (answer.headers.get("connection") == "close") is not kept
        if kept:
            assert (await wire.ask(get("/y"))).status == 200
        else:
            assert await wire.ended()


async def test_what_follows_connection_close_is_not_read() -> None:
    async with bench() as b:
        wire = await b.connect()
        wire.send(get("/1", "Connection: close") + get("/2"))
        assert (await wire.answer("GET")).status == 200
        assert await wire.ended()
        assert len(b.app.requests) == 1


async def test_half_closed_client_still_gets_its_answers() -> None:
    async with bench() as b:
        b.app.hold = True
        wire = await b.connect()
        wire.send(get("/1") + get("/2"))
        wire.writer.write_eof()
        await b.app.wait(2)
        await b.settle(wire, b"")
        for request in b.app.held:
            b.app.answer(request)
        assert (await wire.answer("GET")).status == 200
        assert (await wire.answer("GET")).headers["connection"] == "close"
        assert await wire.ended()
        assert not b.server.connections


async def test_client_that_left_gets_no_answer_and_does_no_harm() -> None:
    async with bench() as b:
        b.app.hold = True
        wire = await b.connect()
        linger = struct.pack("ii", 1, 0)
        wire.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)  # RST, not FIN
        wire.send(get("/1"))
        await b.app.wait(1)
        wire.writer.transport.abort()
        await until(lambda: not b.server.connections)
        assert b.app.held[0].answered
        b.app.answer(b.app.held[0])


async def test_client_whose_end_is_not_read_yet_does_no_harm_when_its_last_request_is_answered() -> None:
    async with bench() as b:
        b.app.hold = True
        host, port = split_address(b.address)
        with socket.create_connection((host, port)) as wire:  # gone before the server reads a byte of it
            wire.sendall(get("/1", "Connection: close"))
        await b.app.wait(1)
        b.app.answer(b.app.held[0])  # met by a reset, so there is nothing left to shut down
        await until(lambda: not b.server.connections)


@pytest.mark.parametrize("turns", range(6))
async def test_client_that_is_being_accepted_while_the_server_stops_is_ended_too(turns: int) -> None:
    """Whoever is left between the listening socket and its protocol would be served by nobody, and never be told."""
    async with bench() as b:
        with socket.create_connection(split_address(b.address)) as wire:
            for _ in range(turns):
                await asyncio.sleep(0)
            await b.server.stop(0.0)
            wire.settimeout(0)
            await until(lambda: is_ended(wire))


def is_ended(wire: socket.socket) -> bool:
    """Has the other end closed it, or the kernel, since nobody accepted it?"""
    try:
        return wire.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


async def test_client_that_ends_in_the_middle_of_a_request_is_forgotten() -> None:
    async with bench() as b:
        wire = await b.connect()
        await b.settle(wire, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab")
        wire.writer.write_eof()
        assert await wire.ended()
        assert b.app.requests == []


async def test_orderly_stop_answers_what_was_read_and_closes_the_rest() -> None:
    async with bench() as b:
        b.app.hold = True
        busy, idle, half = await b.connect(), await b.connect(), await b.connect()
        busy.send(get("/1"))
        await b.settle(half, b"GET /2 HT")
        await b.app.wait(1)
        stopping = asyncio.ensure_future(b.server.stop(30))
        assert await idle.ended()
        b.app.answer(b.app.held[0])
        assert (await busy.answer("GET")).headers["connection"] == "close"
        b.app.hold = False
        half.send(b"TP/1.1\r\nHost: x\r\n\r\n")
        assert (await half.answer("GET")).headers["connection"] == "close"
        for wire in (busy, half):
            wire.close()
        await stopping
        with pytest.raises(OSError, match="onnect"):
            await Wire.connect(b.address)


async def test_stop_that_lingers_answers_one_more_request_of_an_idle_connection_and_ends_it() -> None:
    async with bench() as b:
        idle, silent = await b.connect(), await b.connect()
        idle.send(get("/1"))
        assert "connection" not in (await idle.answer("GET")).headers
        stopping = asyncio.ensure_future(b.server.stop(30, 30))
        await b.settle(silent, b"")
        idle.send(get("/2"))
        assert (await idle.answer("GET")).headers["connection"] == "close"
        for wire in (idle, silent):
            wire.close()
        await stopping


async def test_stop_does_not_wait_for_ever() -> None:
    async with bench() as b:
        b.app.hold = True
        wire = await b.connect()
        wire.send(get("/1"))
        await b.app.wait(1)
        await b.server.stop(0.01)
        assert await wire.ended()


# ---- refusals --------------------------------------------------------------------------------------------------

HOST = b"Host: x\r\n"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505),
        (b"GET * HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /a#b HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\nHost: x\n\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n", 400),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n", 501),
        (b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5001\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 18446744073709551615\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nExpect: cake\r\nContent-Length: 1\r\n\r\na", 417),
        (b"GET /" + b"a" * 300 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 1100 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: a\r\n" * 11 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * (SLICE + 2000), 431),
        (b"\r\n" * (2 * SLICE), 431),
        (
            b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"A: a\r\n" * 20,
            431,
        ),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"x" * (4 * SLICE), 431),
    ],
)
async def test_message_that_can_not_be_read_is_refused_once_and_the_connection_ends(data: bytes, status: int) -> None:
    async with bench() as b:
        wire = await b.connect()
        answer = await wire.ask(data + get("/smuggled"))
        assert answer.status == status
        assert answer.headers["connection"] == "close"
        assert answer.json["code"].startswith("DL")
        assert answer.json["docs"] == f"docs/errors/{answer.json['code']}.md"
        assert await wire.ended()
        assert b.app.requests == [], "nothing behind a refused message is a request"
        assert b.refused == [status]


async def test_chunked_body_above_the_maximum_is_refused_while_it_comes() -> None:
    async with bench() as b:
        wire = await b.connect()
        wire.send(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(6):
            wire.send(b"3e8\r\n" + b"x" * 1000 + b"\r\n")
        assert (await wire.answer()).status == 413
        assert await wire.ended()


async def test_refusal_waits_for_the_answers_before_it() -> None:
    async with bench() as b:
        b.app.hold = True
        wire = await b.connect()
        wire.send(get("/1") + b"nonsense\r\n\r\n")
        await b.app.wait(1)
        b.app.answer(b.app.held[0])
        assert (await wire.answer("GET")).status == 200
        assert (await wire.answer("GET")).status == 400
        assert await wire.ended()


async def test_client_that_sends_on_after_a_refusal_can_still_read_it() -> None:
    async with bench() as b:
        wire = await b.connect()
        wire.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n")
        for _ in range(9):
            wire.send(b"x" * 100_000)
            await asyncio.sleep(0)
        await wire.writer.drain()
        assert (await wire.answer()).status == 413


async def test_one_connection_too_many_is_told_and_closed() -> None:
    async with bench(connections_max=1) as b:
        b.app.hold = True  # it is busy; an idle one would make way
        first = await b.connect()
        first.send(get("/x"))
        await b.app.wait(1)
        second = await Wire.connect(b.address)
        answer = await second.answer()
        assert answer.status == 503
        assert await second.ended()
        b.app.answer(b.app.held[0])
        assert (await first.answer()).status == 200


# ---- Expect ----------------------------------------------------------------------------------------------------


async def test_body_is_asked_for_when_the_client_waits_for_that() -> None:
    async with bench() as b:
        wire = await b.connect()
        wire.send(b"POST /e HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-Continue\r\n\r\n")
        assert await wire.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        wire.send(b"body")
        assert (await wire.answer()).body == b"POST /e||body"


async def test_body_is_asked_for_only_in_its_turn() -> None:
    async with bench() as b:
        b.app.hold = True
        wire = await b.connect()
        wire.send(get("/1") + b"POST /e HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
        await b.app.wait(1)
        b.pass_time(LIMITS.body_timeout_s + 1)
        b.app.answer(b.app.held[0])
        assert (await wire.answer("GET")).informational == []
        b.app.hold = False
        go_on = b"HTTP/1.1 100 Continue\r\n\r\n"
        assert wire.rest + await wire.reader.readexactly(len(go_on) - len(wire.rest)) == go_on
        wire.rest = b""
        wire.send(b"body")
        assert (await wire.answer()).body == b"POST /e||body"


async def test_client_that_does_not_wait_is_not_asked() -> None:
    async with bench() as b:
        wire = await b.connect()
        b.app.hold = True
        wire.send(get("/1") + b"POST /e HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\nbody")
        await b.app.wait(2)
        for request in b.app.held:
            b.app.answer(request)
        assert (await wire.answer("GET")).status == 200
        assert (await wire.answer()).informational == []
        empty = b"POST /e HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nExpect: 100-continue\r\n\r\n"
        b.app.hold = False
        assert (await wire.ask(empty)).informational == []


# ---- pressure --------------------------------------------------------------------------------------------------


async def test_requests_that_wait_on_one_connection_are_bounded() -> None:
    async with bench(waiting_max=2) as b:
        b.app.hold = True
        wire = await b.connect()
        count = 4 * SLICE // len(get("/1"))
        await b.settle(wire, get("/1") * count)
        assert 2 <= len(b.app.requests) <= SLICE // len(get("/1")) + 2
        b.app.hold = False
        for request in b.app.held:
            b.app.answer(request)
        for _ in range(count):
            assert (await wire.answer("GET")).status == 200
        assert len(b.app.requests) == count


async def test_client_that_does_not_read_is_not_read_and_at_last_cut_off() -> None:
    async with bench(body_bytes_max=1 << 20, waiting_max=1000) as b:
        wire = await b.connect()
        wire.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a selector transport has it
        body = b"x" * 1_000_000
        sent = asyncio.ensure_future(flood(wire, post("/big", body), 200))
        connection = next(iter(b.server.connections))
        assert isinstance(connection, HttpConnection)
        await until(lambda: connection._write_paused)
        seen = len(b.app.requests)
        assert seen < 200
        b.pass_time(LIMITS.write_timeout_s + 1)
        await until(lambda: not b.server.connections)
        assert len(b.app.requests) <= seen + 1
        sent.cancel()
        await asyncio.gather(sent, return_exceptions=True)


async def flood(wire: Wire, data: bytes, times: int) -> None:
    for _ in range(times):
        wire.send(data)
        await wire.writer.drain()


async def test_client_that_reads_again_is_read_again() -> None:
    async with bench(body_bytes_max=1 << 20) as b:
        wire = await b.connect()
        transport = wire.writer.transport
        transport.pause_reading()  # type: ignore[attr-defined]  # as above
        sent = asyncio.ensure_future(flood(wire, post("/big", b"x" * 1_000_000), 30))
        connection = next(iter(b.server.connections))
        assert isinstance(connection, HttpConnection)
        await until(lambda: connection._write_paused)
        transport.resume_reading()  # type: ignore[attr-defined]  # as above
        for _ in range(30):
            assert len((await wire.answer()).body) > 1_000_000
        await sent


# ---- time ------------------------------------------------------------------------------------------------------


async def test_idle_connection_is_closed_after_its_time() -> None:
    async with bench() as b:
        wire = await b.connect()
        assert (await wire.ask(get("/1"))).status == 200
        b.pass_time(LIMITS.idle_timeout_s - 1)
        assert b.server.connections
        b.pass_time(2)
        assert await wire.ended()


@pytest.mark.parametrize("part", [b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\n", b"\r\n"])
async def test_head_that_does_not_come_is_refused_after_its_time(part: bytes) -> None:
    async with bench() as b:
        wire = await b.connect()
        await b.settle(wire, part)
        b.pass_time(LIMITS.head_timeout_s - 1)
        assert b.server.connections
        b.pass_time(2)
        if part.strip():
            assert (await wire.answer("GET")).status == 408
        assert await wire.ended()


async def test_body_that_does_not_come_is_refused_after_its_time() -> None:
    async with bench() as b:
        wire = await b.connect()
        await b.settle(wire, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab")
        b.pass_time(LIMITS.head_timeout_s + 1)
        assert b.refused == []
        b.pass_time(LIMITS.body_timeout_s)
        assert (await wire.answer()).status == 408
        assert await wire.ended()


async def test_request_that_waits_for_its_answer_is_given_time() -> None:
    async with bench() as b:
        b.app.hold = True
        wire = await b.connect()
        wire.send(get("/1"))
        await b.app.wait(1)
        b.pass_time(10_000)
        b.app.answer(b.app.held[0])
        assert (await wire.answer("GET")).status == 200


async def test_refused_client_that_does_not_hang_up_is_cut_off() -> None:
    async with bench() as b:
        wire = await b.connect()
        assert (await wire.ask(b"nonsense\r\n\r\n")).status == 400
        assert await wire.ended()
        b.pass_time(LIMITS.linger_s + 1)
        await until(lambda: not b.server.connections)
