"""The line between an agent and its driver: lines of JSON over a socket pair, one record each.

    agent  --Order-->   driver       agent  <--Fact--  driver

Both ends may block, unlike those of a supervisor (see shell.link.orders), since neither has an event loop.

Guarantees: a record is given whole, in the order it was sent. Does not: end anybody; whoever reads does, at the line's
end.
"""

from __future__ import annotations

import select
import socket
import time
from typing import Final, Generic, TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)
_BYTES: Final = 65536


class Order(msgspec.Struct, frozen=True):
    """What an agent says."""

    drive: int  # the number under which to drive


class Fact(msgspec.Struct, frozen=True):
    """What a driver says."""

    warm: bool = False  # it is ready to drive
    decided: int = 0  # so many batches were decided
    ui: str = ""  # address of Spark's pages


class Ended(Exception):
    """The other end is gone."""


class Line(Generic[T]):
    """One end.

    Args:
        end: the socket.
        kind: of the records that come in.
    """

    def __init__(self, end: socket.socket, kind: type[T]) -> None:
        self._end = end
        self._decode = msgspec.json.Decoder(kind).decode
        self._read = b""

    def send(self, record: msgspec.Struct) -> None:
        """Send a record. Raises: Ended."""
        try:
            self._end.sendall(msgspec.json.encode(record) + b"\n")
        except OSError:
            raise Ended from None

    def receive(self, wait_s: float) -> list[T]:
        """Give the records that come within so many seconds, as soon as there are any. Raises: Ended."""
        ends_at = time.monotonic() + wait_s
        while True:
            if not select.select([self._end], [], [], max(0.0, ends_at - time.monotonic()))[0]:
                return []
            try:
                data = self._end.recv(_BYTES)
            except OSError:
                data = b""
            if not data:
                raise Ended
            *lines, self._read = (self._read + data).split(b"\n")
            if lines:
                return [self._decode(line) for line in lines]

    def close(self) -> None:
        """End it."""
        self._end.close()
