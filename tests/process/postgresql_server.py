"""A real PostgreSQL for tests, killed and started again by pid, and a relay before it that ends connections.

    with started(fsync="off") as server, Relay(server) as relay:
        relay.cut_after(12)

Where there is none, and none can be installed, tests are skipped with the one line of lab/postgresql.py. Guarantees:
each server has a folder of its own and is ended with its test. Does not: listen on a port.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from lab.postgresql import Missing, Server

SOCKET = ".s.PGSQL.5432"


@contextlib.contextmanager
def started(**settings: str) -> Iterator[Server]:
    """One server; skips the test where there is none."""
    try:
        server = Server(**settings)
    except Missing as missing:
        pytest.skip(str(missing))
    with server:
        yield server


class Relay:
    """A unix socket whose connections go on to a server; runs within `with`."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._target = str(server.folder / SOCKET)
        self.dsn = server.dsn.replace(str(server.folder), str(folder))
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / SOCKET))
        self._listener.listen()
        self._left: int | None = None  # pieces that still pass, in both directions; None: all
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._wake, self._woken = socket.socketpair()
        self.cut = False  # a connection was ended

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._wake.close()
        self._thread.join()

    def cut_after(self, pieces: int) -> None:
        """Pass on so many pieces more; then end the connection instead of passing on the next one, once."""
        self._left, self.cut = pieces, False

    def _run(self) -> None:
        """Pass on; one thread for all, so that pieces are counted in one order."""
        other: dict[socket.socket, socket.socket] = {}
        while not self._ended.is_set():
            ready, _, _ = select.select([self._woken, self._listener, *other], [], [])
            if self._listener in ready:
                ours, theirs = self._listener.accept()[0], socket.socket(socket.AF_UNIX)
                other |= {ours: theirs, theirs: ours}
                with contextlib.suppress(OSError):  # a server that is down: the first piece ends it
                    theirs.connect(self._target)
            for end in [each for each in ready if each in other]:
                if end in other and not self._pass(end, other[end]):
                    for each in (other.pop(end), end):
                        other.pop(each, None)
                        each.close()
        for each in (*other, self._listener, self._woken):
            each.close()

    def _pass(self, source: socket.socket, target: socket.socket) -> bool:
        """Pass one piece on; False: this connection is to end."""
        try:
            if not (piece := source.recv(1 << 20)):
                return False
            if self._left == 0:
                self._left, self.cut = None, True
                return False
            if self._left is not None:
                self._left -= 1
            target.sendall(piece)
        except OSError:
            return False
        return True
