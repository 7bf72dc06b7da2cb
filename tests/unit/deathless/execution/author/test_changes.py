"""What an author declares about a version: ways between versions, and what is refused when the module is imported."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from deathless import Context, Map, Migration, Service, Struct, field
from deathless.base.errors import InvalidService
from deathless.execution.author.changes import Gap


class V1(Struct):
    balance: float = 0.0


class V2(Struct):
    cents: int = 0


class V3(Struct):
    cents: int = 0
    orders: Map[str, int] = field(default_factory=Map)


def bank(version: int = 3, state: type = V3) -> Service:
    return Service("bank", state=state, version=version)


def first(old: V1, m: Migration) -> V2:
    return V2(round(100 * old.balance))


def second(old: V2, m: Migration) -> V3:
    return V3(old.cents)


def test_a_way_is_composed_in_whatever_order_its_functions_stand() -> None:
    service = bank()
    service.migrate(from_=2)(second)
    service.migrate(from_=1)(first)
    way = service.declared.way(1)
    assert not isinstance(way, Gap)
    assert [(hop.from_, hop.to, hop.old, hop.new) for hop in way] == [(1, 2, V1, V2), (2, 3, V2, V3)]
    assert service.declared.way(3) == []


def test_a_gap_is_named_where_it_is() -> None:
    service = bank()
    service.migrate(from_=1)(first)
    gap = service.declared.way(1)
    assert isinstance(gap, Gap)
    assert (gap.at, gap.why) == (2, "nothing leads from version 2 to 3")


def test_a_version_without_a_function_has_the_types_of_the_next() -> None:
    service = bank()
    service.migrate(from_=2)(second)
    way = service.declared.way(1)
    assert not isinstance(way, Gap)
    assert [(hop.from_, hop.old) for hop in way] == [(2, V2)]


def test_items_before_a_state_have_the_old_type_that_a_later_function_names() -> None:
    service = bank()

    @service.migrate_map("orders", from_=1)
    def order(key: str, item: str, old: str) -> int:
        return int(old)

    service.migrate(from_=2)(second)
    way = service.declared.way(1)
    assert not isinstance(way, Gap)
    assert [(hop.from_, hop.old, hop.new, list(hop.maps)) for hop in way] == [
        (1, V2, V2, ["orders"]), (2, V2, V3, []),
    ]  # fmt: skip


def test_names_and_keys_are_followed_through_all_blocks() -> None:
    service = bank()
    service.changes(from_=1, renamed={"take": "withdraw"}, removed={"close": "fail"}, drops=["V1.note"])
    service.changes(from_=2, renamed={"withdraw": "pay_out"}, changed={"pay_out": {"reply": "rounded"}})
    declared = service.declared
    assert [declared.name_now(name, 1) for name in ("take", "close", "put")] == ["pay_out", "", "put"]
    assert declared.name_now("take", 2) == "take"
    assert (declared.removed("close", 1), declared.removed("take", 1)) == ("fail", None)
    assert declared.changed("take", 1) == {"reply": "rounded"}
    assert (declared.drops(1), declared.drops(2)) == (frozenset({"V1.note"}), frozenset())


def _late(service: Service) -> None:
    service.migrate(from_=3)(first)


def _twice(service: Service) -> None:
    service.migrate(from_=1)(first)
    service.migrate(from_=1)(first)


def _two_types(service: Service) -> None:
    service.migrate(from_=1)(first)

    @service.migrate(from_=2)
    def other(old: V1, m: Migration) -> V3:
        return V3()


def _two_ends(service: Service) -> None:
    service.migrate(from_=1)(first)

    @service.migrate(from_=1, to=3)
    def other(old: V1, m: Migration) -> V3:
        return V3()


def _not_the_state(service: Service) -> None:
    @service.migrate(from_=2)
    def other(old: V1, m: Migration) -> V2:
        return V2()


def _no_migration(service: Service) -> None:
    @service.migrate(from_=1)  # type: ignore[arg-type]  # what is refused
    def other(old: V1, m: Context) -> V2:
        return V2()


def _one_argument(service: Service) -> None:
    @service.migrate(from_=1)  # type: ignore[arg-type]  # what is refused
    def other(old: V1) -> V2:
        return V2()


def _awaits(service: Service) -> None:
    @service.migrate(from_=1)
    async def other(old: V1, m: Migration) -> V2:
        return V2()


def _no_state(service: Service) -> None:
    @service.migrate(from_=1)
    def other(old: int, m: Migration) -> V2:
        return V2()


def _key_of_bytes(service: Service) -> None:
    @service.migrate_key(from_=1)  # type: ignore[arg-type]  # what is refused
    def key(old: bytes) -> bytes:
        return old


def _accepts_itself(service: Service) -> None:
    @service.accepts("deposit", from_=3, args=V1)
    def deposit(old: V1) -> dict[str, object]:
        return {}


def _both(service: Service) -> None:
    service.changes(from_=1, renamed={"a": "b"}, removed={"a": "fail"})


def _one_text(service: Service) -> None:
    service.changes(from_=1, drops="V1.note")


def _no_field(service: Service) -> None:
    service.changes(from_=1, drops=["note"])


def _no_aspect(service: Service) -> None:
    service.changes(from_=1, changed={"deposit": {"speed": "faster"}})


def _two_blocks(service: Service) -> None:
    service.changes(from_=1)
    service.changes(from_=1)


def _block_of_tomorrow(service: Service) -> None:
    service.changes(from_=4)


def _renamed_now(service: Service) -> None:
    service.changes(from_=3, renamed={"take": "withdraw"}, changed={"deposit": {"reply": "rounded"}})


def _removed_now(service: Service) -> None:
    service.changes(from_=3, removed={"take": "fail"})


def _dropped_now(service: Service) -> None:
    service.changes(from_=3, drops=["Account.note"])


REFUSED: dict[str, Callable[[Service], None]] = {
    "write Service('bank', ..., version=4)": _late,
    "stands at": _twice,
    "the state of version 2 is V2 elsewhere, and V1 here": _two_types,
    "all that begin at a version lead to the same one": _two_ends,
    "the state of version 3 is V3 elsewhere, and V2 here": _not_the_state,
    "its second parameter must be `m: Migration`": _no_migration,
    "takes 2 arguments, by position": _one_argument,
    "it can neither await nor yield": _awaits,
    "must be a Struct or a dataclass": _no_state,
    "takes a str and gives one": _key_of_bytes,
    "accepts is for callers of an older version, 1 to 2, not 3": _accepts_itself,
    "'a' is both renamed and removed": _both,
    "drops is a list of fields, not a text": _one_text,
    'drops names a field as "Class.field"': _no_field,
    "of 'deposit' may change reply, calls, state, times; 'speed' is none": _no_aspect,
    "there is such a block already": _two_blocks,
    "from_ must be an older version, 1 to 2, or this one": _block_of_tomorrow,
    "within a version only `changed` can be said; for the rest write Service(..., version=4)": _renamed_now,
    "within a version only `changed` can be said": _removed_now,
    "changes(from_=3): within a version only": _dropped_now,
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_can_not_be_is_refused_where_it_stands(said: str) -> None:
    with pytest.raises(InvalidService) as caught:
        REFUSED[said](bank())
    assert said in caught.value.message


def test_what_a_handler_does_otherwise_within_a_version_is_declared_for_that_version_and_older_ones() -> None:
    service = bank()
    service.changes(from_=3, changed={"deposit": {"reply": "rounded half up"}})
    assert service.declared.changed("deposit", 3) == {"reply": "rounded half up"}
    assert service.declared.changed("deposit", 2) == {"reply": "rounded half up"}
    assert service.declared.changed("take", 3) == {}


@pytest.mark.parametrize("version", [0, -1, True, "2"])
def test_a_version_is_a_number_from_one(version: int) -> None:
    with pytest.raises(InvalidService, match="whole number of at least 1"):
        bank(version)


def test_the_version_is_one_if_nothing_is_said() -> None:
    assert Service("bank", state=V1).version == 1


def test_a_service_of_one_object_has_no_keys_to_rename() -> None:
    service = Service("one", state=V1, single=True, version=2)
    with pytest.raises(InvalidService, match="no keys to rename"):
        service.migrate_key(from_=1)(str.lower)
