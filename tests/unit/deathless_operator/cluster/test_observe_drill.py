"""Whose drill it is; how drills are read stands in tests/apiserver/test_drill_looks.py."""

from __future__ import annotations

from typing import Any

import pytest

from deathless_operator.cluster.observe_drill import drilled_service


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ({"spec": {"serviceRef": {"name": "bank"}}}, "bank"),
        ({"spec": {"serviceRef": {"name": 7}}}, ""),
        ({"spec": {"serviceRef": "bank"}}, ""),
        ({"spec": None}, ""),
        ({}, ""),
    ],
)
def test_service_is_named_or_nothing(raw: dict[str, Any], name: str) -> None:
    assert drilled_service(raw) == name
