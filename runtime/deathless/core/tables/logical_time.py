"""The times of a shard, as its primary moves them: by records in the log (what each is for: `base.times`).

    age       moves as the steady clock does
    elapsed   likewise, and while the machine sleeps; a primary that takes over first adds the gap since the last record
    time      moves as elapsed does, drawn to the wall clock:
                the wall clock is ahead, and its last step has stood for BELIEVE_S    taken over
                it is ahead, and has just stepped                                     as elapsed
                it is behind                                                          not at all, or half as fast

So what is forgotten, and every timer given by a duration, goes by time that really passed, whatever is done to the wall
clock, and also when nobody called meanwhile. A wall clock that is more than JUMP_MAX_US ahead is not taken over at all,
unless time itself lies before this code was built: then the clock had never been set.

The gap. Who followed the last primary knows for how long it has heard nothing, by its own clock; so does who was
started again on the same boot of its machine, by what the page of its predecessor says. Both are lower bounds: a timer
may be late by the replica's lag, never early. Only who knows neither asks the wall clock.

Guarantees: nothing of the safety argument rests on any of this (I2). Does not: write records, know what waits, read a
clock. Imports base.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from deathless.base.limits import Limits
from deathless.base.safeguards import Safeguards
from deathless.base.times import BUILT_US, NEVER, Due, Times

LOOK_AGAIN_S: Final = 0.001  # at the earliest, when it was not due just now
BELIEVE_S: Final = 300.0
"""A wall clock that stepped ahead is believed once it went on evenly for so long."""
FOLLOW_US: Final = 1_000_000
"""Less than this is no step of the wall clock."""
JUMP_MAX_US: Final = 400 * 86_400_000_000
"""Further ahead the wall clock is never believed, and a gap that it alone tells is never longer."""


class Anchor(NamedTuple):
    """What a replica remembers of a TIME record: both only ever tell a lower bound of what has passed since."""

    elapsed_us: int  # that the record says
    boot_us: int  # our machine's clock since its boot, sleep included, when we met the record or later


def gap_us(times: Times, anchor: Anchor | None, *, boot_us: int, wall_us: int, safeguards: Safeguards) -> int:
    """Give what has passed since the last record of the log, as far as it is known, microseconds.

    Args:
        times: what that record says.
        anchor: of that or an earlier record; None: we met none on this boot of the machine.
        boot_us: see Anchor, now.
        wall_us: the wall clock now.
        safeguards: `gap_by_own_clock` is used.
    """
    if not times.time_us:
        return 0  # a new shard
    if anchor is not None and safeguards.gap_by_own_clock:
        return max(0, (boot_us - anchor.boot_us) - (times.elapsed_us - anchor.elapsed_us))
    return min(max(0, wall_us - times.time_us), JUMP_MAX_US)


class LogicalTime:
    """The times at one primary.

    Args:
        times: behind the last message.
        gap_us: what has passed since then, when this begins.
        now: steady seconds.
        wall_us: the wall clock.
    """

    def __init__(
        self,
        *,
        limits: Limits,
        safeguards: Safeguards,
        times: Times,
        gap_us: int,
        now: float,
        wall_us: int,
    ) -> None:
        self.times = times  # behind the last frame that ran
        self._step_us = limits.clock_step_us
        self._safeguards = safeguards
        self._moved_us = _us(now)  # when that frame's record was drawn, by the steady clock
        self._owed_us = gap_us  # passed by other clocks than the steady one, and is in no record
        self._drawn = (
            times,
            self._moved_us,
            gap_us,
        )  # last record that was drawn, when, and what it says of `_owed_us`
        # The offset of the wall clock from a steady one that counts sleep: it changes when somebody sets the clock.
        self._slept_us = 0
        self._offset_us = wall_us - self._moved_us
        self._even_since: float | None = now  # since when it stands; None: it is believed
        if times.time_us and abs(wall_us - times.time_us - gap_us) <= FOLLOW_US:
            self._even_since = None

    def slept(self, us: int) -> None:
        """The machine slept: so much has passed that the steady clock does not show."""
        self._owed_us += us
        self._slept_us += us

    def moved(self, times: Times) -> None:
        """A frame ran; what was drawn last may be in it."""
        if times != self.times:
            drawn, at_us, owed_us = self._drawn
            assert times == self.times.later(drawn), "nobody else writes time records while we lead"
            self.times, self._moved_us = times, at_us
            self._owed_us -= owed_us

    def time_us(self, now: float, wall_us: int) -> int:
        """Give where time stands now."""
        return self._read(now, wall_us).time_us

    def elapsed_us(self, now: float) -> int:
        """Give where elapsed stands now."""
        return self.times.elapsed_us + max(0, _us(now) - self._moved_us) + self._owed_us

    def draw(self, now: float, wall_us: int) -> Times:
        """Give what a record would say that is written now. The last one drawn before `moved` is what may be in it."""
        times = self._read(now, wall_us)
        self._drawn = times, int(now * 1_000_000), self._owed_us
        return times

    def _read(self, now: float, wall_us: int) -> Times:
        wall_us = max(1, wall_us)
        now_us = int(now * 1_000_000)
        self._look_at_wall(now, wall_us - now_us - self._slept_us)
        last = self.times
        if not last.time_us:
            return Times.at(wall_us)
        served_us = max(0, now_us - self._moved_us)
        passed_us = served_us + self._owed_us
        elapsed_us, age_us = last.elapsed_us + passed_us, last.age_us + served_us
        time_us = last.time_us + passed_us
        ahead_us = wall_us - time_us
        if ahead_us <= 0:
            time_us = max(wall_us, last.time_us + passed_us // 2)
        elif self._believes(ahead_us):
            time_us = wall_us
        if not self._safeguards.age_without_clock:
            age_us = max(age_us, time_us)
        return Times(time_us, elapsed_us, age_us, wall_us)

    def _look_at_wall(self, now: float, offset_us: int) -> None:
        """Notice a step of the wall clock, and when it has stood for long enough."""
        if abs(offset_us - self._offset_us) > FOLLOW_US:
            self._offset_us, self._even_since = offset_us, now
        elif self._even_since is not None and now - self._even_since >= BELIEVE_S:
            self._even_since = None

    def _believes(self, ahead_us: int) -> bool:
        if self._even_since is not None and self._safeguards.believe_late:
            return False
        return ahead_us <= JUMP_MAX_US or self.times.time_us < BUILT_US

    def stepped_us(self, now: float, wall_us: int) -> int:
        """Give by how much the wall clock is ahead of time, negative when it is behind; 0: time goes with it."""
        ahead_us = wall_us - self._read(now, wall_us).time_us
        return ahead_us if abs(ahead_us) > FOLLOW_US else 0

    def stale(self, times: Times) -> bool:
        """Has so much passed that a frame shall say so?"""
        return times.elapsed_us >= self.times.elapsed_us + self._step_us

    def due_at(self, now: float, times: Times, due: Due) -> float | None:
        """Give when to look again whether a record is due, steady seconds, as the clocks stand; None: never.

        Args:
            now: steady seconds.
            times: what a record would say now.
            due: when one has something to do.
        """
        if due == NEVER:
            return None
        waits = []
        if due.elapsed_us:
            waits.append((due.elapsed_us - times.elapsed_us) / 1e6)
        if due.time_us:
            waits.append((due.time_us - times.time_us) / 1e6)
            if self._even_since is not None:  # time may come up to the wall clock in one step then
                waits.append(self._even_since + BELIEVE_S - now)
        return now + max(LOOK_AGAIN_S, min(waits))


def _us(seconds: float) -> int:
    return int(seconds * 1_000_000)
