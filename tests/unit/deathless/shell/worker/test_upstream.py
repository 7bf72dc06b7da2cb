"""A follower's connection to its primary: told when made and when lost, silent once it is left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest
from tests.unit.deathless.engine.replica_world import World

from deathless.base.config import ReplicaConfig
from deathless.codec.versions import spoken
from deathless.codec.wire import (
    Follow,
    Following,
    PacketReader,
    Type,
    Welcome,
    decode_struct,
    packet,
    struct_packet,
)
from deathless.shell.worker.upstream import Upstream

CONFIG = msgspec.convert({"service": "bank", "module": "a.py:a", "directory": "data", "replica": "r1"}, ReplicaConfig)
WELCOME = Welcome(spoken().newest, "bank", "r0", "primary", 1, 1, "", 0, 1 << 20, 16)


class Primary:
    """A primary's port, by a script; what comes is kept."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, bytes]] = []
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Welcome who connects, and listen."""
        self.writers.append(writer)
        packets = PacketReader(1 << 20)
        while data := await reader.read(65536):
            for kind, body in packets.take(data):
                self.heard.append((kind, body))
                if kind == Type.HELLO:
                    writer.write(struct_packet(Type.WELCOME, WELCOME))
        writer.close()


def followed(
    look: Callable[[Upstream, Primary, list[str], str], Awaitable[None]],
    taken_in: Callable[[list[tuple[int, bytes]]], None] = lambda packets: None,
) -> list[str]:
    """Run `look` beside a primary; gives what was told. What comes is told, and `taken_in`."""
    told: list[str] = []

    def heard(packets: list[tuple[int, bytes]]) -> None:
        told.extend(f"packet {kind}" for kind, _ in packets)
        taken_in(packets)

    async def main() -> None:
        primary = Primary()
        server = await asyncio.start_server(primary.serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()[:2]
        upstream = Upstream(
            CONFIG,
            1 << 20,
            where=lambda replica: (f"{host}:{port}" if replica == "r0" else "", b"code"),
            spawn=asyncio.ensure_future,
            made=lambda: told.append("made"),
            packets=heard,
            lost=lambda: told.append("lost"),
        )
        async with asyncio.timeout(20):
            await look(upstream, primary, told, f"{host}:{port}")
        upstream.leave()
        for writer in primary.writers:
            writer.close()
        server.close()
        await server.wait_closed()

    asyncio.run(main())
    return told


async def until(ready: Callable[[], object]) -> None:
    """Wait for what the other end does."""
    while not ready():  # noqa: ASYNC110  nothing tells of it
        await asyncio.sleep(0)


def test_connection_is_told_and_frames_are_asked_for_and_its_end_is_told_once() -> None:
    async def look(upstream: Upstream, primary: Primary, told: list[str], address: str) -> None:
        await upstream.connect(address, b"code")
        upstream.ask(7, b"chain")
        await until(lambda: len(primary.heard) == 2)
        assert decode_struct(Follow, primary.heard[1][1]) == Follow("r1", 7, b"chain", False)
        primary.writers[0].write(packet(Type.PING))
        await until(lambda: f"packet {Type.PING:d}" in told)
        primary.writers[0].close()
        await until(lambda: "lost" in told)

    assert followed(look).count("lost") == 1


def test_replica_is_followed_where_it_leads() -> None:
    async def look(upstream: Upstream, primary: Primary, told: list[str], address: str) -> None:
        upstream.follow("r0")
        await until(lambda: told == ["made"])
        upstream.follow("r9")
        await until(lambda: told[-1] == "lost")

    followed(look)


def test_primary_that_is_not_reached_is_lost() -> None:
    async def look(upstream: Upstream, primary: Primary, told: list[str], address: str) -> None:
        await upstream.connect("", b"code")
        assert told == ["lost"]

    followed(look)


def test_end_of_a_connection_that_was_left_is_not_told() -> None:
    async def look(upstream: Upstream, primary: Primary, told: list[str], address: str) -> None:
        await upstream.connect(address, b"code")
        upstream.leave()
        upstream.send(b"nobody")
        await until(primary.writers[0].is_closing)

    assert "lost" not in followed(look)


@pytest.mark.parametrize("kind", [Type.FOLLOWING, Type.REFUSED, Type.HANDOVER, Type.FRAME, Type.CHALLENGE])
@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x93\x01", b"\xff" * 200])
def test_packet_that_nobody_can_read_ends_its_connection_and_the_next_one_is_followed(kind: Type, body: bytes) -> None:
    """A follower that it stopped for good would be lost by one flipped bit."""
    follower = World().node("r1").begin()

    async def look(upstream: Upstream, primary: Primary, told: list[str], address: str) -> None:
        await upstream.connect(address, b"code")
        await until(lambda: primary.heard)
        primary.writers[0].write(packet(kind, body))
        if kind != Type.FRAME:  # whose bytes are compared by the engine: it asks for the rest of the log
            await until(lambda: "lost" in told)
        upstream.leave()
        await upstream.connect(address, b"code")
        await until(lambda: len(primary.heard) == 2)
        primary.writers[1].write(struct_packet(Type.FOLLOWING, Following(True, 1, 0, "")))
        await until(lambda: told[-1] == f"packet {Type.FOLLOWING:d}")

    assert followed(look, follower.intake.upstream).count("made") == 2
    assert follower.stopped == []
