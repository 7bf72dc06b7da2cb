"""The table of all items, and what a turn or an invocation sees of it."""

import pytest

from deathless.base.errors import Closed, CorruptCheckpoint, Diverged
from deathless.codec.map_entries import PREFIX, encode_item, prefix_of
from deathless.execution.maps.table import Change, Look, MapTable, Seen

A, B = prefix_of(b"a", "items"), prefix_of(b"b", "items")


def entry(prefix: bytes, item: str) -> bytes:
    return prefix + encode_item(item)


def put(table: MapTable, prefix: bytes, **items: bytes | None) -> None:
    table.apply(Change(prefix, False, [(entry(prefix, key), value) for key, value in items.items()]))


def keys(table: MapTable, prefix: bytes) -> list[bytes]:
    found, at = [], table.after(prefix, prefix)
    while at is not None:
        found.append(at[len(prefix) + 1 :])
        at = table.after(prefix, at)
    return found


def test_items_of_two_maps_lie_apart() -> None:
    table = MapTable()
    put(table, A, x=b"1", y=b"2")
    put(table, B, x=b"3")
    assert (table.get(A, entry(A, "x")), table.get(B, entry(B, "x"))) == (b"1", b"3")
    assert (table.get(B, entry(B, "y")), keys(table, A), keys(table, B)) == (None, [b"x", b"y"], [b"x"])


@pytest.mark.parametrize("looked", [False, True])
def test_order_is_kept_whether_or_not_it_was_asked_for(looked: bool) -> None:
    table = MapTable()
    put(table, A, m=b"1", z=b"1")
    if looked:
        assert keys(table, A) == [b"m", b"z"]
    put(table, A, a=b"1", m=b"2", z=None)
    assert keys(table, A) == [b"a", b"m"]
    table.apply(Change(A, True, [(entry(A, "k"), b"1")]))
    assert keys(table, A) == [b"k"]


@pytest.mark.parametrize("looked", [False, True])
def test_map_without_items_leaves_nothing(looked: bool) -> None:
    table = MapTable()
    put(table, A, x=b"1")
    if looked:
        keys(table, A)
    put(table, A, x=None)
    assert (table.maps, table.get(A, entry(A, "x")), keys(table, A)) == ({}, None, [])


def test_items_come_out_of_a_checkpoint_and_the_rest_is_given() -> None:
    table = MapTable()
    put(table, B, old=b"0")
    entries = {entry(A, "x"): b"1", b"a": b"state", entry(B, "x"): b"2", entry(A, "y"): b"3"}
    assert table.restore(entries, {"items"}) == {b"a": b"state"}
    assert table.maps == {A: {entry(A, "x"): b"1", entry(A, "y"): b"3"}, B: {entry(B, "x"): b"2"}}
    assert table.restore({b"a": b"state"}, {"items"}) == {b"a": b"state"}
    assert table.maps == {}


def test_items_of_a_field_that_is_gone_are_let_go() -> None:
    table = MapTable()
    gone = prefix_of(b"a", "old")
    assert table.restore({entry(gone, "x"): b"1", entry(A, "x"): b"2", b"a": b""}, {"items"}) == {b"a": b""}
    assert table.maps == {A: {entry(A, "x"): b"2"}}


def test_entry_that_is_none_is_found() -> None:
    with pytest.raises(CorruptCheckpoint):
        MapTable().restore({PREFIX + b"x": b""}, {"items"})


def test_look_that_writes_down_gives_the_same_again() -> None:
    table = MapTable()
    put(table, A, x=b"1")
    first = Look(table, [])
    asked = [first.get(A, entry(A, "x")), first.get(A, entry(A, "y")), first.after(A, A)]
    put(table, A, x=b"2", y=b"2")
    again = Look(table, list(first.taken or ()), again=True)
    assert [again.get(A, entry(A, "x")), again.get(A, entry(A, "y")), again.after(A, A)] == asked
    with pytest.raises(Diverged):
        again.get(A, A)
    assert not again.go_on()


def test_look_goes_on_with_the_table() -> None:
    table = MapTable()
    put(table, A, x=b"2")
    known = Seen(next=False, prefix=b"", entry=b"", answer=b"1")  # of a checkpoint that has answers alone
    again = Look(table, [known], again=True)
    assert not Look(table, [known], again=True).go_on()
    assert again.get(A, entry(A, "x")) == b"1"
    assert again.go_on()
    assert again.get(A, entry(A, "x")) == b"2"
    assert again.taken == [Seen(False, A, entry(A, "x"), b"1"), Seen(False, A, entry(A, "x"), b"2")]


def test_look_at_another_item_differs_even_where_the_error_is_caught() -> None:
    table = MapTable()
    put(table, A, x=b"1", y=b"1")
    first = Look(table, [])
    first.get(A, entry(A, "x"))
    for behind, item in ((False, "y"), (True, "x")):
        again = Look(table, list(first.taken or ()), again=True)
        with pytest.raises(Diverged, match="another item"):
            (again.after if behind else again.get)(A, entry(A, item))
        assert again.differs is not None
        assert again.differs[0] == Seen(False, A, entry(A, "x"), b"1")
        assert not again.go_on()


def test_bytes_of_looks_are_counted_alike_when_they_are_taken_again() -> None:
    table = MapTable()
    put(table, A, x=b"1" * 100)
    first = Look(table, [])
    first.get(A, entry(A, "x"))
    first.after(A, A)
    again = Look(table, list(first.taken or ()), again=True)
    again.get(A, entry(A, "x"))
    again.after(A, A)
    assert first.bytes == again.bytes > 100


def test_look_serves_its_turn_alone() -> None:
    look = Look(MapTable())
    assert (look.get(A, A), look.after(A, A), look.taken, look.go_on()) == (None, None, None, True)
    look.alive = False
    for ask in (look.get, look.after):
        with pytest.raises(Closed):
            ask(A, A)
