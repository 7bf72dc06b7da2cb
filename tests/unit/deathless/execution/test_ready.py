"""What was made ready ahead is, once what changed since replaces it, as if all had been restored then."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from tests.unit.deathless.execution.executor_bench import Keys
from tests.unit.deathless.execution.messaging_bench import Hub, executor_of

from deathless import Context, Service, Struct
from deathless.codec.checkpoint_ahead import changes_between
from deathless.execution.executor import HandlerExecutor
from deathless.execution.handlers.probe import KEY
from deathless.execution.invocations import restoration as restoration_module
from deathless.execution.invocations.restoration import Restoration
from deathless.execution.ready import STEP, Ready

Change = Callable[[Hub], object]


class Purse(Struct):
    """State."""

    total: int = 0


def shop() -> Service:
    service = Service("shop", state=Purse)

    @service.activity
    def charge(cents: int) -> str:
        return str(cents)

    @service.handler
    def add(purse: Purse, ctx: Context, amount: int) -> int:
        purse.total += amount
        return purse.total

    @service.handler
    async def pay(purse: Purse, ctx: Context, amount: int) -> str:
        purse.total += amount
        charged = ctx.run(charge, amount)
        await ctx.timer(after=timedelta(seconds=5))
        purse.total += 1
        return await charged

    @service.handler(shared=True)
    async def watch(purse: Purse, ctx: Context) -> int:
        await ctx.promise(bool)
        return purse.total

    return service


def hub_with(handlers: int = 3) -> Hub:
    hub = Hub(shop())
    hub.tick(1_000_000)
    for number in range(handlers):
        hub.begin("pay", f"pays{number}", amount=number)
        hub.begin("watch", f"watched{number}")
    hub.send("add", "plain", amount=1)
    hub.send("add", "pays1", amount=9)  # waits for its key
    return hub


def ends_one(hub: Hub) -> None:
    hub.tick()
    hub.outcome(hub.executor.activities()[0], "5")


def is_changed(hub: Hub) -> None:
    hub.executor.entities.probes.held[KEY + b"a"] = b"1"
    for key in ("plain", "watched0", "new"):
        hub.send("add", key, amount=7)


def begins_others(hub: Hub) -> None:
    hub.begin("watch", "watched0")
    hub.begin("pay", "late", amount=3)
    hub.send("add", "late", amount=3)


def all_of_it(hub: Hub) -> None:
    for change in (ends_one, is_changed, begins_others):
        change(hub)


CHANGES: dict[str, Change] = {
    "nothing": lambda _: None,
    "a timer fires": lambda hub: hub.tick(),
    "one ends": ends_one,
    "states change": is_changed,
    "others begin": begins_others,
    "all": all_of_it,
}


class Made:
    """A hub, and an executor for which what it held was made ready."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.before = dict(hub.executor.state())
        self.executor = executor_of(hub.service, Keys())
        self.ready = Ready(b"name", dict(self.before), hub.executor.suspended())
        while self.ready.make_some(self.executor):
            pass

    def restore(self) -> None:
        """Have the executor go on with what the hub holds now."""
        held = self.hub.executor
        changed, gone = changes_between(self.before, held.state())
        self.ready.restore(self.executor, changed, gone, held.suspended())


def whole(hub: Hub) -> HandlerExecutor:
    executor = executor_of(hub.service, Keys())
    executor.restore(dict(hub.executor.state()), hub.executor.suspended(), same_code=False)
    return executor


def told(executor: HandlerExecutor) -> tuple[object, ...]:
    tables = executor.restoration._table.tables
    return (
        executor.state(), executor.suspended(), executor.crowd(), executor.due(), executor.activities(),
        executor.invocations(), executor.restoration.misfits(), tables.held, list(tables.live),
        {id_: list(each.operations) for id_, each in tables.live.items()},
    )  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_all_is_as_if_it_had_been_restored_whole_and_goes_on_so(name: str) -> None:
    hub = hub_with()
    made = Made(hub)
    CHANGES[name](hub)
    made.restore()
    other = Hub(hub.service)
    ours = Hub(hub.service)
    other.executor, ours.executor = whole(hub), made.executor
    assert told(ours.executor) == told(other.executor)
    for each in (other, ours):
        each.lsn, each.now_us = hub.lsn, hub.now_us
        each.tick()
        for start in each.executor.activities():
            each.outcome(start, "5")
        each.settle()
    assert told(ours.executor) == told(other.executor)
    assert (ours.results, ours.sent, ours.starts) == (other.results, other.sent, other.starts)
    assert ours.results


def test_before_that_the_executor_holds_nothing_and_what_is_not_needed_is_let_go() -> None:
    made = Made(hub_with())
    assert (made.executor.state(), made.executor.suspended()[:1], made.executor.crowd().invocations) == ({}, [], 0)
    handlers = list(made.ready._handlers.values())
    assert len(handlers) == 6
    ends_one(made.hub)
    made.restore()
    live = made.executor.restoration._table.tables.live.values()
    assert [each in live for each in handlers] == [each.waits is not None for each in handlers]
    other = Made(hub_with())
    handlers = list(other.ready._handlers.values())
    other.ready.drop(other.executor)
    assert all(each.waits is None for each in handlers)


def ran_again(made: Made, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Restore, and give the keys whose handlers were run again."""
    keys: list[bytes] = []
    run_again = restoration_module.Restoration._run_again

    def noted(self: Restoration, record: object, *more: object) -> object:
        keys.append(record.received.key)  # type: ignore[attr-defined]  # it is of an invocation
        return run_again(self, record, *more)  # type: ignore[arg-type]  # likewise

    monkeypatch.setattr(restoration_module.Restoration, "_run_again", noted)
    made.restore()
    return keys


def test_only_handlers_are_run_again_that_changed_or_whose_state_did(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(hub_with(STEP))
    is_changed(made.hub)
    begins_others(made.hub)
    assert sorted(set(ran_again(made, monkeypatch))) == [b"late", b"watched0"]


def test_a_handler_is_run_again_where_the_state_of_its_key_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(hub_with())
    records, other = made.hub.executor.suspended(), made.before[b"plain"]
    changed, gone = {b"pays0": other}, [b"watched2"]
    monkeypatch.setattr(made, "restore", lambda: made.ready.restore(made.executor, changed, gone, records))
    assert ran_again(made, monkeypatch) == [b"pays0", b"watched2"]


def test_a_handler_whose_key_another_one_holds_by_then_is_not_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(hub_with(1))
    hub, records = made.hub, made.hub.executor.suspended()
    pays = next(data for data in records if b"pays0" in data)
    beside = Hub(hub.service)
    beside.tick(1_000_000)
    beside.begin("pay", "pays0", amount=4)
    first = next(data for data in beside.executor.suspended() if b"pays0" in data)
    made.ready.restore(made.executor, {}, [], [first, pays])
    [misfit] = made.executor.restoration.misfits()
    assert "holds its key, which the one of lsn" in misfit.what
