"""The services of examples/flights, and what its verdict compares: differences are seen, wherever they are."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest
from examples.flights.airports import Airport, Departed, airports, departures
from examples.flights.answers import Answers, Flight, answers, differences
from examples.flights.carriers import Departures, carriers
from examples.flights.play import read, records

from deathless.testing import Environment

FLIGHTS = [
    Flight("UA", "EWR", 1545, 20),
    Flight("UA", "EWR", 1714, -4),
    Flight("AA", "JFK", 1141, None),
    Flight("UA", "JFK", 7, 16),
]
WANTED = Answers(
    airports={"EWR": (2, 0), "JFK": (2, 1)},
    carriers={("UA", "EWR"): (2, 16), ("UA", "JFK"): (1, 16)},
    late={"UA": 2},
    facts=(3, 3, 32),
    published=(3, 3, 32),
)


def test_flights_of_kafka_become_departures_once_whatever_is_killed() -> None:
    with Environment(airports) as env:
        service = env.service(airports)
        for key, value in records(FLIGHTS):
            service.feed("flights", [value], key=lambda _row, key=key: key.decode())
            env.kill(airports)
        assert service["JFK"].totals() == Airport(flights=2, cancelled=1)
        assert [published.row for published in env.rows(departures)] == [
            Departed("UA", "EWR", 1545, 20), Departed("UA", "EWR", 1714, -4), Departed("UA", "JFK", 7, 16),
        ]  # fmt: skip


def test_carriers_add_up_by_airport() -> None:
    with Environment(carriers) as env:
        carrier = env.service(carriers)["UA"]
        carrier.departed("EWR", 20)
        carrier.departed("EWR", -4)
        carrier.late()
        assert carrier.totals().origins == {"EWR": Departures(2, 16)}
        assert carrier.totals().late == 1


def test_what_follows_from_the_flights_is_computed_from_them_alone() -> None:
    assert answers(FLIGHTS) == WANTED
    assert differences(WANTED, WANTED) == []


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"airports": {"EWR": (2, 0)}}, "airports JFK: None, must be (2, 1)"),
        ({"carriers": {**WANTED.carriers, ("UA", "JFK"): (2, 32)}}, "carriers ('UA', 'JFK'): (2, 32), must be (1, 16)"),
        ({"late": {"UA": 1}}, "late UA: 1, must be 2"),
        ({"facts": (4, 3, 32)}, "facts: rows, positions, minutes (4, 3, 32), must be (3, 3, 32)"),
        ({"published": (0, 0, 0)}, "published: rows, positions, minutes (0, 0, 0), must be (3, 3, 32)"),
    ],
)
def test_what_is_elsewhere_is_told(changed: dict[str, Any], told: str) -> None:
    assert differences(WANTED, WANTED._replace(**changed)) == [told]


def test_flights_are_played_in_the_order_of_their_plan(tmp_path: Path) -> None:
    rows = ["month,day,sched_dep_time,carrier,flight,origin,dep_delay", "2,1,515,UA,2,EWR,NA", "1,1,600,UA,3,EWR,1.0"]
    with zipfile.ZipFile(tmp_path / "flights.zip", "w") as archive:
        archive.writestr("flights.csv", "\n".join([*rows, "1,1,600,AA,9,JFK,", "1,1,59,UA,1,LGA,-2.0"]))
    told = [(each.carrier, each.origin, each.flight, each.minutes) for each in read(tmp_path / "flights.zip")]
    assert told == [("UA", "LGA", 1, -2), ("AA", "JFK", 9, None), ("UA", "EWR", 3, 1), ("UA", "EWR", 2, None)]
