"""What the airports publish, whoever is killed. From the root of the tree: `pytest examples/airports`."""

from examples.airports.service import Departed, airports, departures

from deathless.testing import Environment


def test_each_departure_is_published_once_in_its_order() -> None:
    """A takeover is not seen in the topic."""
    with Environment(airports) as env:
        jfk, sfo = env.service(airports)["JFK"], env.service(airports)["SFO"]
        jfk.depart("UA1", 20, gate="B3")
        env.kill(airports, at="synced")
        sfo.depart("UA2", 0)
        jfk.depart("UA3", 5)
        rows = env.rows(departures)
        assert [(row.key, row.position, row.row.flight) for row in rows] == [
            ("JFK", 1, "UA1"),
            ("SFO", 2, "UA2"),
            ("JFK", 3, "UA3"),
        ]
        assert rows[0].row == Departed("UA1", 20, rows[0].time, "B3")
        assert jfk.late() == 1


def test_no_kill_changes_what_is_published() -> None:
    """The same two departures, killed at every point once."""

    def day(env: Environment) -> None:
        for flight in ("UA1", "UA2"):
            env.service(airports)["JFK"].depart(flight, 0)

    report = Environment(airports).kill_everywhere(day)
    assert len(report.outcome.messages["departures"]) == 2
