"""Signatures of functions about a change: types as they are declared, also of classes inside of a function."""

from __future__ import annotations

import pytest

from deathless import Migration, Service, Struct
from deathless.base.errors import InvalidService


def service() -> Service:
    class State(Struct):
        n: int = 0

    return Service("s", state=State, version=2)


def test_classes_of_the_place_where_it_stands_are_found() -> None:
    class Old(Struct):
        n: str = ""

    class New(Struct):
        n: int = 0

    made = Service("s", state=New, version=2)

    @made.migrate(from_=1)
    def up(old: Old, m: Migration) -> New:
        return New(int(old.n))

    step = made.declared.states[1, 2]
    assert (step.old, step.new) == (Old, New)


def test_an_item_needs_a_key_of_one_of_three_types() -> None:
    with pytest.raises(InvalidService, match="the key of the item, of type str, int or bytes"):

        @service().migrate_map("items", from_=1)  # type: ignore[type-var]  # what is refused
        def item(key: str, item: float, old: int) -> int:
            return old


def test_arguments_are_a_plain_struct() -> None:
    class Listed(Struct, array_like=True):
        n: int = 0

    with pytest.raises(InvalidService, match="must be a plain Struct"):

        @service().accepts("put", from_=1, args=Listed)
        def put(old: Listed) -> dict[str, object]:
            return {}


def test_what_a_field_can_not_be_is_named() -> None:
    class Old(Struct):
        n: complex = 0j

    with pytest.raises(InvalidService, match=r"parameter `old`: field `Old.n`: complex can't be encoded"):

        @service().migrate(from_=1)
        def up(old: Old, m: Migration) -> Old:
            return old
