"""Nothing is told of what a library quotes."""

from __future__ import annotations

import pytest

from deathless.base.driver_kinds.quoting import unquoted


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ('invalid percent-encoded token: "pa%zz"', 'invalid percent-encoded token: "…"'),
        ('missing "=" after "se"cr"et" in connection info string', 'missing "…" in connection info string'),
        ("cast 'pa\n\"ss' to integer", 'cast "…" to integer'),
        ("unterminated quoted string", "unterminated quoted string"),
    ],
)
def test_one_mark_stands_for_all_that_is_quoted(said: str, told: str) -> None:
    assert unquoted(said) == told
