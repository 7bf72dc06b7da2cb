"""Airports that publish their departures: each is a row of a topic, published exactly once whoever dies."""

from datetime import datetime

from deathless import CallRefused, Context, Service, Struct


class Airport(Struct):
    """State of one airport, by its code."""

    departures: int = 0
    late: int = 0  # departures that were more than 15 minutes late


class Departed(Struct):
    """A row: one departure. The key of each row is the airport's code."""

    flight: str
    minutes_late: int
    at: datetime
    gate: str | None = None


airports = Service("airports", state=Airport)
departures = airports.topic("departures", Departed)


@airports.handler
def depart(airport: Airport, ctx: Context, flight: str, minutes_late: int, gate: str | None = None) -> int:
    """Note a departure and publish it; gives how many there were."""
    if not flight:
        raise CallRefused("a flight has a number")
    airport.departures += 1
    airport.late += minutes_late > 15
    ctx.emit(departures, Departed(flight, minutes_late, ctx.now, gate))
    return airport.departures


@airports.query
def late(airport: Airport) -> int:
    """Give how many departures were more than 15 minutes late."""
    return airport.late
