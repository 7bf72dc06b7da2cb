"""Types that may be declared; test_types_everywhere walks the table of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deathless.base.errors import InvalidService
from deathless.execution.declared.declared_types import check_type
from deathless.execution.maps.map import Map


class Inner(msgspec.Struct):
    count: int = 0
    path: Path | None = None


@dataclasses.dataclass
class Outer:
    parts: dict[str, list[Inner]] = dataclasses.field(default_factory=dict)


class Hidden(msgspec.Struct):
    parts: list[Outer] = []
    unclear: "Nowhere | None" = None  # type: ignore[name-defined]  # noqa: F821, UP037  that is the point


class Own(msgspec.Struct):
    """Not frozen, with a hash of its author's."""

    a: int = 0

    def __hash__(self) -> int:
        return hash(self.a)


class Tree(msgspec.Struct):
    left: "Tree | None" = None  # noqa: UP037  read by msgspec
    named: dict[str, Tree] = {}


@pytest.mark.parametrize("stated", [type, list[complex], 3])
def test_type_that_cannot_be_encoded_is_refused(stated: object) -> None:
    with pytest.raises(InvalidService, match="DL3013 where it stands: ") as refusal:
        check_type(stated, "where it stands")
    assert refusal.value.code == "DL3013"


@pytest.mark.parametrize("stated", [object, Any, None, Tree, set[Own], dict[str, Any]])
def test_what_works_is_let_through(stated: object) -> None:
    check_type(stated, "x", as_json=True, kept=True)


def test_the_innermost_class_and_field_is_named_with_what_to_write() -> None:
    for stated in (Outer, list[Outer], Inner | None):
        with pytest.raises(InvalidService, match=r"^DL3013 x: field `Inner\.path`: \w*Path can't be encoded; use str"):
            check_type(stated, "x")


def test_an_annotation_that_can_not_be_read_is_refused() -> None:
    with pytest.raises(InvalidService, match="Nowhere"):
        check_type(Hidden, "x")


def test_a_map_that_does_not_stand_in_the_state_is_refused_with_its_place() -> None:
    made = msgspec.defstruct("Deep", [("items", Map[str, int])])
    with pytest.raises(InvalidService, match=r"field `Deep\.items`: a Map stands directly in the state"):
        check_type(list[made], "x")  # type: ignore[valid-type]  # made here
