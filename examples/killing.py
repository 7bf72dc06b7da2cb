"""What demos share that kill processes and end with a verdict: whom they find, how they end all, what they say."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

PAUSE_S: Final = 0.05
SHOWN_MAX: Final = 20
"""Differences that are told."""


def processes_of(kinds: Mapping[str, str], *marks: str) -> dict[str, list[int]]:
    """Give the processes that can be killed, by kind.

    Args:
        kinds: by the module that a process runs.
        marks: of ours alone, each of which names one of these among its arguments.
    """
    found: dict[str, list[int]] = {}
    ours = [mark.encode() for mark in marks]
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            words = Path("/proc", pid, "cmdline").read_bytes().split(b"\0")
            kind = kinds.get(words[2].decode()) if len(words) > 3 and words[1] == b"-m" else None
            if kind and any(mark in word for word in words for mark in ours):
                found.setdefault(kind, []).append(int(pid))
    return found


def end_all(running: Callable[[], list[int]]) -> None:
    """Kill what runs until nothing does: what dies may have started something else meanwhile."""
    while pids := running():
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(PAUSE_S)


def wrong_lines(wrong: Sequence[str]) -> list[str]:
    """Give the first differences, and how many more there are."""
    more = len(wrong) - SHOWN_MAX
    return [*wrong[:SHOWN_MAX], *([f"and {more} more"] if more > 0 else [])]


def finish(report: dict[str, Any], shown: str, folder: Path, *, as_json: bool) -> int:
    """Print the verdict, and keep the folder where it is bad; gives the exit code."""
    print(json.dumps(report) if as_json else shown)
    if report["passed"]:
        shutil.rmtree(folder, ignore_errors=True)
        return 0
    print(f"logs: {folder}", file=sys.stderr)
    return 1
