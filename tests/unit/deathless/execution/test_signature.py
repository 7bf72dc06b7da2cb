"""Types that cross a handler's boundary."""

from typing import Annotated, Any

import msgspec
import pytest

from deathless.base.errors import InvalidService
from deathless.execution.signature import check_type, has_no_order, place, walk


class Tree(msgspec.Struct):
    kids: "list[Tree]" = []
    tags: frozenset[str] = frozenset()


class Plain(msgspec.Struct):
    names: dict[str, list[int]] = {}


def test_recursive_type_is_walked_once() -> None:
    assert 3 <= len(list(walk(Tree))) < 20


@pytest.mark.parametrize(
    "stated", [set[int], list[set[str]], Tree, dict[str, Tree | None], Any, object, tuple[Any, ...]]
)
def test_types_that_may_hold_sets_have_no_order(stated: object) -> None:
    assert has_no_order(stated)


@pytest.mark.parametrize("stated", [int, None, Plain, list[dict[str, float]], Annotated[int, msgspec.Meta(gt=0)]])
def test_types_without_sets_keep_theirs(stated: object) -> None:
    assert not has_no_order(stated)


@pytest.mark.parametrize("stated", [type, list[complex], 3])
def test_type_that_cannot_be_encoded_is_refused(stated: object) -> None:
    with pytest.raises(InvalidService, match="where it stands"):
        check_type(stated, "where it stands")


def test_anything_may_be_an_argument() -> None:
    check_type(object, "x")
    check_type(Any, "x")


def test_place_of_what_is_no_function_is_its_name() -> None:
    assert place(len) == "len"  # type: ignore[arg-type]  # a builtin's own type
