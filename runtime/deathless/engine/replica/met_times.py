"""How the times of a shard's log stand to our machine's clock: what passed while nobody led is told by it.

Guarantees: the anchor is of a TIME record that this replica met on this boot of the machine. Does not: note each of
them; one of ANCHOR_US ago tells as well what has passed since.
"""

from __future__ import annotations

from typing import Final

from deathless.core.tables.logical_time import Anchor
from deathless.engine.replica.outside import Clock

ANCHOR_US: Final = 100_000
"""Between two anchors."""


class MetTimes:
    """Of one replica; begins with what an earlier process of it noted."""

    def __init__(self, clock: Clock) -> None:
        self.anchor = clock.anchor()  # of the last TIME record that was noted; None: of none on this boot
        self._clock = clock

    def met(self, elapsed_us: int) -> None:
        """A frame just came from who wrote it, and this is the shard's elapsed time behind it."""
        if self.anchor is None or elapsed_us - self.anchor.elapsed_us >= ANCHOR_US:
            self.anchor = Anchor(elapsed_us, self._clock.boot_us())
            self._clock.note_anchor(self.anchor)
