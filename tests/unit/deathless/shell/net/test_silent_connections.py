"""Connections that say nothing keep no caller out, whatever port they come to."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import cast

import pytest
from http_wire import Echo, Wire, bench, get

from deathless.base.limits import FIRST_REQUEST_MAX_S, SILENT_CONNECTIONS_MAX
from deathless.codec.versions import say_hello
from deathless.codec.wire import Hello, PacketReader, Type, packet, struct_packet
from deathless.shell.net import connections as packets
from deathless.shell.net.connections import ServerConnection
from deathless.shell.net.listening import listen
from deathless.shell.net.silent_connections import SilentConnections
from deathless.shell.web.protocol import HttpServer, OpenConnection
from deathless.shell.web.request import HttpLimits

pytestmark = pytest.mark.asyncio
FLOOD = 1000
AT_ONCE = 400  # more than there are descriptors, fewer than the kernel keeps for us
SAYING_NOTHING = """
import resource, socket, sys
host, port, count, said = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4].encode()
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(count + 100, hard), hard))
kept = []
for _ in range(count):
    kept.append(socket.create_connection((host, port), timeout=30))
    try:
        kept[-1].sendall(said)
    except OSError:
        pass
print("all", flush=True)
sys.stdin.read()
"""


@contextmanager
def few_descriptors(more: int) -> Iterator[None]:
    """Leave this process so many descriptors beside those that are open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@asynccontextmanager
async def flood(address: str, said: str) -> AsyncIterator[None]:
    """Another process opens 1,000 connections and says no more than this."""
    host, _, port = address.rpartition(":")
    arguments = (sys.executable, "-c", SAYING_NOTHING, host, port, str(FLOOD), said)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*arguments, stdin=pipe, stdout=pipe)
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"all\n"
        yield
    finally:
        process.kill()
        await process.communicate()


def flood_at_once(address: str) -> subprocess.Popen[bytes]:
    """The same, while this process does nothing: so many wait to be accepted that there are not descriptors for all."""
    host, _, port = address.rpartition(":")
    arguments = (sys.executable, "-c", SAYING_NOTHING, host, port, str(AT_ONCE), "")
    process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"all\n"
    return process


class Greeter:
    """Answers PING, as each port for packets does."""

    def __init__(self, connections_max: int) -> None:
        self.silent = SilentConnections(connections_max)
        self.number = 0

    def accept(self) -> ServerConnection:
        self.number += 1
        return ServerConnection(
            self, self.number, service="s", token="", packet_bytes_max=1000, buffer_bytes_max=1000, silent=self.silent
        )

    def opened(self, connection: ServerConnection, hello: Hello) -> None:
        pass

    def packets(self, connection: ServerConnection, packets: list[tuple[int, bytes]]) -> None:
        for _ in packets:
            connection.send(packet(Type.PONG))

    def lost(self, connection: ServerConnection) -> None:
        pass


async def greet(address: str) -> bool:
    """Be a caller of a port for packets: HELLO and PING. True: there was an answer."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(struct_packet(Type.HELLO, say_hello("tool", "s", "t")) + packet(Type.PING))
        found = PacketReader(1000).feed(await reader.read(100))
        return [kind for kind, _ in found] == [Type.PONG]
    except ConnectionResetError:
        return False
    finally:
        writer.transport.abort()


async def request(address: str) -> bool:
    """Be a caller of a HTTP port. True: there was an answer."""
    wire = await Wire.connect(address)
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        return (await wire.ask(get("/a"))).status == 200
    return False


@pytest.mark.parametrize("said", ["", "GET / HT"], ids=["nothing", "a part of a request"])
async def test_thousand_silent_connections_keep_no_caller_of_the_http_port_out(said: str) -> None:
    server = HttpServer(Echo(), HttpLimits(connections_max=64), now=lambda: 0.0, wall=lambda: 0.0)
    with few_descriptors(120):
        address = await server.start("127.0.0.1:0")
        try:
            async with flood(address, said):
                assert len(server.silent) <= server.silent.most == 16
                assert [await request(address) for _ in range(5)] == [True] * 5
        finally:
            await Wire.close_all()
            await server.stop(0.0)


@pytest.mark.parametrize("said", ["", "abc"], ids=["nothing", "a part of a packet"])
async def test_thousand_silent_connections_keep_no_caller_of_a_port_for_packets_out(said: str) -> None:
    owner = Greeter(64)
    with few_descriptors(120):
        server, address = await listen(owner.accept, "127.0.0.1:0")
        try:
            async with flood(address, said):
                assert len(owner.silent) <= owner.silent.most == 16
                assert [await greet(address) for _ in range(5)] == [True] * 5
                assert len(owner.silent) <= owner.silent.most
        finally:
            server.close()


async def test_silent_connections_that_came_while_nothing_was_accepted_keep_no_caller_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    owner = Greeter(64)
    with few_descriptors(120):
        server, address = await listen(owner.accept, "127.0.0.1:0")
        silent = flood_at_once(address)
        try:
            assert [await greet(address) for _ in range(5)] == [True] * 5
            assert not caplog.records  # never without a descriptor
        finally:
            silent.kill()
            silent.communicate()
            server.close()


async def test_oldest_silent_one_makes_way() -> None:
    ended: list[int] = []
    silent = SilentConnections(16)
    for number in range(6):
        silent.came(number, lambda number=number: ended.append(number))  # type: ignore[misc]
        if number == 1:
            silent.spoke(1)
    assert (silent.most, ended) == (4, [0])
    assert SilentConnections(1 << 20).most == SILENT_CONNECTIONS_MAX
    assert SilentConnections(1).most == 4


async def test_caller_who_has_spoken_is_ended_by_no_silent_one() -> None:
    async with bench(connections_max=16) as b:
        caller = await b.connect()
        assert (await caller.ask(get("/a"))).status == 200
        silent = [await Wire.connect(b.address) for _ in range(10)]
        assert await silent[0].ended()
        assert (await caller.ask(get("/a"))).status == 200


async def test_longest_idle_connection_makes_way_where_all_places_are_taken() -> None:
    async with bench(connections_max=3) as b:
        wires = []
        for _ in range(4):
            wires.append(await Wire.connect(b.address))
            assert (await wires[-1].ask(get("/a"))).status == 200
            b.pass_time(1)
        assert await wires[0].ended()
        assert (await wires[1].ask(get("/a"))).status == 200


async def test_connection_without_a_first_request_is_closed_in_time() -> None:
    async with bench() as b:
        silent, drip = await b.connect(), await b.connect()
        caller = await b.connect()
        assert (await caller.ask(get("/a"))).status == 200
        for _ in range(3):
            await b.settle(drip, b"\r\n")
            b.pass_time(FIRST_REQUEST_MAX_S / 2)
        assert await silent.ended()
        assert await drip.ended()
        assert (await caller.ask(get("/a"))).status == 200


async def test_connection_that_says_no_hello_is_closed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packets, "FIRST_WORD_MAX_S", 0.0)
    owner = Greeter(64)
    server, address = await listen(owner.accept, "127.0.0.1:0")
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read(1) == b""
    assert len(owner.silent) == 0
    writer.transport.abort()
    server.close()


class Looked:
    """What a sweep finds; a broken one meets a bug."""

    def __init__(self, *, broken: bool) -> None:
        self.broken, self.looked, self.ended = broken, False, False

    def sweep(self, now: float) -> None:
        """See OpenConnection."""
        self.looked = True
        if self.broken:
            raise ZeroDivisionError(now)

    def abort(self) -> None:
        """See OpenConnection."""
        self.ended = True


async def test_connection_that_can_not_be_looked_at_ends_and_the_others_are_looked_at_again_and_again() -> None:
    server = HttpServer(Echo(), HttpLimits(sweep_s=0.001), now=lambda: 0.0, wall=lambda: 0.0)
    broken, sound = Looked(broken=True), Looked(broken=False)
    server.connections |= cast("dict[OpenConnection, None]", dict.fromkeys((broken, sound)))
    server.sweep()
    assert (broken.ended, sound.looked, sound.ended) == (True, True, False)
    server._wall = lambda: float("nan")  # no date can be made of it: the whole round fails
    with pytest.raises(ValueError, match="NaN"):
        server._tick()
    server.connections.clear()
    server._wall, server.date_line = (lambda: 0.0), b""
    async with asyncio.timeout(30):
        while not server.date_line:  # noqa: ASYNC110  nothing tells of it
            await asyncio.sleep(0)
    await server.stop(0.0)
