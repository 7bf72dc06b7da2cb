"""Serves the former code to upgraders of another image: `deathless former`, in a container of the log's own image.

    upgrader   --connection: seed and use, packets--> this server: reads both, starts a process, hands the line over
                        '-------packets-------------> former_main, one for each connection
    rehearsal  --the same, with another use---------> rehearsal_child, one for each connection

PYTHONHASHSEED has to stand before an interpreter starts, so that the server reads the first 8 bytes, and no more. It
keeps the line beside its child, to see when the upgrader is gone: a child that is busy would not notice.

Guarantees: one connection, one process: each ends the other; a connection that says something else costs itself alone;
with the server all children end. Does not: read packets, or anything that the config names.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Final

from deathless.base.errors import InvalidConfig
from deathless.shell.process.reaping import end_all
from deathless.shell.upgrade.former_link import MODULE, PREAMBLE, REHEARSAL_MODULE, Use, environment_of

_LOG: Final = logging.getLogger("deathless.former")
CONNECTIONS_MAX: Final = 64
BACKLOG: Final = 16
PREAMBLE_S: Final = 10.0  # a connection that has not said its seed by then ends
MODE: Final = 0o660  # containers of a pod may have users of their own, in one group
PROGRAMS: Final[dict[int, tuple[str, ...]]] = {Use.UPGRADE: (MODULE,), Use.REHEARSAL: (REHEARSAL_MODULE, "--served")}
HANGS_UP: Final = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR


class _Connection:
    """One upgrader.

    Attributes:
        process: of the former code; None: the seed is not there yet.
    """

    def __init__(self, line: socket.socket, until: float) -> None:
        self.line = line
        self.until = until  # monotonic seconds: the seed has to be there
        self.said = b""
        self.process: subprocess.Popen[bytes] | None = None
        self.process_descriptor = -1


class FormerServer:
    """One run of it.

    Args:
        path: of the socket.
        config_path: where its children read the config that counts.
    """

    def __init__(self, path: str, config_path: str) -> None:
        self._config_path = config_path
        self._poll = select.epoll()
        self._lines: dict[int, _Connection] = {}  # by descriptor
        self._processes: dict[int, _Connection] = {}  # by descriptor of the process
        self._stopped = False
        self._listener = listen_at(path)
        self._woken, self._wakes = socket.socketpair()
        for each in (self._woken, self._wakes):
            each.setblocking(False)
        for each in (self._listener, self._woken):
            self._poll.register(each.fileno(), select.EPOLLIN)

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        former = signal.set_wakeup_fd(self._wakes.fileno())
        try:
            while not self._stopped:
                self.step()
        finally:
            signal.set_wakeup_fd(former)
            self.close()

    def step(self) -> None:
        """Wait for something, and see to it."""
        waiting = [each.until for each in self._lines.values() if each.process is None]
        wait_s = max(0.0, min(waiting) - time.monotonic()) if waiting else None
        for descriptor, events in self._poll.poll(wait_s):
            if descriptor == self._listener.fileno():
                self._accept()
            elif descriptor in self._processes:
                self._process_ended(self._processes[descriptor])
            elif descriptor in self._lines:
                self._heard(self._lines[descriptor], events)
        now = time.monotonic()
        for each in [each for each in self._lines.values() if each.process is None and each.until <= now]:
            self._drop(each, "it says nothing")

    def close(self) -> None:
        """Leave nothing behind but the socket's file, which the next one replaces."""
        end_all([each.process for each in self._lines.values() if each.process is not None])
        for each in list(self._lines.values()):
            self._forget(each)
        for line in (self._listener, self._woken, self._wakes):
            line.close()
        self._poll.close()

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stopped = True

    def _accept(self) -> None:
        try:
            line, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        line.setblocking(False)
        made = self._lines[line.fileno()] = _Connection(line, time.monotonic() + PREAMBLE_S)
        self._poll.register(line.fileno(), select.EPOLLIN | select.EPOLLRDHUP)
        if len(self._lines) > CONNECTIONS_MAX:
            self._drop(made, f"there are {CONNECTIONS_MAX}")

    def _heard(self, connection: _Connection, events: int) -> None:
        if connection.process is not None:
            if events & HANGS_UP:
                connection.process.kill()  # its end is told by its descriptor
                self._poll.unregister(connection.line.fileno())
            return
        try:
            said = connection.line.recv(PREAMBLE.size - len(connection.said))
        except BlockingIOError:
            return
        except OSError:
            said = b""
        connection.said += said
        if not said:
            self._drop(connection, "it ended before its hash seed")
        elif len(connection.said) == PREAMBLE.size:
            self._start(connection)

    def _start(self, connection: _Connection) -> None:
        seed, use = PREAMBLE.unpack(connection.said)
        if use not in PROGRAMS:
            self._drop(connection, f"{use} is nothing that this release is for")
            return
        line = connection.line
        line.setblocking(True)  # as its child expects it, which shares it
        descriptor = line.fileno()
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", *PROGRAMS[use], str(descriptor), self._config_path],
                pass_fds=(descriptor,),
                env=environment_of(seed),
                stdin=subprocess.DEVNULL,
            )
        except OSError as error:
            self._drop(connection, f"its process can't be started: {error}")
            return
        connection.process = process
        connection.process_descriptor = os.pidfd_open(process.pid)
        self._processes[connection.process_descriptor] = connection
        self._poll.register(connection.process_descriptor, select.EPOLLIN)
        self._poll.modify(descriptor, select.EPOLLRDHUP)
        whom = "a rehearsal" if use == Use.REHEARSAL else "an upgrader"
        _LOG.info("the former code is started for %s", whom, extra={"pid": process.pid})

    def _process_ended(self, connection: _Connection) -> None:
        assert connection.process is not None
        code = connection.process.wait()
        _LOG.info("the former code ended", extra={"pid": connection.process.pid, "exit_code": code})
        self._forget(connection)

    def _drop(self, connection: _Connection, why: str) -> None:
        _LOG.warning("a connection is refused", extra={"why": why})
        self._forget(connection)

    def _forget(self, connection: _Connection) -> None:
        del self._lines[connection.line.fileno()]
        with contextlib.suppress(FileNotFoundError):  # it has hung up
            self._poll.unregister(connection.line.fileno())
        connection.line.close()
        if self._processes.pop(connection.process_descriptor, None) is not None:
            os.close(connection.process_descriptor)


def listen_at(path: str) -> socket.socket:
    """Listen at a path, in place of whoever did before. Raises: InvalidConfig."""
    try:
        _remove_socket(path)
        return _listen(path)
    except OSError as error:
        raise InvalidConfig(f"can't listen at {path}: {error.strerror or error}") from None


def _listen(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    mask = os.umask(0o777 & ~MODE)
    try:
        listener.bind(path)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(mask)
    return listener


def _remove_socket(path: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise InvalidConfig(f"can't listen at {path}: a file is there that is no socket")
    Path(path).unlink(missing_ok=True)
