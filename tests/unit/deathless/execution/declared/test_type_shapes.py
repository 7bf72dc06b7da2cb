"""What is told from an annotation alone: whether its values have an order, and how deep they can be."""

from typing import Annotated, Any

import msgspec
import pytest

from deathless.base.limits import NESTING_MAX
from deathless.execution.declared.type_shapes import (
    has_no_depth,
    has_no_order,
    shallow_decoder,
    shallow_encoder,
    sorts_itself,
    walk,
)


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


class Twice(msgspec.Struct):
    one: Plain
    other: list[Plain]


@pytest.mark.parametrize("stated", [Tree, Any, object, list, dict[str, Any], msgspec.Raw, list[Tree | None]])
def test_types_that_hold_anything_or_themselves_bound_no_depth(stated: object) -> None:
    assert has_no_depth(stated)


@pytest.mark.parametrize("stated", [int, None, Plain, Twice, list[list[int]], tuple[Plain, Plain]])
def test_other_types_bound_it_also_where_a_part_occurs_twice(stated: object) -> None:
    assert not has_no_depth(stated)


@pytest.mark.parametrize(
    ("stated", "itself"),
    [
        (set[int], True),
        (Tree, True),
        (set[frozenset[int]], False),
        (set[float], False),
        (set[tuple[float, int]], False),
    ],
)
def test_sets_of_what_has_no_total_order_are_not_left_to_be_sorted(stated: object, itself: bool) -> None:
    assert sorts_itself(stated) is itself


def test_deep_values_are_refused_by_the_type_that_lets_them_in() -> None:
    deep = b"\x91" * (NESTING_MAX + 1) + b"\x01"
    decode = shallow_decoder(Any, msgspec.msgpack.Decoder().decode)
    assert decode(deep[1:]) is not None
    with pytest.raises(msgspec.ValidationError):
        decode(deep)
    encode = shallow_encoder(Any, msgspec.msgpack.Encoder().encode)
    assert encode(decode(deep[1:])) == deep[1:]
    with pytest.raises(msgspec.ValidationError):
        encode([decode(deep[1:])])
