"""The two connections of an application: its ports, who connects them, what was not sent yet.

Guarantees: ports of 127.0.0.1, both bound before the application starts, each for one connection; one of another
user's process is found out by `is_ours`. What the kernel does not take waits here, in order. Does not: read, or decide
anything. Imports base and `tcp_table`.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Awaitable, Callable

from deathless.base.backoff import next_pause
from deathless.base.errors import PortTaken
from deathless.shell.foreign.tcp_table import end_of_peer, waiting_for_peer

HOST = "127.0.0.1"


def listen(port: int) -> socket.socket:
    """Bind a port for one connection; 0: any.

    Raises:
        PortTaken: somebody else has it.
    """
    try:
        listener = socket.create_server((HOST, port), backlog=1)
    except OSError as error:
        raise PortTaken(
            f"{HOST}:{port}, which an application is to connect: {error.strerror}",
            remedy="choose other ports, or 0 for any",
        ) from None
    listener.setblocking(False)
    return listener


def port_of(listener: socket.socket) -> int:
    """Give the port that a socket is bound to."""
    port = listener.getsockname()[1]
    assert isinstance(port, int)
    return port


def is_ours(connection: socket.socket) -> bool:
    """Whether the process at the other end is one of our own user."""
    end = end_of_peer(connection)
    return end is not None and end.uid == os.geteuid()


async def until_read(
    waiting: Callable[[], int],
    most: int,
    *,
    first_s: float,
    most_s: float,
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> None:
    """Wait until an application has read what it was given, but for so much.

    Nobody tells when it reads, and each look reads the kernel's table of all connections; so pauses grow.

    Args:
        waiting: gives how many bytes it has not read.
        most: so many may wait.
        first_s: the first pause between two looks, seconds.
        most_s: the longest one, seconds.
        pause: waits so many seconds.
    """
    pause_s = 0.0
    while waiting() > most:
        pause_s = next_pause(pause_s, first_s=first_s, most_s=most_s)
        await pause(pause_s)


class Unsent:
    """Bytes on their way to an application.

    Args:
        connection: does not block.
    """

    __slots__ = ("_connection", "_pieces", "size", "total")

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._pieces: deque[memoryview] = deque()
        self.size = 0  # bytes that wait here
        self.total = 0  # bytes that were ever given

    def give(self, data: bytes) -> None:
        """Take bytes to be sent."""
        if data:
            self._pieces.append(memoryview(data))
            self.size += len(data)
            self.total += len(data)

    def send(self) -> bool:
        """Send what the kernel takes; gives whether that was all. Raises: OSError: the connection broke."""
        while self._pieces:
            try:
                sent = self._connection.send(self._pieces[0])
            except BlockingIOError:
                return False
            self.size -= sent
            if sent == len(self._pieces[0]):
                self._pieces.popleft()
            else:
                self._pieces[0] = self._pieces[0][sent:]
        return True

    def waiting(self) -> int:
        """Give how many bytes the application has not read, wherever they are."""
        return self.size + waiting_for_peer(self._connection)
