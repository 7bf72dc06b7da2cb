"""A replica as a client sees it, without log, lock or peers: enough of the server's rules to be a fair opponent.

`FakeShard` is what all replicas of a service share (sessions, replies, what was applied); `FakeReplica` is one
replica, bytes in, bytes out; `ReplicaServer` puts one on a real socket. Rules kept as in the worker: only the next
expected seq is taken (I3), replies are recorded (I5), a session is spoken in only by who registered it or showed its
secret, a non-primary answers with its role, the role is pushed.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from deathless.codec.messages import decode
from deathless.codec.refusals import RegistrationRefused
from deathless.codec.session_proof import nonce_of
from deathless.codec.wire import (
    BatchRefused,
    Hello,
    PacketReader,
    Refused,
    Registered,
    Role,
    Type,
    Welcome,
    decode_attach,
    decode_batch,
    decode_queries,
    decode_struct,
    encode_queries,
    encode_replies,
    encode_results,
    ok_reply,
    packet,
    struct_packet,
)
from deathless.shell.net.listening import listen


@dataclass
class FakeSession:
    next_seq: int = 1
    acked: int = 0
    replies: dict[int, bytes] = field(default_factory=dict)


def echo(message: bytes) -> bytes:
    """Answer with the arguments."""
    return ok_reply(decode(message).args)


@dataclass
class FakeShard:
    """What survives a takeover."""

    service: str = "bank"
    incarnation: int = 5
    message_bytes_max: int = 1 << 20
    window_max: int = 65536
    run: Callable[[bytes], bytes] = echo
    ask: Callable[[bytes], bytes] | None = None  # answers queries; None: `run` does
    sessions: dict[int, FakeSession] = field(default_factory=dict)
    nonces: dict[bytes, int] = field(default_factory=dict)
    applied: list[bytes] = field(default_factory=list)  # every message that ran, in order
    results: dict[int, bytes] = field(default_factory=dict)  # by invocation: those that have ended

    def register(self, nonce: bytes) -> int:
        if nonce not in self.nonces:
            self.nonces[nonce] = 100 + len(self.nonces)
            self.sessions[self.nonces[nonce]] = FakeSession()
        return self.nonces[nonce]

    def apply(self, session: FakeSession, message: bytes) -> None:
        self.applied.append(message)
        session.replies[session.next_seq] = self.run(message)
        session.next_seq += 1


class FakeReplica:
    """One replica. Attributes are switches for tests; `send` gets (connection, bytes)."""

    def __init__(self, shard: FakeShard, name: str, send: Callable[[int, bytes], None]) -> None:
        self.shard = shard
        self.name = name
        self.send = send
        self.hang_up: Callable[[int], None] = lambda _: None
        self.role, self.epoch, self.primary = "standby", 0, ""
        self.attached: list[tuple[int, int, int]] = []  # (connection, id, invocation) of all that was asked for
        self.hellos: dict[int, Hello] = {}
        self.registered: set[tuple[int, int]] = set()  # (connection, session): those registered on the connection
        self.readers: dict[int, PacketReader] = {}
        self.packets: list[int] = []  # types of all packets received
        self.time_us = 0  # logical time that it tells who connects; 0: none
        self.acks: list[int] = []  # "acked through" of all batches
        self.hello_refusal: tuple[str, str] | None = None
        self.refusals: list[tuple[str, int]] = []  # (code, retry after ms) of the next batches
        self.registration_refusal: tuple[str, int] | None = None  # (code, retry after ms) of every registration
        self.query_refusals: list[int] = []  # retry after ms of the next packets of queries
        self.dropping = False  # batches, registrations and queries are dropped without a word
        self.muted = False  # replies are recorded and not sent
        self.pongs = True
        self.held: list[tuple[int, bytes]] | None = None  # frozen: bytes wait here

    def freeze(self) -> None:
        self.held = []

    def thaw(self) -> None:
        held, self.held = self.held or [], None
        for connection, data in held:
            self.received(connection, data)

    def finish(self, invocation: int, reply: bytes) -> None:
        """An invocation ends: whoever asked this replica for its result is told."""
        self.shard.results[invocation] = reply
        for connection, number, wanted in self.attached:
            if wanted == invocation:
                self.send(connection, encode_results([number], [reply]))

    def become(self, role: str, epoch: int, primary: str = "") -> None:
        self.role, self.epoch, self.primary = role, epoch, primary
        for connection in list(self.hellos):
            self.send(connection, struct_packet(Type.ROLE, Role(role, epoch, primary)))

    def received(self, connection: int, data: bytes) -> None:
        if self.held is not None:
            self.held.append((connection, data))
            return
        reader = self.readers.setdefault(connection, PacketReader(64 << 20))
        for kind, body in reader.feed(data):
            self.packets.append(kind)
            self._packet(connection, kind, body)

    def lost(self, connection: int) -> None:
        self.hellos.pop(connection, None)
        self.readers.pop(connection, None)

    def _packet(self, connection: int, kind: int, body: bytes) -> None:
        if kind == Type.HELLO:
            self._hello(connection, decode_struct(Hello, body))
        elif kind == Type.PING and self.pongs:
            self.send(connection, packet(Type.PONG))
        elif kind in (Type.BATCH, Type.REGISTER, Type.QUERIES, Type.ATTACH) and not self.dropping:
            stale = kind == Type.QUERIES and decode_queries(body)[0]
            if self.role != "primary" and not stale:
                self.send(connection, struct_packet(Type.ROLE, Role(self.role, self.epoch, self.primary)))
            elif kind == Type.BATCH:
                self._batch(connection, body)
            elif kind == Type.REGISTER and self.registration_refusal is not None:
                code, retry_ms = self.registration_refusal
                refused = RegistrationRefused(0, 0, code, f"no session: {code}", retry_ms, body)
                self.send(connection, struct_packet(Type.BATCH_REFUSED, refused))
            elif kind == Type.REGISTER:
                session = self.shard.register(body)
                self.registered.add((connection, session))
                self.send(connection, struct_packet(Type.REGISTERED, Registered(body, session)))
            elif kind == Type.ATTACH:
                self._attach(connection, body)
            else:
                self._queries(connection, body)

    def _attach(self, connection: int, body: bytes) -> None:
        for number, invocation in zip(*decode_attach(body), strict=True):
            self.attached.append((connection, number, invocation))
            if invocation in self.shard.results:
                self.send(connection, encode_results([number], [self.shard.results[invocation]]))

    def _hello(self, connection: int, hello: Hello) -> None:
        if self.hello_refusal is not None:
            self.send(connection, struct_packet(Type.REFUSED, Refused(*self.hello_refusal)))
            self.hang_up(connection)
            return
        self.hellos[connection] = hello
        shard = self.shard
        session = shard.sessions.get(hello.session)
        welcome = Welcome(
            1, shard.service, self.name, self.role, self.epoch, shard.incarnation, self.primary,
            session.next_seq if session else 0, shard.message_bytes_max, shard.window_max, time_us=self.time_us,
        )  # fmt: skip
        self.send(connection, struct_packet(Type.WELCOME, welcome))

    def _batch(self, connection: int, body: bytes) -> None:
        batch = decode_batch(body)
        number, first, acked, count = batch.run
        session = self.shard.sessions.get(number)
        if session is None:
            self._refuse(connection, number, first, "DL3009", -1)
            return
        hello = self.hellos.get(connection)
        shown = self.shard.nonces.get(nonce_of(hello.secret)) if hello is not None else None
        if number != shown and (connection, number) not in self.registered:
            self._refuse(connection, number, first, "DL3031", -1)
            return
        self.acks.append(acked)
        assert acked < session.next_seq, "acknowledged what was never answered"
        if self.refusals and count:
            self._refuse(connection, number, max(first, session.next_seq), *self.refusals.pop(0))
            return
        if first > session.next_seq:
            return
        session.acked = max(session.acked, acked)
        session.replies = {seq: r for seq, r in session.replies.items() if seq > session.acked}
        ends = (0, *struct.unpack(f"<{count}I", batch.ends))
        for index in range(count):
            if first + index == session.next_seq:
                self.shard.apply(session, batch.blob[ends[index] : ends[index + 1]])
        if not self.muted:
            seqs = [seq for seq in range(first, first + count) if seq in session.replies]
            if seqs:
                self.send(connection, encode_replies(number, seqs, [session.replies[seq] for seq in seqs]))

    def _refuse(self, connection: int, session: int, first: int, code: str, retry_ms: int) -> None:
        body = BatchRefused(session, first, code, f"refused with {code}", retry_ms)
        self.send(connection, struct_packet(Type.BATCH_REFUSED, body))

    def _queries(self, connection: int, body: bytes) -> None:
        _, ids, messages = decode_queries(body)
        if self.query_refusals:
            self._refuse(connection, 0, ids[0], "DL1002", self.query_refusals.pop(0))
            return
        answers = [(self.shard.ask or self.shard.run)(message) for message in messages]
        self.send(connection, encode_queries(ids, answers, stale=False, answers=True))


class _Connection(asyncio.Protocol):
    def __init__(self, server: ReplicaServer, number: int) -> None:
        self.server = server
        self.number = number

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.server.transports[self.number] = transport
        self.server.opened.set()

    def data_received(self, data: bytes) -> None:
        self.server.replica.received(self.number, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.transports.pop(self.number, None)
        self.server.replica.lost(self.number)


class ReplicaServer:
    """A FakeReplica on a real socket of 127.0.0.1."""

    def __init__(self, shard: FakeShard, name: str = "r0") -> None:
        self.replica = FakeReplica(shard, name, self._send)
        self.replica.hang_up = self._hang_up
        self.transports: dict[int, asyncio.Transport] = {}
        self.opened = asyncio.Event()
        self.address = ""
        self._server: asyncio.Server | None = None
        self._last = 0

    def _send(self, connection: int, data: bytes) -> None:
        transport = self.transports.get(connection)
        if transport is not None:
            transport.write(data)

    def _hang_up(self, connection: int) -> None:
        self.transports[connection].close()

    def _accept(self) -> _Connection:
        self._last += 1
        return _Connection(self, self._last)

    async def start(self, tls: ssl.SSLContext | None = None) -> str:
        self._server, self.address = await listen(self._accept, "127.0.0.1:0", tls)
        return self.address

    def kill(self) -> None:
        """End as a killed process does: nothing listens, connections break."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for transport in list(self.transports.values()):
            transport.abort()


@asynccontextmanager
async def served(
    count: int = 1, shard: FakeShard | None = None
) -> AsyncIterator[tuple[FakeShard, list[ReplicaServer]]]:
    """A service of `count` replicas; the first leads."""
    shard = shard or FakeShard()
    servers = [ReplicaServer(shard, f"r{i}") for i in range(count)]
    for server in servers:
        await server.start()
    for index, server in enumerate(servers):
        server.replica.become("standby" if index else "primary", 1, servers[0].address)
    try:
        yield shard, servers
    finally:
        for server in servers:
            server.kill()


def addresses(servers: list[ReplicaServer]) -> list[str]:
    """Where they are."""
    return [server.address for server in servers]


def lead(servers: list[ReplicaServer], index: int, epoch: int) -> None:
    """One of them leads from now on."""
    for i, server in enumerate(servers):
        server.replica.become("primary" if i == index else "standby", epoch, servers[index].address)
