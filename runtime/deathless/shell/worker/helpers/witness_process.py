"""The witness that a worker keeps: in its page, and by another process (`witness_writer`) in a file beside the log.

Guarantees: a death of the worker leaves what was noted. The process ends by itself once the descriptor given is closed,
which the end of this process does too. Does not: wait for it, or tell when it could not be started: the page is the
witness then; judge what is found (core.replica.witness does).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.lock_stores import lock_store
from deathless.codec.witness import Point
from deathless.core.replica.witness import Sighting
from deathless.shell.link.status_page import WITNESS_FILE, Page, boot_number, confirmed_elsewhere

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


class ConfirmedPoints:
    """Of one replica.

    Args:
        config: the replica's.
        page: its worker's.
    """

    def __init__(self, config: ReplicaConfig, page: Page) -> None:
        self._config = config
        self._page = page
        self._boot = boot_number()
        self._writer = -1  # closes with this process: then the writer of the witness's file ends

    def note_confirmed(self, point: Point, *, first: bool) -> None:
        """See engine.replica.outside.Witness."""
        here = msgspec.structs.replace(point, boot=self._boot)
        if first:
            self._page.begin_reign(here)
            if lock_store(self._config.lock).in_directory:
                self._writer = start_witness_writer(self._page.path, self._config)
        else:
            self._page.note_confirmed(here)

    def sightings(self) -> Sequence[Sighting]:
        """See engine.replica.outside.Witness."""
        config = self._config
        return confirmed_elsewhere(config.directory, config.replica, instance=config.instance)

    def boot(self) -> int:
        """See engine.replica.outside.Witness."""
        return self._boot
