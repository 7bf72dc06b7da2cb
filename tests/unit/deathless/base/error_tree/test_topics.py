"""Errors of topics are part of the tree."""

from __future__ import annotations

from deathless.base import errors
from deathless.base.error_tree import topics
from deathless.base.errors import DeathlessError


def test_each_is_found_where_everybody_looks() -> None:
    found = [
        each
        for each in vars(topics).values()
        if isinstance(each, type) and issubclass(each, DeathlessError) and each.__module__ == topics.__name__
    ]
    assert len(found) > 6
    assert all(getattr(errors, each.__name__) is each for each in found)
