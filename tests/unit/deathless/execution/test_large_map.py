"""A map of a million items: what turns cost is counted, not timed."""

import msgspec
import pytest
from tests.unit.deathless.execution.executor_bench import SEED, Keys, value

from deathless.base.limits import Limits
from deathless.codec.map_entries import encode_item, prefix_of
from deathless.codec.messages import Kind, encode
from deathless.execution.author.service import Service
from deathless.execution.executor import HandlerExecutor
from deathless.execution.handlers import plan
from deathless.execution.maps.map import Map
from deathless.execution.maps.view import MapField
from deathless.execution.turn.context import Context
from deathless.execution.turn.running import PAGE_BYTES, Cells

ITEMS = 1_000_000


class Item(msgspec.Struct):
    left: int = 0


class Shelf(msgspec.Struct):
    items: Map[int, Item] = msgspec.field(default_factory=Map)


shop = Service("shop", state=Shelf)


@shop.handler
def get(shelf: Shelf, ctx: Context) -> int:
    return shelf.items[500_000].left


@shop.handler
def get_none(shelf: Shelf, ctx: Context) -> bool:
    return shelf.items.get(-1) is None and ITEMS in shelf.items


@shop.handler
def change(shelf: Shelf, ctx: Context) -> int:
    shelf.items[7].left += 1
    return len(shelf.items)


@shop.handler
def put(shelf: Shelf, ctx: Context) -> int:
    shelf.items[-5] = Item(5)
    shelf.items.setdefault(-6, Item(6))
    return len(shelf.items)


@shop.handler
def take(shelf: Shelf, ctx: Context) -> int:
    del shelf.items[-6]
    return shelf.items.pop(-5).left


@shop.handler
def first(shelf: Shelf, ctx: Context) -> int:
    key, item = shelf.items.popitem()
    shelf.items[key] = item
    return key


@shop.handler
def page(shelf: Shelf, ctx: Context) -> list[int]:
    return [key for key, _ in zip(shelf.items.keys_above(999_000), range(10), strict=False)]


@shop.handler
def clear(shelf: Shelf, ctx: Context) -> int:
    shelf.items.clear()
    return len(shelf.items)


class Work:
    """How often items were encoded and decoded."""

    def __init__(self) -> None:
        self.encoded = self.decoded = 0

    def field(self, name: str, kind: type, hint: object) -> MapField:
        real = plan_field(name, kind, hint)

        def count_encode(item: object) -> bytes:
            self.encoded += 1
            return real.encode(item)

        def count_decode(data: bytes) -> object:
            self.decoded += 1
            return real.decode(data)

        return MapField(name=name, kind=kind, plain=real.plain, decode=count_decode, encode=count_encode)


plan_field = plan.map_field


def test_turn_on_a_million_items_works_on_those_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work()
    monkeypatch.setattr(plan, "map_field", work.field)
    executor = HandlerExecutor(shop, Limits(), SEED, Keys(), Cells(bytearray(PAGE_BYTES)))
    prefix, item = prefix_of(b"a", "items"), msgspec.msgpack.encode(Item(3))
    state = {prefix + encode_item(number): item for number in range(1, ITEMS + 1)}
    state[b"a"] = msgspec.msgpack.encode({"items": [ITEMS, bytes(16)]})
    executor.restore(state)
    # Of each: result, items encoded, items decoded (what was encoded and is new is decoded once), a bound of the bytes
    # that a turn writes into the digests.
    for method, result, encoded, decoded in (
        ("get", 3, 1, 1),
        ("get_none", True, 0, 0),
        ("change", ITEMS, 1, 2),
        ("put", ITEMS + 2, 2, 2),
        ("take", 5, 0, 1),
        ("first", 1, 1, 1),
        ("page", list(range(999_001, 999_011)), 0, 0),
        ("clear", 0, 0, 0),
    ):
        work.encoded = work.decoded = 0
        message = encode(Kind.CALL, method=method.encode(), key=b"a", args=b"\x80")
        replies, _ = executor.execute(3, 1, 1, 7, [message])
        assert value(replies[0]) == result
        assert (method, work.encoded, work.decoded) == (method, encoded, decoded)
        assert len(executor._entities.state[b"a"]) < 40  # what a turn encodes beside the items
    assert list(executor.state()) == [b"a"]
