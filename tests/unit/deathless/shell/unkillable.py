"""Processes whose kill has no effect: what stands for one that is in a system call that the kernel does not end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest


class Unkillable(subprocess.Popen[bytes]):
    """A real process that `kill` does not end; how long it is waited for is noted."""

    def __init__(self) -> None:
        self.waits: list[float | None] = []
        super().__init__([sys.executable, "-S", "-c", "import signal; signal.alarm(120); signal.pause()"])

    def kill(self) -> None:
        """Have no effect."""

    def wait(self, timeout: float | None = None) -> int:
        """See Popen."""
        self.waits.append(timeout)
        return super().wait(timeout)


def end_truly(*processes: subprocess.Popen[bytes]) -> None:
    """End what a test left."""
    for process in processes:
        os.kill(process.pid, signal.SIGKILL)
        subprocess.Popen.wait(process)


@contextlib.contextmanager
def kills_in_vain(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Take the effect of `os.kill` away; gives whom it was called for. They must live at the end, and are ended."""
    killed: list[int] = []
    with monkeypatch.context() as patched:
        patched.setattr(os, "kill", lambda pid, _: killed.append(pid))
        yield killed
    for pid in killed:
        assert os.waitpid(pid, os.WNOHANG) == (0, 0)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
