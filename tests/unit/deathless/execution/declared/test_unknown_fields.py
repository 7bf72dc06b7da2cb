"""Fields that a type does not know are found at any depth, and nothing else is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.execution.declared.unknown_fields import Found, unknown_fields


class Inner(msgspec.Struct):
    a: int = 0


class Renamed(msgspec.Struct, rename="camel"):
    long_name: int = 0


class Tagged(msgspec.Struct, tag="t"):
    a: int = 0


class Other(msgspec.Struct, tag="o"):
    b: int = 0


class Listed(msgspec.Struct, array_like=True):
    a: int = 0


class Tree(msgspec.Struct):
    left: Tree | None = None
    a: int = 0


@dataclass
class Plain:
    inner: Inner


class Typed(TypedDict):
    a: int


class Pair(NamedTuple):
    a: Inner
    b: int


def found(stated: object, value: object, allowed: tuple[tuple[str, str], ...] = ()) -> Found:
    seen: Found = []
    find = unknown_fields(stated, allowed)
    if find is not None:
        find(msgspec.msgpack.decode(msgspec.msgpack.encode(value)), seen)
    return seen


CASES = [
    (Inner, {"a": 1, "b": 2}, [("Inner", "b")]),
    (Inner, {"a": 1}, []),
    (Renamed, {"longName": 1, "long_name": 1}, [("Renamed", "long_name")]),
    (list[Inner], [{"a": 1}, {"c": 2}], [("Inner", "c")]),
    (dict[str, Inner], {"x": {"c": 2}}, [("Inner", "c")]),
    (tuple[int, Inner], [1, {"c": 2}], [("Inner", "c")]),
    (tuple[Inner, ...], [{"c": 2}], [("Inner", "c")]),
    (Plain, {"inner": {"c": 1}}, [("Inner", "c")]),
    (Typed, {"a": 1, "b": 1}, [("Typed", "b")]),
    (Pair, [{"c": 1}, 2], [("Inner", "c")]),
    (Inner | None, None, []),
    (Inner | None, {"c": 1}, [("Inner", "c")]),
    (Tagged | Other, {"type": "o", "a": 1}, [("Other", "a")]),
    (Tagged | Other, {"type": "t", "a": 1}, []),
    (Listed, [1, 2], [("Listed", "1")]),
    (Tree, {"left": {"left": {"b": 1}}}, [("Tree", "b")]),
    (Annotated[Inner, msgspec.Meta(description="x")], {"c": 1}, [("Inner", "c")]),
]


@pytest.mark.parametrize(("stated", "value", "expected"), CASES)
def test_what_a_type_does_not_know_is_found(stated: object, value: object, expected: Found) -> None:
    assert found(stated, value) == expected


def test_what_may_be_lost_is_left_out() -> None:
    assert found(list[Inner], [{"b": 1, "c": 2}], (("Inner", "b"),)) == [("Inner", "c")]
    assert found(Listed, [1, 2], (("Listed", "1"),)) == []


@pytest.mark.parametrize("stated", [int, dict[str, int], list[str], int | None, object])
def test_what_can_hold_none_costs_nothing(stated: object) -> None:
    assert unknown_fields(stated) is None


@given(st.dictionaries(st.sampled_from(["a", "left", "b", "c"]), st.integers(0, 9), max_size=4))
def test_it_finds_what_a_strict_decoder_refuses(value: dict[str, int]) -> None:
    class Strict(msgspec.Struct, forbid_unknown_fields=True):
        a: int = 0

    try:
        msgspec.convert(value, Strict)
        refused = False
    except msgspec.ValidationError:
        refused = True
    assert bool(found(Inner, value)) == refused
