"""A spool in memory that takes nothing now and then; twin of the shell's.

Guarantees: a piece reads back as it was written for as long as somebody refers to it. Does not: lie; what becomes of
bytes that changed is for the tests of `core.tables.spool` and `shell.disk.spool_files`. Imports nothing of ours.
"""

from __future__ import annotations

import random
from typing import Final

REFUSED_SHARE: Final = 0.1


class SimPiece:
    """Bytes that are kept."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self) -> bytes:
        """See the port."""
        return self._data


class SimSpool:
    """The spool of one worker.

    Args:
        chance: decides what is refused; of the spool alone, so that spilling changes nothing else in a run.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def append(self, data: bytes) -> SimPiece | None:
        """See the port."""
        return SimPiece(data) if self._chance.random() >= REFUSED_SHARE else None
