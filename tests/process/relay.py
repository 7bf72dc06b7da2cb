"""A TCP relay on loopback between one replica and a server, cut and joined again while it serves."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self


class Relay:
    """Connections to `address` go on to `target`; runs within `with`."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._server.getsockname()
        self._open: set[socket.socket] = set()
        self._passing = threading.Event()
        self._passing.set()
        self._ended = False

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = True
        self._server.close()
        self.reset()
        self.join()

    def cut(self) -> None:
        """Pass nothing on any more; nobody is told."""
        self._passing.clear()

    def join(self) -> None:
        """Pass on again, also what came meanwhile."""
        self._passing.set()

    def reset(self) -> None:
        """End all connections."""
        for end in list(self._open):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while not self._ended:
                ours, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(ours,), daemon=True).start()

    def _serve(self, ours: socket.socket) -> None:
        with ours, contextlib.suppress(OSError):
            self._passing.wait()
            with socket.create_connection(self._target) as theirs:
                ends = {ours, theirs}
                self._open |= ends
                back = threading.Thread(target=self._pump, args=(theirs, ours), daemon=True)
                back.start()
                self._pump(ours, theirs)
                back.join()
                self._open -= ends

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._passing.wait()
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
