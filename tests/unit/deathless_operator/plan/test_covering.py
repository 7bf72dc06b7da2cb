"""An object is applied when something that we want is not there."""

from __future__ import annotations

import pytest

from deathless_operator.model.names import APPLIED_ANNOTATION
from deathless_operator.model.values import Json, JsonObject
from deathless_operator.plan.covering import covers, needs_apply
from deathless_operator.plan.reading import read_child


@pytest.mark.parametrize(
    ("live", "wanted", "covered"),
    [
        ({"a": 1, "added": 2}, {"a": 1}, True),
        ({"a": 2}, {"a": 1}, False),
        ({}, {"a": 1}, False),
        (None, {}, True),
        (None, {"a": {}}, True),
        ([1], {}, False),
        ({"a": [1, 2]}, {"a": [1]}, False),
        ({"a": [{"b": 1, "c": 2}]}, {"a": [{"b": 1}]}, True),
        (None, [], True),
        ("x", [], False),
        (None, False, True),
        (None, True, False),
        (True, True, True),
        (1, True, False),
        (True, 1, False),
        (None, "", True),
        (None, 0, True),
        (None, "x", False),
        ("x", "x", True),
    ],
)
def test_what_is_added_by_others_is_not_looked_at(live: Json, wanted: Json, covered: bool) -> None:
    assert covers(live, wanted) == covered


def manifest(digest: str = "h1") -> JsonObject:
    """A manifest with its hash."""
    return {"kind": "Service", "metadata": {"name": "x", "annotations": {APPLIED_ANNOTATION: digest}}, "spec": {"a": 1}}


def test_object_is_applied_when_it_is_missing_changed_by_us_or_by_others() -> None:
    child = read_child(manifest())
    assert needs_apply(None, manifest())
    assert not needs_apply(child, manifest())
    assert needs_apply(child, manifest("h2")), "a field was taken out of the manifest"
    assert needs_apply(child, {**manifest(), "spec": {"a": 2}})
