"""Who holds a lock file: the living process that has locked it, by the number it wrote there.

Guarantees: a file whose process has ended has no holder; who takes a lock by `take` is not refused because somebody
looks at that moment. Does not: take a lock for longer than the look.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Final

LOOKS_MAX: Final = 5  # in a row that a taker waits for; a look lasts microseconds
LOOK_S: Final = 0.01


def holder_of(path: Path) -> int:
    """Give the pid in a file that a living process has locked; 0: nobody has."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        return int(text) if text.isdecimal() else 0
    finally:
        os.close(descriptor)
    return 0


def take(descriptor: int) -> None:
    """Take the lock of a file for as long as the descriptor is open.

    Raises: BlockingIOError where another process holds it for longer than it takes to look; OSError.
    """
    for _ in range(LOOKS_MAX):
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOOK_S)
    return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
