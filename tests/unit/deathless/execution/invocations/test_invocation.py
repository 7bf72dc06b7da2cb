"""One invocation: its turns, how it ends, and that it comes back as it was or not at all."""

import asyncio
import decimal
import sys
from collections.abc import Callable, Generator
from datetime import timedelta

import msgspec
import pytest
from tests.unit.deathless.execution.executor_bench import Keys
from tests.unit.deathless.execution.messaging_bench import Hub, apply, error, executor_of

from deathless.base.errors import Closed, CorruptCheckpoint, Diverged
from deathless.base.limits import Limits
from deathless.codec.peer_messages import Order
from deathless.execution.author.service import Service
from deathless.execution.invocations import invocation as invocation_module
from deathless.execution.invocations.journal import SuspendedInvocation, decode_record, encode_record
from deathless.execution.turn.context import Context
from deathless.execution.turn.operations import Operation
from deathless.execution.turn.running import Running

SECOND = timedelta(seconds=1)
outside: list[object] = []  # what a handler must not keep, and some here do


class State(msgspec.Struct):
    seen: list[str] = []
    number: float = 0


service = Service("svc", state=State)


class Foreign:
    def __await__(self) -> Generator[object, None, None]:
        yield "foreign"


@service.handler
async def foreign(state: State, ctx: Context, first: bool = True) -> None:
    state.seen.append("lost")
    ctx.fork("svc", "b", "foreign")
    if not first:
        await ctx.timer(after=SECOND)
        state.seen.append("lost too")
    try:
        await Foreign()
    finally:
        outside.append("closed")


@service.handler
async def sleeps(state: State, ctx: Context) -> None:
    asyncio.get_running_loop()


@service.handler
async def yields(state: State, ctx: Context) -> None:
    await asyncio.sleep(0)


@service.handler
async def lends(state: State, ctx: Context) -> None:
    outside.append(ctx.timer(after=SECOND))
    await ctx.promise(int)


@service.handler
async def borrows(state: State, ctx: Context, how: str) -> None:
    operation = outside[-1]
    assert isinstance(operation, Operation)
    if how == "cancel":
        operation.cancel()
    await operation


@service.handler
async def fails_late(state: State, ctx: Context) -> None:
    state.seen.append("kept")
    ctx.fork("svc", "b", "quick")
    await ctx.timer(after=SECOND)
    state.seen.append("lost")
    ctx.fork("svc", "c", "quick")
    ctx.call("other", "x", "take")
    raise ValueError("late")


@service.handler
async def ends_process(state: State, ctx: Context, kind: str) -> None:
    await ctx.timer(after=SECOND)
    raise {"RecursionError": RecursionError, "MemoryError": MemoryError, "SystemExit": SystemExit}[kind]("boom")


@service.handler
async def spoils(state: State, ctx: Context) -> None:
    state.seen.append("x")
    await ctx.timer(after=SECOND)
    state.number = "many"  # type: ignore[assignment]  # what a checker would find
    await ctx.timer(after=SECOND)


@service.handler
async def grows(state: State, ctx: Context) -> None:
    await ctx.timer(after=SECOND)
    state.seen = ["x" * 2000]


@service.handler
async def lies(state: State, ctx: Context) -> int:
    await ctx.timer(after=SECOND)
    return "text"  # type: ignore[return-value]  # as above


@service.handler
async def keeps(state: State, ctx: Context) -> None:
    outside.append(ctx)
    await ctx.timer(after=SECOND)


@service.handler
def quick(state: State, ctx: Context) -> None:
    state.seen.append("quick")


@service.handler
async def cleans_up(state: State, ctx: Context) -> str:
    try:
        await ctx.promise(int)
    finally:
        state.seen.append("cleaning")
        await ctx.timer(after=SECOND)
        state.seen.append("cleaned")
    return "never"


@service.handler
async def stubborn(state: State, ctx: Context) -> None:
    try:
        await ctx.promise(int)
    except GeneratorExit:
        outside.append("refused")
        ctx.fork("svc", "b", "quick")


@service.handler
async def hungry(state: State, ctx: Context, what: str) -> None:
    try:
        await ctx.promise(int)
    except GeneratorExit:
        raise {"memory": MemoryError, "stack": RecursionError, "exit": SystemExit, "value": ValueError}[what] from None


@service.handler
async def chances(state: State, ctx: Context) -> list[str]:
    seen = [ctx.uuid()]
    for _ in range(2):
        await ctx.timer(after=SECOND)
        seen.append(ctx.uuid())
    return seen


@service.handler
async def deep(state: State, ctx: Context) -> list[int]:
    def room() -> int:
        def down(depth: int) -> int:
            try:
                return down(depth + 1)
            except RecursionError:
                return depth

        return down(0)

    found = [room()]
    for _ in range(2):
        await ctx.timer(after=SECOND)
        found.append(room())
    return found


@service.handler
async def forgetful(state: State, ctx: Context, how: str) -> int:
    """Differs when it is run again, because something beside its state does."""
    await ctx.timer(after=SECOND)
    again = bool(outside)
    match how if again else "":
        case "asks":
            ctx.fork("svc", "b", "quick")
        case "changes":
            state.seen.append("again")
        case "ends":
            return 7
        case "fails":
            raise ValueError("again")
        case "stops":
            await ctx.promise(type(None))
    await ctx.timer(after=SECOND)
    await ctx.timer(after=SECOND)
    return 3


@service.handler
async def divides(state: State, ctx: Context, digits: int) -> str:
    with decimal.localcontext() as local:
        local.prec = digits
        await ctx.timer(after=SECOND)
        return str(decimal.Decimal(1) / decimal.Decimal(3))


@pytest.fixture(autouse=True)
def _empty() -> None:
    outside.clear()


@pytest.fixture
def hub() -> Hub:
    return Hub(service)


def test_awaiting_what_is_no_operation_ends_it_without_trace(hub: Hub) -> None:
    assert hub.fail("foreign").code == "DL3023"
    assert hub.executor.state() == {}
    assert hub.own == []
    assert outside == ["closed"]


def test_awaiting_what_is_no_operation_later_keeps_the_turns_before(hub: Hub) -> None:
    invocation = hub.begin("foreign", first=False)
    hub.tick()
    assert hub.failure(invocation) == "DL3023 InvalidAwait"
    assert hub.value_of() == {"seen": ["lost"], "number": 0}


def test_nothing_of_asyncio_works(hub: Hub) -> None:
    assert hub.fail("yields").type == "InvalidAwait"
    assert hub.fail("sleeps").type == "RuntimeError"


def test_operation_of_another_invocation_is_none_of_this(hub: Hub) -> None:
    hub.begin("lends", "a")
    assert hub.fail("borrows", "b", how="await").type == "InvalidAwait"
    failed = hub.fail("borrows", "b", how="cancel")
    assert (failed.code, failed.type) == ("DL3014", "Closed")


def test_exception_in_a_later_turn_rolls_that_turn_back(hub: Hub) -> None:
    invocation = hub.begin("fails_late")
    assert len(hub.own) == 1
    hub.tick()
    assert error(hub.results[invocation]).text == "late"
    assert hub.value_of() == {"seen": ["kept"], "number": 0}
    assert len(hub.own) == 1
    assert hub.sent == []
    assert hub.waiting() == {}


@pytest.mark.parametrize("method", ["spoils", "lies", "grows"])
def test_turn_that_cannot_be_kept_fails(method: str) -> None:
    hub = Hub(service, Limits(entity_bytes_max=1000))
    invocation = hub.begin(method)
    before = hub.executor.state()[b"a"]
    hub.tick()
    assert invocation in hub.results
    assert error(hub.results[invocation]).code in ("DL3014", "DL3006")
    assert hub.executor.state()[b"a"] == before
    assert hub.waiting() == {}


def test_what_must_end_the_process_is_not_caught(hub: Hub) -> None:
    invocation = hub.begin("ends_process", kind="MemoryError")
    with pytest.raises(MemoryError):
        hub.tick()
    assert hub.running == Running(0, invocation)


@pytest.mark.parametrize("kind", ["RecursionError", "SystemExit"])
def test_what_would_end_a_process_ends_its_invocation_alone(hub: Hub, kind: str) -> None:
    invocation = hub.begin("ends_process", kind=kind)
    hub.tick()
    assert error(hub.results[invocation]).type == kind
    assert hub.waiting() == {}


def test_context_is_dead_between_turns(hub: Hub) -> None:
    hub.begin("keeps")
    [context] = outside
    assert isinstance(context, Context)
    for use in (lambda: context.now, context.uuid, lambda: context.fork("a", "b", "c")):
        with pytest.raises(Closed):
            use()


def test_chance_differs_between_turns_and_is_the_same_again(hub: Hub) -> None:
    other = Hub(service)
    for each in (hub, other):
        each.begin("chances")
    hub.tick()
    hub.restart()
    for each in (hub, other):
        each.settle()
    seen = hub.result(1)
    assert isinstance(seen, list)
    assert len(set(seen)) == 3
    assert other.result(1) == seen


def test_variables_of_one_invocation_are_nobody_elses(hub: Hub) -> None:
    before = decimal.getcontext().prec
    first, second = hub.begin("divides", "a", digits=3), hub.begin("divides", "b", digits=5)
    assert decimal.getcontext().prec == before
    hub.restart()
    hub.tick()
    assert (hub.result(first), hub.result(second)) == ("0.333", "0.33333")


def test_turns_of_one_message_have_different_chance(hub: Hub) -> None:
    first, second = hub.begin("chances", "a"), hub.begin("chances", "b")
    hub.settle()
    seen = [hub.result(first), hub.result(second)]
    assert len({number for numbers in seen if isinstance(numbers, list) for number in numbers}) == 6


def test_cancelled_handler_may_wait_on(hub: Hub) -> None:
    invocation = hub.begin("cleans_up")
    hub.record(Order("cancel", invocation))
    hub.restart()
    assert hub.results == {}
    hub.tick()
    assert hub.failure(invocation) == "DL3019 Cancelled"
    assert hub.value_of() == {"seen": ["cleaning"], "number": 0}


def test_what_finally_clauses_do_when_it_is_killed_is_lost(hub: Hub) -> None:
    stubborn, cleaning = hub.begin("stubborn", "a"), hub.begin("cleans_up", "b")
    hub.record(Order("kill", stubborn))
    hub.record(Order("kill", cleaning))
    assert outside == ["refused"]
    assert hub.value_of("b") == {"seen": [], "number": 0}
    assert hub.own == []
    assert hub.waiting() == {}


@pytest.mark.parametrize("what", ["memory", "stack", "exit", "value"])
def test_i11_whatever_it_raises_while_it_is_killed_is_lost_and_the_process_goes_on(hub: Hub, what: str) -> None:
    invocation = hub.begin("hungry", what=what)
    before = hub.value_of()
    hub.record(Order("kill", invocation))
    assert hub.failure(invocation).endswith(" Cancelled")
    assert hub.waiting() == {}
    assert hub.value_of() == before


def test_all_turns_have_the_same_room_on_the_stack(hub: Hub) -> None:
    def deeper(count: int, then: Callable[[], None]) -> None:
        if count:
            deeper(count - 1, then)
        else:
            then()

    limit = sys.getrecursionlimit()
    invocation = hub.begin("deep")
    deeper(100, hub.tick)
    deeper(30, hub.restart)
    hub.tick()
    rooms = hub.result(invocation)
    assert isinstance(rooms, list)
    assert len(rooms) == 3
    assert len(set(rooms)) == 1
    assert sys.getrecursionlimit() == limit


def test_asyncio_is_hidden_from_all_that_runs_turns() -> None:
    hidden: list[str] = []

    def hide() -> Callable[[], object]:
        hidden.append("hidden")
        return lambda: hidden.append("shown")

    hub = Hub(service, hide=hide)
    hub.begin("chances")
    hub.tick()
    hub.restart()
    assert hidden == ["hidden", "shown"] * 2
    hub.executor.open()
    hub.tick()
    hub.executor.close()
    assert hub.result(1)


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ("asks", r"asks for a fork to svc\.quick in turn 2, had asked for a timer of 0:00:01"),
        ("changes", "leaves another state in turn 3"),
        ("ends", "ends in turn 2, had asked for a timer of 0:00:01"),
        ("fails", "fails in turn 2 with DL3014 ValueError: again, had asked for a timer of 0:00:01"),
        ("stops", "asks for a promise in turn 2, had asked for a timer of 0:00:01"),
    ],
)
def test_handler_that_does_something_else_when_run_again_has_diverged(hub: Hub, how: str, what: str) -> None:
    invocation = hub.begin("forgetful", how=how)
    hub.tick()
    hub.tick()
    state, suspended = dict(hub.executor.state()), hub.executor.suspended()
    outside.append("something")
    with pytest.raises(Diverged, match=rf"invocation {invocation}: handler 'forgetful' for key 'a'.*{what}"):
        executor_of(service, Keys()).restore(state, suspended)


def test_handler_that_ends_with_its_last_event_has_diverged(hub: Hub) -> None:
    hub.begin("forgetful", how="ends")
    hub.tick()
    state, suspended = dict(hub.executor.state()), hub.executor.suspended()
    outside.append("something")
    with pytest.raises(Diverged, match="ends in turn 2, had asked for a timer"):
        executor_of(service, Keys()).restore(state, suspended)


def test_first_difference_in_a_journal_is_found(hub: Hub) -> None:
    hub.begin("chances")
    hub.tick()
    [encoded] = hub.executor.suspended()
    record = decode_record(encoded)
    assert isinstance(record, SuspendedInvocation)
    unknown = msgspec.structs.replace(record.journal[0], operation=9)
    done = msgspec.structs.replace(record, journal=[*record.journal, *record.journal, *record.journal])
    for broken in (msgspec.structs.replace(record, journal=[unknown]), done):
        with pytest.raises(Diverged):
            executor_of(service, Keys()).restore({}, [encode_record(broken)])


def test_record_of_a_handler_that_is_gone_is_refused(hub: Hub) -> None:
    hub.begin("chances")
    records = hub.executor.suspended()
    without = Service("svc", state=State)
    with pytest.raises(CorruptCheckpoint, match="no `async def` 'chances'"):
        executor_of(without, Keys()).restore({}, records)
    with pytest.raises(CorruptCheckpoint):
        executor_of(service, Keys()).restore({}, [b"\xc1"])


def test_journal_is_compared_by_state_even_where_it_is_not_looked_at(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.begin("forgetful", how="changes")
    hub.tick()
    state, suspended = dict(hub.executor.state()), hub.executor.suspended()
    outside.append("something")
    record = decode_record(suspended[0])
    assert isinstance(record, SuspendedInvocation)
    monkeypatch.setattr(invocation_module, "state_hash", lambda state: record.state_hash)
    executor_of(service, Keys()).restore(state, suspended)  # what the comparison keeps from happening


def test_discard_forgets_all_that_waits(hub: Hub) -> None:
    hub.begin("cleans_up")
    hub.send("quick")
    hub.begin("chances", "b")
    hub.executor.discard()
    assert hub.executor.invocations() == []
    assert hub.executor.suspended() == []
    assert hub.executor.due().first_us == 0


def test_logged_turn_gives_the_same_in_another_process(hub: Hub) -> None:
    hub.begin("chances")
    hub.settle()
    other = executor_of(service, Keys())
    for entry in hub.log:
        apply(other, entry)
    assert other.rolling_update() == hub.executor.rolling_update()
