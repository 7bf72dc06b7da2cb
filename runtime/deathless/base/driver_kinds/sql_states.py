"""What an SQLSTATE of PostgreSQL means to who waits: no to what was sent, no to the table, or an error that may pass.

    no to a row         its values, or a function or trigger of a user that ran for it: refused whenever it comes
    no to a statement   a missing table, column or right: no row is to blame
    all others          the server, its connection, locks, space: the same may be accepted later

Functions may raise any five characters (`USING ERRCODE = '45000'`), in classes that PostgreSQL has none of. If those
counted as what may pass, one row that a trigger refuses would be tried for ever, and hold all others back.

Guarantees: pure. Does not: know psycopg.
"""

from __future__ import annotations

from typing import Final

ROW: Final = frozenset(
    {"09", "0F", "10", "20", "21", "22", "23", "27", "2F", "38", "39", "44", "54", "P0"}
)  # fmt: skip
"""Triggered action, locator, XQuery, CASE without a match, cardinality, data, constraint, triggered change, routines in
SQL and in other languages (two), view, a limit of the server's (as a value that is too long for its index), RAISE."""
STATEMENT: Final = frozenset({"0A", "3F", "42"})
"""Feature, missing schema, syntax or right."""
PASSING: Final = frozenset(
    {
        "00", "01", "02", "03", "08", "0B", "0L", "0P", "0Z", "24", "25", "26", "28", "2B", "2D", "34", "3B", "3D",
        "40", "53", "55", "57", "58", "72", "F0", "HV", "XX",
    }
)  # fmt: skip
"""The other classes that PostgreSQL has (its manual, appendix A)."""


def says_no_to_row(state: str) -> bool:
    """Does this SQLSTATE say no for good, because of what a row holds? So does one of a class that is a user's own."""
    return state[:2] in ROW or state[:2] not in PASSING | STATEMENT


def says_no_to_statement(state: str) -> bool:
    """Does this SQLSTATE say no to a table, or to a statement, whatever the row is?"""
    return state[:2] in STATEMENT
