"""Columns with parts as JSON: a value that JSON can't carry is refused, and not stored as another one."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from deathless.sinks.json_text import json_texts
from deathless.sinks.port import BlockRefused


def test_values_with_parts_are_texts_and_none_stays_none() -> None:
    found = json_texts([None, [1.5, None], {"at": datetime(2026, 1, 2, tzinfo=UTC)}], "legs")
    assert found == [None, "[1.5,null]", '{"at":"2026-01-02T00:00:00Z"}']


@pytest.mark.parametrize("value", [[float("nan")], {"a": [float("inf")]}])
def test_a_number_that_json_lacks_is_refused_by_its_column(value: object) -> None:
    with pytest.raises(BlockRefused, match=r"column legs holds (nan|inf), which JSON can't carry"):
        json_texts([[1.0], value], "legs")
