"""Times that a cron expression names in a zone, in microseconds of logical time.

The expression is taken apart and matched by `cronsim`, which does as Debian's cron: five fields, and where neither
minute nor hour begins with `*`, a time that a change of clocks leaves out is moved to the end of the gap, and one
that comes twice counts the first time. Other expressions follow the seconds as they pass, so an hour that comes twice
has its times twice and one that is left out has none.

Guarantees: times ascend, and depend on expression, zone and the zone's rules alone; finding some costs the same however
long ago one begins. Does not: know what time it is. Imports base only.
"""

from __future__ import annotations

import datetime as dt
import zoneinfo
from collections import deque
from collections.abc import Iterator
from typing import Final

from cronsim import CronSim, CronSimError

from deathless.base.errors import InvalidService

SECOND_US: Final = 1_000_000
_SPAN_US: Final = 3600 * SECOND_US  # looked at first for the latest times; then eight times as much, and so on


class Cron:
    """An expression in a zone.

    Args:
        expression: minute, hour, day of month, month, day of week.
        zone: an IANA name.

    Raises: InvalidService for one that is none, that never comes, or a zone that this machine does not know.
    """

    __slots__ = ("_zone", "expression")

    def __init__(self, expression: str, zone: str) -> None:
        if len(expression.split()) != 5:
            raise InvalidService(f"{expression!r} needs five fields: minute, hour, day of month, month, day of week")
        if zone == "localtime":
            raise InvalidService(
                "time zone 'localtime' differs between machines; name one, as 'Europe/Berlin', or 'UTC'"
            )
        try:
            self._zone: dt.tzinfo = dt.UTC if zone == "UTC" else zoneinfo.ZoneInfo(zone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            raise InvalidService(f"time zone {zone!r} is not known here; is the package tzdata installed?") from None
        self.expression = expression
        try:
            never = self.next_after(0) == 0
        except CronSimError as error:
            raise InvalidService(f"{expression!r} is no cron expression: {error}") from None
        if never:
            raise InvalidService(f"{expression!r} names no time")

    def next_after(self, us: int) -> int:
        """Give the first time after `us`; 0: there is none in the next fifty years, or none that a date can tell."""
        return next(self._times(us), 0)

    def latest(self, after_us: int, until_us: int, most: int) -> list[int]:
        """Give the last times in (after_us, until_us], at most so many, in their order."""
        span = _SPAN_US
        while True:
            begin = max(after_us, until_us - span)
            found: deque[int] = deque(maxlen=most)
            for us in self._times(begin):
                if us > until_us:
                    break
                found.append(us)
            if begin == after_us or len(found) == most:
                return list(found)
            span *= 8

    def _times(self, after_us: int) -> Iterator[int]:
        """Give all times after `after_us`."""
        last = after_us
        try:
            local = dt.datetime.fromtimestamp(after_us // SECOND_US, tz=self._zone)
            for time in CronSim(self.expression, local):
                us = int(time.timestamp()) * SECOND_US
                if us > last:  # else it came twice, and the first time is past
                    yield us
                    last = us
        except (OverflowError, ValueError):  # behind the last year of the calendar
            return
