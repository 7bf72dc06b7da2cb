"""What a supervisor and its worker tell each other over their socket pair: JSON lines, one record each.

Guarantees: a worker whose supervisor is gone reads the end of the stream and ends (design 0003, "Detection").
Does not: carry data of the service.
"""

from __future__ import annotations

import asyncio
import fcntl
import sys
import termios
from collections.abc import Callable
from typing import cast

import msgspec


class LineProtocol(asyncio.Protocol):
    """One end of the socket pair.

    Args:
        kind: the union of what comes in.
        received: called for each record.
        lost: called at the end of the stream.
        held: what comes in waits for `release`; the end of the stream is told at once all the same.
    """

    def __init__(
        self, kind: object, received: Callable[[object], None], lost: Callable[[], None], *, held: bool = False
    ) -> None:
        self._decode = msgspec.json.Decoder(kind).decode
        self._received = received
        self._lost = lost
        self._held = held
        self._buffer = b""
        self._transport: asyncio.WriteTransport | None = None
        self.sent = 0  # bytes that were given to it
        self.ended = False  # everything the other end said was received

    @property
    def open(self) -> bool:
        """Does it stand?"""
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast("asyncio.WriteTransport", transport)  # uvloop has classes of its own

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._buffer += data
        if self._held:
            return
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            self._received(self._decode(line))

    def release(self) -> None:
        """Hand on what came in and what will, in its order."""
        self._held = False
        self.data_received(b"")

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._transport = None
        self.ended = True
        self._lost()

    @property
    def flushed(self) -> bool:
        """Has everything left this process?"""
        return self._transport is None or self._transport.get_write_buffer_size() == 0

    @property
    def unread(self) -> int:
        """What is kept of what was sent until the other end reads it, bytes: more than were sent, 0 if all was read."""
        transport = self._transport
        if transport is None:
            return 0
        waiting = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
        return int.from_bytes(waiting, sys.byteorder) + transport.get_write_buffer_size()

    def close(self) -> None:
        """End it at once; `lost` is called all the same."""
        if self._transport is not None:
            self._transport.abort()

    def send(self, record: msgspec.Struct) -> None:
        """Send one record; dropped when the other end is gone."""
        if self._transport is not None and self.open:
            line = msgspec.json.encode(record) + b"\n"
            self._transport.write(line)
            self.sent += len(line)
