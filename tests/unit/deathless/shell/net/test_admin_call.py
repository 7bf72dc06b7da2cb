"""A tool's question: one answer, or a typed error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from deathless.base.config import ReplicaConfig
from deathless.base.errors import (
    DeathlessError,
    InvalidConfig,
    NotPrimary,
    PeerUnreachable,
    Unauthorized,
    UnknownService,
)
from deathless.codec.wire import Admin, AdminReply, Hello, Type, decode_struct, struct_packet
from deathless.shell.net.admin_call import Access, access_of, ask
from deathless.shell.net.connections import ServerConnection
from deathless.shell.net.listening import listen

Answer = Callable[[ServerConnection, Admin], None]


class Owner:
    """The other side."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.hellos: list[Hello] = []

    def opened(self, connection: ServerConnection, hello: Hello) -> None:
        self.hellos.append(hello)

    def lost(self, connection: ServerConnection) -> None:
        """Nothing is kept."""

    def packets(self, connection: ServerConnection, packets: list[tuple[int, bytes]]) -> None:
        for kind, body in packets:
            assert kind == Type.ADMIN
            self.answer(connection, decode_struct(Admin, body))


@asynccontextmanager
async def serving(answer: Answer, *, token: str = "") -> AsyncIterator[tuple[str, Owner]]:
    """A port that answers."""
    owner = Owner(answer)

    def accept() -> ServerConnection:
        return ServerConnection(
            owner, 1, service="bank", token=token, packet_bytes_max=1 << 20, buffer_bytes_max=1 << 20
        )

    server, address = await listen(accept, "127.0.0.1:0")
    try:
        yield address, owner
    finally:
        server.close()
        await server.wait_closed()


def reply(code: str, result: bytes) -> Answer:
    """Answer every question alike."""
    return lambda connection, admin: connection.send(
        struct_packet(Type.ADMIN_REPLY, AdminReply(admin.id, code, result))
    )


async def asked(answer: Answer, access: Access, *, token: str = "", answer_s: float = 5.0) -> dict[str, object]:
    """Ask such a port."""
    async with serving(answer, token=token) as (address, _):
        return await ask(address, "status", access, answer_s=answer_s)


def test_result_of_a_command_is_given() -> None:
    assert asyncio.run(asked(reply("", b'{"a":[1]}'), Access("bank"))) == {"a": [1]}


def test_arguments_and_identity_are_sent() -> None:
    seen: list[Admin] = []

    async def work() -> None:
        def answer(connection: ServerConnection, admin: Admin) -> None:
            seen.append(admin)
            reply("", b"{}")(connection, admin)

        async with serving(answer, token="secret") as (address, owner):
            await ask(address, "switchover", Access("bank", "secret"), {"target": "r2"})
            assert (owner.hellos[0].kind, owner.hellos[0].service) == ("tool", "bank")

    asyncio.run(work())
    assert (seen[0].command, seen[0].arguments) == ("switchover", b'{"target":"r2"}')


@pytest.mark.parametrize(
    ("answer", "access", "error"),
    [
        (reply("DL1001", b'{"error":"no"}'), Access("bank"), NotPrimary),
        (reply("", b"{}"), Access("shop"), UnknownService),
        (lambda connection, _: connection.close(), Access("bank"), PeerUnreachable),
        (lambda *_: None, Access("bank"), PeerUnreachable),
    ],
    ids=["refused command", "another service", "closed", "silent"],
)
def test_no_answer_is_a_typed_error(answer: Answer, access: Access, error: type[DeathlessError]) -> None:
    with pytest.raises(error):
        asyncio.run(asked(answer, access, answer_s=0.2))


def test_wrong_token_is_told() -> None:
    with pytest.raises(Unauthorized):
        asyncio.run(asked(reply("", b"{}"), Access("bank", "wrong"), token="right"))


def test_port_where_nobody_listens_is_unreachable() -> None:
    async def work() -> None:
        async with serving(reply("", b"{}")) as (address, _):
            gone = address
        await ask(gone, "status", Access("bank"))

    with pytest.raises(PeerUnreachable):
        asyncio.run(work())


def test_address_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidConfig):
        asyncio.run(ask("nowhere", "status", Access("bank")))


def test_access_is_what_the_config_says() -> None:
    config = ReplicaConfig(service="bank", module="m:a", directory="/d", replica="r0", token="t")
    assert access_of(config) == Access("bank", "t", None, "/d")
