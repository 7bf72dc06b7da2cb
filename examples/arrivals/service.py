"""Airports whose departures come from files: `spec.sources` of service.yaml says from where."""

from deathless import Context, Service, Struct


class Departed(Struct):
    """A line of a file."""

    carrier: str
    origin: str
    minutes: int | None = None  # late; None: cancelled


class Airport(Struct):
    """State of one airport."""

    flights: int = 0
    cancelled: int = 0
    minutes: int = 0


airports = Service("arrivals", state=Airport)


@airports.input("flights")
def record(airport: Airport, ctx: Context, row: Departed) -> None:
    """Count a departure."""
    airport.flights += 1
    if row.minutes is None:
        airport.cancelled += 1
    else:
        airport.minutes += row.minutes


@airports.query
def totals(airport: Airport) -> Airport:
    """Give what came so far."""
    return airport
