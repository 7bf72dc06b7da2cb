"""A local socket at which a process beside a replica says how it is, as JSON, to whoever runs as the same user.

Guarantees: one that does not answer in time counts as silent; nothing is read of the shared directory, which may hang.
Does not: keep connections.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final, TypeVar, cast

import msgspec

from deathless.codec.untrusted import read_json
from deathless.shell.net.abstract_socket import connect_local, is_own

S = TypeVar("S", bound=msgspec.Struct)
TIMEOUT_S: Final = 0.5


class StatusPort(asyncio.Protocol):
    """One connection: says a status, and ends."""

    def __init__(self, status: msgspec.Struct) -> None:
        self._said = msgspec.json.encode(status)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        there = cast("asyncio.Transport", transport)
        if is_own(there.get_extra_info("socket")):
            there.write(self._said)
            there.close()
        else:
            there.abort()


class _Answer(asyncio.Protocol):
    """What the other end says until it ends the connection."""

    def __init__(self, bytes_max: int) -> None:
        self.data = b""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._bytes_max = bytes_max
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self.data += data[: self._bytes_max - len(self.data)]

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        with contextlib.suppress(asyncio.InvalidStateError):
            self.ended.set_result(None)

    def close(self) -> None:
        """Let go of the connection: one that is frozen would never end it, and be asked again."""
        if self._transport is not None:
            self._transport.close()


async def ask_status(name: str, kind: type[S], bytes_max: int) -> S | None:
    """Ask the process that listens at a local socket how it is; None: it does not say.

    Args:
        name: of the socket.
        kind: of its status.
        bytes_max: of the answer.
    """
    try:
        async with asyncio.timeout(TIMEOUT_S):
            answer = await connect_local(lambda: _Answer(bytes_max), name)
            try:
                await answer.ended
            finally:
                answer.close()
        return read_json(answer.data, kind)
    except (OSError, TimeoutError, msgspec.MsgspecError):
        return None
