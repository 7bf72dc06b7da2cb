"""A sender's links and replicas of the peer they lead to, for the tests of shell/worker/peer_links.py."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path

from deathless.base.config import ReplicaConfig
from deathless.codec.peer_messages import PeerHello, Target
from deathless.codec.versions import spoken
from deathless.codec.wire import (
    Hello,
    PeerIntroduction,
    PeerWelcome,
    Refused,
    Type,
    Welcome,
    decode_struct,
    packet,
    struct_packet,
)
from deathless.core import events as ev
from deathless.shell.directory.members import Member, write_member
from deathless.shell.net.connections import ServerConnection
from deathless.shell.net.listening import listen
from deathless.shell.worker.peer_links import PeerLinks

STOCK = Target("stock", 0)
HELLO = struct_packet(Type.PEER_HELLO, PeerIntroduction(PeerHello("shop", 0, b"i" * 16, 1), 7))
SERVERS: list[asyncio.Server] = []  # closed at the end of each test


class Replica:
    """A replica of the peer, as far as a sender sees it."""

    def __init__(self, folder: Path, name: str = "r0", *, role: str = "primary", token: str = "secret") -> None:
        self.folder, self.name, self.role, self.token = folder, name, role, token
        self.primary = ""  # address it names
        self.mute = False  # frozen: it reads and says nothing
        self.next_position = 1
        self.refusal: Refused | None = None
        self.hellos: list[Hello] = []
        self.introductions: list[PeerIntroduction] = []
        self.got: list[tuple[int, bytes]] = []
        self.accepted: list[ServerConnection] = []
        self.lost_count = 0
        self.changed = asyncio.Event()

    async def open(self, tls: ssl.SSLContext | None = None) -> Replica:
        server, self.address = await listen(self._accept, "127.0.0.1:0", tls)
        SERVERS.append(server)
        write_member(str(self.folder), Member(self.name, "", client=self.address))
        return self

    def _accept(self) -> ServerConnection:
        connection = ServerConnection(
            self, 1, service="stock", token=self.token, packet_bytes_max=1 << 16, buffer_bytes_max=1 << 16
        )
        self.accepted.append(connection)
        return connection

    def opened(self, connection: ServerConnection, hello: Hello) -> None:
        self.hellos.append(hello)
        if not self.mute:
            welcome = Welcome(spoken().newest, "stock", self.name, self.role, 3, 1, self.primary, 0, 1, 1)
            connection.send(struct_packet(Type.WELCOME, welcome))
        self.changed.set()

    def packets(self, connection: ServerConnection, packets: list[tuple[int, bytes]]) -> None:
        self.changed.set()
        if self.mute:
            return
        for kind, body in packets:
            if kind == Type.PING:
                connection.send(packet(Type.PONG))
            elif kind == Type.PEER_HELLO:
                self.introductions.append(decode_struct(PeerIntroduction, body))
                told = self.refusal
                answer = (
                    struct_packet(Type.PEER_WELCOME, PeerWelcome(40, self.next_position))
                    if told is None
                    else struct_packet(Type.PEER_REFUSED, told)
                )
                connection.send(answer)
            else:
                self.got.append((kind, body))

    def lost(self, connection: ServerConnection) -> None:
        self.lost_count += 1
        self.changed.set()

    async def wait_for(self, wanted: Callable[[], bool]) -> None:
        while not wanted():
            self.changed.clear()
            await self.changed.wait()


class Ours:
    """Our links, and what they told."""

    def __init__(self, config: ReplicaConfig, seed: int = 1) -> None:
        self.told: list[ev.Event] = []
        self.changed = asyncio.Event()
        self.links = PeerLinks(
            config, introduce=lambda _: HELLO, tell=self._tell, chance=random.Random(seed), packet_bytes_max=1 << 16
        )

    def _tell(self, event: ev.Event) -> None:
        self.told.append(event)
        self.changed.set()

    async def wait_told(self, count: int) -> None:
        while len(self.told) < count:
            self.changed.clear()
            await self.changed.wait()


def config_in(folder: Path, **settings: object) -> ReplicaConfig:
    fields: dict[str, object] = {"token": "secret", **settings}
    return ReplicaConfig(service="shop", module="m:a", directory=str(folder / "shop"), replica="r1", **fields)  # type: ignore[arg-type]


def run(work: Coroutine[object, object, None]) -> None:
    async def whole() -> None:
        try:
            await asyncio.wait_for(work, 30)
        finally:
            while SERVERS:
                SERVERS.pop().close()

    asyncio.run(whole())


async def ended(ours: Ours) -> None:
    """Close, and let the tasks come to their end."""
    tasks = [link.task for link in ours.links._links.values() if link.task is not None]
    ours.links.close()
    await asyncio.gather(*tasks, return_exceptions=True)
