"""What new code goes on with of all that former code held, and what it is refused for."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from tests.unit.deathless.execution.executor_bench import SEED, Keys
from tests.unit.deathless.execution.messaging_bench import Hub, executor_of
from tests.unit.deathless.execution.saga_versions import STOCK, Shelf, ShelfOfTwo, begun, make, response

from deathless.base.ids import ChainHash, Digest, Epoch, Fingerprint, Incarnation, Lsn
from deathless.base.limits import Limits
from deathless.base.times import Times
from deathless.codec.checkpoint_ahead import changes_between
from deathless.codec.messages import Kind, encode
from deathless.codec.snapshot import OutboxRecord, ParkedRecord, Snapshot
from deathless.execution import snapshot_migration
from deathless.execution.author.migration import Migration
from deathless.execution.author.service import Service
from deathless.execution.examination import meet
from deathless.execution.executor import HandlerExecutor
from deathless.execution.interface.interface import interface_of
from deathless.execution.invocations.journal import SuspendedHeld, SuspendedInvocation, decode_record, encode_record
from deathless.execution.invocations.misfits import IN_FLIGHT_DIFFERS
from deathless.execution.migration.ahead import Ahead, known_in
from deathless.execution.snapshot_migration import Migrated, migrate_snapshot
from deathless.execution.turn.context import Context

pack = msgspec.msgpack.encode
LIMITS = Limits()


class Purse(msgspec.Struct):
    """State."""

    total: int = 0


class Purse2(msgspec.Struct):
    """The same under another name, and a field more."""

    cents: int = 0
    note: str = ""


def shop(
    version: int = 1,
    *,
    state: type = Purse,
    pay: str = "pay",
    take: str = "take",
    charge: str = "charge",
    tick: str = "tick",
    expects: Any = int,
    gives: Any = int,
    paid: Any = str,
    amount: Any = int,
    first: str = "reserve",
    without: tuple[str, ...] = (),
) -> Service:
    """Give a version of a service.

    Args:
        version: its number.
        state: its type, whose first field holds the money.
        pay: name of the handler that waits.
        take: name of the one that it calls.
        charge: name of its activity.
        tick: name of the handler of a schedule.
        expects: what `pay` expects of `take`.
        gives: what `take` gives.
        paid: what the activity gives.
        amount: type of `take`'s argument.
        first: the peer's handler that `pay` calls.
        without: handlers that are gone.
    """
    service, money = Service("shop", state=state, version=version), state.__struct_fields__[0]  # type: ignore[attr-defined]  # it is a Struct
    unit = 100 if money == "cents" else 1

    def charges(cents: int) -> Any:
        return str(cents)

    async def pays(purse: Any, ctx: Context, amount: int) -> str:
        setattr(purse, money, getattr(purse, money) + unit * amount)
        own = ctx.call("shop", "other", take, {"amount": 1}, result=expects)
        charged = ctx.run(charges, amount)
        there = ctx.call("stock", "apples", first, {}, result=int)
        await ctx.gather(own, charged, there)
        return "done"

    def takes(purse: Any, ctx: Context, amount: Any) -> Any:
        setattr(purse, money, getattr(purse, money) + unit * amount)
        return getattr(purse, money)

    def bonus(purse: Any, ctx: Context) -> None:
        setattr(purse, money, 0)

    def ticks(purse: Any, ctx: Context) -> None:
        setattr(purse, money, 1)

    charges.__annotations__["return"] = paid
    takes.__annotations__ |= {"return": gives, "amount": amount}
    service.activity(name=charge)(charges)
    handlers: dict[str, Any] = {pay: pays, take: takes, "bonus": bonus, tick: ticks}
    for name, function in handlers.items():
        function.__annotations__["purse"], function.__name__ = state, name
        if name == tick:
            service.schedule("*/10 * * * *", key="ticks")(function)
        elif name not in without:
            service.handler(function)
    return service


def second(**version: Any) -> Service:
    """Give version 2, whose state has another shape, with a migration."""
    made = shop(2, state=Purse2, **version)

    @made.migrate(from_=1)
    def purse(old: Purse, m: Migration) -> Purse2:
        return Purse2(old.total * 100)

    return made


def snapshot_of(hub: Hub, **more: Any) -> Snapshot:
    return Snapshot(
        service="shop",
        service_id=bytes(16),
        incarnation=Incarnation(1),
        epoch=Epoch(1),
        lsn=Lsn(hub.lsn),
        chain=ChainHash(bytes(16)),
        digest=Digest(bytes(16)),
        times=Times.at(hub.now_us),
        fingerprint=Fingerprint(bytes(16)),
        state=dict(hub.executor.state()),
        invocations=hub.executor.suspended(),
        **more,
    )


def held_up(service: Service | None = None, *, delivered: bool = True) -> Hub:
    """Give a hub where `pay` holds key a and waits for all that it can, and two messages wait for that key."""
    hub = Hub(service or shop())
    hub.tick()
    hub.send("take", "b", amount=7)
    hub.begin("pay", "a", amount=5)
    hub.send("take", "a", amount=3)
    hub.send("bonus", "a")
    if delivered:
        [call] = hub.own
        hub.own.clear()
        hub.receive(call)
    return hub


HUB, PAY = held_up(), 3
WITH_REPLY = snapshot_of(HUB, outbox=[OutboxRecord("", 0, 2, list(HUB.own))])


def migrated(
    snapshot: Snapshot, service: Service, before: Service | None = None, *, limits: Limits = LIMITS
) -> Migrated:
    """Migrate, and see to it that nothing of what is given changes, nor anything that is refused."""
    kept = copy.deepcopy((snapshot.state, snapshot.invocations, snapshot.outbox, snapshot.parked))
    old = interface_of(before or shop(), LIMITS)
    found = migrate_snapshot(snapshot, service, old, limits=limits, seed=SEED, time_us=9)
    assert kept == (snapshot.state, snapshot.invocations, snapshot.outbox, snapshot.parked)
    again = migrate_snapshot(snapshot, service, old, limits=limits, seed=SEED, time_us=9)
    assert (again.snapshot, again.misfits) == (found.snapshot, found.misfits), "a function of its arguments"
    return found


def words(found: Migrated) -> list[tuple[str, str]]:
    return [(each.word, each.subject) for each in found.misfits]


def going_on(found: Migrated, service: Service) -> HandlerExecutor:
    """Give an executor of the new code with what was made."""
    assert not found.misfits
    executor = executor_of(service, Keys())
    executor.restore(dict(found.snapshot.state), found.snapshot.invocations)
    return executor


def go_on(found: Migrated, service: Service) -> Hub:
    hub = Hub(service)
    hub.executor = going_on(found, service)
    hub.lsn, hub.now_us = HUB.lsn, HUB.now_us
    return hub


# ---- what fits ---------------------------------------------------------------------------------------------------


def began_in(snapshot: Snapshot, version: int) -> Snapshot:
    """Give a snapshot whose handlers that wait are kept as begun in this version; 0: in the present one."""
    records = list(snapshot.invocations)
    for at, data in enumerate(records):
        record = decode_record(data)
        if isinstance(record, SuspendedInvocation):
            records[at] = encode_record(msgspec.structs.replace(record, begun_in=version))
    return dataclasses.replace(snapshot, invocations=records)


@pytest.mark.parametrize("version", [1, 2])
def test_compatible_code_leaves_everything_byte_for_byte(version: int) -> None:
    parked = [ParkedRecord(2, 1, 1, encode(Kind.CALL, method=b"gone", key=b"z", args=pack({})))]
    before = snapshot_of(HUB, outbox=WITH_REPLY.outbox, parked=parked)
    found = migrated(before, shop(version))
    assert (found.misfits, found.compatible, found.keys) == ([], True, len(before.state))
    assert found.snapshot == began_in(before, 0 if version == 1 else 1)
    assert [(each.word, each.count) for each in found.notes] == [("HandlerGone", 1)], "a parked message is a note"


def test_state_that_one_handler_holds_while_others_wait_is_migrated_and_all_goes_on() -> None:
    new = second()
    found = migrated(WITH_REPLY, new)
    assert (found.misfits, found.compatible, found.keys) == ([], False, 3)
    states = {key: msgspec.msgpack.decode(state) for key, state in found.snapshot.state.items()}
    assert states == {
        b"a": {"cents": 500, "note": ""},
        b"b": {"cents": 700, "note": ""},
        b"other": {"cents": 100, "note": ""},
    }
    as_it_was = dataclasses.replace(found.snapshot, state=WITH_REPLY.state, invocations=WITH_REPLY.invocations)
    assert as_it_was == WITH_REPLY, "all the rest"
    hub = go_on(found, new)
    assert hub.executor.crowd().waiting == 2, "both messages wait for their key"
    hub.receive(*HUB.own)
    assert len(hub.waiting()[PAY]) == 2, "the former code's reply counts"


def test_renamed_handlers_activities_and_schedules_go_through() -> None:
    names = {"pay": "settle", "take": "withdraw", "charge": "bill", "tick": "tock", "tick/ticks": "tock/ticks"}
    new = second(pay="settle", take="withdraw", charge="bill", tick="tock")
    assert {word for word, _ in words(migrated(WITH_REPLY, new))} == {"HandlerGone", "ActivityGone", "ScheduleGone"}
    new.changes(from_=1, renamed=names)
    found = migrated(WITH_REPLY, new)
    executor = going_on(found, new)
    assert [view.handler for view in executor.invocations() if view.waits_for][:1] == ["settle"]
    assert [start.name for start in executor.activities()] == ["bill"]
    assert executor.restoration.schedule_changes() == []
    assert [each.word for each in found.notes].count("Renamed") == 5


def test_a_message_for_a_removed_handler_fails_where_its_author_says_so() -> None:
    new = second(without=("bonus",))
    new.changes(from_=1, removed={"bonus": "refuse"})
    assert words(migrated(WITH_REPLY, new)) == [("HandlerGone", "bonus")]
    new = second(without=("bonus",))
    new.changes(from_=1, removed={"bonus": "fail"})
    found = migrated(WITH_REPLY, new)
    assert {(each.word, each.subject) for each in found.notes} >= {("HandlerGone", "bonus"), ("Removed", "bonus")}
    hub = go_on(found, new)
    hub.receive(*HUB.own)
    hub.outcome(hub.executor.activities()[0], "5")
    hub.receive(response(PAY, 3, 1), peer=STOCK)
    assert hub.result(PAY) == "done"
    assert hub.value_of("a") == {"cents": 800, "note": ""}
    assert hub.executor.crowd().waiting == 0, "`bonus` has failed"


# ---- what does not ------------------------------------------------------------------------------------------------


def without_migration(**version: Any) -> Service:
    return shop(2, state=Purse2, **version)


def raising() -> Service:
    made = shop(2, state=Purse2)

    @made.migrate(from_=1)
    def purse(old: Purse, m: Migration) -> Purse2:
        raise ValueError("no way")

    return made


def with_other_keys() -> Service:
    made = second()

    @made.migrate_key(from_=1)
    def key(old: str) -> str:
        return old.upper()

    return made


def of_one_object() -> Service:
    return Service("shop", state=Purse, single=True)


REFUSED: Mapping[str, tuple[Callable[[], Service], list[tuple[str, str]]]] = {
    "a field is gone": (without_migration, [("FieldDropped", "Purse.total")]),
    "a function raises": (raising, [("MigrationRaised", "purse")]),
    "keys get other names": (
        with_other_keys, [("KeysRenamed", "keys")],
    ),
    "one object": (of_one_object, [("KeyingChanged", "single")]),
    "another call": (lambda: second(first="order"), [(IN_FLIGHT_DIFFERS, "pay")]),
    "arguments of a message": (lambda: second(amount=str), [("ArgumentTypeChanged", "take.amount")]),
    "a result of a handler": (lambda: second(gives=str), [("ResultTypeChanged", "take")]),
    "a result of an activity": (lambda: second(paid=int), [("ResultTypeChanged", "charge")]),
    "what is expected of a call": (lambda: second(expects=str), [("ResultTypeChanged", "take")]),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_place_is_named_and_nothing_changes(name: str) -> None:
    make_new, expected = REFUSED[name]
    found = migrated(WITH_REPLY, make_new())
    assert [each for each in words(found) if each in expected] == expected, words(found)
    assert all(each.text for each in found.misfits)


def test_a_result_that_may_be_nothing_is_not_taken_for_one_that_may_not() -> None:
    """Callers may read what is narrower now, but what the former code gave is on its way to whoever waits."""
    old = shop(gives=int | None, expects=int | None)
    hub = held_up(old)
    snapshot = snapshot_of(hub)
    assert migrated(snapshot, shop(2, gives=int, expects=int | None), old).misfits == []
    found = migrated(snapshot, shop(2, gives=int), old)
    [misfit] = found.misfits
    assert (misfit.word, misfit.subject, misfit.count, misfit.first) == ("ResultTypeChanged", "take", 1, "lsn 3")
    assert "handlers that wait expect int of take, which gives" in misfit.what


def test_what_nothing_was_said_about_may_be_anything() -> None:
    old = shop(expects=None)
    assert migrated(snapshot_of(held_up(old)), shop(2, expects=None), old).misfits == []


def test_a_call_to_ourselves_that_is_on_its_way_must_stay_as_it_is() -> None:
    hub = held_up(delivered=False)
    snapshot = snapshot_of(hub, outbox=[OutboxRecord("", 0, 1, list(hub.own)), OutboxRecord("stock", 0, 1, [])])
    assert migrated(snapshot, second()).misfits == []
    new = second(take="withdraw")
    new.changes(from_=1, renamed={"take": "withdraw"})
    [misfit] = migrated(snapshot, new).misfits
    assert (misfit.word, misfit.subject, misfit.first) == ("MessageOnItsWay", "take", "position 1 of our own outbox")


def test_a_record_that_is_held_is_refused_by_name_until_the_code_fits_it() -> None:
    other = executor_of(shop(first="order"), Keys())
    other.restore(dict(WITH_REPLY.state), WITH_REPLY.invocations, same_code=False)
    snapshot = dataclasses.replace(WITH_REPLY, invocations=other.suspended())
    assert [decode_record(each).__class__ for each in snapshot.invocations].count(SuspendedHeld) == 1
    found = migrated(snapshot, second(first="order"))
    [misfit] = found.misfits
    assert (misfit.word, misfit.subject, misfit.first) == (IN_FLIGHT_DIFFERS, "pay", "lsn 3, key a")
    assert "asks for stock.order in turn 1, had asked for stock.reserve" in misfit.what
    new = second()
    executor = going_on(migrated(snapshot, new), new)
    assert executor.held_count() == 0
    assert [start.name for start in executor.activities()] == ["charge"]
    assert words(migrated(snapshot, second(without=("pay",)))) == [("HandlerGone", "pay")], "it counts as under way"


# ---- maps ----------------------------------------------------------------------------------------------------------


def restocked() -> Service:
    made = make(version=2, shelf=ShelfOfTwo)

    @made.migrate(from_=1)
    def shelf(old: Shelf, m: Migration) -> ShelfOfTwo:
        return ShelfOfTwo(items=old.items, seen=old.seen, note="was here")

    @made.migrate_map("items", from_=1)
    def items(key: str, item: str, old: int) -> int:
        return old + 1

    return made


def test_items_of_maps_are_migrated_with_their_keys() -> None:
    hub = Hub(make())
    for key in ("a", "b"):
        for name in ("apple", "pear"):
            hub.call("put", key, name=name)
    before, new = snapshot_of(hub), restocked()
    found = migrated(before, new, make())
    assert found.misfits == []
    executor = going_on(found, new)
    items = {key: msgspec.msgpack.decode(each) for key, each in executor.state().items() if key[:1] == b"\0"}
    old = {key: msgspec.msgpack.decode(each) for key, each in before.state.items() if key[:1] == b"\0"}
    assert sorted(items.values()) == [5, 5, 6, 6]
    assert items == {key: each + 1 for key, each in old.items()}


def test_handlers_that_are_suspended_over_a_map_hold_a_change_of_its_state_up() -> None:
    snapshot = snapshot_of(begun())
    assert migrated(snapshot, make(), make()).snapshot == snapshot
    found = migrated(snapshot, restocked(), make())
    assert ("InFlightMaps", "ShelfOfTwo") in words(found)


# ---- many ----------------------------------------------------------------------------------------------------------


def test_ten_thousand_suspended_handlers_are_met() -> None:
    hub = Hub(shop())
    for number in range(10_000):
        hub.begin("pay", f"k{number}", amount=1)
    hub.own.clear()
    found = migrate_snapshot(
        snapshot_of(hub), second(), interface_of(shop(), LIMITS), limits=LIMITS, seed=SEED, time_us=9
    )
    assert (found.misfits, found.keys) == ([], 10_000)
    records = [decode_record(each) for each in found.snapshot.invocations]
    assert sum(isinstance(each, SuspendedInvocation) for each in records) == 10_000
    refused = migrate_snapshot(
        snapshot_of(hub), second(expects=str), interface_of(shop(), LIMITS), limits=LIMITS, seed=SEED, time_us=9
    )
    assert [(each.word, each.count) for each in refused.misfits] == [("ResultTypeChanged", 10_000)]


def test_meeting_changes_nothing_of_what_it_is_given() -> None:
    state, suspended = dict(WITH_REPLY.state), list(WITH_REPLY.invocations)
    met = meet(shop(), LIMITS, SEED, state, suspended)
    assert (met.suspended, state) == (suspended, dict(WITH_REPLY.state))
    assert met.examination.misfits == []


# ---- what was done ahead -----------------------------------------------------------------------------------------


def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Give a list that gets the handlers which are run again."""
    ids: list[int] = []

    def meets(*arguments: Any, **named: Any) -> Any:
        records = map(decode_record, arguments[4])
        ids.extend(each.id for each in records if isinstance(each, SuspendedInvocation))
        return meet(*arguments, **named)

    monkeypatch.setattr(snapshot_migration, "meet", meets)
    return ids


def ahead_of(found: Migrated) -> Ahead:
    assert not found.misfits
    return Ahead(dict(found.snapshot.state), known_in(found.former, found.snapshot.invocations))


def since(before: Snapshot, now: Snapshot) -> Snapshot:
    """Give a checkpoint of which the state holds only what changed since another one."""
    changed, gone = changes_between(before.state, now.state)
    assert not gone
    return dataclasses.replace(now, state=changed)


def test_at_the_cut_only_handlers_that_changed_since_are_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    hub, new, old = held_up(), second(), interface_of(shop(), LIMITS)
    for key in ("c", "d", "e"):
        hub.begin("pay", key, amount=1)
    before = snapshot_of(hub)
    ahead = ahead_of(migrated(before, new))
    hub.receive(*hub.own)  # the replies to a and others
    hub.begin("pay", "f", amount=2)
    hub.send("take", "d", amount=2)
    now = snapshot_of(hub)
    whole = migrated(now, new)
    ids = looked_at(monkeypatch)
    for _ in range(2):
        found = migrate_snapshot(since(before, now), new, old, limits=LIMITS, seed=SEED, time_us=9, ahead=ahead)
        assert (found.snapshot, found.misfits) == (whole.snapshot, whole.misfits)
    waiting = [each for each in map(decode_record, now.invocations) if isinstance(each, SuspendedInvocation)]
    changed = [each.id for each in waiting if encode_record(each) not in before.invocations]
    assert ids == changed * 2
    assert 0 < len(changed) < len(waiting)


def test_a_handler_that_does_not_fit_is_found_at_the_cut_where_it_came_behind_the_trial() -> None:
    hub = Hub(shop())
    hub.send("take", "b", amount=7)
    before = snapshot_of(hub)
    new, old = second(first="order"), interface_of(shop(), LIMITS)
    ahead = ahead_of(migrated(before, new))
    hub.begin("pay", "a", amount=5)
    found = migrate_snapshot(
        since(before, snapshot_of(hub)), new, old, limits=LIMITS, seed=SEED, time_us=9, ahead=ahead
    )
    assert words(found) == [(IN_FLIGHT_DIFFERS, "pay")]
