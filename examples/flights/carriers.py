"""Carriers that are told of each departure, and of each that was late: one end of the pipeline."""

from __future__ import annotations

from deathless import Context, Service, Struct, field


class Departures(Struct):
    """Of one carrier from one airport."""

    flights: int = 0
    minutes: int = 0


class Carrier(Struct):
    """State of one carrier, by its two letters."""

    late: int = 0
    origins: dict[str, Departures] = field(default_factory=dict)


carriers = Service("carriers", state=Carrier)


@carriers.handler
def departed(carrier: Carrier, ctx: Context, origin: str, minutes: int) -> None:
    """Add a departure up."""
    found = carrier.origins.setdefault(origin, Departures())
    found.flights += 1
    found.minutes += minutes


@carriers.handler
def late(carrier: Carrier, ctx: Context) -> None:
    """Count one that was late."""
    carrier.late += 1


@carriers.query
def totals(carrier: Carrier) -> Carrier:
    """Give what came so far."""
    return carrier
