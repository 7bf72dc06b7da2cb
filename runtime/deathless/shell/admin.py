"""Asks a supervisor or a worker as a tool: one command, one answer, over the binary protocol.

Guarantees: an answer, or a typed error within the time given. Does not: try again, or look for another replica (status
and switchover do). May import codec and base.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

import msgspec

from deathless.base.config import ReplicaConfig, TlsConfig
from deathless.base.errors import DeathlessError, PeerUnreachable
from deathless.codec.wire import PROTOCOL_VERSION, Admin, AdminReply, Hello, Refused, Type, decode_struct, struct_packet
from deathless.core.client_events import error_of
from deathless.shell.packets import ClientConnection, split_address
from deathless.shell.tls import client_context

ANSWER_S: Final = 5.0
PACKET_BYTES_MAX: Final = 16 << 20


class Access(NamedTuple):
    """What a tool must show."""

    service: str  # the shard's name
    token: str = ""
    tls: TlsConfig | None = None


def access_of(config: ReplicaConfig) -> Access:
    """Give what opens the ports of a replica with this config."""
    return Access(config.shard_name, config.token, config.tls)


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
                    raise error_of(refused.code, refused.text)
                if kind == Type.ADMIN_REPLY:
                    answer.set_result(_result(decode_struct(AdminReply, body)))
            except DeathlessError as error:
                answer.set_exception(error)

    def lost() -> None:
        if not answer.done():
            answer.set_exception(PeerUnreachable(f"{address} closed the connection before it answered {command!r}"))

    hello = Hello(PROTOCOL_VERSION, "tool", access.service, "tool", access.token)
    connection = ClientConnection(hello, received, lost, PACKET_BYTES_MAX)
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


def _result(reply: AdminReply) -> dict[str, object]:
    result = msgspec.json.decode(reply.result or b"{}", type=dict[str, object])
    if reply.code:
        raise error_of(reply.code, str(result.get("error", "")))
    return result
