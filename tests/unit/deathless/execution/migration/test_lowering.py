"""What older code goes on with of all that later code held, made by the later code's own way down."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any, cast

import msgspec
import pytest
from tests.unit.deathless.execution.executor_bench import SEED
from tests.unit.deathless.execution.messaging_bench import Hub
from tests.unit.deathless.execution.saga_versions import Shelf, ShelfOfTwo, begun, make
from tests.unit.deathless.execution.test_snapshot_migration import (
    LIMITS,
    Purse,
    Purse2,
    began_in,
    go_on,
    held_up,
    second,
    shop,
    snapshot_of,
)

from deathless import Context, Map, Migration, Service, Struct, field
from deathless.codec.messages import Kind, encode
from deathless.codec.snapshot import OutboxRecord, ParkedRecord, Snapshot
from deathless.execution.interface.interface import interface_of
from deathless.execution.invocations.journal import Origin, Received, SuspendedMessage, decode_record, encode_record
from deathless.execution.migration import lowering
from deathless.execution.migration.lowering import Lowered, lower_snapshot
from deathless.execution.snapshot_migration import Migrated, migrate_snapshot

pack, unpack = msgspec.msgpack.encode, msgspec.msgpack.decode


def later(**version: Any) -> Service:
    """Version 2, with the way up and down."""
    made = second(**version)

    @made.migrate(from_=2, to=1)
    def back(new: Purse2, m: Migration) -> Purse:
        if new.cents < 0:
            raise ValueError(f"{m.key} owes")
        return Purse(new.cents // 100)

    return made


def lowered(snapshot: Snapshot, service: Service, former: Service) -> Lowered:
    """Lower, and see to it that nothing of what is given changes."""
    kept = copy.deepcopy((snapshot.state, snapshot.invocations, snapshot.outbox, snapshot.parked))
    found = lower_snapshot(snapshot, service, interface_of(former, LIMITS), limits=LIMITS, time_us=9)
    assert kept == (snapshot.state, snapshot.invocations, snapshot.outbox, snapshot.parked)
    return found


def taken(found: Lowered, service: Service, former: Service) -> Migrated:
    """Let the older code have what was made."""
    assert found.misfits == []
    serves = interface_of(service, LIMITS)
    return migrate_snapshot(found.snapshot, former, serves, limits=LIMITS, seed=SEED, time_us=9, lowered=True)


def words(found: Lowered | Migrated) -> list[tuple[str, str]]:
    return [(each.word, each.subject) for each in found.misfits]


# ---- what goes back ----------------------------------------------------------------------------------------------


def test_state_goes_back_while_handlers_and_messages_wait_and_all_goes_on() -> None:
    new = later()
    hub = held_up(new)
    before = snapshot_of(hub, outbox=[OutboxRecord("", 0, 2, list(hub.own))])
    found = lowered(before, new, shop())
    assert (found.keys, found.changed) == (3, True)
    states = {key: unpack(state) for key, state in found.snapshot.state.items()}
    assert states == {b"a": {"total": 5}, b"b": {"total": 7}, b"other": {"total": 1}}
    made = taken(found, new, shop())
    assert (made.misfits, made.snapshot.state) == ([], found.snapshot.state)
    old = go_on(made, shop())
    assert old.executor.crowd().waiting == 2
    old.receive(*hub.own)
    assert len(old.waiting()[3]) == 2, "the later code's reply counts"


def test_what_is_known_of_handlers_is_not_made_again_and_the_rest_is(monkeypatch: pytest.MonkeyPatch) -> None:
    new, hub = later(), held_up(later())
    for key in ("c", "d"):
        hub.begin("pay", key, amount=1)
    before = lowered(snapshot_of(hub), new, shop())
    hub.receive(*hub.own)  # the replies to some of them
    hub.begin("pay", "f", amount=2)
    now = snapshot_of(hub)
    whole = lowered(now, new, shop())
    made: list[bytes] = []
    lower = lowering._lower_record

    def noted(data: bytes, *more: Any) -> bytes:
        made.append(data)
        return lower(data, *more)

    monkeypatch.setattr(lowering, "_lower_record", noted)
    old = interface_of(shop(), LIMITS)
    found = lower_snapshot(now, new, old, limits=LIMITS, time_us=9, known=before.known)
    assert (found.snapshot, found.known, found.misfits) == (whole.snapshot, whole.known, [])
    assert made == [data for data in now.invocations if data not in before.known]
    assert 0 < len(made) < len(now.invocations)


def test_up_and_down_again_is_what_it_was() -> None:
    new, hub = later(), held_up()
    before = snapshot_of(hub)
    up = migrate_snapshot(before, new, interface_of(shop(), LIMITS), limits=LIMITS, seed=SEED, time_us=9)
    assert up.misfits == []
    down = lowered(up.snapshot, new, shop())
    made = taken(down, new, shop())
    assert made.misfits == []
    assert made.snapshot.state == before.state
    assert len(made.snapshot.invocations) == len(before.invocations)


def test_names_of_before_come_back() -> None:
    names = {"pay": "settle", "take": "withdraw", "charge": "bill", "tick": "tock", "tick/ticks": "tock/ticks"}
    new = later(pay="settle", take="withdraw", charge="bill", tick="tock")
    new.changes(from_=1, renamed=names)
    hub = Hub(new)
    hub.tick()
    hub.begin("settle", "a", amount=5)
    hub.send("withdraw", "a", amount=3)
    hub.own.clear()
    made = taken(lowered(snapshot_of(hub), new, shop()), new, shop())
    assert made.misfits == []
    old = go_on(made, shop())
    assert [view.handler for view in old.executor.invocations()][:1] == ["pay"]
    assert [start.name for start in old.executor.activities()] == ["charge"]


def test_without_functions_everything_stays_byte_for_byte() -> None:
    new = shop(2)
    before = snapshot_of(held_up(new), parked=[ParkedRecord(2, 1, 1, encode(Kind.CALL, method=b"x", key=b"z"))])
    found = lowered(before, new, shop())
    assert (found.misfits, found.changed) == ([], False)
    assert found.snapshot == before
    assert taken(found, new, shop()).snapshot == began_in(before, 2)


class TakeOf2(Struct):
    amount: int | str = ""


def test_arguments_of_what_waits_go_back_by_the_authors_function() -> None:
    new = later(amount=str)
    hub = Hub(new)
    hub.begin("pay", "a", amount=5)
    hub.own.clear()
    hub.send("take", "a", amount="3")
    assert words(taken(lowered(snapshot_of(hub), new, shop()), new, shop()))[0] == ("ArgumentTypeChanged", "take")

    @new.accepts("take", from_=2, to=1, args=TakeOf2)
    def take(new: TakeOf2) -> Mapping[str, object]:
        return {"amount": int(new.amount)}

    found = lowered(snapshot_of(hub), new, shop())
    made = taken(found, new, shop())
    assert "take" not in {subject for _, subject in words(made)}

    hub.send("take", "a", amount="three")
    (misfit,) = lowered(snapshot_of(hub), new, shop()).misfits
    assert (misfit.word, misfit.subject, misfit.count) == ("AcceptRaised", "take", 1)


class Purse3(Struct):
    mills: int = 0


class Bill3(Struct):
    mills: int


class Bill2(Struct):
    cents: int


def third() -> Service:
    """Version 3, with the ways down to 2 and from there to 1."""
    made = Service("shop", state=Purse3, version=3)

    @made.handler
    def bill(purse: Purse3, ctx: Context, mills: int) -> int:
        return mills

    @made.migrate(from_=3, to=2)
    def to_second(new: Purse3, m: Migration) -> Purse2:
        return Purse2(new.mills // 10)

    @made.migrate(from_=2, to=1)
    def to_first(new: Purse2, m: Migration) -> Purse:
        return Purse(new.cents // 100)

    @made.accepts("bill", from_=3, to=2, args=Bill3)
    def bill_of_2(new: Bill3) -> Mapping[str, object]:
        return {"cents": new.mills // 10}

    @made.accepts("bill", from_=2, to=1, args=Bill2)
    def bill_of_1(new: Bill2) -> Mapping[str, object]:
        return {"total": new.cents // 100}

    return made


def of_before(state: type, version: int, argument: str) -> Service:
    """A version that knows of no other one, whose handler has this argument."""
    made = Service("shop", state=state, version=version)

    def in_cents(purse: Any, ctx: Context, cents: int) -> int:
        return cents

    def in_units(purse: Any, ctx: Context, total: int) -> int:
        return total

    bill = in_cents if argument == "cents" else in_units
    bill.__annotations__["purse"] = state
    made.handler(name="bill")(bill)
    return made


@pytest.mark.parametrize(
    ("former", "state", "arguments"),
    [
        (of_before(Purse2, 2, "cents"), {"cents": 500, "note": ""}, {"cents": 700}),
        (of_before(Purse, 1, "total"), {"total": 5}, {"total": 7}),
    ],
    ids=["one version", "two versions"],
)
def test_functions_are_composed_over_versions(former: Service, state: object, arguments: object) -> None:
    new = third()
    message = SuspendedMessage(2, Received(Origin(0), "bill", b"a", pack({"mills": 7000})), b"a", 0)
    before = dataclasses.replace(
        snapshot_of(Hub(new)), state={b"a": pack(Purse3(5000))}, invocations=[encode_record(message)]
    )
    made = taken(lowered(before, new, former), new, former)
    assert made.misfits == []
    assert unpack(made.snapshot.state[b"a"]) == state
    (record,) = [decode_record(each) for each in made.snapshot.invocations]
    assert isinstance(record, SuspendedMessage)
    assert unpack(record.received.arguments) == arguments


# ---- what does not -----------------------------------------------------------------------------------------------


def test_without_a_way_down_it_is_refused_and_the_way_is_named() -> None:
    new = second()
    found = lowered(snapshot_of(held_up(new)), new, shop())
    assert [each.text for each in found.misfits] == [
        "NoDownMigration: Purse has no way back to version 1; @shop.migrate(from_=2, to=1) makes one"
    ]


def test_a_key_that_can_not_go_back_is_counted_by_name() -> None:
    new = later()
    hub = Hub(new)
    for key in ("a", "b", "c"):
        hub.call("take", key, amount=-1)
    hub.call("take", "d", amount=1)
    found = lowered(snapshot_of(hub), new, shop())
    (misfit,) = found.misfits
    assert (misfit.word, misfit.count, misfit.of) == ("MigrationRaised", 3, 4)
    assert "owes" in misfit.text


def test_what_the_older_code_does_not_know_is_refused_by_it_with_counts() -> None:
    new = shop(2, state=Purse2)  # neither up nor down: the types are taken to stand
    hub = Hub(new)
    hub.call("take", "a", amount=1)
    assert ("FieldDropped", "Purse.cents") in words(_unwrapped(new, hub))


def _unwrapped(new: Service, hub: Hub) -> Migrated:
    found = lowered(snapshot_of(hub), new, shop())
    made = taken(found, new, shop())
    assert all("let the code that serves give it back otherwise" in each.remedy for each in made.misfits)
    return made


def test_a_handler_that_the_older_code_never_had_can_not_wait() -> None:
    new, former = later(), shop(without=("bonus",))
    hub = held_up(new)
    assert ("HandlerGone", "bonus") in words(lowered(snapshot_of(hub), new, former))


def test_what_was_begun_and_asks_for_something_else_there_is_a_misfit() -> None:
    new = later(first="order")
    hub = held_up(new)
    made = taken(lowered(snapshot_of(hub), new, shop()), new, shop())
    assert ("InFlightDiffers", "pay") in words(made)


def test_a_message_to_ourselves_that_is_on_its_way_holds_it_up() -> None:
    new = later(take="withdraw")
    new.changes(from_=1, renamed={"take": "withdraw"})
    hub = held_up(new, delivered=False)
    assert hub.own
    before = snapshot_of(hub, outbox=[OutboxRecord("", 0, 1, list(hub.own))])
    assert ("MessageOnItsWay", "withdraw") in words(lowered(before, new, shop()))


# ---- maps --------------------------------------------------------------------------------------------------------


class Shelf1(Struct):
    items: Map[str, int] = field(default_factory=Map)


class Shelf2(Struct):
    items: Map[str, str] = field(default_factory=Map)
    note: str = ""


def shelf(version: int, *, whole: bool = True) -> Service:
    """Version 1 or 2, where the items of a map have another type; whole: with a way back of the state itself."""
    state: Any = Shelf1 if version == 1 else Shelf2
    made = Service("shelf", state=state, version=version)

    def put(held: Any, ctx: Context, name: str) -> None:
        held.items[name] = len(name) if version == 1 else str(len(name))

    put.__annotations__["held"] = state
    made.handler(put)
    if version == 2:

        @made.migrate_map("items", from_=2, to=1)
        def down(key: str, item: str, new: str) -> int:
            return int(new)

        if whole:

            @made.migrate(from_=2, to=1)
            def back(new: Shelf2, m: Migration) -> Shelf1:
                return Shelf1(items=cast("Any", new.items))

    return made


def filled(service: Service) -> Hub:
    hub = Hub(service)
    for name in ("apple", "fig"):
        hub.call("put", "a", name=name)
    return hub


def test_items_of_maps_go_back_with_their_keys() -> None:
    new = shelf(2)
    made = taken(lowered(snapshot_of(filled(new)), new, shelf(1)), new, shelf(1))
    assert made.misfits == []
    items = [unpack(each) for key, each in made.snapshot.state.items() if key[:1] == b"\0"]
    assert sorted(items) == [3, 5]
    go_on(made, shelf(1)).call("put", "a", name="pear")


def test_items_alone_whose_type_nobody_says_have_no_way_back() -> None:
    new = shelf(2, whole=False)
    (misfit,) = lowered(snapshot_of(filled(new)), new, shelf(1)).misfits
    assert misfit.word == "NoDownMigration"
    assert misfit.remedy == "@shelf.migrate(from_=2, to=1) says what the older state is"


def test_handlers_that_are_suspended_over_a_map_hold_it_up() -> None:
    new = make(version=2, shelf=ShelfOfTwo)

    @new.migrate(from_=2, to=1)
    def back(held: ShelfOfTwo, m: Migration) -> Shelf:
        return Shelf(items=held.items, seen=held.seen)

    hub = begun(new)
    assert words(lowered(snapshot_of(hub), new, make())) == [("InFlightMaps", "ShelfOfTwo")]


@pytest.mark.parametrize("left_out", [True, False])
def test_safeguard_without_lowering_the_older_code_reads_nothing_of_it(*, left_out: bool) -> None:
    """Where the later code's bytes were handed on as they are, every key would be refused, and none read as empty."""
    new = later()
    hub = Hub(new)
    hub.call("take", "a", amount=1)
    before = snapshot_of(hub)
    given = before if left_out else lowered(before, new, shop()).snapshot
    serves = interface_of(new, LIMITS)
    made = migrate_snapshot(given, shop(), serves, limits=LIMITS, seed=SEED, time_us=9, lowered=True)
    assert [each.word for each in made.misfits] == (["FieldDropped", "FieldDropped"] if left_out else [])
