"""Starts the process that copies a primary's witness to a file beside the log (`witness_writer`).

Guarantees: it ends by itself once the descriptor given is closed, which the end of this process does too. Does not:
wait for it, or tell when it could not be started: the page is the witness then. May import base.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from deathless.base.config import ReplicaConfig
from deathless.shell.link.status_page import WITNESS_FILE

INTERVAL_S: Final = 1.0
PROGRAM: Final = Path(__file__).with_name("witness_writer.py")


def start_witness_writer(page: str, config: ReplicaConfig) -> int:
    """Start it for a replica that leads; gives the descriptor that keeps it running, -1 where it did not start."""
    target = str(Path(config.directory) / "replicas" / config.replica / WITNESS_FILE)
    ours, theirs = -1, -1
    try:
        theirs, ours = os.pipe2(os.O_CLOEXEC)
        words = [sys.executable, "-I", "-S", str(PROGRAM), page, target, str(INTERVAL_S)]
        os.posix_spawn(sys.executable, words, {}, file_actions=[(os.POSIX_SPAWN_DUP2, theirs, 0)], setpgroup=0)
    except OSError:
        if ours >= 0:
            os.close(ours)
        return -1
    finally:
        if theirs >= 0:
            os.close(theirs)
    return ours
