"""Airports that take flights in from Kafka, and publish their departures: each row of a topic, exactly once."""

from __future__ import annotations

from deathless import Context, Service, Struct


class Flight(Struct):
    """A record of the topic in Kafka: one flight of the plan."""

    carrier: str
    origin: str
    flight: int
    minutes: int | None = None  # late at its departure, below zero early; None: it was cancelled


class Departed(Struct):
    """A row of our own topic."""

    carrier: str
    origin: str
    flight: int
    minutes: int


class Airport(Struct):
    """State of one airport, by its code."""

    flights: int = 0
    cancelled: int = 0


airports = Service("airports", state=Airport)
departures = airports.topic("departures", Departed)


@airports.input("flights")
def record(airport: Airport, ctx: Context, flight: Flight) -> None:
    """Take a flight in."""
    airport.flights += 1
    if flight.minutes is None:
        airport.cancelled += 1
    else:
        ctx.emit(departures, Departed(flight.carrier, flight.origin, flight.flight, flight.minutes))


@airports.query
def totals(airport: Airport) -> Airport:
    """Give what came so far."""
    return airport
