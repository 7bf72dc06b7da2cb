"""Real TLS sockets: a certificate opens its own service, and no longer than its authority is trusted."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path

import msgspec
import pytest
import uvloop
from tests.unit.deathless.shell.named_certificates import new_authority, uri, write_named

from deathless.base.config import ReplicaConfig, TlsConfig
from deathless.base.identities import AllowedService
from deathless.base.safeguards import Safeguards
from deathless.codec.wire import Admin, Hello, PacketReader, Refused, Type, decode_struct, packet, struct_packet
from deathless.core.access.authorisation import Port
from deathless.shell.net.connections import ServerConnection
from deathless.shell.net.listening import listen, split_address
from deathless.shell.net.port_guard import PortGuard
from deathless.shell.net.tls import certified, client_context, own_identity, refresh, server_context
from deathless_operator.cluster.authority import Authority

Run = Callable[[Coroutine[object, object, None]], None]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    def runner(work: Coroutine[object, object, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as on:
            on.run(asyncio.wait_for(work, 30))

    return runner


class Port1:
    """A port of the service `shop/bank`."""

    def __init__(self, tls: TlsConfig, port: Port, safeguards: Safeguards, named: tuple[AllowedService, ...]) -> None:
        config = ReplicaConfig(
            service="bank", module="m:a", directory="d", replica="r0", tls=tls, allow_services=named
        )  # fmt: skip
        self.tls = tls if port is Port.CLIENT else certified(tls)
        self.guard = PortGuard(config, port, self.tls, safeguards)
        self.let_in: list[ServerConnection] = []
        self.got: list[int] = []
        self.address = ""

    def make(self) -> ServerConnection:
        return ServerConnection(
            self, 1, service="bank", token="", packet_bytes_max=1 << 20, buffer_bytes_max=1 << 20, guard=self.guard
        )  # fmt: skip

    def opened(self, connection: ServerConnection, hello: Hello) -> None:
        self.let_in.append(connection)
        connection.send(packet(Type.PONG, b""))

    def packets(self, connection: ServerConnection, packets: list[tuple[int, bytes]]) -> None:
        self.got += [kind for kind, _ in packets]
        connection.send(packet(Type.PONG, b""))

    def lost(self, connection: ServerConnection) -> None:
        pass


@contextlib.asynccontextmanager
async def opened(
    tls: TlsConfig, port: Port, safeguards: Safeguards | None = None, named: tuple[AllowedService, ...] = ()
) -> AsyncIterator[Port1]:
    found = Port1(tls, port, safeguards or Safeguards(), named)
    server, found.address = await listen(found.make, "127.0.0.1:0", server_context(found.tls))
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(server.close)
        yield found


class Dialed:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._packets = PacketReader(1 << 20)

    async def answer(self) -> str:
        """Code of the refusal, `let in`, or `closed`."""
        while True:
            try:
                data = await self.reader.read(1 << 16)
            except (ssl.SSLError, ConnectionError):
                data = b""
            if not data:
                return "closed"
            for kind, body in self._packets.take(data):
                return decode_struct(Refused, body).code if kind == Type.REFUSED else "let in"

    async def send(self, data: bytes) -> str:
        self.writer.write(data)
        return await self.answer()


@contextlib.asynccontextmanager
async def dial(port: Port1, tls: TlsConfig, kind: str) -> AsyncIterator[tuple[str, Dialed]]:
    host, number = split_address(port.address)
    reader, writer = await asyncio.open_connection(host, number, ssl=client_context(tls))
    dialed = Dialed(reader, writer)
    try:
        yield await dialed.send(struct_packet(Type.HELLO, Hello(1, kind, "bank", "test"))), dialed
    finally:
        writer.transport.abort()


async def ask(port: Port1, tls: TlsConfig, kind: str) -> str:
    async with dial(port, tls, kind) as (answer, _):
        return answer


PORTS = [
    (Port.CLIENT, "client"), (Port.CLIENT, "peer"), (Port.CLIENT, "tool"), (Port.REPLICATION, "follower"),
    (Port.CONTROL, "supervisor"), (Port.CONTROL, "tool"),
]  # fmt: skip
OTHERS = [uri("other", "bank", "replica"), uri("other", "bank", "client"), uri("other", "bank", "operator")]


def own(folder: Path, authority: Authority, *, required: bool = True) -> TlsConfig:
    return write_named(folder / "own", authority, uri("shop", "bank", "replica"), required=required)


@pytest.mark.parametrize(("port", "kind"), PORTS)
def test_certificate_of_another_namespace_opens_nothing(tmp_path: Path, run: Run, port: Port, kind: str) -> None:
    async def work() -> None:
        authority = new_authority()
        bank = own(tmp_path, authority)
        async with opened(bank, port) as ours:
            for number, name in enumerate(OTHERS):
                assert await ask(ours, write_named(tmp_path / str(number), authority, name), kind) == "DL3035"
            assert await ask(ours, write_named(tmp_path / "bare", authority), kind) == "DL3010"
            assert ours.let_in == []
            assert await ask(ours, bank, kind) == "let in"
            assert str(ours.let_in[0].identity) == uri("shop", "bank", "replica")

    run(work())


@pytest.mark.parametrize(("port", "kind"), PORTS)
def test_without_the_check_any_certificate_of_the_authority_opens_everything(
    tmp_path: Path, run: Run, port: Port, kind: str
) -> None:
    async def work() -> None:
        authority = new_authority()
        async with opened(own(tmp_path, authority), port, Safeguards(check_callers=False)) as ours:
            assert await ask(ours, write_named(tmp_path / "x", authority, OTHERS[1]), kind) == "let in"

    run(work())


def test_client_that_was_let_in_gives_no_orders_and_follows_nobody(tmp_path: Path, run: Run) -> None:
    async def work() -> None:
        authority = new_authority()
        client = write_named(tmp_path / "client", authority, uri("shop", "bank", "client"))
        for data in (struct_packet(Type.ADMIN, Admin(1, "switchover", b"{}")), packet(Type.FOLLOW, b"\x90")):
            async with opened(own(tmp_path, authority), Port.CLIENT) as ours, dial(ours, client, "client") as (_, link):
                assert await link.send(packet(Type.PING, b"")) == "let in"
                assert await link.send(data) == "DL3035"
                assert ours.got == [Type.PING]

    run(work())


def test_named_service_may_send_and_the_namespace_then_not(tmp_path: Path, run: Run) -> None:
    async def work() -> None:
        authority = new_authority()
        bank = own(tmp_path, authority)
        orders = write_named(tmp_path / "orders", authority, uri("web", "orders", "replica"))
        near = write_named(tmp_path / "near", authority, uri("shop", "ledger", "replica"))
        async with opened(bank, Port.CLIENT) as ours:
            assert [await ask(ours, each, "peer") for each in (orders, near)] == ["DL3035", "let in"]
        named = (AllowedService(namespace="web", name="orders"),)
        async with opened(bank, Port.CLIENT, named=named) as ours:
            assert [await ask(ours, each, "peer") for each in (orders, near)] == ["let in", "DL3035"]

    run(work())


def test_where_callers_need_no_certificate_the_inner_ports_still_do(tmp_path: Path, run: Run) -> None:
    async def work() -> None:
        authority = new_authority()
        bank = own(tmp_path, authority, required=False)
        nobody = TlsConfig(ca=bank.ca, server_name="replica.local")
        async with opened(bank, Port.CLIENT) as ours:
            assert await ask(ours, nobody, "client") == "let in"
            assert await ask(ours, nobody, "tool") == "DL3010"
            assert await ask(ours, nobody, "peer") == "DL3010"
            assert await ask(ours, bank, "tool") == "let in"
        async with opened(bank, Port.CONTROL) as ours:
            with contextlib.suppress(ssl.SSLError, ConnectionError):
                assert await ask(ours, nobody, "tool") == "closed"
            assert ours.let_in == []

    run(work())


def rotate(tls: TlsConfig, *trusted: Authority) -> None:
    """Write another bundle over the one that is mounted, as a kubelet does: by a new file."""
    fresh = Path(f"{tls.ca}.new")
    fresh.write_bytes(b"".join(each.bundle for each in trusted))
    fresh.rename(tls.ca)


def test_removed_authority_is_refused_at_once_and_its_connections_end(tmp_path: Path, run: Run) -> None:
    async def work() -> None:
        old, new = new_authority(), new_authority()
        bank = own(tmp_path, new)
        rotate(bank, old, new)
        both = {name: write_named(tmp_path / name, each, uri("shop", "bank", "client"))
                for name, each in (("old", old), ("new", new))}  # fmt: skip
        for each in both.values():
            rotate(each, old, new)
        async with opened(bank, Port.CLIENT) as ours, contextlib.AsyncExitStack() as stack:
            links = {}
            for name, each in both.items():
                answer, links[name] = await stack.enter_async_context(dial(ours, each, "client"))
                assert answer == "let in", "while authorities change, both are trusted"
            rotate(bank, new)
            # The handshake itself looks at the files: nobody has to have asked for a refresh.
            with contextlib.suppress(ssl.SSLError, ConnectionError):
                assert await ask(ours, both["old"], "client") == "closed"
            assert len(ours.let_in) == 2
            assert await ask(ours, both["new"], "client") == "let in"
            refresh(bank)
            assert await links["old"].answer() == "closed"
            assert await links["new"].send(packet(Type.PING, b"")) == "let in"

    run(work())


def test_without_the_check_a_connection_outlives_the_trust_in_it(tmp_path: Path, run: Run) -> None:
    async def work() -> None:
        old, new = new_authority(), new_authority()
        bank = own(tmp_path, new)
        rotate(bank, old, new)
        client = write_named(tmp_path / "old", old, uri("shop", "bank", "client"))
        rotate(client, old, new)
        async with opened(bank, Port.CLIENT) as ours, dial(ours, client, "client") as (answer, link):
            assert answer == "let in"
            rotate(bank, new)
            refresh(bank, Safeguards(end_untrusted_connections=False))
            assert await link.send(packet(Type.PING, b"")) == "let in"

    run(work())


def test_renewed_certificate_ends_no_connection(tmp_path: Path, run: Run) -> None:
    async def work() -> None:
        authority = new_authority()
        bank = own(tmp_path, authority)
        client = write_named(tmp_path / "client", authority, uri("shop", "bank", "client"))
        async with opened(bank, Port.CLIENT) as ours, dial(ours, client, "client") as (_, link):
            own(tmp_path, authority)
            assert refresh(bank)
            assert await link.send(packet(Type.PING, b"")) == "let in"

    run(work())


def test_own_name_follows_the_file(tmp_path: Path) -> None:
    authority = new_authority()
    tls = write_named(tmp_path, authority)
    assert own_identity(tls) is None
    assert certified(msgspec.structs.replace(tls, require_client_certificate=False)) == msgspec.structs.replace(
        tls, require_client_certificate=False
    )
    write_named(tmp_path, authority, uri("shop", "bank", "replica"))
    refresh(tls)
    assert str(own_identity(tls)) == uri("shop", "bank", "replica")
    assert own_identity(None) is None and certified(None) is None
