"""A program that a runner keeps running: a replica's supervisor, or the agent of a pipeline's driver.

Each runs in a session of its own, needs nobody, and holds the kernel lock of a file, by which a later runner finds it.

Guarantees: what is common to both, and nothing of either. Does not: decide when one is started. May import base.
"""

from __future__ import annotations

import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from deathless.shell.disk.holders import holder_of


class Program(ABC):
    """One program, ours or found.

    Args:
        name: shown to people.
        folder: its own, which holds its configuration, lock and log.
        log_name: of the log in it.
        lock_name: of the file that it locks.
    """

    def __init__(self, name: str, folder: Path, *, log_name: str, lock_name: str) -> None:
        self.name = name
        self.folder = folder
        self.log = folder / log_name
        self.lock = folder / lock_name
        self.pid = 0  # 0: none runs
        self.pidfd = -1
        self.process: subprocess.Popen[bytes] | None = None  # None: found, or none
        self.started_at = 0.0
        self.delay_s = 0.0
        self.start_at: float | None = 0.0  # None: not again
        self.exit_code: int | None = None
        self.stop_sent = False
        self.told = ""  # why it could not be started, as it was told last

    def running(self) -> int:
        """Give the pid of the one that runs already; 0: none. Raises: OSError."""
        return holder_of(self.lock)

    @abstractmethod
    def stands(self) -> bool:
        """Does its configuration file say what it would be started with? Raises: OSError."""

    @abstractmethod
    def start(self, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start it. Raises: OSError.

        Args:
            environment: the whole of it.
        """

    @abstractmethod
    def left(self) -> None:
        """Take back what it told others of itself, after it was stopped. Raises: OSError."""


def start_program(
    module: str, arguments: Sequence[str], log: Path, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a module of ours in a session of its own; what it says goes to a log. Raises: OSError."""
    said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    finally:
        os.close(said)
