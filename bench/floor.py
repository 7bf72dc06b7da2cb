"""What nobody can go below: a durable 4 KiB on this disk, and one round trip over loopback.

Guarantees: the same calls the runtime makes (fdatasync of one block in a file whose space is allocated, growing as a
log does; one byte there and back over TCP between two processes). Does not: stand for other disks.
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
    """One open file and one connection to an echo process.

    Args:
        folder: on the storage to be measured.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "floor"
        self._process = subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, preexec_fn=die_with_parent)  # noqa: PLW1509  it calls the kernel alone
        assert self._process.stdout is not None
        port = int(self._process.stdout.readline())
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self._offset = self._allocated = 0
        self.syncs: list[float] = []  # of all that was measured, microseconds
        self.trips: list[float] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
        self._process.kill()
        self._process.communicate()
        os.close(self._descriptor)
        self._path.unlink()

    def sync_us(self) -> float:
        """Microseconds of one block written and made durable."""
        if self._offset + BLOCK > self._allocated:
            os.posix_fallocate(self._descriptor, self._allocated, ALLOCATE)
            self._allocated += ALLOCATE
        data = bytes(BLOCK)
        began = time.perf_counter()
        os.pwrite(self._descriptor, data, self._offset)
        os.fdatasync(self._descriptor)
        self._offset += BLOCK
        return (time.perf_counter() - began) * 1e6

    def round_trip_us(self) -> float:
        """Microseconds there and back."""
        began = time.perf_counter()
        self._socket.sendall(b"x" * 100)
        self._socket.recv(4096)
        return (time.perf_counter() - began) * 1e6

    def measure(self, count: int) -> list[float]:
        """`count` sums of one sync and one round trip, microseconds; the parts are kept."""
        syncs = [self.sync_us() for _ in range(count)]
        trips = [self.round_trip_us() for _ in range(count)]
        self.syncs += syncs
        self.trips += trips
        return [sync + trip for sync, trip in zip(syncs, trips, strict=True)]


if __name__ == "__main__":
    echo()
