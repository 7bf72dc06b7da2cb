"""What a migration is given."""

from __future__ import annotations

from datetime import UTC, datetime

from deathless import Map, Migration


def test_time_is_one_constant_and_the_key_a_text() -> None:
    m = Migration(1_700_000_000_500_000)
    m.key_bytes = "Zoë".encode()
    assert (m.key, m.time_us) == ("Zoë", 1_700_000_000_500_000)
    assert m.time == datetime(2023, 11, 14, 22, 13, 20, 500_000, tzinfo=UTC)


def test_maps_are_read_and_that_is_noted() -> None:
    m = Migration(0)
    held: Map[str, object] = Map()
    held["b"], held["a"] = 2, 1
    m.held = {"items": held}
    before = m.looked
    items = m.maps["items"]
    assert (before, m.looked, dict(items)) == (False, True, {"a": 1, "b": 2})
    assert not hasattr(items, "__setitem__")
