"""A child process of a supervisor: when to start it again, and how to end it.

A process that is killed runs nothing of its own any more. But the kernel keeps it as long as a system call of its
lasts, and on storage that hangs that may be for ever. So nobody waits for it longer than END_S.

Guarantees: one that fails is started again after a pause that doubles up to RESTART_MAX_S, for ever; no end is waited
for longer than END_S. Does not: start anything; whoever owns it does.
"""

from __future__ import annotations

import logging
import os
import subprocess
import time
from collections.abc import Iterable, Mapping
from typing import Final

_LOG: Final = logging.getLogger("deathless.child")
END_S: Final = 5.0  # all that are ended together are waited for so long
LOOK_S: Final = 0.005  # between two looks whether a process has ended
RESTART_MIN_S, RESTART_MAX_S = 0.05, 5.0  # between two starts of one that fails
STABLE_S = 10.0  # one that ran so long starts again without waiting
AT_ONCE_S = 1.0  # the same for one that ended in order: nothing spins, whatever it does


class Child:
    """A child process with its restarts."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process: subprocess.Popen[bytes] | None = None
        self.stopped = False  # by a signal
        self.started_at = 0.0
        self.delay_s = 0.0
        self.start_at: float | None = 0.0  # when to start it next; None: not at all

    @property
    def pid(self) -> int:
        """Process id; 0: none runs."""
        return self.process.pid if self.process is not None else 0

    def due(self, now: float) -> bool:
        """Is it time to start it?"""
        return self.process is None and self.start_at is not None and now >= self.start_at

    def not_started(self, now: float) -> None:
        """Plan the next try to start it: this one failed, for want of a descriptor or of memory, say."""
        self.started_at = now
        self.ended(now, at_once=False)

    def ended(self, now: float, *, at_once: bool) -> None:
        """Plan the next start: with doubling delay, but at once after a long run, or an expected end of a fair one."""
        self.process = None
        self.stopped = False
        if now - self.started_at >= (AT_ONCE_S if at_once else STABLE_S):
            self.delay_s = 0.0
        else:
            self.delay_s = min(max(self.delay_s * 2, RESTART_MIN_S), RESTART_MAX_S)
        self.start_at = now + self.delay_s


def end_all(children: Iterable[Child]) -> None:
    """Kill the processes of children, and wait until they have ended, END_S at most."""
    ending = {}
    for child in children:
        if child.process is not None:
            ending[child.name] = child.process
            child.process = None
    end_processes(ending)


def end_processes(ending: Mapping[str, subprocess.Popen[bytes]]) -> None:
    """Kill processes, by name, and wait until they have ended, END_S at most for all of them."""
    for process in ending.values():
        process.kill()
    until = time.monotonic() + END_S
    for name, process in ending.items():
        try:
            process.wait(max(until - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            _LOG.error("%s was killed and does not end", name, extra={"pid": process.pid, "after_s": END_S})


def reap(pid: int) -> int | None:
    """Wait for the end of a forked process that was killed or has ended.

    Returns:
        Its wait status; None: it has not ended within END_S.
    """
    until = time.monotonic() + END_S
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        if time.monotonic() >= until:
            _LOG.error("a process was killed and does not end", extra={"pid": pid, "after_s": END_S})
            return None
        time.sleep(LOOK_S)
