"""Sizes and times as people read them."""

from __future__ import annotations

import pytest

from deathless.base.listings.texts import show_bytes, show_time


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (200 << 10, "200 KiB"), (3 << 40, "3.0 TiB")]
)
def test_size_is_shown_as_people_read_it(size: int, text: str) -> None:
    assert show_bytes(size) == text


def test_time_is_utc_with_milliseconds() -> None:
    assert show_time(1_700_000_000_123_456) == "2023-11-14 22:13:20.123"
    assert show_time(0) == "-"


def test_time_that_no_calendar_has_is_shown_as_a_number() -> None:
    assert show_time(2**63 - 1) == "9223372036854 s"
