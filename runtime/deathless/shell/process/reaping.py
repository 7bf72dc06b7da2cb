"""Ends child processes, and waits no longer for them than their kernel deserves.

A process that is killed runs no further instruction. But one that is in a system call that storage does not answer (a
network mount whose server is gone, FUSE, a disk that hangs; state D) stands until that call returns, which may be
never, and who waits for it hangs as well: a supervisor would not leave at its deadline for the sake of one child.

Guarantees: nobody waits longer than END_S for what it killed; what stands then is named in the log and left to the
kernel. Does not: make that harmless, which is for who leaves it: see `shell.directory.instance` for a worker.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
from collections.abc import Iterable
from typing import Final

from deathless.base.limits import END_S

LOOK_S: Final = 0.001
_LOG: Final = logging.getLogger("deathless.reaping")


def end_all(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """Kill processes and take their exit codes, waiting END_S for all of them together."""
    killed = list(processes)
    for process in killed:
        process.kill()
    ends_at = time.monotonic() + END_S
    for process in killed:
        try:
            process.wait(max(0.0, ends_at - time.monotonic()))
        except subprocess.TimeoutExpired:
            _warn(process.pid)


def end_child(pid: int, within_s: float = END_S) -> int | None:
    """Kill a forked child; gives its status as `os.waitpid` does. None: it was not gone after `within_s`."""
    os.kill(pid, signal.SIGKILL)
    status = reap(pid, within_s)
    if status is None:
        _warn(pid)
    return status


def reap(pid: int, within_s: float) -> int | None:
    """Wait for the end of a forked child; gives its status as `os.waitpid` does. None: it stands after `within_s`."""
    ends_at = time.monotonic() + within_s
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)  # no descriptor: there may be none left
        if found:
            return status
        left_s = ends_at - time.monotonic()
        if left_s <= 0:
            return None
        time.sleep(min(LOOK_S, left_s))


def _warn(pid: int) -> None:
    _LOG.warning("a killed process hangs in the kernel and is no longer waited for", extra={"pid": pid})
