"""The tree of errors: codes are unique, and what a program sees (exit code, HTTP status) fits the kind of error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from deathless.base import errors
from deathless.base.errors import (
    ActivityFailed,
    CallFailed,
    Closed,
    DataCorrupt,
    DeathlessError,
    DeliveryRefused,
    Fenced,
    ForbiddenInTurn,
    HandlerFailed,
    Internal,
    Invalid,
    InvalidAwait,
    InvalidUse,
    KeyReused,
    ResultUnreadable,
    RetryLater,
    UpgradeRefused,
)

PAGES = Path(__file__).parents[4] / "docs" / "errors"
KINDS = {"1": RetryLater, "2": Fenced, "3": Invalid, "4": DataCorrupt, "5": Closed, "9": Internal}
GROUPS = {DeathlessError, RetryLater, Fenced, Invalid, DataCorrupt}


def below(kind: type[DeathlessError]) -> Iterator[type[DeathlessError]]:
    for child in kind.__subclasses__():
        if child.__module__.startswith("deathless.base."):
            yield child
            yield from below(child)


TREE = [*below(DeathlessError)]
CODED = [kind for kind in TREE if kind not in GROUPS]


def test_every_code_names_one_error() -> None:
    codes = [kind.code for kind in CODED]
    assert len(set(codes)) == len(codes)
    assert DeathlessError.code not in codes


@pytest.mark.parametrize("kind", CODED)
def test_a_code_tells_the_kind_of_error(kind: type[DeathlessError]) -> None:
    assert re.fullmatch(r"DL[1-59]\d{3}", kind.code)
    assert issubclass(kind, KINDS[kind.code[2]])
    assert "code" in vars(kind), "a code is the error's own, not inherited"


@pytest.mark.parametrize("kind", TREE)
def test_an_error_says_in_a_sentence_what_happened(kind: type[DeathlessError]) -> None:
    assert kind.__doc__
    assert kind.__doc__.strip().splitlines()[0].endswith((".", ":"))


@pytest.mark.parametrize("kind", CODED)
def test_the_tree_in_the_modules_docstring_names_every_error(kind: type[DeathlessError]) -> None:
    assert re.search(rf"\b{kind.__name__}\b", errors.__doc__ or "")


# What sysexits.h means by these numbers: usage, data, unavailable, software, can't create, try again, protocol,
# permission, configuration.
SERVICE_MUST_ACT = {ActivityFailed, ForbiddenInTurn, HandlerFailed, InvalidAwait, InvalidUse, ResultUnreadable}
"""Errors that callers can't mend: what failed is the service's own code."""
EXIT_CODES = {64: Invalid, 65: DataCorrupt, 69: RetryLater, 70: Internal, 73: Fenced, 75: RetryLater, 76: Fenced}


@pytest.mark.parametrize("kind", CODED)
def test_an_exit_code_is_one_that_scripts_know(kind: type[DeathlessError]) -> None:
    if kind is Closed:
        assert kind.exit_code == 1
    elif kind in SERVICE_MUST_ACT:
        assert kind.exit_code == 70
    elif kind.exit_code in {77, 78}:
        assert issubclass(kind, (Invalid, DataCorrupt)) or kind is UpgradeRefused, "whose new code does not fit"
    else:
        assert issubclass(kind, EXIT_CODES[kind.exit_code])


@pytest.mark.parametrize("kind", CODED)
def test_an_http_status_tells_who_must_act(kind: type[DeathlessError]) -> None:
    if issubclass(kind, RetryLater):
        assert kind.http_status in {429, 503, 504, 507}
    elif kind in SERVICE_MUST_ACT:
        assert kind.http_status == 500
    elif issubclass(kind, Invalid):
        assert 400 <= kind.http_status < 500
        assert kind.http_status != 429, "429 means: send the same again"
    else:
        assert kind.http_status == 500


@pytest.mark.parametrize(
    ("name", "status"),
    [("UnknownHandler", 404), ("TooLarge", 413), ("KeyReused", 422), ("Overloaded", 429), ("OutOfSpace", 507)],
)
def test_statuses_that_are_promised_to_callers(name: str, status: int) -> None:
    assert getattr(errors, name).http_status == status


def test_an_error_shows_code_message_and_what_to_do() -> None:
    error = KeyReused("key k1 of handler deposit")
    assert str(error) == "DL3007 key k1 of handler deposit (use a new key for a new request)"
    assert (error.message, error.advice) == ("key k1 of handler deposit", "use a new key for a new request")


def test_advice_may_be_the_callers_own_or_none() -> None:
    assert str(KeyReused("m", remedy="ask")) == "DL3007 m (ask)"
    assert str(KeyReused("m", remedy="")) == "DL3007 m"


@pytest.mark.parametrize("kind", CODED)
def test_an_error_has_a_page_with_cause_sight_and_remedy(kind: type[DeathlessError]) -> None:
    page = (PAGES / f"{kind.code}.md").read_text()
    assert page.startswith(f"# {kind.code} {kind.__name__}\n")
    for heading in ("## Cause", "## What you see", "## What to do"):
        assert heading in page
    assert f"xit code {kind.exit_code} of" in page
    assert f"HTTP {kind.http_status}" in page


def test_the_index_lists_every_page_once() -> None:
    listed = re.findall(r"^\| \[(DL\d{4})\]\(\1\.md\) \| (\w+) \|", (PAGES / "README.md").read_text(), re.MULTILINE)
    titles = [page.read_text().splitlines()[0].split() for page in sorted(PAGES.glob("DL*.md"))]
    assert sorted(listed) == [(code, name) for _, code, name in titles]
    assert {(kind.code, kind.__name__) for kind in CODED} <= set(listed)


def test_errors_that_carry_more_than_text_say_it_in_their_text() -> None:
    refused = DeliveryRefused("no such book", position=7)
    assert (str(refused.position), refused.why, refused.message) == ("7", "no such book", "message 7: no such book")
    assert DeliveryRefused("gone").message == "gone"
    failed = CallFailed("too little", failure_code="BANK01", kind="NotEnough")
    assert (failed.failure_code, failed.kind, failed.text) == ("BANK01", "NotEnough", "too little")
    assert (CallFailed("x").failure_code, CallFailed("x").kind) == (CallFailed.code, "CallFailed")
