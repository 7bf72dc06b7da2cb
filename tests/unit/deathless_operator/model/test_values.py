"""Readers of JSON values never fail."""

from __future__ import annotations

from typing import Any

from deathless_operator.model.values import number, objects, part, text, texts

TREE: Any = {"a": {"b": [{"c": 1}, "x"]}, "t": "text", "n": 3, "flag": True, "labels": {"k": "v", "bad": 1}}


def test_values_are_found_by_path() -> None:
    assert part(TREE, "a", "b", 0, "c") == 1
    assert part(TREE, "a", "b", -1) == "x"
    assert (part(TREE, "a", "b", 2), part(TREE, "t", "x"), part(None, "x")) == (None, None, None)


def test_values_of_another_type_are_empty() -> None:
    assert (text(TREE, "t"), text(TREE, "n"), text(TREE, "gone")) == ("text", "", "")
    assert (number(TREE, "n"), number(TREE, "flag"), number(TREE, "t")) == (3, 0, 0)
    assert (objects(TREE, "a", "b"), objects(TREE, "a")) == ([{"c": 1}], [])
    assert (texts(TREE, "labels"), texts(TREE, "t")) == ({"k": "v"}, {})
