"""The version in which a handler began: told in all its turns, through upgrades, ways back, checkpoints and replays."""

from __future__ import annotations

import msgspec
from tests.unit.deathless.execution.executor_bench import SEED, value
from tests.unit.deathless.execution.messaging_bench import Hub
from tests.unit.deathless.execution.saga_versions import STOCK, response
from tests.unit.deathless.execution.test_snapshot_migration import LIMITS, snapshot_of

from deathless import Context, Continue, Service, Struct, Suspended
from deathless.execution.interface.interface import interface_of
from deathless.execution.invocations.journal import SuspendedInvocation, decode_record
from deathless.execution.migration.lowering import lower_snapshot
from deathless.execution.snapshot_migration import Migrated, migrate_snapshot


class Box(Struct):
    """State."""

    count: int = 0


def shop(version: int, *, asks_more: bool = False, looks: bool = True) -> Service:
    """Give a version of a service whose handler asks for one thing, and from version 2 on for another one before it.

    Args:
        version: its number.
        asks_more: it is of the code that asks for both.
        looks: it asks for both only where it began in version 2 or later.
    """
    made = Service("shop", state=Box, version=version)

    @made.handler
    async def ship(box: Box, ctx: Context) -> str:
        began = ctx.begun_in
        if asks_more and (began >= 2 or not looks):
            await ctx.call("stock", "a", "check", {}, result=int)
        number = await ctx.call("stock", "a", "reserve", {}, result=int)
        return f"{number} began in {began}, ends in {ctx.begun_in}"

    @made.handler
    def now(box: Box, ctx: Context) -> int:
        return ctx.begun_in

    return made


def upgraded(hub: Hub, service: Service, former: Service, *, lowered: bool = False) -> Migrated:
    snapshot = snapshot_of(hub)
    before = interface_of(former, LIMITS)
    if lowered:
        snapshot = lower_snapshot(snapshot, former, interface_of(service, LIMITS), limits=LIMITS, time_us=9).snapshot
    return migrate_snapshot(snapshot, service, before, limits=LIMITS, seed=SEED, time_us=9, lowered=lowered)


def go_on(hub: Hub, found: Migrated, service: Service) -> Hub:
    """Give the same hub with the code of the next generation."""
    assert not found.misfits
    new = Hub(service)
    new.executor.restore(dict(found.snapshot.state), found.snapshot.invocations)
    new.lsn, new.now_us = hub.lsn, hub.now_us
    return new


def kept_of(hub: Hub) -> list[int]:
    """What records of handlers that wait hold."""
    records = map(decode_record, hub.executor.suspended())
    return [record.begun_in for record in records if isinstance(record, SuspendedInvocation)]


def waiting() -> tuple[Hub, int]:
    """Give a hub whose handler began in version 1 and waits."""
    hub = Hub(shop(1))
    hub.tick(1_000_000)
    return hub, hub.begin("ship", "a")


def test_a_handler_that_waits_goes_its_former_way_in_new_code() -> None:
    hub, invocation = waiting()
    two = shop(2, asks_more=True)
    new = go_on(hub, upgraded(hub, two, shop(1)), two)
    new.restart()
    assert kept_of(new) == [1]
    later = new.begin("ship", "b")
    new.receive(response(invocation, 1, 7), peer=STOCK)
    assert new.result(invocation) == "7 began in 1, ends in 1"
    new.receive(response(later, 1, 0), peer=STOCK)
    new.receive(response(later, 2, 8), peer=STOCK)
    assert new.result(later) == "8 began in 2, ends in 2"
    assert value(new.send("now", "c")) == 2


def test_code_that_does_not_look_at_it_is_refused() -> None:
    hub, _ = waiting()
    found = upgraded(hub, shop(2, asks_more=True, looks=False), shop(1))
    assert [each.word for each in found.misfits] == ["InFlightDiffers"]


def test_it_stays_through_a_second_upgrade_and_where_nothing_else_changes() -> None:
    hub, invocation = waiting()
    two, three = shop(2), shop(3)
    compatible = upgraded(hub, two, shop(1))
    assert compatible.compatible
    new = go_on(hub, compatible, two)
    beside = new.begin("ship", "b")
    newest = go_on(new, upgraded(new, three, two), three)
    assert sorted(kept_of(newest)) == [1, 2]
    newest.receive(response(invocation, 1, 7), peer=STOCK)
    assert newest.result(invocation) == "7 began in 1, ends in 1"
    assert beside in newest.waiting()


def test_on_the_way_back_older_code_is_told_the_later_version() -> None:
    one, two = shop(1), shop(2)
    hub, _ = waiting()
    new = go_on(hub, upgraded(hub, two, one), two)
    later = new.begin("ship", "b")
    back = go_on(new, upgraded(new, one, two, lowered=True), one)
    assert sorted(kept_of(back)) == [0, 2], "what began in version 1 is of the present version again"
    back.receive(response(later, 1, 8), peer=STOCK)
    assert back.result(later) == "8 began in 2, ends in 2"


def test_records_of_what_began_in_this_version_have_the_bytes_of_before() -> None:
    hub, _ = waiting()
    fields = [len(msgspec.msgpack.decode(data)) for data in hub.executor.suspended()]
    assert fields == [len(SuspendedInvocation.__struct_fields__)], "the tag, and all fields but the last"


def test_a_replay_of_the_log_behind_an_upgrade_gives_the_same() -> None:
    hub, invocation = waiting()
    two = shop(2, asks_more=True)
    found = upgraded(hub, two, shop(1))
    digests = []
    for _ in range(2):
        new = go_on(hub, found, two)
        new.begin("ship", "b")
        new.receive(response(invocation, 1, 7), peer=STOCK)
        digests.append((new.result(invocation), new.executor.suspended(), dict(new.executor.state())))
    assert digests[0] == digests[1]


def test_a_handler_that_is_carried_begins_in_the_version_that_carries_it() -> None:
    one, two = Service("shop", state=Box), Service("shop", state=Box, version=2)

    @one.handler
    async def waits(box: Box, ctx: Context) -> str:
        return await ctx.promise(str)

    @two.handler
    async def anew(box: Box, ctx: Context) -> int:
        return ctx.begun_in

    @two.carry("waits", from_=1)
    def carried(old: Suspended, box: Box) -> Continue:
        return Continue("anew")

    hub = Hub(one)
    invocation = hub.begin("waits", "a")
    new = go_on(hub, upgraded(hub, two, one), two)
    new.tick(2_000_000)
    assert new.result(invocation) == 2
