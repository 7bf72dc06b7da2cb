"""When a replica that computed something else than was logged is tried again, and when it stays stopped (I6).

    differs at lsn n -> told to the primary, which checkpoints -> a new worker loads that, and goes on behind n
        '-- the checkpoint is not there yet: the new worker differs at n again, which is no other difference

So the same difference met again costs a try alone, with a pause that doubles; what counts against
`rebases_per_hour_max` are different ones. A checkpoint that never comes ends the trying, too.

Guarantees: at most `rebases_per_hour_max` different divergences, and TRIES_MAX in all, within an hour. Does not: read a
clock. Imports nothing of ours.
"""

from __future__ import annotations

from typing import Final

from deathless.base.backoff import pause_after

DIVERGED_S: Final = 2.0  # until the first new try; doubles with each
PAUSE_MAX_S: Final = 32.0
TRIES_MAX: Final = 16  # within an hour: seven minutes for a checkpoint
HOUR_S: Final = 3600.0


class Divergences:
    """The divergences of one replica's workers.

    Args:
        rebases_per_hour_max: different ones in an hour; one more, and the replica stays stopped.
    """

    def __init__(self, rebases_per_hour_max: int) -> None:
        self._rebases_max = rebases_per_hour_max
        self._met: list[tuple[float, str]] = []  # Invariant: of the last hour, at most TRIES_MAX + 1

    @property
    def texts(self) -> list[str]:
        """What was met within the hour, oldest first: each new entry is news for the primary."""
        return [text for _, text in self._met]

    def met(self, text: str, now: float) -> float | None:
        """A worker ended because of one. Gives when to start the next one, monotonic seconds; None: not at all.

        Args:
            text: names lsn and handler, so that equal texts are one divergence.
            now: monotonic seconds.
        """
        self._met = [(at, known) for at, known in self._met if now - at < HOUR_S] + [(now, text)]
        if len(self._met) > TRIES_MAX or len(set(self.texts)) > self._rebases_max:
            return None
        return now + pause_after(len(self._met) - 1, first_s=DIVERGED_S, most_s=PAUSE_MAX_S)

    def clear(self) -> None:
        """An operator wants it tried anew."""
        self._met.clear()
