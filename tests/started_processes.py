"""Processes that a test lets go are waited for at its end, whenever Python finds that nobody holds them.

A Popen that is dropped before its process was seen to end warns at that moment, though the process may have been killed
already: whether it does is a matter of microseconds, and the garbage collector decides which test fails then. So a
dropped Popen stands aside until its test ends, where its process is waited for. What does not end then is killed, and
fails a test.

Guarantees: no process that was dropped outlives the test at whose end that was found. Does not: look at a Popen that
somebody still holds, such as a fixture of a module.
"""

from __future__ import annotations

import contextlib
import subprocess
from typing import Any, Final, cast

END_S: Final = 60.0
"""A killed process on a busy machine ends within so long."""

_dropped: list[subprocess.Popen[Any]] = []


def keep_dropped_processes() -> None:
    """Have each Popen that is dropped before its process was seen to end stand aside, and warn no more."""
    cast("Any", subprocess.Popen).__del__ = _stand_aside


def _stand_aside(
    process: subprocess.Popen[Any], dropped: list[subprocess.Popen[Any]] = _dropped
) -> None:  # a default: names of a module are gone as Python ends
    if getattr(process, "_child_created", False) and process.returncode is None:
        dropped.append(process)


def end_dropped_processes(within_s: float = END_S) -> list[str]:
    """Wait for what was dropped, and kill what does not end; gives the latter, for people."""
    left = []
    while _dropped:
        process = _dropped.pop()
        for pipe in (process.stdin, process.stdout, process.stderr):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        try:
            process.wait(within_s)
        except subprocess.TimeoutExpired:
            left.append(f"{process.args!r} (process {process.pid})")
            process.kill()
            process.wait(END_S)
    return left
