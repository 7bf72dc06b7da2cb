"""Departures are counted once, whoever is killed. From the root of the tree: `pytest examples/arrivals`."""

from examples.arrivals.service import Airport, Departed, airports

from deathless.testing import Environment

ROWS = [Departed("UA", "EWR", 2), Departed("AA", "JFK", 12), Departed("DL", "JFK")]


def test_departures_are_counted_by_airport() -> None:
    """A takeover is not seen."""
    with Environment(airports) as env:
        service = env.service(airports)
        service.feed("flights", ROWS, key="origin")
        env.kill(airports)
        service.feed("flights", ['{"carrier": "B6", "origin": "JFK", "minutes": 3}'], key="origin")
        assert service["JFK"].totals() == Airport(flights=3, cancelled=1, minutes=15)


def test_no_kill_counts_a_departure_twice() -> None:
    """The same rows, killed at every point once."""
    report = Environment(airports).kill_everywhere(
        lambda env: env.service(airports).feed("flights", ROWS, key="origin")
    )
    assert report.points
