"""A service of the process tests with a schedule: it keeps each minute that it was run for."""

from __future__ import annotations

from datetime import datetime

from deathless import Context, Service, Struct


class Ticks(Struct):
    """Minutes since 1970, in the order in which they came."""

    minutes: list[int] = []  # noqa: RUF012 - a Struct copies its defaults


bell = Service("bell", state=Ticks)


@bell.schedule("* * * * *", key="tower", missed="all")
def ring(ticks: Ticks, ctx: Context, tick: datetime) -> None:
    """Keep the minute."""
    ticks.minutes.append(int(tick.timestamp()) // 60)


@bell.handler
def heard(ticks: Ticks, ctx: Context) -> list[int]:
    """Give all minutes; a handler, so that logical time goes on."""
    return ticks.minutes
