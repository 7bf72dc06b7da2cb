"""What a replica confirmed as primary, in its page and beside the log, and what others of its directory left there.

Guarantees: a death of the worker leaves what was noted. Does not: judge what is found (core.replica.witness does).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.lock_stores import lock_store
from deathless.codec.witness import Point
from deathless.core.replica.witness import Sighting
from deathless.shell.link.status_page import Page, boot_number, confirmed_elsewhere
from deathless.shell.worker.witness_process import start_witness_writer


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
