"""The branches of the tree of errors."""

from __future__ import annotations

from deathless.base import errors
from deathless.base.error_tree import kinds


def test_the_tree_of_errors_has_its_branches() -> None:
    for name in ("DeathlessError", "RetryLater", "Fenced", "Invalid", "DataCorrupt"):
        assert getattr(errors, name) is getattr(kinds, name)
