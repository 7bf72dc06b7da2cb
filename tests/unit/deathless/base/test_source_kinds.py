"""Kinds of sources: each is named once, and no name is a factory's."""

from __future__ import annotations

import pytest

from deathless.base.source_kinds import SOURCE_KINDS, SourceKind, register


def test_names_are_given_once_and_are_no_factories() -> None:
    with pytest.raises(AssertionError, match="files"):
        register(SOURCE_KINDS["files"])
    with pytest.raises(AssertionError, match="pattern"):
        register(SourceKind(name="m:f", factory="m:f"))


def test_kinds_say_why_a_cluster_can_not_have_them() -> None:
    assert SOURCE_KINDS["files"].local
