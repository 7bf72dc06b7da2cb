"""Which SQLSTATE says no for good: each class of PostgreSQL has one meaning, and a user's own says no to the row."""

from __future__ import annotations

import pytest
from psycopg import errors

from deathless.base.driver_kinds.sql_states import PASSING, ROW, STATEMENT, says_no_to_row, says_no_to_statement

KNOWN = {
    state
    for each in vars(errors).values()
    if isinstance(state := getattr(each, "sqlstate", None), str) and len(state) == 5
}


def test_each_class_of_postgresql_has_one_meaning() -> None:
    assert len(KNOWN) > 200
    assert {each[:2] for each in KNOWN} <= ROW | STATEMENT | PASSING
    assert len(ROW | STATEMENT | PASSING) == len(ROW) + len(STATEMENT) + len(PASSING)


@pytest.mark.parametrize("state", ["20000", "22003", "23505", "2F005", "38000", "39P01", "54000", "P0001"])
def test_what_a_row_holds_is_refused_for_good(state: str) -> None:
    assert says_no_to_row(state)
    assert not says_no_to_statement(state)


@pytest.mark.parametrize("state", ["45000", "U0001", "99999", "AB123"])
def test_code_of_a_class_that_only_functions_raise_says_no_to_the_row(state: str) -> None:
    assert says_no_to_row(state)


@pytest.mark.parametrize("state", ["08006", "25006", "40001", "53100", "55P03", "57014", "58030", "XX000"])
def test_what_may_pass_says_no_to_nothing(state: str) -> None:
    assert not says_no_to_row(state)
    assert not says_no_to_statement(state)
    assert says_no_to_statement("42P01") and says_no_to_statement("3F000") and not says_no_to_row("42P01")
