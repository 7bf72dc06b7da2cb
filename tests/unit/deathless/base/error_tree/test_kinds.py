"""The branches of the tree of errors."""

from __future__ import annotations

from deathless.base import errors
from deathless.base.error_tree import kinds


def test_the_tree_of_errors_has_its_branches() -> None:
    for name in ("DeathlessError", "RetryLater", "Fenced", "Invalid", "DataCorrupt"):
        assert getattr(errors, name) is getattr(kinds, name)


def test_an_error_about_what_is_no_text_can_be_written_down() -> None:
    error = kinds.Invalid("file 1\udcff", remedy="rename ü\udcff")
    assert str(error).encode() == "DL0000 file 1\\udcff (rename ü\\udcff)".encode()
