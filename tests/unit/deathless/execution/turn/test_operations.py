"""What can be awaited: alone, all together, the first of several; and what it raises."""

from datetime import timedelta
from typing import Annotated, Any, Literal

import msgspec
import pytest
from tests.unit.deathless.execution.messaging_bench import Hub, kinds

from deathless.base.errors import (
    ActivityFailed,
    CallCycle,
    CallFailed,
    Cancelled,
    DeadlineExceeded,
    DeathlessError,
    InvalidAwait,
    OutcomeUnknown,
    Overloaded,
    PeerReplaced,
)
from deathless.codec.peer_messages import Order
from deathless.codec.wire import error_reply
from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context
from deathless.execution.turn.operations import (
    Activity,
    Call,
    Operation,
    Promise,
    Timer,
    Waitable,
    decoder,
    error_of,
)

Outcome = Literal["number", "fails"]


class State(msgspec.Struct):
    log: list[str] = []
    promises: list[str] = []


service = Service("svc", state=State)


@service.handler(shared=True)
def settle(state: State, ctx: Context, number: int, value: object) -> None:
    ctx.complete(state.promises[number], value)


@service.handler
async def together(state: State, ctx: Context) -> list[int]:
    promises = [ctx.promise(int) for _ in range(3)]
    state.promises = [promise.id for promise in promises]
    try:
        return list(await ctx.gather(*promises))
    except CallFailed as error:
        state.log.append(error.kind)
        return [promises.index(promise) for promise in promises if promise.done]


@service.handler
async def first_of(state: State, ctx: Context, cancel: bool) -> list[int]:
    promises = [ctx.promise(int) for _ in range(3)]
    state.promises = [promise.id for promise in promises]
    winner = await ctx.race(ctx.gather(promises[0], promises[1]), promises[2], cancel_losers=cancel)
    state.log.append(type(winner).__name__)
    return [promises.index(promise) for promise in promises if promise.done]


@service.handler
async def nested(state: State, ctx: Context) -> str:
    promises = [ctx.promise(int) for _ in range(4)]
    state.promises = [promise.id for promise in promises]
    races = [ctx.race(promises[0], promises[1]), ctx.race(promises[2], promises[3])]
    winners = await ctx.gather(*races)
    outer = await ctx.race(*races)
    return f"{[promises.index(winner) for winner in winners]} {races.index(outer)}"


@service.handler
async def both_done(state: State, ctx: Context) -> str:
    one, two = ctx.promise(int), ctx.promise(int)
    await ctx.timer(after=timedelta(seconds=1))
    winner = await ctx.race(two, ctx.gather(two, one), one)
    try:
        await ctx.gather(two, one)
    except CallFailed as error:
        return f"{winner is not two} {error.text}"
    return ""


@service.handler
async def not_done(state: State, ctx: Context) -> list[str]:
    promise = ctx.promise(int)
    told = []
    waitables: list[Waitable[object]] = [promise, ctx.gather(promise), ctx.race(promise)]
    for waitable in waitables:
        try:
            waitable.result()
        except InvalidAwait as error:
            told.append(error.message)
        assert not waitable.failed()
    assert ctx.race(promise).resolved_at() == 0
    return told


@service.handler
async def nothing_to_gather(state: State, ctx: Context) -> int:
    empty: list[Operation[int]] = []
    assert ctx.gather(*empty).resolved_at() == 0
    return len(await ctx.gather(*empty))


@service.handler
async def many_timers(state: State, ctx: Context, count: int) -> int:
    return len(await ctx.gather(*(ctx.timer(after=timedelta(seconds=1)) for _ in range(count))))


@service.handler
async def overlapping(state: State, ctx: Context) -> list[bool]:
    promises = [ctx.promise(int) for _ in range(3)]
    state.promises = [promise.id for promise in promises]
    again = ctx.gather(promises[0], promises[0], ctx.race(promises[0], promises[1]))
    inner = ctx.gather(again, promises[2])
    outer = ctx.gather(inner, promises[0])
    seen = [again.done]
    await promises[0]
    seen += [again.done, inner.done, outer.done]
    late = ctx.gather(inner)
    await outer
    return [*seen, inner.done, outer.done, late.done]


@service.handler
async def nothing_to_race(state: State, ctx: Context) -> None:
    await ctx.race()


@service.handler
async def cancels(state: State, ctx: Context) -> str:
    call = ctx.call("other", "x", "take")
    timer = ctx.timer(after=timedelta(seconds=9))
    await ctx.timer(after=timedelta(seconds=1))
    call.cancel()
    call.cancel()
    timer.cancel()
    assert call.done
    try:
        await call
    except Cancelled as error:
        return error.message
    return ""


@service.handler
async def cancels_at_once(state: State, ctx: Context) -> None:
    ctx.call("other", "x", "take", deadline=timedelta(seconds=5)).cancel()
    await ctx.promise(int)


@service.handler
async def twice(state: State, ctx: Context) -> bool:
    promise = ctx.promise(list[int])
    state.promises = [promise.id]
    first, second = await promise, await promise
    return first == second and first is not second


@pytest.fixture
def hub() -> Hub:
    return Hub(service)


@pytest.mark.parametrize("kind", [Activity, Call, Promise, Timer])
def test_to_ask_what_an_operation_is_runs_no_function_of_python(kind: type[Operation[object]]) -> None:
    """As a metaclass of its own would: it is asked of tens of thousands while an upgrade serves nobody."""
    assert "__instancecheck__" not in vars(type(kind)) or type(kind) is type


def test_gather_gives_all_in_the_order_asked(hub: Hub) -> None:
    invocation = hub.begin("together")
    for number in (2, 0, 1):
        hub.call("settle", number=number, value=number * 10)
        hub.restart()
    assert hub.result(invocation) == [0, 10, 20]


def test_gather_ends_with_the_first_failure(hub: Hub) -> None:
    invocation = hub.begin("together")
    hub.call("settle", number=1, value=5)
    hub.call("settle", number=2, value="no int")
    assert invocation not in hub.results  # a value of another type is found when it is read
    hub.call("settle", number=0, value=5)
    assert hub.value_of() == {"log": ["InvalidArgument"], "promises": ["1.1", "1.2", "1.3"]}


def test_gather_looks_at_each_of_its_items_once_when_many_end_in_one_record(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = 0
    inner = Operation.failed

    def failed(operation: Operation[object]) -> bool:
        nonlocal looked
        looked += 1
        return inner(operation)

    monkeypatch.setattr(Operation, "failed", failed)
    invocation = hub.begin("many_timers", count=300)
    hub.tick()
    assert hub.result(invocation) == 300
    assert looked <= 2 * 300


def test_gathers_of_the_same_operations_are_done_together(hub: Hub) -> None:
    invocation = hub.begin("overlapping")
    hub.call("settle", number=0, value=1)
    hub.restart()
    hub.call("settle", number=2, value=1)
    assert hub.result(invocation) == [False, True, False, False, True, True, True]


def test_race_is_decided_in_the_order_of_the_log(hub: Hub) -> None:
    invocation = hub.begin("first_of", cancel=False)
    hub.call("settle", number=0, value=1)
    hub.restart()
    assert hub.results == {}
    hub.call("settle", number=1, value=1)
    assert hub.result(invocation) == [0, 1]
    other = hub.begin("first_of", "b", cancel=False)
    hub.call("settle", "b", number=2, value=1)
    assert hub.result(other) == [2]


def test_race_may_cancel_its_losers(hub: Hub) -> None:
    invocation = hub.begin("first_of", cancel=True)
    hub.call("settle", number=2, value=1)
    assert hub.result(invocation) == [0, 1, 2]


def test_gathers_and_races_may_be_nested(hub: Hub) -> None:
    invocation = hub.begin("nested")
    for number in (3, 1):
        hub.call("settle", number=number, value=1)
        hub.restart()
    assert hub.result(invocation) == "[1, 3] 1"


def test_gather_that_failed_may_win_a_race(hub: Hub) -> None:
    invocation = hub.begin("first_of", cancel=False)
    hub.record(Order("resume", invocation, 1, error_reply("DL3014", "ValueError", "no")))
    assert hub.result(invocation) == [0]
    assert hub.value_of() == {"log": ["Gather"], "promises": ["1.1", "1.2", "1.3"]}


def test_first_of_two_that_are_done_is_the_one_that_was_done_first(hub: Hub) -> None:
    invocation = hub.begin("both_done")
    hub.record(Order("resume", invocation, 1, error_reply("DL3014", "ValueError", "first")))
    hub.record(Order("resume", invocation, 2, error_reply("DL3014", "ValueError", "second")))
    hub.tick()
    assert hub.result(invocation) == "True first"


def test_all_that_is_waited_for_is_cancelled(hub: Hub) -> None:
    invocation = hub.begin("nested")
    hub.record(Order("cancel", invocation))
    assert hub.failure(invocation) == "DL3019 Cancelled"


def test_result_of_what_is_not_done_is_refused(hub: Hub) -> None:
    told = hub.call("not_done")
    assert isinstance(told, list)
    assert len(told) == 3


def test_nothing_is_gathered_at_once_and_nothing_cannot_race(hub: Hub) -> None:
    assert hub.call("nothing_to_gather") == 0
    assert hub.fail("nothing_to_race").code == "DL3049"


def test_cancelled_operation_is_done_at_once(hub: Hub) -> None:
    invocation = hub.begin("cancels")
    hub.tick()
    assert hub.result(invocation) == "the operation was cancelled"
    assert kinds([message for _, message in hub.sent]) == ["REQUEST", "CANCEL"]
    assert hub.executor.due().first_us == 0


def test_operation_may_be_cancelled_in_the_turn_that_asked(hub: Hub) -> None:
    hub.begin("cancels_at_once")
    assert kinds([message for _, message in hub.sent]) == ["REQUEST", "CANCEL"]
    assert hub.executor.due().first_us == 0
    hub.restart()


def test_each_await_gives_a_value_of_its_own(hub: Hub) -> None:
    invocation = hub.begin("twice")
    hub.call("settle", number=0, value=[1, 2])
    assert hub.result(invocation) is True


@pytest.mark.parametrize(
    "kind",
    [ActivityFailed, CallCycle, Cancelled, DeadlineExceeded, OutcomeUnknown, Overloaded, PeerReplaced],
)
def test_errors_that_handlers_tell_apart_have_types(kind: type[DeathlessError]) -> None:
    error = error_of(error_reply(kind.code, "Kind", "text"))
    assert type(error) is kind
    assert "text" in str(error)


def test_all_else_is_a_failed_call_that_says_what_it_was() -> None:
    error = error_of(error_reply("DL3014", "SoldOut", "no apples"))
    assert isinstance(error, CallFailed)
    assert (error.failure_code, error.kind, error.text) == ("DL3014", "SoldOut", "no apples")
    assert isinstance(error_of(b"\x01\xc1"), CallFailed)
    bare = CallFailed("text")
    assert (bare.failure_code, bare.kind, bare.message) == ("DL3018", "CallFailed", "text")


# ---- types of results --------------------------------------------------------------------------------------------


def test_a_type_that_is_asked_for_again_needs_no_second_decoder() -> None:
    assert decoder(State) is decoder(State)
    assert decoder(list[int])(msgspec.msgpack.encode([1])) == [1]


def test_an_annotation_without_a_hash_is_decoded_too() -> None:
    stated: Any = Annotated[int, ["no hash"]]
    assert decoder(stated)(msgspec.msgpack.encode(5)) == 5


def test_what_is_no_type_of_a_result_raises_as_before() -> None:
    stated: Any = Literal[1.5]
    with pytest.raises(TypeError):
        decoder(stated)
