"""A map as one turn sees it: over the table, until the turn ends."""

from collections.abc import Callable

import msgspec
import pytest

from deathless.base.errors import Closed, InvalidArgument, TooLarge
from deathless.base.limits import Limits
from deathless.codec.map_entries import encode_item, prefix_of
from deathless.execution.handlers.plan import map_field
from deathless.execution.maps.table import Change, Look, MapTable
from deathless.execution.maps.view import LOOSE, MISSING, MapField, View

LIMITS = Limits(item_bytes_max=20, key_bytes_max=5)
A = prefix_of(b"alice", "items")


class Item(msgspec.Struct):
    count: int = 0
    note: str = ""


FIELD = map_field("items", str, Item)


class Counting(Look):
    asked = 0

    def after(self, prefix: bytes, entry: bytes) -> bytes | None:
        self.asked += 1
        return super().after(prefix, entry)


class Turns:
    """A table, and turns on one map of it."""

    def __init__(self, field: MapField = FIELD) -> None:
        self.table = MapTable()
        self.field = field
        self.header: tuple[int, bytes] = (0, b"")

    def begin(self) -> View:
        view = View(*self.header)
        view.bind(self.field, A, Look(self.table))
        return view

    def end(self, view: View) -> Change | None:
        change = view.close(LIMITS)
        self.header = view.count, view.chain
        if change is not None:
            self.table.apply(change)
        return change

    def run(self, act: Callable[[View], object]) -> Change | None:
        view = self.begin()
        act(view)
        return self.end(view)

    def held(self) -> dict[bytes, bytes]:
        return {key[len(A) :]: value for key, value in self.table.maps.get(A, {}).items()}


def put(**items: object) -> Callable[[View], object]:
    def act(view: View) -> None:
        for key, value in items.items():
            view.put(view.entry(key), value)

    return act


def drop(*keys: str) -> Callable[[View], object]:
    return lambda view: [view.drop(view.entry(key)) for key in keys]


def keys_of(view: View) -> list[object]:
    found: list[object] = []
    at = view.after(view.prefix)
    while at is not None:
        found.append(view.key_of(at))
        at = view.after(at)
    return found


@pytest.fixture
def turns() -> Turns:
    made = Turns()
    made.run(put(a=Item(1), c=Item(3), e=Item(5)))
    return made


def test_item_changed_in_place_is_noticed(turns: Turns) -> None:
    view = turns.begin()
    item = view.get(view.entry("a"))
    assert isinstance(item, Item)
    assert view.get(view.entry("a")) is item
    item.count = 9
    change = turns.end(view)
    assert change == Change(A, False, [(A + b"sa", msgspec.msgpack.encode(Item(9)))])


def test_turn_that_changes_nothing_leaves_no_trace(turns: Turns) -> None:
    before = turns.header
    assert turns.run(lambda view: [view.get(view.entry("a")), keys_of(view)]) is None
    assert turns.run(put(a=Item(1))) is None
    assert turns.run(lambda view: (put(x=Item())(view), drop("x")(view))) is None
    assert turns.run(lambda view: (drop("a")(view), put(a=Item(1))(view))) is None
    assert Turns().run(View.clear) is None
    assert turns.header == before


def renew(view: View) -> None:
    view.clear()
    put(a=Item(1), c=Item(3))(view)


def test_chain_tells_every_change_from_every_other() -> None:
    steps: list[Callable[[View], object]] = [
        put(b=Item(2)), put(b=Item(3)), put(bc=Item(2)), drop("a"), drop("c"), View.clear,
        renew, put(a=Item(2)), put(c=Item(1)),
    ]  # fmt: skip
    chains = set()
    for step in steps:
        turns = Turns()
        turns.run(put(a=Item(1), c=Item(3)))
        assert turns.run(step) is not None
        chains.add(turns.header[1])
    assert len(chains) == len(steps)


def test_order_in_which_a_turn_changes_items_does_not_matter() -> None:
    one, other = Turns(), Turns()
    assert one.run(put(a=Item(1), b=Item(2))) == other.run(put(b=Item(2), a=Item(1)))
    assert one.header == other.header


def test_clear_hides_all_that_the_table_holds(turns: Turns) -> None:
    view = turns.begin()
    held = view.get(view.entry("a"))
    view.clear()
    assert (view.count, keys_of(view), view.has(view.entry("a")), view.get(view.entry("c"))) == (0, [], False, MISSING)
    assert not view.drop(view.entry("c"))
    view.put(view.entry("c"), held)
    change = turns.end(view)
    assert change == Change(A, True, [(A + b"sc", msgspec.msgpack.encode(Item(1)))])
    assert (view.count, keys_of(view), view.has(view.entry("a"))) == (1, ["c"], False)


def test_iteration_goes_over_the_table_and_what_the_turn_added(turns: Turns) -> None:
    view = turns.begin()
    put(b=Item(), f=Item())(view)
    drop("c")(view)
    assert keys_of(view) == ["a", "b", "e", "f"]
    put(c=Item(7), g=Item())(view)
    drop("e", "b", "nothing")(view)
    assert (keys_of(view), view.count) == (["a", "c", "f", "g"], 4)
    turns.end(view)
    assert list(map(turns.table.get, [A] * 2, [A + b"sc", A + b"se"])) == [msgspec.msgpack.encode(Item(7)), None]
    assert keys_of(turns.begin()) == ["a", "c", "f", "g"]


def test_first_items_are_taken_away_without_passing_what_is_gone_each_time() -> None:
    turns = Turns()
    turns.run(put(**{f"{n:04}": Item() for n in range(500)}))
    counting = Counting(turns.table)
    view = turns.begin()
    view.bind(FIELD, A, counting)
    for _ in range(500):
        first = view.after(view.prefix)
        assert first is not None
        view.drop(first)
    assert counting.asked <= 1000
    assert (view.count, view.after(view.prefix)) == (0, None)
    # What was passed in the middle is not taken for passed from the beginning.
    view = turns.begin()
    drop("0002")(view)
    assert [view.key_of(view.after(A + b"s0001") or b""), keys_of(view)[:3]] == ["0003", ["0000", "0001", "0003"]]


def test_view_goes_on_after_a_turn_with_what_it_left(turns: Turns) -> None:
    view = turns.begin()
    item = Item(7)
    view.put(view.entry("x"), item)
    drop("a")(view)
    turns.end(view)
    item.count = 8
    assert (view.has(view.entry("a")), view.count) == (False, 3)
    assert turns.end(view) == Change(A, False, [(A + b"sx", msgspec.msgpack.encode(Item(8)))])
    view.reset(*turns.header)
    assert view.get(view.entry("x")) == Item(8)
    assert view.get(view.entry("x")) is not item


def test_values_that_cannot_change_are_not_looked_at_again() -> None:
    encoded: list[object] = []
    plain = map_field("items", str, int)

    def encode(item: object) -> bytes:
        encoded.append(item)
        return plain.encode(item)

    turns = Turns(MapField(name="items", kind=str, plain=plain.plain, decode=plain.decode, encode=encode))
    turns.run(put(a=1, b=2))
    view = turns.begin()
    assert (view.get(view.entry("a")), view.get(view.entry("a"))) == (1, 1)
    put(b=3)(view)
    turns.end(view)
    turns.end(view)
    assert encoded == [1, 2, 3]


@pytest.mark.parametrize(
    ("items", "text"),
    [
        (
            {"apple": Item(1, "x" * 20)},
            "item 'apple' of map 'items' of key 'alice' would have 34 bytes, at most 20; divide it into several items,",
        ),
        ({"grapes": Item()}, "the key of item 'grapes' of map 'items' of key 'alice' has more than 5 bytes"),
    ],
)
def test_what_is_too_large_is_named_with_its_remedy(items: dict[str, object], text: str, turns: Turns) -> None:
    before = turns.held()
    with pytest.raises(TooLarge) as caught:
        turns.run(put(**items))
    assert text in caught.value.message
    assert turns.held() == before
    turns.run(put(apple=Item(note="x" * 5)))
    assert len(turns.held()) == 4


def test_value_that_does_not_fit_its_type_fails_its_own_turn(turns: Turns) -> None:
    with pytest.raises(
        msgspec.ValidationError, match=r"Expected `int`, got `str` - at `\$.count` - in item 'a' of map 'i"
    ):
        turns.run(put(a=Item("x")))  # type: ignore[arg-type]  # what a checker would find


def test_key_of_another_type_is_named(turns: Turns) -> None:
    view = turns.begin()
    with pytest.raises(InvalidArgument, match="item 3 of map 'items' can't be: keys are str, not int"):
        view.entry(3)


def test_map_serves_its_turn_alone(turns: Turns) -> None:
    view = turns.begin()
    entry = view.entry("a")
    view.look.alive = False
    acts: list[Callable[[], object]] = [
        lambda: view.entry("a"),
        lambda: view.get(entry),
        view.clear,
        lambda: view.after(A),
    ]
    for act in acts:
        with pytest.raises(Closed, match="a turn that has ended"):
            act()


def test_map_outside_a_turn_is_not_kept() -> None:
    with pytest.raises(TypeError, match="stands in no state"):
        LOOSE.encode(1)
    assert encode_item("a") == View().entry("a")
