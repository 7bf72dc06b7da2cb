"""The tests of examples/arrivals hold, and the lines of its folder are rows of its input."""

from __future__ import annotations

import asyncio
from pathlib import Path

from examples.arrivals.service import Airport, airports
from examples.arrivals.test_service import (
    test_departures_are_counted_by_airport,
    test_no_kill_counts_a_departure_twice,
)

from deathless.shell.operate.manifest_file import read_manifest
from deathless.sources.host import make_reader
from deathless.sources.port import Partition, Point, Record
from deathless.testing import Environment

__all__ = ["test_departures_are_counted_by_airport", "test_no_kill_counts_a_departure_twice"]
MANIFEST = Path(__file__).parents[4] / "examples/arrivals/service.yaml"


def test_its_folder_is_read_and_all_lines_are_taken_in() -> None:
    (source,) = read_manifest(MANIFEST).replica_configs()[0].sources

    async def lines() -> list[Record]:
        reader = make_reader(source)
        await reader.open(Partition(0, "flights"), [Point(-1, b"")])
        found = list((await reader.read(Partition(0, "flights"), 3, 1 << 20)).records)
        found += (await reader.read(Partition(0, "flights"), 100, 1 << 20)).records
        await reader.close()
        return found

    with Environment(airports) as env:
        service = env.service(airports)
        service.feed("flights", [each.value for each in asyncio.run(lines())], key="origin", on_refusal="deadLetter")
        assert service.refused("flights") == []
        assert service["JFK"].totals() == Airport(flights=2, minutes=11)
        assert service["LGA"].totals() == Airport(flights=1, cancelled=1)
