"""Callers at both doors of a replica, over real sockets: the HTTP ingress, and the port of the Python client."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import h11
import msgspec
import pytest
from bank_fake import bank, bank_shard
from http_wire import Answer, Wire, get, post
from replica_fake import ReplicaServer
from tests.unit.deathless.shell.named_certificates import new_authority, uri, write_named
from tests.unit.deathless.shell.oidc_issuer import local_issuer

from deathless.base.config import AuthenticationConfig, ReplicaConfig, TlsConfig
from deathless.base.errors import InvalidConfig
from deathless.base.limits import CALLER_TOKEN_BYTES_MAX, Limits
from deathless.base.safeguards import Safeguards
from deathless.codec.session_proof import named_nonce, nonce_of
from deathless.codec.wire import Hello, PacketReader, Refused, Type, decode_struct, packet, struct_packet
from deathless.core.access.authorisation import Port
from deathless.core.primary.session_owners import proves
from deathless.shell.client.shard_client import Client
from deathless.shell.ingress.ingress import Ingress
from deathless.shell.ingress.operators import Operators, operators_token, refusal_to_callers
from deathless.shell.net.callers import FILE_BYTES_MAX, Callers, TokenFiles
from deathless.shell.net.connections import ServerConnection
from deathless.shell.net.listening import listen, split_address
from deathless.shell.net.port_guard import PortGuard
from deathless.shell.net.tls import client_context, server_context
from deathless.shell.web.protocol import HttpServer
from deathless.shell.web.request import HttpLimits
from deathless.shell.web.tls import callers_tls, front_tls

pytestmark = pytest.mark.asyncio
OURS = "the-services-own-token"
ALICE, ALICE_NEW, BOB = "alice-token-of-may", "alice-token-of-june", "bob-token-of-today"


def config_of(tls: TlsConfig | None = None, token: str = OURS, **authentication: Any) -> ReplicaConfig:
    return ReplicaConfig(
        service="bank", module="m:a", directory="d", replica="r0", ingress_listen="127.0.0.1:0", token=token, tls=tls,
        authentication=msgspec.convert(authentication, AuthenticationConfig),
    )  # fmt: skip


def folder_of(folder: Path, **tokens: str) -> str:
    folder.mkdir(exist_ok=True)
    for name, token in tokens.items():
        (folder / f".{name}").write_text(token)
        (folder / f".{name}").rename(folder / name)
    return str(folder)


# ---- the HTTP door -----------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def http_door(config: ReplicaConfig) -> AsyncIterator[tuple[Ingress, str]]:
    server = ReplicaServer(bank_shard(Limits()))
    await server.start()
    server.replica.become("primary", 1, server.address)
    async with Client("bank", [server.address]) as client:
        await client.ready(30)
        callers = Callers(config, front_tls(config)) if config.asks_callers else None
        operators = Operators(token=operators_token(config), refusal=refusal_to_callers(config) or "none")
        ingress = Ingress(bank, client, token=config.token if callers is None else "", callers=callers,
                          limits=Limits(), labels={}, operators=operators)  # fmt: skip
        http = HttpServer(ingress, HttpLimits(), now=lambda: 0.0, wall=lambda: 0.0, refused=ingress.count_refused)
        try:
            yield ingress, await http.start("127.0.0.1:0", server_context(front_tls(config)))
        finally:
            await Wire.close_all()
            await http.stop(1.0)
            await ingress.close()
            server.kill()


async def call(address: str, token: str = "", tls: TlsConfig | None = None) -> Answer:
    header = (f"Authorization: Bearer {token}",) if token else ()
    options = {"ssl": client_context(tls)} if tls is not None else {}
    wire = await Wire.connect(address, **options)
    return await wire.ask(post("/bank/alice/deposit", b'{"amount": 5}', *header))


async def test_http_caller_shows_a_token_of_its_own(tmp_path: Path) -> None:
    config = config_of(type="Token", tokens=folder_of(tmp_path / "callers", alice=ALICE, bob=BOB), allowed=("alice",))
    async with http_door(config) as (_, address):
        assert (await call(address, ALICE)).json == 5
        refused = await call(address, "x" * 20)
        assert (refused.status, refused.json["code"]) == (401, "DL3036")
        assert refused.headers["www-authenticate"] == 'Bearer error="invalid_token"'
        assert "x" * 20 not in refused.body.decode()
        nothing = await call(address)
        assert (nothing.status, nothing.headers["www-authenticate"]) == (401, "Bearer")
        known = await call(address, BOB)
        assert (known.status, known.json["code"]) == (403, "DL3037")
        assert (await call(address, "y" * (CALLER_TOKEN_BYTES_MAX + 1))).status == 401
        wire = await Wire.connect(address)
        for path in ("/bank/alice/balance", "/bank/-/invocations/7", "/bank/-/openapi.json", "/bank/-/parked"):
            assert (await wire.ask(get(path))).status == 401, path
        for path in ("/healthz", "/readyz", "/metrics"):
            assert (await wire.ask(get(path))).status == 200, path
        metrics = (await wire.ask(get("/metrics?own"))).body.decode()
        assert 'deathless_ingress_refused_total{reason="DL3036"} 7.0' in metrics
        assert 'deathless_ingress_refused_total{reason="DL3037"} 1.0' in metrics


async def test_callers_are_no_operators_and_operators_show_the_services_token(tmp_path: Path) -> None:
    config = config_of(type="Token", tokens=folder_of(tmp_path / "callers", alice=ALICE))
    async with http_door(config) as (_, address):
        wire = await Wire.connect(address)
        listed = await wire.ask(get("/bank/-/parked", f"Authorization: Bearer {ALICE}"))
        assert (listed.status, listed.json["code"]) == (403, "DL3025")
        assert (await call(address, OURS)).status == 200


@pytest.mark.parametrize(("type_", "scheme"), [("Token", "token"), ("", "token")])
async def test_openapi_says_how_callers_prove_who_they_are(tmp_path: Path, type_: str, scheme: str) -> None:
    told: dict[str, Any] = {"tokens": folder_of(tmp_path / "callers", alice=ALICE)} if type_ else {}
    config = config_of(type=type_ or "None", token=OURS if type_ else "", **told)
    async with http_door(config) as (_, address):
        wire = await Wire.connect(address)
        document = (await wire.ask(get("/bank/-/openapi.json", f"Authorization: Bearer {ALICE}"))).json
        assert document["security"] == ([{scheme: []}] if type_ else [{}, {scheme: []}])
        assert scheme in document["components"]["securitySchemes"]


async def test_type_none_asks_for_nothing() -> None:
    async with http_door(config_of(type="None", token="")) as (_, address):
        assert (await call(address)).status == 200


async def test_http_caller_shows_a_certificate(tmp_path: Path) -> None:
    authority = new_authority()
    tls = write_named(tmp_path / "r", authority, uri("shop", "bank", "replica"), required=False)
    own = write_named(tmp_path / "c", authority, uri("shop", "bank", "client"))
    other = write_named(tmp_path / "o", authority, uri("shop", "till", "client"))
    named = write_named(tmp_path / "n", authority, "urn:example:till")
    strange = msgspec.structs.replace(write_named(tmp_path / "s", new_authority(), "urn:example:till"), ca=tls.ca)
    bare = msgspec.structs.replace(own, certificate="", key="")
    async with http_door(config_of(tls, type="MTLS", allowed=("urn:example:till",))) as (_, address):
        assert [(await call(address, tls=each)).status for each in (own, named, other)] == [200, 200, 403]
        for each in (strange, bare):
            with pytest.raises((OSError, EOFError, AssertionError, h11.RemoteProtocolError)):
                await call(address, tls=each)
    async with http_door(config_of(tls, type="MTLS")) as (_, address):
        refused = await call(address, tls=other)
        assert [(await call(address, tls=own)).status, refused.status] == [200, 403]
        assert (await call(address, tls=named)).status == 401, "where certificates name services this one names none"


async def test_http_caller_shows_a_token_of_an_issuer() -> None:
    with local_issuer() as local:
        config = config_of(type="OIDC", issuer=local.url, audiences=["bank"], allowed=["alice"])
        async with http_door(config) as (_, address):
            answers = await asyncio.gather(*(call(address, local.token()) for _ in range(5)))
            assert [each.status for each in answers] == [200] * 5
            assert local.asked == 2, "one fetch for all who waited: the document, and the keys"
            assert (await call(address, local.token(sub="bob"))).status == 403
            assert (await call(address, local.token(aud="till"))).status == 401
            assert (await call(address, local.token(exp=1))).status == 401
            local.up = False
            assert (await call(address, local.token())).status == 200
        async with http_door(config) as (_, address):
            away = await call(address, local.token())
            assert (away.status, away.json["code"], away.headers["retry-after"]) == (503, "DL1019", "1")


# ---- the client port ---------------------------------------------------------------------------------------------


class ClientPort:
    def __init__(self, config: ReplicaConfig, safeguards: Safeguards | None = None) -> None:
        self.config = config
        self.tls = callers_tls(config)
        kept = safeguards or Safeguards()
        self.guard = PortGuard(config, Port.CLIENT, self.tls, kept)
        self.callers = self.guard.callers = Callers(config, self.tls, kept)
        self.let_in: list[ServerConnection] = []
        self.got: list[int] = []
        self.address = ""

    def make(self) -> ServerConnection:
        return ServerConnection(
            self, 1, service="bank", token=self.config.token, packet_bytes_max=1 << 20, buffer_bytes_max=1 << 20,
            guard=self.guard,
        )  # fmt: skip

    def opened(self, connection: ServerConnection, hello: Hello) -> None:
        self.let_in.append(connection)
        connection.send(packet(Type.PONG, b""))

    def packets(self, connection: ServerConnection, packets: list[tuple[int, bytes]]) -> None:
        self.got += [kind for kind, _ in packets]

    def lost(self, connection: ServerConnection) -> None:
        """Nothing."""

    async def ask(self, token: str, kind: str = "client", tls: TlsConfig | None = None, more: bytes = b"") -> str:
        """Code of the refusal, `closed`, or who it is to us."""
        before = len(self.let_in)
        host, number = split_address(self.address)
        reader, writer = await asyncio.open_connection(host, number, ssl=client_context(tls))
        writer.write(struct_packet(Type.HELLO, Hello(1, kind, "bank", "test", token)) + more)
        taken = PacketReader(1 << 20)
        try:
            while data := await reader.read(1 << 16):
                for kind_, body in taken.take(data):
                    if kind_ == Type.REFUSED:
                        return decode_struct(Refused, body).code
                    return self.let_in[before].certified or "let in"
            return "closed"
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def client_port(config: ReplicaConfig, safeguards: Safeguards | None = None) -> AsyncIterator[ClientPort]:
    port = ClientPort(config, safeguards)
    server, port.address = await listen(port.make, "127.0.0.1:0", server_context(port.tls))
    try:
        yield port
    finally:
        server.close()
        await port.callers.close()


async def test_client_shows_a_token_of_its_own(tmp_path: Path) -> None:
    config = config_of(type="Token", tokens=folder_of(tmp_path / "callers", alice=ALICE, bob=BOB), allowed=("alice",))
    async with client_port(config) as port:
        shown = [await port.ask(each) for each in (ALICE, BOB, "x" * 20, "", "y" * (CALLER_TOKEN_BYTES_MAX + 1))]
        assert shown == ["token:alice", "DL3037", "DL3036", "DL3036", "DL3036"]
        assert dict(port.callers.refused) == {"DL3036": 3, "DL3037": 1}


async def test_nobody_gets_around_it_by_calling_itself_something_else(tmp_path: Path) -> None:
    config = config_of(type="Token", tokens=folder_of(tmp_path / "callers", alice=ALICE))
    async with client_port(config) as port:
        for kind in ("peer", "tool", "follower", "supervisor", "CLIENT", ""):
            assert await port.ask(ALICE, kind) == "DL3036", kind
            assert await port.ask(OURS, kind) == "let in", kind
        batch = packet(Type.ADMIN, b"")
        assert await port.ask(ALICE, more=batch) in ("DL3035", "token:alice")
        assert Type.ADMIN not in port.got, "a caller gives no orders"


async def test_safeguard_off_shows_what_it_keeps(tmp_path: Path) -> None:
    config = config_of(type="Token", tokens=folder_of(tmp_path / "callers", alice=ALICE))
    async with client_port(config, Safeguards(check_callers=False)) as port:
        assert await port.ask("", "peer") == "let in"


async def test_replicas_and_tools_show_certificates_where_callers_show_tokens(tmp_path: Path) -> None:
    authority = new_authority()
    tls = write_named(tmp_path / "r", authority, uri("shop", "bank", "replica"))
    own = write_named(tmp_path / "c", authority, uri("shop", "bank", "client"))
    near = write_named(tmp_path / "n", authority, uri("shop", "till", "replica"))
    bare = msgspec.structs.replace(own, certificate="", key="")
    config = config_of(tls, token="", type="Token", tokens=folder_of(tmp_path / "callers", alice=ALICE))
    async with client_port(config) as port:
        assert await port.ask("", tls=tls) == uri("shop", "bank", "replica"), "the ingress beside a replica"
        assert await port.ask("", "tool", tls) == uri("shop", "bank", "replica")
        assert await port.ask("", "peer", near) == uri("shop", "till", "replica")
        assert [await port.ask(ALICE, tls=each) for each in (bare, own)] == ["token:alice"] * 2
        assert [await port.ask("", tls=own), await port.ask("", "peer", bare)] == ["DL3036", "DL3010"]


async def test_client_shows_a_certificate(tmp_path: Path) -> None:
    authority = new_authority()
    tls = write_named(tmp_path / "r", authority, uri("shop", "bank", "replica"))
    own = write_named(tmp_path / "c", authority, uri("shop", "bank", "client"))
    other = write_named(tmp_path / "o", authority, uri("shop", "till", "client"))
    named = write_named(tmp_path / "n", authority, "urn:example:till")
    async with client_port(config_of(tls, type="MTLS", allowed=("urn:example:till",))) as port:
        asked = [await port.ask("", tls=each) for each in (own, named, other)]
        assert asked == [uri("shop", "bank", "client"), "urn:example:till", "DL3035"]


async def test_client_shows_a_token_of_an_issuer_and_waits_for_its_keys() -> None:
    with local_issuer() as local:
        config = config_of(type="OIDC", issuer=local.url, audiences=["bank"])
        async with client_port(config) as port:
            named = f"oidc:{local.url}#alice"
            pings = packet(Type.PING, b"") * 3
            assert await asyncio.gather(*(port.ask(local.token(), more=pings) for _ in range(3))) == [named] * 3
            assert await port.ask(local.token(iss="https://other.example.org")) == "DL3036"
            await until(lambda: len(port.got) == 9)
            assert local.asked == 2


async def until(holds: Callable[[], object]) -> None:
    """Give way until something is so; the run's own time limit bounds it."""
    while not holds():  # noqa: ASYNC110  what is waited for is plain state without an event
        await asyncio.sleep(0)


# ---- rotation ----------------------------------------------------------------------------------------------------


async def test_tokens_are_replaced_with_an_overlap_and_without_a_restart(tmp_path: Path) -> None:
    folder = tmp_path / "callers"
    async with client_port(config_of(type="Token", tokens=folder_of(folder, alice=ALICE))) as port:
        files = port.callers._tokens
        assert files is not None
        host, number = split_address(port.address)
        reader, writer = await asyncio.open_connection(host, number)
        writer.write(struct_packet(Type.HELLO, Hello(1, "client", "bank", "test", ALICE)))
        await reader.read(1)
        standing = port.let_in[0]
        folder_of(folder, alice=f"{ALICE}\n{ALICE_NEW}\n")
        files.look()
        assert [await port.ask(each) for each in (ALICE, ALICE_NEW)] == ["token:alice"] * 2
        standing.look_again()
        assert not standing._closing
        folder_of(folder, alice=ALICE_NEW)
        files.look()
        standing.look_again()
        assert await reader.read() is not None, "it ends"
        assert [await port.ask(each) for each in (ALICE, ALICE_NEW)] == ["DL3036", "token:alice"]
        writer.close()


async def test_mounted_secret_is_read_by_its_links_alone(tmp_path: Path) -> None:
    data = tmp_path / "..2026_11_25"
    folder_of(data, alice=ALICE)
    (tmp_path / "..data").symlink_to(data.name)
    (tmp_path / "alice").symlink_to("..data/alice")
    table = TokenFiles(str(tmp_path)).table
    assert (len(table), table.find(ALICE.encode())) == (1, "alice")


async def test_pipe_and_endless_file_are_no_tokens_and_hide_none(tmp_path: Path) -> None:
    folder_of(tmp_path, alice=ALICE)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "long").write_bytes(bytes(FILE_BYTES_MAX + 1))
    table = TokenFiles(str(tmp_path)).table
    assert (len(table), table.find(ALICE.encode())) == (1, "alice")


async def test_files_that_can_not_be_read_leave_the_former_tokens_good(tmp_path: Path) -> None:
    folder = tmp_path / "callers"
    files = TokenFiles(folder_of(folder, alice=ALICE))
    folder.rename(tmp_path / "away")
    files.look()
    assert files.table.find(ALICE.encode()) == "alice"
    with pytest.raises(InvalidConfig, match="can't be read"):
        TokenFiles(str(folder))


async def test_one_file_is_one_caller(tmp_path: Path) -> None:
    files = TokenFiles(str(Path(folder_of(tmp_path / "callers", alice=ALICE)) / "alice"))
    assert files.current().find(ALICE.encode()) == "alice"


async def test_what_could_not_tell_callers_from_its_own_does_not_start(tmp_path: Path) -> None:
    tokens = folder_of(tmp_path / "callers", alice=ALICE)
    with pytest.raises(InvalidConfig, match="have no credentials"):
        Callers(config_of(type="Token", tokens=tokens, token=""), None)
    with pytest.raises(InvalidConfig, match="needs TLS"):
        Callers(config_of(type="MTLS"), None)
    with pytest.raises(InvalidConfig, match="needs TLS"):
        front_tls(config_of(type="MTLS"))


async def test_session_is_bound_to_who_registered_it() -> None:
    """The names differ, so the same secret of a session proves nothing under another's token."""
    secret = bytes(16)
    logged = named_nonce(nonce_of(secret), "token:alice")
    assert proves(secret, "token:alice", logged)
    assert not any(proves(secret, name, logged) for name in ("token:bob", "alice", "", "oidc:https://x#alice"))


async def test_nothing_that_was_shown_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    config = config_of(type="Token", tokens=folder_of(tmp_path / "callers", alice=ALICE, bob=BOB), allowed=("alice",))
    async with client_port(config) as port:
        for _ in range(3):
            for each in (ALICE, BOB, "a-token-of-nobody"):
                await port.ask(each)
    told = "".join(f"{record.getMessage()}{record.__dict__}" for record in caplog.records)
    assert not any(each in told for each in (ALICE, BOB, "a-token-of-nobody", OURS))
    assert sum(record.name == "deathless.callers" for record in caplog.records) == 2, "once for each reason"
