"""Types as data: the same for the same declarations, whatever classes are called and wherever they stand."""

from __future__ import annotations

import msgspec

from deathless import Map, Struct, field
from deathless.execution.interface.shapes import Shapes


class Item(Struct):
    left: int = 0
    part: Item | None = None


class Stock(Struct):
    items: Map[str, Item] = field(default_factory=Map)
    names: dict[str, Item] = field(default_factory=dict)


def test_a_class_that_holds_itself_has_an_end_and_stands_once() -> None:
    shapes = Shapes()
    stock = shapes.state(Stock)
    assert [each.name for each in shapes.classes] == ["Item", "Stock"]
    assert shapes.classes[stock.at].fields[0].type.kind == "map"
    assert shapes.of(Item) == shapes.of(list[Item]).parts[0]


def test_a_default_is_told_only_where_values_leave_it_out() -> None:
    class Told(Struct, omit_defaults=True):
        a: int = 7
        b: list[int] = field(default_factory=list)
        c: str = "x" * 99

    shapes = Shapes()
    shapes.of(Item)
    shapes.of(Told)
    assert [each.default for each in shapes.classes[0].fields] == [b"", b""]
    a, b, c = (each.default for each in shapes.classes[1].fields)
    assert (a, b, len(c)) == (msgspec.msgpack.encode(7), msgspec.msgpack.encode([]), 32)


def test_arguments_say_which_have_a_default() -> None:
    class Arguments(Struct, kw_only=True):
        a: int
        b: int = 0

    assert [(each.name, each.required) for each in Shapes().arguments(Arguments)] == [("a", True), ("b", False)]
