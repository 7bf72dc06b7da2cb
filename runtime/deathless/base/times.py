"""The times of a shard: three counters that a TIME record moves, and the wall clock that its writer read.

    age      forgetting: how long the service has been served. A steady clock moves it, and only while somebody leads
    elapsed  waiting: age, and what passed between two primaries, as far as it is known
    time     naming a moment: elapsed, drawn to the wall clock. The only one that a wall clock can move

Guarantees: plain values. Does not: decide how they move (`core.tables.logical_time` does). Imports nothing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

BUILT_US: Final = 1_764_028_800_000_000
"""2025-11-25, microseconds since 1970: this code is younger, so a moment before it is no time but a clock never set."""


class Times(NamedTuple):
    """Where the counters stand behind a TIME record, microseconds; all 0 before the first one."""

    time_us: int = 0  # since 1970, as `ctx.now` shows it. Invariant: never goes back
    elapsed_us: int = 0  # Invariant: never goes back, and moves at most as fast as time passes
    age_us: int = 0  # Invariant: likewise
    wall_us: int = 0  # the wall clock of the primary that wrote the record, above 0; 0: a record of version 1

    @classmethod
    def at(cls, us: int) -> Times:
        """Give the times of a shard whose counters and wall clock all stand at the same, as those of a new one do."""
        return cls(us, us, us, us)

    @classmethod
    def of_version_1(cls, us: int) -> Times:
        """Give what a record or checkpoint says that knows a single clock."""
        return cls(us, us, us, 0)

    @property
    def single(self) -> bool:
        """Does the last record come from a primary that knew a single clock? What it decided is decided again alike."""
        return not self.wall_us

    def later(self, other: Times) -> Times:
        """Give what stands behind a record that says `other`: no counter goes back."""
        return Times(
            max(self.time_us, other.time_us),
            max(self.elapsed_us, other.elapsed_us),
            max(self.age_us, other.age_us),
            other.wall_us,
        )


class Due(NamedTuple):
    """When a TIME record has something to do next, microseconds; 0: never."""

    elapsed_us: int = 0  # timers given by a duration, deadlines
    time_us: int = 0  # timers given by a moment, ticks of schedules

    @property
    def first_us(self) -> int:
        """The smaller of the two, for where both counters stand at the same."""
        return first_us(*self)

    def reached(self, times: Times) -> bool:
        """Has a record that says `times` something to do?"""
        return 0 < self.elapsed_us <= times.elapsed_us or 0 < self.time_us <= times.time_us


NEVER: Final = Due()


def first_us(one: int, other: int) -> int:
    """Give the earlier of two moments, of which 0 is none."""
    return min(one, other) or max(one, other)
