"""Errors of topics are part of the tree."""

from __future__ import annotations

from deathless.base import errors, errors_of_topics
from deathless.base.errors import DeathlessError


def test_each_is_found_where_everybody_looks() -> None:
    found = [
        each
        for each in vars(errors_of_topics).values()
        if isinstance(each, type) and issubclass(each, DeathlessError) and each.__module__ == errors_of_topics.__name__
    ]
    assert len(found) > 6
    assert all(getattr(errors, each.__name__) is each for each in found)
