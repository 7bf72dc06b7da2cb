"""The runner's readiness over HTTP: the one thing it says while it runs.

Guarantees: 200 from the moment it is told so, 503 before; a client that says nothing is cut off. Does not: serve
anything else.
"""

from __future__ import annotations

import asyncio
import socket
from types import TracebackType
from typing import Final, Self

REQUEST_TIMEOUT_S: Final = 2.0
_ANSWER: Final = "HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class Readiness:
    """Listens while it is open.

    Args:
        port: 0 for any.
    """

    def __init__(self, port: int) -> None:
        self.ready = False
        self.port = port
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._answer, port=self.port)
        by_family = {each.family: int(each.getsockname()[1]) for each in self._server.sockets}
        self.port = by_family.get(socket.AF_INET) or next(iter(by_family.values()))  # port 0: one for each family
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()

    def become_ready(self) -> None:
        """Say so from now on."""
        self.ready = True

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(_ANSWER.format(status="200 OK" if self.ready else "503 Service Unavailable").encode())
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()
