"""When a program that ended is started again.

Why not by how long it lived: a program loads for seconds or for minutes. One that served for CALM_S once it was loaded
is started again with the shortest pause, however often that happens; one that can't load, or ends by the first message
that it gets, is started with pauses that double.

Guarantees: pauses between AGAIN_MIN_S and AGAIN_MAX_S after a failure, none after an end in order. Does not: start a
process or read a clock; times are monotonic seconds. Imports base.
"""

from __future__ import annotations

from typing import Final

from deathless.base.backoff import next_pause

AGAIN_MIN_S: Final = 0.1
AGAIN_MAX_S: Final = 10.0
CALM_S: Final = 2.0
"""A program that served for so long begins with the shortest pause again."""


class Starts:
    """The starts of one replica's program, one after the other."""

    def __init__(self) -> None:
        self.count = 0
        self.pause_s = 0.0  # before the next one
        self._serves_from: float | None = None  # since when this one serves; None: it does not yet

    @property
    def keeps_failing(self) -> bool:
        """Whether it ended before it served, and is not started at once any more."""
        return self.pause_s > AGAIN_MIN_S

    def began(self) -> None:
        """A process was started."""
        self.count += 1
        self._serves_from = None

    def serves(self, now: float) -> None:
        """It is loaded and takes messages; said again it changes nothing."""
        if self._serves_from is None:
            self._serves_from = now

    def ended(self, now: float, *, failed: bool) -> None:
        """The process ended: plan the next start."""
        if not failed:
            self.pause_s = 0.0
            return
        calm = self._serves_from is not None and now - self._serves_from >= CALM_S
        self.pause_s = next_pause(0.0 if calm else self.pause_s, first_s=AGAIN_MIN_S, most_s=AGAIN_MAX_S)
