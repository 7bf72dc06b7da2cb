"""Whatever handlers wait for, and wherever a checkpoint is taken or a batch cut: the same outputs, states, digests."""

from collections.abc import Mapping
from datetime import timedelta

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.deathless.execution.messaging_bench import Hub, Trace, replay

from deathless.base.errors import CallFailed, Cancelled, DeathlessError
from deathless.codec.peer_messages import Order, Target
from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context
from deathless.execution.turn.operations import Waitable

KEYS = "abc"
ELSEWHERE = Target("other", 0)


class State(msgspec.Struct):
    seen: list[str] = []
    promises: list[str] = []


service = Service("svc", state=State)


@service.birth
def born(state: State, ctx: Context) -> None:
    state.seen.append(f"born {ctx.uuid()}")


@service.activity(attempts_max=2)
def work(number: int) -> int:
    return number


@service.activity(at_most_once=True)
async def once(number: int) -> int:
    return number


@service.handler
def note(state: State, ctx: Context, what: str) -> int:
    state.seen.append(f"{what} {ctx.lsn} {ctx.now_us}")
    if what == "raise":
        raise ValueError(what)
    return len(state.seen)


@service.handler(shared=True)
def settle(state: State, ctx: Context) -> int:
    state.seen.append("settled")
    ctx.fork("svc", "a", "note", {"what": "from settle"})
    for promise in state.promises:
        ctx.complete(promise, len(state.seen))
    state.promises = []
    return ctx.random.randint(0, 99)


@service.handler
def later(state: State, ctx: Context) -> int:
    state.promises.append(ctx.reply_later())
    return 0


@service.handler(keys=("one", "two"))
def both(states: Mapping[str, State], ctx: Context, one: str, two: str) -> int:
    for state in states.values():
        state.seen.append(f"both {ctx.random.random()}")
    ctx.fork("other", one, "note", {"what": two})
    return len(states)


Step = tuple[str, int, str]


def ask(state: State, ctx: Context, step: Step) -> Waitable[object]:
    """Ask for what a step says."""
    name, number, key = step
    match name:
        case "call":
            return ctx.call("svc", key, "note", {"what": "called"}, result=int)
        case "deep":
            steps: list[Step] = [("timer", number, key), ("random", 0, key)]
            return ctx.call("svc", key, "program", {"steps": steps}, deadline=timedelta(microseconds=50 * number))
        case "elsewhere":
            return ctx.call("other", key, "note", {"what": "x"}, deadline=timedelta(microseconds=100 + number))
        case "timer":
            return ctx.timer(after=timedelta(microseconds=number))
        case "work":
            return ctx.run(work, number)
        case "once":
            return ctx.run(once, number)
        case _:
            promise = ctx.promise(int)
            state.promises.append(promise.id)
            return promise


async def take(state: State, ctx: Context, steps: list[Step]) -> None:
    for at, step in enumerate(steps):
        name, number, key = step
        state.seen.append(f"{name} {ctx.now_us} {ctx.lsn}")
        match name:
            case "random":
                state.seen.append(ctx.uuid())
            case "fork":
                ctx.fork("svc", key, "settle")
            case "raise":
                ctx.fork("svc", key, "note", {"what": "never sent"})
                state.seen.append("never kept")
                raise ValueError("on purpose")
            case "gather":
                pair = [ask(state, ctx, one) for one in steps[at + 1 : at + 3]]
                state.seen.append(str(await ctx.gather(*pair)))
            case "race":
                pair = [ask(state, ctx, one) for one in steps[at + 1 : at + 3]]
                if pair:
                    won = await ctx.race(*pair, cancel_losers=number > 2)
                    state.seen.append(f"won {pair.index(won)}")
            case "cancel":
                operation = ctx.call("svc", key, "program", {"steps": [("timer", 5, key)]})
                await ctx.timer(after=timedelta(microseconds=number))
                operation.cancel()
            case "forget":
                ask(state, ctx, ("promise", number, key))
            case "continue":
                ctx.continue_with("program", {"steps": steps[at + 1 :]})
                return
            case _:
                state.seen.append(str(await ask(state, ctx, step)))


@service.handler
async def program(state: State, ctx: Context, steps: list[Step]) -> int:
    try:
        await take(state, ctx, steps)
    except (CallFailed, Cancelled) as error:
        state.seen.append(type(error).__name__)
        await ctx.timer(after=timedelta(microseconds=1))
    except DeathlessError as error:
        state.seen.append(f"out: {type(error).__name__}")
        raise
    return len(state.seen)


@service.handler(shared=True)
async def beside(state: State, ctx: Context, steps: list[Step]) -> None:
    await take(state, ctx, steps)


NAMES = (
    "call", "deep", "elsewhere", "timer", "work", "once", "promise", "random", "fork", "raise", "gather", "race",
    "cancel", "forget", "continue",
)  # fmt: skip
steps = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(1, 6), st.sampled_from(KEYS)), max_size=5)
events = st.lists(
    st.one_of(
        st.tuples(st.just("program"), st.sampled_from(KEYS), steps),
        st.tuples(st.just("beside"), st.sampled_from(KEYS), steps),
        st.tuples(st.sampled_from(("note", "settle", "later", "both")), st.sampled_from(KEYS), st.just([])),
        st.tuples(
            st.sampled_from(("tick", "deliver", "outcome", "fail", "reply", "cancel", "kill", "resume", "replaced")),
            st.sampled_from(KEYS),
            st.just([]),
        ),
    ),
    min_size=1,
    max_size=14,
)
Event = tuple[str, str, list[Step]]


def play(happened: list[Event]) -> Hub:
    """Let it happen; gives the log."""
    hub = Hub(service)
    for name, key, program_steps in happened:
        match name:
            case "program" | "beside":
                hub.run([hub.message(name, key, steps=program_steps), hub.message("note", key, what="behind")])
            case "note":
                hub.send(name, key, what="raise" if len(hub.log) % 3 == 0 else "note")
            case "settle" | "later":
                hub.send(name, key)
            case "both":
                hub.send(name, "x", one=key, two="a")
            case "tick" if hub.executor.due().first_us:
                hub.tick()
            case "outcome" if hub.starts:
                hub.outcome(hub.starts.pop(0), 5)
            case "fail" if hub.starts:
                hub.outcome(hub.starts.pop(0), ("DL3014", "ValueError", "boom"))
            case "reply" if hub.sent:
                reply_from_elsewhere(hub)
            case "cancel" | "kill" | "resume":
                for view in hub.executor.invocations()[:1]:
                    hub.record(Order(name, view.invocation, 0, b"\x00\x07"))
            case "replaced":
                hub.record(ELSEWHERE)
            case _:
                hub.deliver()
    hub.settle()
    return hub


def reply_from_elsewhere(hub: Hub) -> None:
    from deathless.codec.messages import Kind, decode, encode  # noqa: PLC0415  for this alone
    from deathless.codec.peer_messages import Reference, Request, decode_body, encode_body  # noqa: PLC0415  as above

    message = decode(hub.sent.pop(0)[1])
    if message.kind == Kind.REQUEST:
        asked = decode_body(Request, message.idempotency_key)
        envelope = encode_body(Reference(asked.invocation, asked.operation))
        response = encode(Kind.RESPONSE, idempotency_key=envelope, args=b"\x00\x2a")
        hub.receive(response, response, peer=ELSEWHERE)


@given(events, st.sets(st.integers(0, 60)))
@settings(deadline=None, max_examples=60)
def test_checkpoint_anywhere_changes_nothing(happened: list[Event], cuts: set[int]) -> None:
    log = play(happened).log
    straight = replay(service, log)
    assert replay(service, log, restart=cuts.__contains__) == straight


@given(events)
@settings(deadline=None, max_examples=60)
def test_checkpoint_behind_every_step_changes_nothing(happened: list[Event]) -> None:
    log = play(happened).log
    assert replay(service, log, restart=lambda at: True) == replay(service, log)


@given(events)
@settings(deadline=None, max_examples=60)
def test_batches_may_be_cut_anywhere(happened: list[Event]) -> None:
    log = play(happened).log
    whole, parts = replay(service, log), replay(service, log, single=True)
    assert without_rolling(parts) == without_rolling(whole)


@given(events)
@settings(deadline=None, max_examples=60)
def test_what_a_failed_turn_did_is_nowhere_and_whoever_is_left_waits(happened: list[Event]) -> None:
    hub = play(happened)
    assert all(hub.waiting().values())
    trace = replay(service, hub.log)
    assert not any(b"never" in state for state in trace.state.values())
    assert not any(b"never sent" in message for _, message in trace.outputs.messages)


def without_rolling(trace: Trace) -> Trace:
    return trace._replace(rolling=[])
