"""Connections: what is sent arrives whole and in order, however it was sent; a peer that does not read is cut off."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Coroutine
from unittest.mock import Mock

import pytest
import uvloop

from deathless.codec.wire import Hello, PacketReader, Type, packet, struct_packet
from deathless.shell.net import connections as packets
from deathless.shell.net.connections import SOON_BYTES, ClientConnection, ServerConnection
from deathless.shell.process.event_loop import is_broken_link

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]
BUFFER_BYTES_MAX = 8 << 20


class Owner:
    def __init__(self) -> None:
        self.got: list[tuple[int, bytes]] = []
        self.greeted = asyncio.Event()
        self.gone = asyncio.Event()

    def opened(self, connection: ServerConnection, hello: Hello) -> None:
        self.greeted.set()

    def packets(self, connection: ServerConnection, packets: list[tuple[int, bytes]]) -> None:
        self.got += packets

    def lost(self, connection: ServerConnection) -> None:
        self.gone.set()


class Pair:
    """A ServerConnection and the plain socket at its other end."""

    def __init__(self) -> None:
        self.owner = Owner()
        self.peer: socket.socket
        self.connection: ServerConnection

    async def open(self) -> Pair:
        loop = asyncio.get_running_loop()
        server = socket.create_server(("127.0.0.1", 0))
        self.peer = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        server.close()
        self.peer.setblocking(False)
        _, self.connection = await loop.connect_accepted_socket(
            lambda: ServerConnection(
                self.owner, 1, service="s", token="", packet_bytes_max=1 << 20, buffer_bytes_max=BUFFER_BYTES_MAX
            ),
            accepted,
        )
        await loop.sock_sendall(self.peer, struct_packet(Type.HELLO, Hello(1, "client", "s", "test")))
        await self.owner.greeted.wait()
        return self

    async def read(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size > 0:
            data = await asyncio.get_running_loop().sock_recv(self.peer, min(size, 1 << 16))
            if not data:
                break
            parts.append(data)
            size -= len(data)
        return b"".join(parts)


@pytest.fixture(params=LOOPS, ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[object, object, None]], None]:
    def runner(work: Coroutine[object, object, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as on:
            on.run(asyncio.wait_for(work, 30))

    return runner


Run = Callable[[Coroutine[object, object, None]], None]


def numbered(count: int, size: int) -> list[bytes]:
    return [packet(Type.PONG, n.to_bytes(4, "little") + bytes(size)) for n in range(count)]


def test_packets_arrive_whole_and_in_order_though_the_peer_reads_late(run: Run) -> None:
    async def work() -> None:
        pair = await Pair().open()
        sent = numbered(40, 100_000) + numbered(40, 10)
        for data in sent:
            pair.connection.send(data)
        expected = b"".join(sent)
        assert await pair.read(len(expected)) == expected
        pair.connection.send(sent[0])
        assert await pair.read(len(sent[0])) == sent[0]
        pair.peer.close()

    run(work())


def test_packet_is_on_its_way_before_the_loop_turns(run: Run) -> None:
    async def work() -> None:
        pair = await Pair().open()
        pair.connection.send(b"at once")
        assert pair.peer.recv(100) == b"at once"
        pair.peer.close()

    run(work())


def test_packets_that_may_wait_go_together_and_before_what_is_sent_later(run: Run) -> None:
    async def work() -> None:
        pair = await Pair().open()
        first, second, third = numbered(3, 10)
        pair.connection.send_soon(first)
        pair.connection.send_soon(second)
        with pytest.raises(BlockingIOError):
            pair.peer.recv(1)
        pair.connection.send(third)
        assert await pair.read(3 * len(first)) == first + second + third
        pair.connection.send_soon(first)
        assert await pair.read(len(first)) == first
        pair.peer.close()

    run(work())


def test_packets_that_may_wait_go_at_once_when_they_are_many(run: Run) -> None:
    async def work() -> None:
        pair = await Pair().open()
        large = packet(Type.FRAME, bytes(SOON_BYTES))
        pair.connection.send_soon(large)
        assert list(PacketReader(1 << 20).feed(await pair.read(len(large)))) == [(Type.FRAME, bytes(SOON_BYTES))]
        pair.peer.close()

    run(work())


def test_packets_that_may_wait_go_at_once_when_they_are_asked_for(run: Run) -> None:
    async def work() -> None:
        pair = await Pair().open()
        pair.connection.send_soon(b"a switchover waits")
        pair.connection.send_kept()
        assert pair.peer.recv(100) == b"a switchover waits"
        pair.connection.send_kept()
        with pytest.raises(BlockingIOError):
            pair.peer.recv(1)
        pair.peer.close()

    run(work())


def test_close_comes_after_what_may_wait(run: Run) -> None:
    async def work() -> None:
        pair = await Pair().open()
        pair.connection.send_soon(b"last words")
        pair.connection.close()
        assert await pair.read(100) == b"last words"
        assert pair.connection.flushed
        pair.peer.close()

    run(work())


def test_peer_that_does_not_read_is_cut_off_at_the_maximum(run: Run) -> None:
    async def work() -> None:
        pair = await Pair().open()
        data = bytes(1 << 20)
        for _ in range(64):
            pair.connection.send(data)
        await pair.owner.gone.wait()
        pair.connection.send(b"nobody hears this")
        pair.peer.close()

    run(work())


async def opened() -> tuple[ClientConnection, socket.socket]:
    """A ClientConnection that has said HELLO, and the plain socket at its other end."""
    loop = asyncio.get_running_loop()
    server = socket.create_server(("127.0.0.1", 0))
    hello = Hello(1, "peer", "s", "test")
    connection = ClientConnection(hello, lambda packets: None, lambda: None, 1 << 20)
    _, _ = await loop.create_connection(lambda: connection, *server.getsockname())
    other, _ = server.accept()
    server.close()
    other.setblocking(False)
    expected = struct_packet(Type.HELLO, hello)
    got = b""
    while got != expected:
        got += await loop.sock_recv(other, len(expected) - len(got))
    return connection, other


def test_what_we_send_on_a_connection_of_ours_is_on_its_way_before_the_loop_turns(run: Run) -> None:
    async def work() -> None:
        connection, other = await opened()
        connection.send(b"a request")
        assert other.recv(100) == b"a request"
        other.close()
        connection.close()
        await connection.wait_closed()

    run(work())


def test_what_we_send_arrives_whole_and_in_order_though_the_other_end_reads_late(run: Run) -> None:
    async def work() -> None:
        connection, other = await opened()
        sent = numbered(80, 100_000) + numbered(40, 10)
        for data in sent:
            connection.send(data)
        expected = b"".join(sent)
        got = bytearray()
        while len(got) < len(expected):
            got += await asyncio.get_running_loop().sock_recv(other, 1 << 16)
        assert got == expected
        other.close()
        connection.close()
        await connection.wait_closed()

    run(work())


class Cancelled(ClientConnection):
    """Its opening is given up in the moment in which it stands."""

    opening: asyncio.Task[object]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.opening.cancel()


def test_connection_whose_opening_was_cancelled_when_it_stood_is_not_waited_for_for_ever(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packets, "CLOSED_S", 0.01)

    async def work() -> None:
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as server:
            connection = Cancelled(Hello(1, "peer", "s", "test"), lambda packets: None, lambda: None, 1 << 20)
            opening = loop.create_connection(lambda: connection, *server.getsockname())
            connection.opening = asyncio.ensure_future(opening)
            with pytest.raises(asyncio.CancelledError):
                await connection.opening
            connection.close()
            await connection.wait_closed()
            other, _ = server.accept()
            with other:
                other.setblocking(False)
                with contextlib.suppress(ConnectionResetError):
                    while await loop.sock_recv(other, 100):
                        pass

    run(work())


CLOSED = RuntimeError("unable to perform operation on <TCPTransport closed=True reading=False>; the handler is closed")


@pytest.mark.parametrize(
    ("context", "broken"),
    [
        ({"exception": ConnectionResetError(), "transport": None}, True),
        ({"exception": CLOSED, "protocol": None}, True),
        ({"exception": CLOSED}, False),
        ({"exception": RuntimeError("a bug"), "transport": None}, False),
        ({"exception": OSError()}, False),
        ({"message": "a callback failed", "protocol": None}, False),
    ],
)
def test_only_what_a_connection_tells_of_its_end_is_a_broken_link(context: dict[str, object], broken: bool) -> None:
    assert is_broken_link(context) is broken


def test_program_that_speaks_another_protocol_is_left_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    ended: list[object] = []
    connection = ClientConnection(Hello(1, "client", "s", "test"), ended.append, lambda: None, packet_bytes_max=1 << 20)
    transport = Mock()
    connection._transport = transport
    connection.data_received(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    [told] = caplog.records
    assert (told.levelno, told.exc_info, ended) == (logging.INFO, None, [])
    transport.abort.assert_called_once_with()
