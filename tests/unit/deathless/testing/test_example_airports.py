"""The tests of examples/airports hold, and its manifest is in order."""

from __future__ import annotations

from pathlib import Path

from examples.airports.service import airports
from examples.airports.test_service import (
    test_each_departure_is_published_once_in_its_order,
    test_no_kill_changes_what_is_published,
)

from deathless.base.topics.settings import check_kept
from deathless.shell.operate.manifest_file import read_manifest

__all__ = ["test_each_departure_is_published_once_in_its_order", "test_no_kill_changes_what_is_published"]
MANIFEST = Path(__file__).parents[4] / "examples/airports/service.yaml"


def test_manifest_of_the_airports_keeps_their_topic() -> None:
    loaded = read_manifest(MANIFEST)
    for config in loaded.replica_configs():
        check_kept([*airports.topics], config.drivers)
        assert config.drivers[0].options["keepBytes"] == 1 << 30
