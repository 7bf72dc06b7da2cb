"""Trouble: told once, tried again after pauses that double, and over when it goes well."""

from __future__ import annotations

from deathless.base.errors import SourceGap, SourceUnavailable
from deathless.sources.trouble import AGAIN_MAX_S, AGAIN_MIN_S, CALM_S, Trouble, code_of


def test_the_same_error_is_news_once_and_pauses_double() -> None:
    trouble = Trouble()
    assert trouble.met(SourceUnavailable("gone"), 0.0)
    assert trouble.again_at == AGAIN_MIN_S
    assert not trouble.met(SourceUnavailable("gone"), 1.0)
    assert trouble.again_at == 1.0 + 2 * AGAIN_MIN_S
    assert trouble.met(SourceGap("gone"), 2.0)
    for _ in range(20):
        trouble.met(SourceGap("gone"), 0.0)
    assert trouble.again_at == AGAIN_MAX_S


def test_what_went_well_for_long_begins_with_short_pauses_again() -> None:
    trouble = Trouble()
    for _ in range(5):
        trouble.met(SourceUnavailable("gone"), 0.0)
    trouble.over(1.0)
    trouble.met(SourceUnavailable("gone"), 2.0)
    assert trouble.again_at > 2.0 + AGAIN_MIN_S, "it did not go well for long"
    trouble.over(3.0)
    trouble.met(SourceUnavailable("gone"), 4.0 + CALM_S)
    assert trouble.again_at == 4.0 + CALM_S + AGAIN_MIN_S


def test_a_refusal_begins_with_its_code() -> None:
    assert code_of("DL3081 negative") == "DL3081"
    assert code_of("h:1 is not the primary") == ""
