"""One process of a real server, with a folder of its own: started, killed, frozen, and gone with whoever started it.

Guarantees: a server is ended with what it left when its `with` ends, and by the kernel when its parent dies. Does not:
know what it serves: each server's module says how it is started and when it answers.
"""

from __future__ import annotations

import abc
import ctypes
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

_PR_SET_PDEATHSIG: Final = 1
_libc = ctypes.CDLL(None, use_errno=True)


class ServerProcess(abc.ABC):
    """A server; use it as a context manager.

    Args:
        name: for people.
        prefix: of its folder's name; short, since a unix socket's path has 107 bytes at most.
        ready_s: it answers within so long.
        poll_s: between two looks whether it does.
    """

    def __init__(self, name: str, prefix: str, *, ready_s: float, poll_s: float) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=prefix))
        self.log = self.folder / "log.txt"
        self._name = name
        self._ready_s = ready_s
        self._poll_s = poll_s
        self._started: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.create()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def create(self) -> None:  # noqa: B027 - most need nothing
        """Make what it needs before its first start."""

    @abc.abstractmethod
    def command(self) -> Sequence[str]:
        """Give what starts it."""

    @abc.abstractmethod
    def answers(self) -> bool:
        """Whether it takes requests."""

    def options(self) -> dict[str, Any]:
        """Give what else `subprocess.Popen` takes: an environment, a user."""
        return {}

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """Its own process; it was started."""
        assert self._started is not None
        return self._started

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def start(self) -> None:
        """Start it, and wait until it answers. Raises: RuntimeError when it does not."""
        with self.log.open("ab") as log:
            self._started = subprocess.Popen(
                self.command(),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - it calls the kernel alone
                **self.options(),
            )
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until it answers, also after a crash of its own. Raises: RuntimeError when it does not."""
        pause = threading.Event()
        end = time.monotonic() + self._ready_s
        while not self.answers():
            if time.monotonic() > end or self.process.poll() is not None:
                said = self.log.read_text("utf-8", "replace")[-1000:]
                raise RuntimeError(f"{self._name} does not start: {said}")
            pause.wait(self._poll_s)

    def kill(self) -> None:
        """End it with kill -9."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Let it end by itself."""
        self.process.terminate()
        self.process.wait()

    def freeze(self) -> None:
        """Stop it where it stands; `thaw` lets it go on."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)

    def revive(self) -> bool:
        """Start it again if it has ended, as a system's service manager would; True: it had."""
        if self.process.poll() is None:
            return False
        self.start()
        return True

    def close(self) -> None:
        """End it at once and remove its folder."""
        if self._started is not None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
