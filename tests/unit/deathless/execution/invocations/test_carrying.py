"""A suspended handler that the new code does not fit goes on as its author says, once, under the same identity."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal

import msgspec
import pytest
from tests.unit.deathless.execution.executor_bench import SEED, Keys
from tests.unit.deathless.execution.messaging_bench import Hub, executor_of, reference
from tests.unit.deathless.execution.saga_versions import STOCK, response
from tests.unit.deathless.execution.test_snapshot_migration import LIMITS, migrated, snapshot_of

from deathless.codec.messages import Kind, decode, encode
from deathless.codec.peer_messages import Order, Reference, Request, Target, encode_body
from deathless.codec.snapshot import Snapshot
from deathless.execution.author.carry import Continue, Suspended
from deathless.execution.author.migration import Migration
from deathless.execution.author.service import Service
from deathless.execution.interface.interface import interface_of
from deathless.execution.invocations.journal import SuspendedHeld, decode_record, decode_suspended
from deathless.execution.maps.map import Map
from deathless.execution.snapshot_migration import Migrated, migrate_snapshot
from deathless.execution.turn.context import Context

pack = msgspec.msgpack.encode
CALLER = Target("caller", 0)


class Purse(msgspec.Struct):
    """State of version 1."""

    seen: list[str] = []


class PurseOfTwo(msgspec.Struct):
    """State of version 2."""

    seen: list[str] = []
    note: str = ""


WaitsFor = Literal["promise", "timer", "activity", "once", "call"]
Carry = Callable[[Suspended, PurseOfTwo], Continue]


def first(waits_for: WaitsFor = "promise", *, shared: bool = False) -> Service:
    """Give version 1: a saga that was given what it reserved, and waits for something else."""
    service = Service("shop", state=Purse)

    @service.activity
    def reserve(item: str) -> int:
        return len(item)

    @service.activity(at_most_once=waits_for == "once")
    def charge(cents: int) -> str:
        return str(cents)

    @service.handler(shared=shared)
    async def saga(purse: Purse, ctx: Context, item: str) -> int:
        purse.seen.append("began")
        number = await ctx.run(reserve, item)
        purse.seen.append("reserved")
        waits: dict[str, Callable[[], Any]] = {
            "promise": lambda: ctx.promise(int),
            "timer": lambda: ctx.timer(after=timedelta(days=1)),
            "activity": lambda: ctx.run(charge, 5),
            "once": lambda: ctx.run(charge, 5),
            "call": lambda: ctx.call("stock", "apples", "take", {}, result=int),
        }
        await waits[waits_for]()
        return number

    @service.handler
    def look(purse: Purse, ctx: Context) -> list[str]:
        return purse.seen

    return service


def ship_it(old: Suspended, purse: PurseOfTwo) -> Continue:
    return Continue("ship", item=str(old.arguments["item"]), number=old.given("reserve", int), seen=len(purse.seen))


def second(carry: Carry | None = ship_it, *, shared: bool = False, saga: bool = False) -> Service:
    """Give version 2, which has no such saga, or one that does something else."""
    service = Service("shop", state=PurseOfTwo, version=2)

    @service.migrate(from_=1)
    def up(old: Purse, m: Migration) -> PurseOfTwo:
        return PurseOfTwo([*old.seen, "migrated"])

    @service.activity
    def reserve(item: str) -> int:
        return len(item)

    @service.activity
    def charge(cents: int) -> str:
        return str(cents)

    @service.handler(shared=shared)
    async def ship(purse: PurseOfTwo, ctx: Context, item: str, number: int, seen: int) -> int:
        purse.seen.append(f"ships {item} {number} {seen}")
        return number + int(await ctx.run(charge, 7))

    @service.handler
    def look(purse: PurseOfTwo, ctx: Context) -> list[str]:
        return purse.seen

    if saga:

        @service.handler(shared=shared, name="saga")
        async def other(purse: PurseOfTwo, ctx: Context, item: str) -> int:
            return await ctx.promise(int)

    if carry is not None:
        service.carry("saga", from_=1)(carry)
    return service


def suspended(waits_for: WaitsFor = "promise", *, asked_by: Target | None = None, shared: bool = False) -> Hub:
    """Give a hub of version 1 where a saga waits, and a message waits for its key."""
    hub = Hub(first(waits_for, shared=shared))
    hub.tick(1_000)
    if asked_by is None:
        hub.begin("saga", "a", item="apple")
    else:
        envelope = encode_body(Request(77, 3, 0, ()))
        message = encode(Kind.REQUEST, method=b"saga", key=b"a", idempotency_key=envelope, args=pack({"item": "apple"}))
        hub.receive(message, peer=asked_by)
    hub.outcome(hub.starts[0], 5)
    hub.send("look", "a")
    return hub


def carried(hub: Hub, service: Service) -> tuple[Migrated, Hub]:
    """Migrate, and go on with what comes of it."""
    snapshot = snapshot_of(hub)
    found = migrated(snapshot, service, first())
    assert found.misfits == []
    after = Hub(service)
    after.executor = executor_of(service, Keys())
    after.executor.restore(dict(found.snapshot.state), found.snapshot.invocations)
    after.lsn, after.now_us = hub.lsn, hub.now_us
    return found, after


def refused(hub: Hub, service: Service) -> list[tuple[str, str, int]]:
    found = migrated(snapshot_of(hub), service, first())
    return [(each.word, each.what, each.count) for each in found.misfits]


# ---- what goes on ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("saga", [False, True], ids=["handler gone", "handler asks for something else"])
@pytest.mark.parametrize("shared", [False, True])
def test_it_goes_on_in_the_new_handler_and_its_reply_comes_once(saga: bool, shared: bool) -> None:
    hub = suspended(shared=shared)
    [invocation] = [view.invocation for view in hub.executor.invocations() if view.handler == "saga"]
    found, after = carried(hub, second(saga=saga, shared=shared))
    assert (found.carried, found.compatible) == (1, False)
    assert [each.text for each in found.notes if each.word == "Carried"] == [
        f"Carried: saga does not fit, and goes on as ship, 1 of 1 invocation (it is lsn {invocation}, key a)"
    ]
    assert after.results == {}, "nothing is begun without a place in the log"
    after.tick()
    assert msgspec.convert(after.value_of("a"), PurseOfTwo).seen[:4] == [
        "began",
        "reserved",
        "migrated",
        "ships apple 5 3",
    ]
    after.outcome(after.starts[-1], "7")
    after.settle()
    assert after.result(invocation) == 12
    assert after.executor.crowd().invocations == 0
    after.restart()


def test_it_keeps_its_key_before_what_came_later_also_until_it_begins() -> None:
    hub = suspended()
    _, after = carried(hub, second())
    waiting = after.executor.crowd()
    assert (waiting.invocations, waiting.waiting) == (2, 1)
    after.send("look", "a")
    assert after.executor.crowd().waiting == 2, "nothing overtakes it"
    after.tick()
    after.restart()
    assert after.executor.crowd().waiting == 2, "it holds its key, as another handler does"
    after.outcome(after.starts[-1], "7")
    assert after.executor.crowd().invocations == 0


def test_whoever_asked_for_it_from_another_service_gets_the_reply() -> None:
    hub = suspended(asked_by=CALLER)
    _, after = carried(hub, second())
    after.tick()
    after.outcome(after.starts[-1], "7")
    [(target, message)] = after.sent
    assert (target, decode(message).kind, reference(message)) == (CALLER, Kind.RESPONSE, Reference(77, 3))


def test_what_comes_late_for_the_former_handler_is_not_taken_for_the_new_ones() -> None:
    hub = suspended("activity")
    _, after = carried(hub, second())
    late = hub.starts[-1]
    after.outcome(late, "5")
    after.tick()
    assert after.starts[-1].operation > late.operation
    assert after.starts[-1].key != late.key, "the activity runs as another one"
    after.outcome(late, "5")
    assert late.invocation not in after.results
    after.outcome(after.starts[-1], "7")
    assert after.result(late.invocation) == 12


def test_caller_that_gave_up_and_operator_that_ends_it_are_heard_before_it_begins() -> None:
    hub = suspended()
    _, after = carried(hub, second())
    [invocation] = [view.invocation for view in after.executor.invocations() if view.handler == "ship"]
    after.record(Order("cancel", invocation))
    assert after.failure(invocation) == "DL3019 Cancelled"
    hub = suspended(asked_by=CALLER)
    _, after = carried(hub, second())
    gave_up = encode(Kind.CANCEL, idempotency_key=encode_body(Reference(77, 3)))
    after.receive(gave_up, peer=CALLER)
    after.tick()
    assert after.executor.crowd().invocations == 0, "its handler saw it where it waited first"


def test_it_is_the_same_behind_every_restart_and_other_code_may_meet_it_before_it_begins() -> None:
    hub = suspended()
    found, after = carried(hub, second())
    after.restart()
    assert after.executor.suspended() == found.snapshot.invocations
    again = snapshot_of(after)
    met = migrate_snapshot(again, second(), interface_of(second(), LIMITS), limits=LIMITS, seed=SEED, time_us=9)
    assert (met.misfits, met.snapshot.invocations) == ([], again.invocations)
    gone = Service("shop", state=PurseOfTwo, version=2)
    gone.handler(_plain("look"))
    met = migrate_snapshot(again, gone, interface_of(second(), LIMITS), limits=LIMITS, seed=SEED, time_us=9)
    assert "HandlerGone" in {each.word for each in met.misfits}


def _plain(name: str) -> Callable[[PurseOfTwo, Context], list[str]]:
    def handler(purse: PurseOfTwo, ctx: Context) -> list[str]:
        return purse.seen

    handler.__name__ = name
    return handler


def test_handler_that_fits_is_not_carried() -> None:
    hub = suspended("timer")
    service = first("timer")
    same = Service("shop", state=Purse, version=2)
    for activity in service.activities.values():
        same.activity(name=activity.name)(activity.function)
    for spec in service.specs.values():
        if spec.kind == "handler" and "." not in spec.name:
            same.handler(name=spec.name)(spec.function)

    @same.carry("saga", from_=1)
    def never(old: Suspended, purse: Purse) -> Continue:
        raise AssertionError("it fits")

    found = migrated(snapshot_of(hub), same, service)
    assert (found.misfits, found.carried) == ([], 0)


# ---- what is refused ---------------------------------------------------------------------------------------------


def test_without_it_the_same_handler_is_refused() -> None:
    assert [each[0] for each in refused(suspended(), second(None))] == ["HandlerGone"]
    [(word, what, _)] = refused(suspended(), second(None, saga=True))
    assert (word, what) == ("InFlightDiffers", "saga asks for a promise in turn 1, had asked for activity reserve")


@pytest.mark.parametrize(
    ("waits_for", "named"), [("once", "activity charge, which runs at most once"), ("call", "stock.take")]
)
def test_what_can_not_be_taken_back_is_waited_for(waits_for: WaitsFor, named: str) -> None:
    hub = suspended(waits_for)
    [(word, what, count)] = refused(hub, second())
    assert (word, count) == ("CarryOpen", 1)
    assert f"saga can't be carried while it waits for {named}" in what


@pytest.mark.parametrize("waits_for", ["promise", "timer", "activity"])
def test_what_may_be_done_again_is_given_up(waits_for: WaitsFor) -> None:
    hub = suspended(waits_for)
    _, after = carried(hub, second())
    assert after.executor.activities() == []
    after.tick()
    assert [start.name for start in after.starts] == ["charge"]


COUNTER = itertools.count()


def raises(old: Suspended, purse: PurseOfTwo) -> Continue:
    return Continue("ship", number=old.given("refund"))


def names_nothing(old: Suspended, purse: PurseOfTwo) -> Continue:
    return Continue("look")


def lacks_arguments(old: Suspended, purse: PurseOfTwo) -> Continue:
    return Continue("ship", number=1)


def counts(old: Suspended, purse: PurseOfTwo) -> Continue:
    return Continue("ship", item="a", number=next(COUNTER), seen=0)


def changes_the_state(old: Suspended, purse: PurseOfTwo) -> Continue:
    purse.note = "carried"
    return Continue("ship", item="a", number=1, seen=0)


def gives_nothing(old: Suspended, purse: PurseOfTwo) -> Continue:
    return None  # type: ignore[return-value]  # as authors do


@pytest.mark.parametrize(
    ("carry", "word", "said"),
    [
        (raises, "CarryRaised", "raised KeyError: 'refund'"),
        (gives_nothing, "CarryRaised", "it gave NoneType, not Continue"),
        (names_nothing, "CarryUnfit", "names 'look', which is no `async def` handler"),
        (lacks_arguments, "CarryUnfit", "gave what ship does not take: ValidationError"),
        (changes_the_state, "CarryUnfit", "changes the state"),
        (counts, "CarryNotDeterministic", "gets another way to go on each time"),
    ],
)
def test_what_an_author_gives_wrong_is_refused_by_name(carry: Carry, word: str, said: str) -> None:
    found = migrate_snapshot(
        snapshot_of(suspended()), second(carry), interface_of(first(), LIMITS), limits=LIMITS, seed=SEED, time_us=9
    )
    [misfit] = found.misfits
    assert (misfit.word, misfit.subject, misfit.count, misfit.of) == (word, "saga", 1, 1)
    assert said in misfit.what
    assert "had asked" in misfit.what or "no `async def`" in misfit.what or "can't be translated" in misfit.what


def test_handler_that_holds_its_key_is_not_carried_into_one_that_shares_it() -> None:
    [(word, what, _)] = refused(suspended(), second(shared=True))
    assert word == "CarryUnfit"
    assert "the handler holds its key, and that one shares it" in what


def test_messages_that_wait_for_a_handler_that_is_gone_are_not_carried() -> None:
    hub = suspended()
    hub.send("saga", "a", item="pear")
    assert ("HandlerGone", 1) in {(word, count) for word, _, count in refused(hub, second())}


def test_record_of_an_older_release_says_too_little_to_be_carried() -> None:
    hub = suspended()
    snapshot = snapshot_of(hub)
    records = [_of_version_1(data) for data in snapshot.invocations]
    old = Snapshot(**{name: getattr(snapshot, name) for name in snapshot.__slots__} | {"invocations": records})
    found = migrate_snapshot(old, second(), interface_of(first(), LIMITS), limits=LIMITS, seed=SEED, time_us=9)
    assert [(each.word, "a release wrote its record" in each.what) for each in found.misfits] == [("CarryUnfit", True)]


def _of_version_1(data: bytes) -> bytes:
    try:
        record = decode_suspended(data)
    except Exception:  # noqa: BLE001  a message that waits
        return data
    return pack(msgspec.structs.replace(record, asked=None))


# ---- what an author sees -----------------------------------------------------------------------------------------


def test_author_is_told_what_the_handler_was_given_and_what_it_waits_for() -> None:
    seen: list[tuple[object, ...]] = []

    def look(old: Suspended, purse: PurseOfTwo) -> Continue:
        seen.append((
            old.handler, old.key, old.arguments, old.waits_for, old.given("reserve"), old.has("reserve"),
            old.has("charge"), old.failure("reserve"), purse,
        ))  # fmt: skip
        return ship_it(old, purse)

    carried(suspended("activity"), second(look))
    state = PurseOfTwo(["began", "reserved", "migrated"])
    expected = ("saga", "a", {"item": "apple"}, ("activity charge",), 5, True, False, "", state)
    assert set(map(repr, seen)) == {repr(expected)}


def test_results_of_calls_and_failures_are_found_by_their_names() -> None:
    service = Service("shop", state=Purse)

    @service.handler
    async def saga(purse: Purse, ctx: Context, item: str) -> int:
        await ctx.call("stock", "apples", "take", {}, result=int)
        try:
            await ctx.call("stock", "apples", "pack", {}, result=int)
        except Exception:  # noqa: BLE001  whatever it is, it goes on
            purse.seen.append("not packed")
        await ctx.promise(str)
        return await ctx.promise(int)

    found: list[object] = []

    def look(old: Suspended, purse: PurseOfTwo) -> Continue:
        found.append((old.given("take"), old.given("stock.take", int), old.failure("stock.pack"), old.given("promise")))
        return Continue("ship", item="a", number=1, seen=0)

    hub = Hub(service)
    hub.tick(1_000)
    invocation = hub.begin("saga", "a", item="apple")
    hub.receive(response(invocation, 1, 7), peer=STOCK)
    failed = encode(
        Kind.RESPONSE, idempotency_key=encode_body(Reference(invocation, 2)), args=b"\x01" + pack(["DL3014", "E", "no"])
    )
    hub.receive(failed, peer=STOCK)
    hub.record(Order("resume", invocation, 3, b"\x00" + pack("word")))
    assert migrated(snapshot_of(hub), second(look), service).carried == 1
    assert set(map(repr, found)) == {repr((7, 7, "DL3014 E: no", "word"))}


class Shelf(msgspec.Struct):
    """A state with a map."""

    items: Map[str, int] = msgspec.field(default_factory=Map)


def test_maps_of_the_state_may_be_read_and_not_changed() -> None:
    def service(version: int, carry: Callable[[Suspended, Shelf], Continue] | None = None) -> Service:
        made = Service("shop", state=Shelf, version=version)

        async def saga(shelf: Shelf, ctx: Context) -> int:
            shelf.items["a"] = 4
            return await ctx.promise(int)

        async def ship(shelf: Shelf, ctx: Context, number: int) -> int:
            return number

        made.handler(saga if version == 1 else ship)
        if carry is not None:
            made.carry("saga", from_=1)(carry)
        return made

    def reads(old: Suspended, shelf: Shelf) -> Continue:
        return Continue("ship", number=shelf.items["a"])

    def writes(old: Suspended, shelf: Shelf) -> Continue:
        shelf.items["a"] += 1
        return Continue("ship", number=1)

    hub = Hub(service(1))
    hub.tick(1_000)
    hub.begin("saga", "a")
    found = migrated(snapshot_of(hub), service(2, reads), service(1))
    [held] = [each for each in map(decode_record, found.snapshot.invocations) if isinstance(each, SuspendedHeld)]
    assert msgspec.msgpack.decode(decode_suspended(held.record).received.arguments) == {"number": 4}
    assert found.misfits == []
    misfit, because = migrated(snapshot_of(hub), service(2, writes), service(1)).misfits
    assert because.word == "InFlightMaps"
    assert (misfit.word, "changes the state" in misfit.what) == ("CarryUnfit", True)
