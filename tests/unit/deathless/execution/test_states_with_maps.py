"""Maps in the state of a service: turns, several keys, births, queries, handlers that wait, checkpoints."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import NewType

import msgspec
import pytest
from tests.unit.deathless.execution.executor_bench import Bench
from tests.unit.deathless.execution.messaging_bench import Hub, log_of, replay

from deathless.base.errors import Diverged, InvalidService
from deathless.base.limits import Limits
from deathless.codec.map_entries import encode_item, prefix_of
from deathless.execution.author.service import Service
from deathless.execution.maps.map import Map
from deathless.execution.turn.context import Context

SECOND = timedelta(seconds=1)


class Item(msgspec.Struct):
    left: int = 0
    tags: set[str] = set()


class Shelf(msgspec.Struct):
    name: str = ""
    items: Map[str, Item] = msgspec.field(default_factory=Map)
    prices: Map[int, int] = msgspec.field(default_factory=Map)


shop = Service("shop", state=Shelf)
KEPT: list[object] = []


@shop.birth
def begin(shelf: Shelf, ctx: Context) -> None:
    shelf.items["first"] = Item(1)


@shop.handler
def put(shelf: Shelf, ctx: Context, items: dict[str, int], fail: bool = False) -> int:
    for name, left in items.items():
        shelf.items.setdefault(name, Item()).left += left
    if fail:
        raise ValueError("no")
    return len(shelf.items)


@shop.handler
def price(shelf: Shelf, ctx: Context, article: int, cents: int) -> None:
    shelf.prices[article] = cents


@shop.handler(keys=("source", "target"))
def move(shelves: dict[str, Shelf], ctx: Context, source: str, target: str, name: str) -> None:
    shelves[target].items[name] = shelves[source].items.pop(name)


@shop.handler
def swap(shelf: Shelf, ctx: Context, how: str) -> None:
    if how == "new":
        shelf.items = Map()
    elif how == "deleted":
        del shelf.items
    elif how == "kept":
        shelf.items = KEPT[0]  # type: ignore[assignment]  # what a checker would find
    elif how == "other":
        shelf.items = shelf.prices  # type: ignore[assignment]  # what a checker would find
    else:
        KEPT.append(shelf.items)


@shop.handler
def send(shelf: Shelf, ctx: Context, name: str) -> None:
    shelf.items[name] = Item(1)
    ctx.fork("other", "k", "m")


@shop.handler
async def count(shelf: Shelf, ctx: Context, names: list[str]) -> dict[str, int]:
    items = shelf.items
    held = items.setdefault("held", Item())
    found = {}
    for name in [*names, "held"]:
        await ctx.timer(after=SECOND)
        held.left += 1
        found[name] = items[name].left if name in items else -1
    items.pop("first", None)
    return found | {"count": len(items), "last": held.left}


@shop.handler(shared=True)
async def watch(shelf: Shelf, ctx: Context, name: str) -> list[int]:
    items, seen = shelf.items, []
    for _ in range(3):
        seen.append(items[name].left if name in items else -1)
        await ctx.timer(after=SECOND)
    return seen


@shop.handler(shared=True)
def put_meanwhile(shelf: Shelf, ctx: Context, name: str, left: int) -> None:
    shelf.items[name] = Item(left)


@shop.handler
async def spoil(shelf: Shelf, ctx: Context) -> None:
    shelf.items["spoilt"] = Item(1)
    await ctx.timer(after=SECOND)
    shelf.items["spoilt"].left = 2
    raise ValueError("spoilt")


@shop.query
def look(shelf: Shelf) -> dict[str, int]:
    shelf.items["query"] = Item(9)
    return {name: item.left for name, item in shelf.items.items()}


@shop.query(keys=("one", "other"))
def both(shelves: dict[str, Shelf], one: str, other: str) -> list[int]:
    return [len(shelves[one].items), len(shelves[other].items)]


def looked(bench: Bench, key: str = "a") -> object:
    return msgspec.msgpack.decode(bench.ask("look", key)[1:])


def test_turn_keeps_items_or_nothing() -> None:
    bench = Bench(shop)
    assert bench.call("put", items={"apple": 2, "pear": 1}) == 3
    before = dict(bench.executor.state())
    assert bench.fail("put", items={"apple": 5, "plum": 1}, fail=True).text == "no"
    assert bench.executor.state() == before
    assert bench.call("put", items={"apple": 5}) == 3
    assert looked(bench) == {"apple": 7, "first": 1, "pear": 1, "query": 9}
    assert looked(bench, "b") == {"query": 9}
    assert bench.executor.count() == 1


def test_items_are_entries_beside_the_state() -> None:
    bench = Bench(shop)
    bench.call("put", items={"apple": 2})
    bench.call("price", article=-1, cents=5)
    entries = dict(bench.executor.state())
    assert msgspec.msgpack.decode(entries.pop(prefix_of(b"a", "items") + encode_item("apple"))) == {
        "left": 2,
        "tags": [],
    }
    assert entries.pop(prefix_of(b"a", "prices") + encode_item(-1)) == msgspec.msgpack.encode(5)
    assert list(entries) == [b"a", prefix_of(b"a", "items") + encode_item("first")]
    # The state's own bytes stand for the items: a change of one is a change of them, and so of every digest.
    _, one = bench.executor.execute(3, 3, 3, 7, [bench.message("price", article=-1, cents=6)])
    assert entries[b"a"] != bench.executor.state()[b"a"]
    _, other = bench.executor.execute(3, 4, 4, 7, [bench.message("price", article=-1, cents=7)])
    assert one != other


def test_message_does_not_find_an_item_under_its_entry() -> None:
    bench = Bench(shop)
    bench.call("put", items={"apple": 2})
    entry = (prefix_of(b"a", "items") + encode_item("apple")).decode()
    assert bench.fail("put", entry, items={}).code == "DL3003"


def test_item_moves_between_keys_in_one_turn() -> None:
    bench = Bench(shop)
    bench.call("put", items={"apple": 2})
    before = dict(bench.executor.state())
    assert bench.fail("move", source="a", target="b", name="plum").type == "KeyError"
    assert bench.executor.state() == before
    bench.call("move", source="a", target="b", name="apple")
    assert (looked(bench), looked(bench, "b")) == ({"first": 1, "query": 9}, {"apple": 2, "first": 1, "query": 9})
    assert bench.ask("both", one="a", other="b")[1:] == msgspec.msgpack.encode([1, 2])
    bench.call("move", source="b", target="b", name="apple")
    assert looked(bench, "b") == {"apple": 2, "first": 1, "query": 9}


@pytest.mark.parametrize("how", ["new", "deleted", "kept", "other"])
def test_map_of_a_field_is_changed_not_replaced(how: str) -> None:
    bench = Bench(shop)
    KEPT.clear()
    bench.call("swap", how="keep")
    before = dict(bench.executor.state())
    failure = bench.fail("swap", how=how)
    assert (failure.type, "field 'items' keeps the map it came with" in failure.text) == ("TypeError", True)
    assert bench.executor.state() == before


def test_map_kept_beyond_its_turn_is_dead() -> None:
    bench = Bench(shop)
    KEPT.clear()
    bench.call("swap", how="keep")
    [kept] = KEPT
    assert isinstance(kept, Map)
    with pytest.raises(Exception, match="a turn that has ended"):
        kept["first"]
    with pytest.raises(Exception, match="a turn that has ended"):
        len(kept)


def test_turn_that_sends_keeps_its_items() -> None:
    hub = Hub(shop, Limits(item_bytes_max=30, targets_max=1))
    hub.call("send", name="apple")
    assert (looked(hub), len(hub.sent)) == ({"apple": 1, "first": 1, "query": 9}, 1)
    assert hub.fail("put", items={"pear": 1, "x" * 513: 1}).code == "DL3006"
    assert looked(hub) == {"apple": 1, "first": 1, "query": 9}


def test_executor_forgets_items_with_the_rest() -> None:
    bench = Bench(shop)
    bench.call("put", items={"apple": 2})
    entries = dict(bench.executor.state())
    bench.executor.discard()
    assert bench.executor.state() == {}
    bench.executor.restore(entries)
    assert (bench.executor.state(), bench.executor.count()) == (entries, 1)


@pytest.mark.parametrize("restarts", [(), (0,), (1, 3), (0, 1, 2, 3)])
def test_handler_that_waits_goes_on_with_its_maps(restarts: tuple[int, ...]) -> None:
    hub = Hub(shop)
    hub.call("put", items={"apple": 2})
    invocation, waiting = hub.begin("count", names=["apple", "none", "late"]), 0
    for step in range(4):
        if step in restarts:
            hub.restart()
        if step == 2:
            hub.call("put_meanwhile", name="late", left=40)
        if step == 3:
            hub.call("put_meanwhile", name="apple", left=50)
        if step == 1:
            waiting = hub.begin("put", items={"waited": 1})  # the key is held
        hub.tick()
    assert hub.result(invocation) == {"apple": 2, "none": -1, "late": 40, "held": 2, "count": 3, "last": 4}
    assert hub.result(waiting) == 4
    assert looked(hub) == {"apple": 50, "held": 2, "late": 40, "query": 9, "waited": 1}
    assert replay(shop, hub.log).state == hub.executor.state()


def test_shared_handler_sees_what_others_leave_and_runs_again_with_what_it_saw() -> None:
    hub = Hub(shop)
    first, second = hub.begin("watch", name="apple"), hub.begin("watch", name="first")
    hub.call("put", items={"apple": 2})
    hub.tick()
    hub.call("put", items={"apple": 3, "first": 1})
    hub.restart()
    hub.tick()
    hub.restart()
    hub.tick()
    assert (hub.result(first), hub.result(second)) == ([-1, 2, 5], [1, 1, 2])
    whole = replay(shop, log_of(hub))
    assert replay(shop, log_of(hub), restart=lambda at: True).rolling == whole.rolling


def test_turn_of_a_waiting_handler_that_fails_leaves_what_the_one_before_left() -> None:
    hub = Hub(shop)
    invocation = hub.begin("spoil")
    hub.restart()
    hub.tick()
    assert hub.failure(invocation) == "DL3014 ValueError"
    assert looked(hub) == {"first": 1, "query": 9, "spoilt": 1}


def test_handler_that_looks_at_other_items_than_before_is_found() -> None:
    extra: list[str] = []
    fickle = Service("shop", state=Shelf)

    @fickle.handler
    async def wait(shelf: Shelf, ctx: Context) -> None:
        for name in ["a", *extra]:
            shelf.items.get(name)
        await ctx.timer(after=SECOND)

    @fickle.handler
    async def wait_less(shelf: Shelf, ctx: Context) -> None:
        for name in ["a", "b"][: 2 - len(extra)]:
            shelf.items.get(name)
        await ctx.timer(after=SECOND)

    for method, text in (
        ("wait", r"it looks at items\['x'\] in turn 1, had looked at nothing more"),
        ("wait_less", "it looks at fewer items"),
    ):
        extra.clear()
        hub = Hub(fickle)
        hub.begin(method)
        hub.restart()
        extra.append("x")
        with pytest.raises(Diverged, match=text):
            hub.restart()


def test_handler_suspended_before_its_state_had_maps_goes_on() -> None:
    class Old(msgspec.Struct):
        name: str = ""

    old = Service("shop", state=Old)

    @old.handler
    async def wait(state: Old, ctx: Context) -> None:
        await ctx.timer(after=SECOND)

    new = Service("shop", state=Shelf)

    @new.handler(name="wait")
    async def wait_and_put(shelf: Shelf, ctx: Context) -> int:
        await ctx.timer(after=SECOND)
        shelf.items["new"] = Item(1)
        return len(shelf.items)

    before, after = Hub(old), Hub(new)
    invocation = before.begin("wait")
    with pytest.raises(Diverged, match="another state"):  # the bytes of the state are others with a field more
        after.executor.restore(dict(before.executor.state()), before.executor.suspended())
    assert invocation == 1


NAME = NewType("NAME", str)


@dataclass
class Point:
    names: Map[NAME, list[int]] = field(default_factory=Map)
    raw: Map[bytes, bytes] = field(default_factory=Map)


def test_state_may_be_a_dataclass_and_one_object() -> None:
    points = Service("points", state=Point, single=True)

    @points.handler
    def add(point: Point, ctx: Context, name: str, number: int) -> list[int]:
        point.names.setdefault(NAME(name), []).append(number)
        point.raw[name.encode()] = b"x" * number
        return point.names[NAME(name)]

    @points.handler
    async def wait(point: Point, ctx: Context) -> int:
        before = len(point.raw)
        await ctx.timer(after=SECOND)
        return before + len(point.raw)

    hub = Hub(points)
    assert (hub.call("add", name="p", number=1), hub.call("add", name="p", number=2)) == ([1], [1, 2])
    invocation = hub.begin("wait")
    hub.restart()
    hub.tick()
    assert hub.result(invocation) == 2


# ---- what a state may be -------------------------------------------------------------------------------------


class Bare(msgspec.Struct):
    items: Map = msgspec.field(default_factory=Map)  # type: ignore[type-arg]  # that is what is refused


class Nested(msgspec.Struct):
    items: dict[str, Map[str, int]] = {}


class Deep(msgspec.Struct):
    items: Map[str, Map[str, int]] = msgspec.field(default_factory=Map)


class Keyed(msgspec.Struct):
    items: Map[float, int] = msgspec.field(default_factory=Map)  # type: ignore[type-var, arg-type]  # as above


class Unencodable(msgspec.Struct):
    items: Map[str, Service] = msgspec.field(default_factory=Map)


class Beside(msgspec.Struct):
    items: Map[str, int] = msgspec.field(default_factory=Map)
    service: Service | None = None


class Default(msgspec.Struct):
    items: Map[str, int] = Map()


class Filled(msgspec.Struct):
    items: Map[str, int] = msgspec.field(default_factory=Map)

    def __post_init__(self) -> None:
        self.items["a"] = 1


@dataclass
class Unresolved:
    items: "Nowhere[str]" = None  # type: ignore[name-defined]  # noqa: F821  as above


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (Bare, "a Map stands directly in the state, with the types of its keys and items"),
        (Nested, "a Map stands directly in the state"),
        (Deep, "items of map `items`: a Map stands directly"),
        (Keyed, "keys of map `items` must be str, int or bytes, not <class 'float'>"),
        (Unencodable, "items of map `items`: Service can't be encoded"),
        (Beside, "field `service`: Service can't be encoded"),
        (Default, "would be one object for all keys; write"),
        (Filled, "a Map begins empty"),
        (Unresolved, "Nowhere"),
    ],
)
def test_map_that_cannot_be_kept_is_refused_at_import(state: type, text: str) -> None:
    with pytest.raises(InvalidService, match=text):
        Service("svc", state=state)


def test_map_crosses_no_boundary() -> None:
    service = Service("svc", state=Shelf)

    def give(shelf: Shelf, ctx: Context) -> Map[str, Item]:
        return shelf.items

    def take(shelf: Shelf, ctx: Context, other: Shelf) -> None: ...

    for function in (give, take):
        with pytest.raises(InvalidService, match="elsewhere give the items that are wanted, in a dict"):
            service.handler(function)


def test_order_of_dictionaries_beside_a_map_is_kept() -> None:
    class State(msgspec.Struct):
        order: dict[str, int] = {}
        items: Map[str, int] = msgspec.field(default_factory=Map)

    service = Service("svc", state=State)

    @service.handler
    def note(state: State, ctx: Context, name: str) -> list[str]:
        state.order[name] = len(state.order)
        return list(state.order)

    bench = Bench(service)
    bench.call("note", name="z")
    assert bench.call("note", name="a") == ["z", "a"]
