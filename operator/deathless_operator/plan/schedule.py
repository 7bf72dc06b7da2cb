"""When a cron expression is due, as functions of `now`: a drill, a window for an upgrade.

Guarantees: of times that were missed only the latest counts; nothing reads a clock. A time zone's rules come from the
interpreter's database: a zone that it lacks is a problem told, as is an expression that is none. Imports cronsim.
"""

from __future__ import annotations

import datetime as dt
import zoneinfo

from cronsim import CronSim, CronSimError


class ScheduleError(ValueError):
    """The schedule or its time zone can't be understood."""


def _local(schedule: str, time_zone: str, now: float) -> dt.datetime:
    if len(schedule.split()) != 5:
        raise ScheduleError(f"schedule {schedule!r} needs five fields: minute hour day month weekday")
    try:
        zone: dt.tzinfo = zoneinfo.ZoneInfo(time_zone) if time_zone else dt.UTC
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ScheduleError(f"time zone {time_zone!r} is unknown") from None
    return dt.datetime.fromtimestamp(int(now), tz=zone)


def latest_due(schedule: str, time_zone: str, now: float) -> float | None:
    """Give the last time at or before `now`, wall seconds; None: never in the last fifty years.

    Raises: ScheduleError.
    """
    local = _local(schedule, time_zone, now) + dt.timedelta(seconds=1)
    return _first(schedule, local, reverse=True)


def next_due(schedule: str, time_zone: str, now: float) -> float | None:
    """Give the first time after `now`, wall seconds; None: never in the next fifty years.

    Raises: ScheduleError.
    """
    return _first(schedule, _local(schedule, time_zone, now), reverse=False)


def _first(schedule: str, local: dt.datetime, *, reverse: bool) -> float | None:
    try:
        return next(CronSim(schedule, local, reverse=reverse)).timestamp()
    except CronSimError as error:
        raise ScheduleError(f"schedule {schedule!r}: {error}") from None
    except StopIteration:
        return None
