"""Asks a supervisor or a worker as a tool: one command, one answer, over the binary protocol.

Guarantees: an answer, or a typed error within the time given. Does not: try again, or look for another replica (status
and switchover do). May import codec and base.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple, TypeVar

import msgspec

from deathless.base.config import ReplicaConfig, TlsConfig
from deathless.base.errors import DeathlessError, PeerUnreachable
from deathless.codec.untrusted import read_json
from deathless.codec.versions import say_hello
from deathless.codec.wire import Admin, AdminReply, Refused, Type, decode_struct, struct_packet
from deathless.core.client.events import error_of
from deathless.shell.net.connections import ClientConnection
from deathless.shell.net.listening import split_address
from deathless.shell.net.proof import Asker
from deathless.shell.net.tls import client_context

ANSWER_S: Final = 5.0
PACKET_BYTES_MAX: Final = 16 << 20
T = TypeVar("T")


class Access(NamedTuple):
    """What a tool must show."""

    service: str  # the shard's name
    token: str = ""
    tls: TlsConfig | None = None
    directory: str = ""  # of the shard, which it shows that it reads; empty: it reads none


def access_of(config: ReplicaConfig) -> Access:
    """Give what opens the ports of a replica with this config."""
    return Access(config.shard_name, config.token, config.tls, config.directory)


async def ask(
    address: str, command: str, access: Access, arguments: dict[str, str] | None = None, *, answer_s: float = ANSWER_S
) -> dict[str, object]:
    """Send one command and give its result.

    Raises: PeerUnreachable when nobody answers in time; the error that the other side names.
    """
    answer: asyncio.Future[dict[str, object]] = asyncio.get_running_loop().create_future()

    def received(packets: list[tuple[int, bytes]]) -> None:
        for kind, body in packets:
            if answer.done():
                return
            try:
                if kind == Type.REFUSED:
                    refused = decode_struct(Refused, body)
                    answer.set_exception(error_of(refused.code, refused.text))
                elif kind == Type.ADMIN_REPLY:
                    answer.set_result(_result(decode_struct(AdminReply, body)))
            except DeathlessError as error:
                answer.set_exception(error)
            except Exception as error:  # noqa: BLE001  what another version says, or somebody else at this address
                answer.set_exception(PeerUnreachable(f"{address}: the answer to {command!r} can't be read: {error}"))

    def lost() -> None:
        if not answer.done():
            answer.set_exception(PeerUnreachable(f"{address} closed the connection before it answered {command!r}"))

    hello = say_hello("tool", access.service, "tool", access.token)
    connection = ClientConnection(hello, received, lost, PACKET_BYTES_MAX, Asker(access.directory))
    try:
        async with asyncio.timeout(answer_s):
            host, port = split_address(address)
            await asyncio.get_running_loop().create_connection(
                lambda: connection, host, port, ssl=client_context(access.tls)
            )
            connection.send(struct_packet(Type.ADMIN, Admin(1, command, msgspec.json.encode(arguments or {}))))
            return await answer
    except TimeoutError:
        raise PeerUnreachable(f"{address} did not answer {command!r} within {answer_s:g} s") from None
    except OSError as error:
        raise PeerUnreachable(f"{address}: {error.strerror or error}") from None
    finally:
        connection.close()
        await connection.wait_closed()
        if answer.done() and not answer.cancelled():
            answer.exception()


def fitted(answer: object, kind: type[T]) -> T:
    """Give what an answer says, or a part of one. Raises: PeerUnreachable where it says something else."""
    try:
        return msgspec.convert(answer, kind)
    except msgspec.MsgspecError as error:
        raise PeerUnreachable(f"this version does not know the form of the answer: {error}") from None


def _result(reply: AdminReply) -> dict[str, object]:
    result = read_json(reply.result or b"{}", dict[str, object])
    if reply.code:
        raise error_of(reply.code, str(result.get("error", "")))
    return result
