"""An object is applied when something that we want is not there and could be."""

from __future__ import annotations

import pytest

from deathless_operator.model.names import APPLIED_ANNOTATION, SEEN_GENERATION_ANNOTATION
from deathless_operator.model.values import Json, JsonObject, text
from deathless_operator.plan.service.covering import (
    body_difference,
    covers,
    difference,
    is_applied,
    to_apply,
    was_repeated,
)
from deathless_operator.plan.service.reading import read_child
from deathless_operator.plan.snapshot import ChildView


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
        ({"requests": {"cpu": "1"}}, {"requests": {"cpu": "1000m"}}, True),
        ({"limits": {"memory": "1Gi"}}, {"limits": {"memory": "1024Mi"}}, True),
        ({"limits": {"memory": "1G"}}, {"limits": {"memory": "1Gi"}}, False),
        ({"requests": {}}, {"requests": {"cpu": "0"}}, False),
        ({"requests": {"cpu": "x"}}, {"requests": {"cpu": "1"}}, False),
        ({"requests": {"cpu": "x"}}, {"requests": {"cpu": "x"}}, True),
        ({"requests": [{"name": "gpu"}]}, {"requests": [{"name": "gpu"}]}, True),
        ({"labels": {"requests": "1"}}, {"labels": {"requests": "1000m"}}, False),
        ({"env": [{"value": "1"}]}, {"env": [{"value": "1000m"}]}, False),
    ],
)
def test_what_is_added_by_others_is_not_looked_at(live: Json, wanted: Json, covered: bool) -> None:
    assert covers(live, wanted) == covered


def test_first_difference_is_named_by_its_path() -> None:
    live: Json = {"a": {"b": [{"c": 1}, {"c": 2}]}, "limits": {"cpu": "1"}, "n": None}
    assert difference(live, {"a": {"b": [{"c": 1}, {"c": 3}]}}) == "a.b[1].c"
    assert difference(live, {"a": {"b": []}}) == "a.b"
    assert difference(live, {"limits": {"cpu": "2"}}) == "limits.cpu"
    assert difference(live, {"a": {"b": {"c": 1}}}) == "a.b"
    assert difference(live, {"n": True}) == "n"


def manifest(digest: str = "h1", **more: Json) -> JsonObject:
    """A manifest with its hash."""
    noted: JsonObject = {APPLIED_ANNOTATION: digest}
    return {"kind": "Service", "metadata": {"name": "x", "annotations": noted, **more}, "spec": {"a": 1}}


def live(spec: JsonObject, *, generation: int = 0, seen: str = "") -> ChildView:
    """The object, with its hash."""
    noted: JsonObject = {APPLIED_ANNOTATION: "h1"}
    if seen:
        noted[SEEN_GENERATION_ANNOTATION] = seen
    metadata: JsonObject = {"name": "x", "annotations": noted}
    if generation:
        metadata["generation"] = generation
    return read_child({"kind": "Service", "metadata": metadata, "spec": spec})


def noted(found: JsonObject | None) -> str:
    """The generation that a manifest is applied with."""
    assert found is not None and found["spec"] == {"a": 1}
    return text(found, "metadata", "annotations", SEEN_GENERATION_ANNOTATION)


def test_object_is_applied_when_it_is_missing_changed_by_us_or_by_others() -> None:
    child = live({"a": 1})
    assert to_apply(None, manifest()) == manifest()
    assert to_apply(child, manifest()) is None
    assert to_apply(child, manifest("h2")) == manifest("h2"), "a field was taken out of the manifest"
    assert to_apply(live({"a": 2}), manifest()) == manifest(), "kinds without a generation"
    assert body_difference(live({"a": 2}), manifest()) == "spec.a"


def test_what_the_api_server_stores_otherwise_is_applied_once_more_and_then_counts_as_applied() -> None:
    first = live({"a": "one"}, generation=7)
    assert not is_applied(first, manifest()) and not was_repeated(first, manifest())
    assert noted(to_apply(first, manifest())) == "7"
    again = live({"a": "one"}, generation=7, seen="7")
    assert is_applied(again, manifest()) and to_apply(again, manifest()) is None


def test_change_of_a_settled_object_is_mended_whatever_it_is_changed_to() -> None:
    changed = live({"a": "two"}, generation=8, seen="7")
    assert not is_applied(changed, manifest()) and was_repeated(changed, manifest())
    assert noted(to_apply(changed, manifest())) == "8"
    late = live({"a": "one"}, generation=9, seen="8")  # applying has put it back
    assert noted(to_apply(late, manifest())) == "9"


def test_another_hash_or_no_generation_is_never_settled() -> None:
    settled = live({"a": "one"}, generation=7, seen="7")
    assert not is_applied(settled, manifest("h2")) and not was_repeated(settled, manifest("h2"))
    assert to_apply(settled, manifest("h2")) == manifest("h2")
    for seen in ("", "0", "-"):
        assert not is_applied(live({"a": "one"}, seen=seen), manifest())


def test_labels_and_owners_are_compared_even_where_the_body_is_settled() -> None:
    settled = live({"a": "one"}, generation=7, seen="7")
    owned = manifest(labels={"l": "x"})
    assert noted(to_apply(settled, owned)) == "7", "it stays settled"
    assert is_applied(settled, owned), "pods are made from the body alone"
