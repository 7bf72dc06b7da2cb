"""The former states as the new code must have them."""

from __future__ import annotations

import msgspec

from deathless import Map, Migration, Service, Struct
from deathless.base.limits import Limits
from deathless.codec.map_entries import encode_item, prefix_of
from deathless.execution.interface.interface import interface_of
from deathless.execution.migration.state import Migrator
from deathless.execution.rehearsal import mirror
from deathless.execution.rehearsal.mirror import Mirror, entries_of
from deathless.execution.rehearsal.steps import Did, MapChange, Turned

pack = msgspec.msgpack.encode
PREFIX = prefix_of(b"a", "items")


class Old(Struct):
    """State of version 1."""

    units: int = 0
    items: Map[str, int] = msgspec.field(default_factory=Map)


class New(Struct):
    """State of version 2."""

    cents: int = 0
    items: Map[str, int] = msgspec.field(default_factory=Map)


def state(units: int, count: int) -> bytes:
    return pack({"units": units, "items": [count, bytes(16)]})


def item(name: str) -> bytes:
    return PREFIX + encode_item(name)


def left(units: int, *changes: MapChange) -> Did:
    return Did([Turned(1, "put", b"a", states={b"a": state(units, 1)}, maps=list(changes))])


def migrator() -> Migrator:
    service = Service("shelf", state=New, version=2)

    @service.migrate(from_=1)
    def up(old: Old, m: Migration) -> New:
        if old.units < 0:
            raise ValueError("below")
        return New(100 * old.units, old.items)

    before = interface_of(Service("shelf", state=Old), Limits())
    return Migrator(service, before, time_us=1, limits=Limits())


def test_states_that_stand_are_given_as_they_are() -> None:
    held = Mirror({b"a": b"was"}, None, maps=False)
    assert held.expected(b"a", b"is") == (b"is", {})
    assert held.expected(b"a", None) == (None, {})
    assert (held.keeps, held.migrates, held.misfits) == (False, False, [])


def test_items_are_kept_up_to_date_and_migrated_with_their_key() -> None:
    held = Mirror({b"a": state(1, 1), item("x"): pack(1)}, migrator(), maps=True)
    held.take(left(2, MapChange(PREFIX, False, [(item("y"), pack(2))])))
    given = held.expected(b"a", None)
    assert given is not None
    new, items = given
    assert new is not None
    assert msgspec.msgpack.decode(new)["cents"] == 200
    assert items == {"items": {encode_item("x"): pack(1), encode_item("y"): pack(2)}}
    held.take(left(2, MapChange(PREFIX, False, [(item("x"), None)])))
    assert (held.item(item("x")), held.item(item("y"))) == (None, pack(2))
    held.take(left(2, MapChange(PREFIX, True, [(item("z"), pack(3))])))
    assert held.items(b"a") == {"items": {encode_item("z"): pack(3)}}


def test_a_key_that_can_not_be_migrated_is_told() -> None:
    held = Mirror({}, migrator(), maps=True)
    held.take(left(-1))
    assert held.expected(b"a", state(-1, 0)) is None
    assert [each.word for each in held.misfits] == ["MigrationRaised"]


def test_a_key_with_many_items_takes_long() -> None:
    held = Mirror({b"a": state(1, 0)}, migrator(), maps=True)
    assert not held.has_many(b"a")
    entries: list[tuple[bytes, bytes | None]] = [(item(str(each)), pack(1)) for each in range(mirror.ITEMS_MAX + 1)]
    held.take(left(1, MapChange(PREFIX, False, entries)))
    assert held.has_many(b"a")


def test_entries_that_were_changed_are_given_with_their_map() -> None:
    assert entries_of([MapChange(PREFIX, False, [(item("x"), None)])]) == {item("x"): PREFIX}
