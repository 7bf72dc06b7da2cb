"""The connection to a shard's primary: found among the replicas that announce themselves, and made again when lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from deathless.base.config import ReplicaConfig
from deathless.codec.wire import Hello, PacketReader, Role, Type, Welcome, decode_struct, packet, struct_packet
from deathless.shell.directory.members import Member, remove_member, write_member
from deathless.sources import link
from deathless.sources.link import Packets, ShardLink


class Replica(asyncio.Protocol):
    """One replica's client port, as far as a source sees it; each connection is one of these."""

    def __init__(self, role: str, primary: str = "", *, silent: bool = False) -> None:
        self.role = role
        self.primary = primary
        self.silent = silent
        self.hello: Hello | None = None
        self.got: Packets = []
        self._reader = PacketReader(1 << 20)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        for kind, body in self._reader.feed(data):
            if kind == Type.HELLO:
                self.hello = decode_struct(Hello, body)
                told = Welcome(self.hello.version, "taker", "r", self.role, 1, 1, self.primary, 0, 1 << 20, 10)
                self.transport.write(struct_packet(Type.WELCOME, told))
            elif kind == Type.PING and not self.silent:
                self.transport.write(packet(Type.PONG, body))
            elif kind != Type.PING:
                self.got.append((kind, body))


class Bench:
    """A folder with replicas, and a link that looks for their primary."""

    def __init__(self, folder: Path) -> None:
        self.config = ReplicaConfig(service="taker", module="m:m", directory=str(folder), replica="r0", token="t")
        self.connections: list[Replica] = []
        self.told: list[object] = []
        self._servers: list[asyncio.Server] = []
        self.changed = asyncio.Event()

    async def listen(self, name: str, role: str, primary: str = "", *, silent: bool = False) -> str:
        """Start a replica and have it announced; gives its address."""

        def make() -> Replica:
            self.connections.append(Replica(role, primary, silent=silent))
            return self.connections[-1]

        server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
        self._servers.append(server)
        address = "{}:{}".format(*server.sockets[0].getsockname())
        write_member(self.config.directory, Member(replica=name, control="", client=address))
        return address

    async def close(self, made: ShardLink) -> None:
        """End all."""
        made.close()
        for server in self._servers:
            server.close()
        for each in self.connections:
            each.transport.abort()
        await asyncio.gather(*(server.wait_closed() for server in self._servers))
        for _ in range(3):
            await asyncio.sleep(0)

    def link(self) -> ShardLink:
        def note(told: object) -> None:
            self.told.append(told)
            self.changed.set()

        return ShardLink(
            self.config, 0, "r0/rows", up=lambda shard: note(("up", shard)),
            received=lambda _, packets: note(packets), down=lambda shard: note(("down", shard)),
        )  # fmt: skip

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


@pytest.mark.asyncio
async def test_the_primary_is_found_through_one_that_is_none_and_packets_go_both_ways(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    primary = await bench.listen("r1", "primary")
    remove_member(str(tmp_path), "r1")
    await bench.listen("r0", "standby", primary)
    made = bench.link()
    await bench.until(lambda: ("up", 0) in bench.told)
    there = bench.connections[-1]
    assert there.hello is not None
    assert (there.hello.kind, there.hello.service, there.hello.token) == ("source", "taker", "t")
    assert made.problem == ""
    there.transport.write(packet(Type.STREAM_COMMIT, b"x"))
    await bench.until(lambda: [(int(Type.STREAM_COMMIT), b"x")] in bench.told)
    there.transport.write(struct_packet(Type.ROLE, Role("standby", 2, "")))
    await bench.until(lambda: ("down", 0) in bench.told)
    made.send(b"lost, as nobody is connected")
    await bench.close(made)


@pytest.mark.asyncio
@pytest.mark.parametrize("role", ["primary", "standby"])
async def test_replica_beside_us_is_asked_first(role: str, tmp_path: Path) -> None:
    """The others may be frozen, and each of them would be waited for; if it does not lead, it knows who does."""
    bench = Bench(tmp_path)
    for replica in ("r2", "r3", "r4", "r5"):
        await bench.listen(replica, "standby", silent=True)
    leads = "" if role == "primary" else await bench.listen("r1", "primary")
    await bench.listen("r0", role, leads)
    made = bench.link()
    await bench.until(lambda: ("up", 0) in bench.told)
    assert len(bench.connections) == (1 if role == "primary" else 2)
    await bench.close(made)


@pytest.mark.asyncio
async def test_one_that_is_silent_is_left_and_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "PING_S", 0.001)
    bench = Bench(tmp_path)
    await bench.listen("r0", "primary", silent=True)
    made = bench.link()
    await bench.until(lambda: bench.told[:3] == [("up", 0), ("down", 0), ("up", 0)])
    await bench.close(made)


@pytest.mark.asyncio
async def test_where_no_replica_is_announced_it_says_so(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    made = bench.link()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert "no replica is announced" in made.problem
    await bench.close(made)


@pytest.mark.asyncio
async def test_a_fault_of_ours_in_what_a_primary_sent_is_raised_and_no_link_ends_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    await bench.listen("r0", "primary")
    made = bench.link()
    await bench.until(lambda: ("up", 0) in bench.told)
    made.check()
    broken = ZeroDivisionError("a fault")
    monkeypatch.setattr(link.ShardLink, "_taken", lambda *_: (_ for _ in ()).throw(broken))
    bench.connections[-1].transport.write(packet(Type.STREAM_COMMIT, b"x"))
    await bench.until(lambda: made.problem.startswith("DL9001"))
    with pytest.raises(ZeroDivisionError):
        made.check()
    await bench.close(made)
