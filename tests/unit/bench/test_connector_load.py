"""The sender of rows: what it sends can be added up, and what was acknowledged is counted."""

from __future__ import annotations

import json

import pytest
from bench.connector_load import ROW_BYTES, SENSORS, row, total


@pytest.mark.parametrize("number", [0, 9, 63, 64, 999, 1000, 12_345, 399_999])
def test_rows_have_one_length_and_are_rows_of_the_service(number: int) -> None:
    found = json.loads(row(number))
    assert len(row(number)) == ROW_BYTES
    assert (found["sensor"], found["value"]) == (f"s{number % SENSORS:02d}", number % 1000)


@pytest.mark.parametrize("count", [0, 1, 999, 1000, 1001, 54_321])
def test_the_total_of_rows_is_the_sum_of_their_values(count: int) -> None:
    assert total(count) == sum(json.loads(row(number))["value"] for number in range(count))
