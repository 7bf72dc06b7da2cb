"""A drill is read from what the API server has, or its problems are told."""

from __future__ import annotations

from deathless_operator.model.drill import DrillStatus
from deathless_operator.model.values import JsonObject
from deathless_operator.plan.drill.reading import read_drill


def raw(spec: JsonObject | None, **other: JsonObject) -> JsonObject:
    meta: JsonObject = {
        "namespace": "ns",
        "name": "nightly",
        "uid": "u",
        "generation": 3,
        "finalizers": ["deathless.dev/drill"],
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    return {"metadata": meta, "spec": spec, **other}


GOOD: JsonObject = {"serviceRef": {"name": "bank"}, "fault": {"type": "Freeze"}}


def test_good_drill_is_read() -> None:
    found = read_drill(raw(GOOD, status={"runsPassed": 2, "active": {"id": "r", "phase": "Warm"}}))
    assert found.spec is not None
    assert (found.name, found.generation, found.finalizers) == ("nightly", 3, ("deathless.dev/drill",))
    assert (found.deleted, found.created_at) == (False, 1767225600.0)
    assert found.status.active is not None
    assert (found.status.runs_passed, found.status.active.phase) == (2, "Warm")


def test_problems_name_their_place() -> None:
    found = read_drill(raw({"serviceRef": {"name": "bank"}, "fault": {"type": "Flood"}}))
    assert found.spec is None
    assert "spec.fault.type" in found.problems[0]


def test_relation_that_no_field_shows_is_a_problem() -> None:
    found = read_drill(raw(GOOD | {"timeZone": "Europe/Berlin"}))
    assert found.spec is None
    assert "schedule" in found.problems[0]


def test_status_that_cannot_be_read_is_an_empty_one() -> None:
    assert read_drill(raw(GOOD, status={"runsPassed": "many"})).status == DrillStatus()


def test_drill_without_a_spec_is_no_error() -> None:
    assert read_drill(raw(None)).spec is None
