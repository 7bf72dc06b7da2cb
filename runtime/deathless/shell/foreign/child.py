"""An application as a child process: its command, what of our environment it gets, its group, its output.

Guarantees: it does not outlive this process (`exec_shim`); it leads a process group of its own, which is killed as a
whole; standard input is empty; what it prints is read as long as it lives and becomes lines of our log. Its environment
holds what a program needs to run, what its owner names, and nothing else of ours: no token, key or password.

Does not: say when it is to end (`deathless.protocols.ambrosia.life` does). Imports base and the shell's processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from deathless.base.errors import ApplicationNotStarted
from deathless.shell.foreign import exec_shim
from deathless.shell.foreign.output_lines import Lines
from deathless.shell.process.reaping import end_all

PASSED_ON: Final = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "USER", "LOGNAME")
"""What an application gets of our environment."""
READ_BYTES: Final = 1 << 16
LAST_LINES: Final = 20
_LOG: Final = logging.getLogger("deathless.application")


def fill_in(command: Sequence[str], values: Mapping[str, object]) -> list[str]:
    """Put values in the places of a command that name them in braces; other braces stay as they are."""
    filled = []
    for part in command:
        for name, value in values.items():
            part = part.replace(f"{{{name}}}", str(value))  # noqa: PLW2901  one place after the other
        filled.append(part)
    return filled


def environment_of(named: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, str]:
    """Give the environment of an application.

    Args:
        named: by its owner.
        ours: this process's.
    """
    return {name: ours[name] for name in PASSED_ON if name in ours} | dict(named)


class Child:
    """One process and its group.

    Args:
        loop: that tells of it.
        ended: called once, when the process that was started is gone.
    """

    __slots__ = ("_ended", "_loop", "_outputs", "_pidfd", "_process", "last_lines")

    def __init__(self, loop: asyncio.AbstractEventLoop, ended: Callable[[], None]) -> None:
        self._loop = loop
        self._ended = ended
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._outputs: dict[int, tuple[str, Lines]] = {}
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES)  # that it printed, on either stream

    @property
    def pid(self) -> int:
        """Process id, of its group too; 0: it was not started."""
        return self._process.pid if self._process is not None else 0

    @property
    def exit_code(self) -> int | None:
        """As Popen's; None: it runs, or was not started."""
        return self._process.returncode if self._process is not None else None

    def start(self, command: Sequence[str], environment: Mapping[str, str], folder: str) -> None:
        """Start it.

        Args:
            command: a program, searched along the environment's PATH, and its arguments.
            environment: all of it.
            folder: that it runs in.

        Raises: ApplicationNotStarted.
        """
        assert threading.current_thread() is threading.main_thread(), "the kernel ties a child to the thread that forks"
        shim = [sys.executable, "-I", "-S", str(Path(exec_shim.__file__)), str(os.getpid())]
        try:
            process = subprocess.Popen(
                [*shim, *command],
                env=dict(environment),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,
            )
        except OSError as error:
            raise ApplicationNotStarted(f"{command[0]} in {folder}: {error.strerror}") from None
        self._process = process
        self._pidfd = os.pidfd_open(process.pid)
        self._loop.add_reader(self._pidfd, self._died)
        for name, pipe in (("stdout", process.stdout), ("stderr", process.stderr)):
            assert pipe is not None
            descriptor = pipe.fileno()
            os.set_blocking(descriptor, False)
            self._outputs[descriptor] = (name, Lines())
            self._loop.add_reader(descriptor, self._printed, descriptor)

    def kill(self) -> None:
        """Kill its group, of which there may be something left when the process itself is gone."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill what is left, take its exit code, and read what it printed; a second time does nothing."""
        if self._process is None or self._pidfd < 0:
            return
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._pidfd = -1
        self.kill()
        end_all([self._process])
        for descriptor in list(self._outputs):
            self._printed(descriptor)
            self._finish(descriptor)
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()

    def _died(self) -> None:
        self._loop.remove_reader(self._pidfd)
        self._ended()

    def _printed(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._finish(descriptor)
            return
        name, lines = self._outputs[descriptor]
        self._tell(name, lines.feed(data, time.monotonic()))

    def _finish(self, descriptor: int) -> None:
        """Its stream is over, or nobody listens any more."""
        self._loop.remove_reader(descriptor)
        if descriptor in self._outputs:
            name, lines = self._outputs.pop(descriptor)
            self._tell(name, lines.end())

    def _tell(self, name: str, lines: list[str]) -> None:
        self.last_lines.extend(lines)
        for line in lines:
            _LOG.info("application", extra={"stream": name, "pid": self.pid, "line": line})
