"""A quantity has one value however it is spelled."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.deathless_operator.plan.storing import BINARY, DECIMAL, canonical

from deathless_operator.model.quantity import billionths


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 10**9),
        ("1.", 10**9),
        (".5", 5 * 10**8),
        ("+1", 10**9),
        ("-1.5", -15 * 10**8),
        ("500m", 5 * 10**8),
        ("0.5", 5 * 10**8),
        ("1000m", 10**9),
        ("1k", 10**12),
        ("1e3", 10**12),
        ("1E-3", 10**6),
        ("1E", 10**27),
        ("1Ki", 1024 * 10**9),
        ("1024Mi", 1024**3 * 10**9),
        ("0.1n", 1),
        ("100u", 10**5),
        ("0", 0),
    ],
)
def test_value_is_in_billionths_and_rounded_up(text: str, value: int) -> None:
    assert billionths(text) == value


@pytest.mark.parametrize("text", ["", "x", "1 ", "1KiB", "1K", "m", "1e", "1e9999", "--1", "\u0661", "1\n", "9" * 65])
def test_text_that_is_no_quantity_has_no_value(text: str) -> None:
    assert billionths(text) is None


@given(
    number=st.decimals(0, 10**6, places=3),
    suffix=st.sampled_from([*BINARY, *DECIMAL]),
    other=st.decimals(0, 10**6, places=3),
)
def test_spelling_of_the_api_server_has_the_same_value_and_another_quantity_has_not(
    number: Decimal, suffix: str, other: Decimal
) -> None:
    given_text, other_text = f"{number:f}{suffix}", f"{other:f}{suffix}"
    assert billionths(given_text) == billionths(canonical(given_text))
    assert (billionths(given_text) == billionths(other_text)) == (canonical(given_text) == canonical(other_text))
