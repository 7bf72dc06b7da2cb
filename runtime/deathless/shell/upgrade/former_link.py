"""How an upgrader reaches the process of the former code: it starts one, or one is started for it beside it.

    OwnProcess     the interpreter that wrote the log, and the copy of its code: on a machine of one's own
    ServedBeside   a Unix socket (former_server): in a pod, where the former code is another image, in another container

Guarantees: with `close` the process is gone, or whoever started it is, within END_S: what it was asked to write is not
written any more. Does not: say anything to it but the hash seed, which has to stand before an interpreter starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import os
import socket
import struct
import subprocess
import time
from typing import Final, Protocol

from deathless.base.config import UpgradeConfig
from deathless.base.errors import UpgradeCalledOff

MODULE: Final = "deathless.shell.upgrade.former_main"
REHEARSAL_MODULE: Final = "deathless.shell.operate.upgrading.rehearsal_child"
PREAMBLE: Final = struct.Struct("<II")
"""What a connection to the former server begins with: PYTHONHASHSEED of the process, and what it is for (Use)."""
END_S: Final = 2.0  # a process that is killed is gone by then
CONNECT_S: Final = 60.0  # containers of a pod start in any order, and images are fetched
AGAIN_S: Final = 0.1
READ_BYTES: Final = 1 << 16


class Use(enum.IntEnum):
    """What a process of the former code is started for."""

    UPGRADE = 0  # follows the log for an upgrader, in the words of `packets`
    REHEARSAL = 1  # runs the log and tells what it did, in the words of shell.operate.upgrading.rehearsal_child


class FormerLink(Protocol):
    """The way to one process."""

    @property
    def log(self) -> str:
        """Where the last words of the process are found."""
        ...

    async def open(self) -> socket.socket:
        """Have a process, and give the socket to it. Raises: UpgradeCalledOff where there can be none."""
        ...

    def close(self) -> None:
        """Have the process end, and wait until it has."""
        ...


def link_of(upgrade: UpgradeConfig, hash_seed: int) -> FormerLink:
    """Give the way that an upgrade's config names.

    Args:
        upgrade: that is to be made.
        hash_seed: PYTHONHASHSEED of all workers of the service.
    """
    if upgrade.former:
        return ServedBeside(upgrade.former, hash_seed)
    return OwnProcess(upgrade.interpreter, hash_seed)


def environment_of(hash_seed: int) -> dict[str, str]:
    """Give the environment of the former code's process."""
    return {**os.environ, "PYTHONHASHSEED": str(hash_seed), "TZ": "UTC", "LC_ALL": "C.UTF-8"}


class OwnProcess:
    """A child of ours.

    Args:
        interpreter: that runs it.
        hash_seed: see `link_of`.
    """

    log = "this replica's log"

    def __init__(self, interpreter: str, hash_seed: int) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self._interpreter = interpreter
        self._hash_seed = hash_seed

    async def open(self) -> socket.socket:
        """See FormerLink."""
        return self._spawn()

    def _spawn(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        try:
            self.process = subprocess.Popen(
                [self._interpreter, "-m", MODULE, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                env=environment_of(self._hash_seed),
                stdin=subprocess.DEVNULL,
            )
        except OSError as error:
            ours.close()
            raise UpgradeCalledOff(f"the former code can't be started with {self._interpreter}: {error}") from error
        finally:
            theirs.close()
        return ours

    def close(self) -> None:
        """See FormerLink."""
        if self.process is not None:
            self.process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(END_S)


class ServedBeside:
    """A child of the former server's.

    Args:
        path: of the server's socket.
        hash_seed: see `link_of`.
    """

    log = "the log of the container `former`"

    def __init__(self, path: str, hash_seed: int) -> None:
        self._path = path
        self._hash_seed = hash_seed
        self._line: socket.socket | None = None  # ours of the same connection, by which its end is seen

    async def open(self) -> socket.socket:
        """See FormerLink; waits for the server."""
        deadline = time.monotonic() + CONNECT_S
        while True:
            line = socket.socket(socket.AF_UNIX)
            line.setblocking(False)  # one that is full says so
            try:
                line.connect(self._path)
                line.sendall(PREAMBLE.pack(self._hash_seed, Use.UPGRADE))
            except OSError as error:
                line.close()
                if time.monotonic() > deadline:
                    raise UpgradeCalledOff(
                        f"nobody serves the former code at {self._path} after {CONNECT_S:g} s: {error}",
                        remedy=f"see {self.log}",
                    ) from error
                await asyncio.sleep(AGAIN_S)
            else:
                self._line = line.dup()
                return line

    def close(self) -> None:
        """See FormerLink: the server ends its child once we have no more to say, and then the line."""
        line, self._line = self._line, None
        if line is None:
            return
        with line, contextlib.suppress(OSError):
            line.shutdown(socket.SHUT_WR)
            line.settimeout(END_S)
            while line.recv(READ_BYTES):
                pass
