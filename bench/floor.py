"""What nobody can go below: a durable 4 KiB on this disk, and one round trip over loopback.

A block is written in two kinds of file, in turns: one that grows into allocated space, where each sync commits the file
system's journal too, and one that was filled with zeros, as PostgreSQL's and our log are. The floor is the second.

Guarantees: the same calls the runtime makes (pwrite and fdatasync of one block; one byte there and back over TCP
between two processes). Does not: stand for other disks.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from deathless.shell.process.forked import die_with_parent

BLOCK: Final = 4096
ALLOCATE: Final = 4 << 20  # as the log's writer: space comes in steps
FILLED: Final = 16 << 20  # likewise: the size of a file that is filled; written over and over


def echo() -> None:
    """Serve one connection; prints the port first."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        connection, _ = server.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection:
            while data := connection.recv(4096):
                connection.sendall(data)


class Floor:
    """Two open files and one connection to an echo process.

    Args:
        folder: on the storage to be measured.
    """

    def __init__(self, folder: Path) -> None:
        self._paths = (folder / "floor-grows", folder / "floor-filled")
        self._process = subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, preexec_fn=die_with_parent)  # noqa: PLW1509  it calls the kernel alone
        assert self._process.stdout is not None
        port = int(self._process.stdout.readline())
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC
        self._grows, self._filled = (os.open(path, flags, 0o600) for path in self._paths)
        for at in range(0, FILLED, 1 << 20):
            os.pwrite(self._filled, bytes(1 << 20), at)
        os.fsync(self._filled)
        self._offset = self._allocated = self._at = 0
        self.growing: list[float] = []  # of all that was measured, microseconds: a block in the file that grows
        self.syncs: list[float] = []  # in the one that was filled
        self.trips: list[float] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
        self._process.kill()
        self._process.communicate()
        for descriptor, path in zip((self._grows, self._filled), self._paths, strict=True):
            os.close(descriptor)
            path.unlink()

    def growing_us(self) -> float:
        """Microseconds of one block written and made durable where the file grows."""
        if self._offset + BLOCK > self._allocated:
            os.posix_fallocate(self._grows, self._allocated, ALLOCATE)
            self._allocated += ALLOCATE
        self._offset += BLOCK
        return _sync_us(self._grows, self._offset - BLOCK)

    def sync_us(self) -> float:
        """Microseconds of one block written and made durable in what was filled."""
        self._at = (self._at + BLOCK) % FILLED
        return _sync_us(self._filled, self._at)

    def round_trip_us(self) -> float:
        """Microseconds there and back."""
        began = time.perf_counter()
        self._socket.sendall(b"x" * 100)
        self._socket.recv(4096)
        return (time.perf_counter() - began) * 1e6

    def measure(self, count: int) -> list[float]:
        """`count` sums of one sync and one round trip, microseconds; the parts are kept, and as many of growth."""
        self.growing += [self.growing_us() for _ in range(count)]
        syncs = [self.sync_us() for _ in range(count)]
        trips = [self.round_trip_us() for _ in range(count)]
        self.syncs += syncs
        self.trips += trips
        return [sync + trip for sync, trip in zip(syncs, trips, strict=True)]


def _sync_us(descriptor: int, offset: int) -> float:
    data = b"x" * BLOCK
    began = time.perf_counter()
    os.pwrite(descriptor, data, offset)
    os.fdatasync(descriptor)
    return (time.perf_counter() - began) * 1e6


if __name__ == "__main__":
    echo()
