"""The body of an answer that is sent while it is made: one task writes it, the connection takes it, piece by piece.

    task        await body.write(piece) ... body.end()        or body.tear(): the connection is cut
    connection  take(), when the client has room              or leave(): the client left

Guarantees: at most one piece of PIECE_BYTES_MAX waits here (I10), so who makes a body goes on only as its client reads;
a body that was not ended is never taken for a whole one: HTTP/1.1 cuts the connection, HTTP/2 resets the stream. Does
not: know how a version of HTTP frames pieces. Imports nothing of ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

PIECE_BYTES_MAX: Final = 1 << 18


class ClientLeft(Exception):
    """Nobody reads the body any more."""


class StreamedBody:
    """One body.

    Args:
        wake: tells the connection that there is something to take.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._piece = b""
        self._taken: asyncio.Future[None] | None = None  # set when what was written has been taken
        self.ended = False  # nothing more is written
        self.torn = False  # and what was is not all
        self.left = False

    # ---- who makes it ----------------------------------------------------------------------------------------

    async def write(self, data: bytes | memoryview) -> None:
        """Send more, and wait until the connection has taken it. Raises: ClientLeft."""
        rest = memoryview(data)
        while rest:
            if self.left:
                raise ClientLeft
            assert not self.ended and not self._piece, "one task writes, and ends it once"
            self._piece, rest = bytes(rest[:PIECE_BYTES_MAX]), rest[PIECE_BYTES_MAX:]
            self._taken = asyncio.get_running_loop().create_future()
            self._wake()
            await self._taken

    def end(self) -> None:
        """That was all."""
        self._close(torn=False)

    def tear(self) -> None:
        """That was not all, and no more comes; after `end` it does nothing."""
        self._close(torn=True)

    def _close(self, *, torn: bool) -> None:
        if not self.ended:
            self.ended, self.torn = True, torn
            self._wake()

    # ---- the connection --------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Is there something to do: a piece to take, or the end to tell?"""
        return bool(self._piece) or self.ended

    @property
    def finished(self) -> bool:
        """It was ended, and all of it was taken."""
        return self.ended and not self._piece

    def take(self) -> bytes:
        """Give the piece that waits; empty: none does."""
        piece, self._piece = self._piece, b""
        if self._taken is not None and not self._taken.done():
            self._taken.set_result(None)
        return piece

    def leave(self) -> None:
        """The client left."""
        self.left = True
        self._piece = b""
        if self._taken is not None and not self._taken.done():
            self._taken.set_exception(ClientLeft())
