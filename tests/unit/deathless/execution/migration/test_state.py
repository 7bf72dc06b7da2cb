"""Migrating stored state: what passes, what is counted, and that order means nothing."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless import Context, Map, Migration, Service, Struct, field
from deathless.base.errors import CorruptCheckpoint, InvalidService
from deathless.base.limits import Limits
from deathless.codec.map_entries import encode_item, prefix_of
from deathless.execution.handlers.probe import KEY as PROBE
from deathless.execution.interface.interface import interface_of
from deathless.execution.migration.state import GROUP_KEYS, Migrator, migrate_state

pack, unpack = msgspec.msgpack.encode, msgspec.msgpack.decode


class V1(Struct):
    balance: float = 0.0


class V2(Struct):
    cents: int = 0


class Address(Struct):
    street: str = ""


class Person(Struct):
    home: list[Address] = field(default_factory=list)


class Shelf(Struct):
    name: str = ""
    items: Map[str, int] = field(default_factory=Map)


def of(state: type, version: int = 1, name: str = "bank") -> Service:
    return Service(name, state=state, version=version)


def cents() -> Service:
    made = of(V2, 2)

    @made.migrate(from_=1)
    def up(old: V1, m: Migration) -> V2:
        if old.balance > 1e9:
            raise ValueError(f"{m.key} is too rich")
        return V2(round(100 * old.balance))

    return made


BEFORE = interface_of(of(V1), Limits())
SHELF = interface_of(of(Shelf), Limits())


def migrated(service: Service, state: Mapping[bytes, bytes], **more: object) -> tuple[dict[bytes, bytes], list[str]]:
    before = BEFORE if "before" not in more else more.pop("before")
    entries, misfits = migrate_state(state, service, before, time_us=1, **more)  # type: ignore[arg-type]
    return entries, [each.text for each in misfits]


def test_keys_of_ours_pass_as_they_are() -> None:
    series = PROBE + b"drill"
    entries, _ = migrated(cents(), {b"alice": pack(V1(1.5)), series: b"\x01"})
    assert entries == {b"alice": pack(V2(150)), series: b"\x01"}


def test_a_key_that_raises_is_counted_with_the_first_of_its_kind() -> None:
    state = {name: pack(V1(2e9)) for name in (b"carol", b"dave")} | {b"alice": pack(V1())}
    entries, said = migrated(cents(), state)
    assert said == [
        (
            "MigrationRaised: key carol: ValueError: carol is too rich, 2 of 3 keys (the first is carol); "
            "see to this key in the function"
        )
    ]
    assert list(entries) == [b"alice"]


def test_what_a_process_ends_by_is_no_misfit() -> None:
    made = of(V2, 2)

    @made.migrate(from_=1)
    def up(old: V1, m: Migration) -> V2:
        raise MemoryError

    with pytest.raises(MemoryError):
        migrated(made, {b"alice": pack(V1())})


@pytest.mark.parametrize("raised", [SystemExit(1), RecursionError("deep"), TypeError("x")])
def test_anything_else_is(raised: BaseException) -> None:
    made = of(V2, 2)

    @made.migrate(from_=1)
    def up(old: V1, m: Migration) -> V2:
        raise raised

    assert migrated(made, {b"alice": pack(V1())})[1][0].startswith("MigrationRaised: key alice: ")


def test_what_is_given_must_be_of_its_type() -> None:
    made = of(V2, 2)

    @made.migrate(from_=1)
    def up(old: V1, m: Migration) -> V2:
        return V2("many")  # type: ignore[arg-type]  # what is refused

    assert migrated(made, {b"alice": pack(V1())})[1][0].startswith("MigrationUnfit: what up (")


def test_a_field_that_no_type_tells_of_is_found_in_the_bytes() -> None:
    _, said = migrated(of(V1), {b"alice": pack({"balance": 1.0, "left_over": 1})}, before=None)
    assert said == [
        (
            "FieldDropped: V1.left_over of version 1 is not in V1 of version 1, 1 of 1 key (it is alice); "
            'write @bank.migrate(from_=1), or drops=["V1.left_over"]'
        )
    ]


def test_a_field_deep_inside_is_named_by_its_class() -> None:
    _, said = migrated(of(Person), {b"a": pack({"home": [{"street": 5}]})}, before=None)
    assert said[0].startswith("FieldTypeChanged: Address.street of version 1 can't be read: Expected `str`, got `int`")
    _, said = migrated(of(Person), {b"a": pack({"home": [{"city": 5}]})}, before=None)
    assert said[0].startswith("FieldDropped: Address.city of version 1")


def test_items_keep_their_place_and_the_header_counts_them() -> None:
    state = {b"shelf": pack({"name": "x", "items": [9, b"c" * 16]})}
    state |= {prefix_of(b"shelf", "items") + encode_item(name): pack(n) for n, name in enumerate("ab")}
    entries, said = migrated(of(Shelf, 2), state, before=SHELF, upgrade=b"u")
    assert said == []
    header = unpack(entries[b"shelf"])["items"]
    assert (header[0], len(entries)) == (2, 3)
    again = migrated(of(Shelf, 2), state, before=SHELF, upgrade=b"v")[0]
    assert unpack(again[b"shelf"])["items"][1] != header[1]


def test_a_map_that_was_never_used_stays_so() -> None:
    state = {b"shelf": pack({"name": "x", "items": [0, b""]})}
    assert migrated(of(Shelf, 2), state, before=SHELF)[0] == state


def test_items_without_a_state_are_a_damaged_checkpoint() -> None:
    with pytest.raises(CorruptCheckpoint, match="which has no state"):
        migrated(of(Shelf), {prefix_of(b"gone", "items") + b"sx": pack(1)}, before=SHELF)


def test_a_function_reads_old_maps_and_can_not_change_them() -> None:
    state = {b"shelf": pack({"name": "x", "items": [1, b"c" * 16]}), prefix_of(b"shelf", "items") + b"sa": pack(7)}
    made = of(Shelf, 2)

    @made.migrate(from_=1)
    def up(old: Shelf, m: Migration) -> Shelf:
        return Shelf(name=f"{old.name} {sum(old.items.values())} {len(m.maps['items'])}", items=old.items)

    migrator = Migrator(made, SHELF, time_us=1, limits=Limits())
    passed = migrator.migrate(b"shelf", state[b"shelf"], {"items": {b"sa": pack(7)}})
    assert passed is not None
    assert unpack(passed.state)["name"] == "x 7 1"
    assert (dict(passed.items["items"]), migrator.m.looked) == ({b"sa": pack(7)}, True)

    changes = of(Shelf, 2)

    @changes.migrate(from_=1)
    def change(old: Shelf, m: Migration) -> Shelf:
        old.items["b"] = 1
        return old

    _, said = migrated(changes, state, before=SHELF)
    assert "map 'items' of the old state can't be changed" in said[0]


def test_a_map_under_another_name_takes_its_items_along() -> None:
    class Renamed(Struct):
        goods: Map[str, int] = field(default_factory=Map)

    made = of(Renamed, 2)

    @made.migrate(from_=1)
    def up(old: Shelf, m: Migration) -> Renamed:
        return Renamed(goods=old.items)

    state = {b"shelf": pack({"name": "x", "items": [1, b"c" * 16]}), prefix_of(b"shelf", "items") + b"sa": pack(7)}
    entries, said = migrated(made, state, before=SHELF)
    assert (said, entries[prefix_of(b"shelf", "goods") + b"sa"], len(entries)) == ([], pack(7), 2)


@pytest.mark.parametrize(
    ("limits", "said"),
    [(Limits(item_bytes_max=4), "item 'a' of map 'items' would have"), (Limits(entity_bytes_max=4), "its state would")],
)
def test_what_is_too_large_is_told(limits: Limits, said: str) -> None:
    class Long(Struct):
        items: Map[str, str] = field(default_factory=Map)

    state = {b"shelf": pack({"items": [1, b"c" * 16]}), prefix_of(b"shelf", "items") + b"sa": pack("x" * 9)}
    found = migrated(of(Long), state, before=None, limits=limits)[1]
    assert said in found[0]


@pytest.mark.parametrize(("kept", "word"), [("{t}", ""), ("{o}", "KeyLeavesShard")])
def test_with_several_shards_the_tag_stays(kept: str, word: str) -> None:
    made = of(V1, 2)

    @made.migrate_key(from_=1)
    def key(old: str) -> str:
        return old.replace("{t}", kept) + "!"

    entries, said = migrated(made, {b"a{t}": pack(V1())}, shards=4)
    assert [each.partition(":")[0] for each in said] == ([word] if word else [])
    assert bool(entries) is not bool(word)


def test_a_key_that_can_not_be_is_told() -> None:
    made = of(V1, 2)

    @made.migrate_key(from_=1)
    def key(old: str) -> str:
        return ""

    assert "the key must not be empty" in migrated(made, {b"a": pack(V1())})[1][0]


def test_a_way_with_a_gap_is_refused() -> None:
    made = of(V2, 3)

    @made.migrate(from_=1)
    def up(old: V1, m: Migration) -> V1:
        return old

    with pytest.raises(InvalidService, match="nothing leads from version 2 to 3"):
        Migrator(made, BEFORE, time_us=1, limits=Limits())


def test_what_an_item_may_become_stands_in_its_annotation() -> None:
    made = of(Shelf, 2)

    @made.migrate_map("items", from_=1)
    def item(key: str, item: str, old: int) -> str:
        return str(old)

    with pytest.raises(InvalidService, match=r"gives int, tuple\[str, int\] to rename one, or None, not str"):
        Migrator(made, SHELF, time_us=1, limits=Limits())


def test_progress_is_told_by_groups() -> None:
    told: list[tuple[int, int]] = []
    state = {b"%06d" % n: pack(V1()) for n in range(GROUP_KEYS + 1)}
    migrate_state(state, cents(), BEFORE, time_us=1, told=lambda done, of: told.append((done, of)))
    assert told == [(GROUP_KEYS, GROUP_KEYS + 1), (GROUP_KEYS + 1, GROUP_KEYS + 1)]


def handled() -> Service:
    """A service whose turns leave the state that is migrated."""
    made = of(V1)

    @made.handler
    def put(account: V1, ctx: Context, amount: float) -> None:
        account.balance = amount

    return made


@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), st.floats(0, 2e9, width=32), max_size=8), st.randoms())
def test_order_means_nothing(balances: dict[str, float], chance: object) -> None:
    state = {key.encode(): pack(V1(balance)) for key, balance in balances.items()}
    keys = sorted(state)
    chance.shuffle(keys)  # type: ignore[attr-defined]  # a Random
    first, said = migrated(cents(), state)
    again, said_again = migrated(cents(), {key: state[key] for key in keys})
    assert first == again
    assert [each.partition(":")[0] for each in said] == [each.partition(":")[0] for each in said_again]
    whole, _ = migrated(handled(), state)
    assert whole == state
