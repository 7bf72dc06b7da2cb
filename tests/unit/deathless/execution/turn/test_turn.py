"""What a handler asks for in one turn: counted, bounded, refused where it makes no sense."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from tests.unit.deathless.execution.messaging_bench import Hub

from deathless.base.limits import Limits
from deathless.codec.messages import decode
from deathless.codec.peer_messages import Request, decode_body
from deathless.execution.author.service import Service
from deathless.execution.turn.context import MOMENT_MAX_US, Context


class State(msgspec.Struct):
    log: list[str] = []


service = Service("svc", state=State)


@service.activity
def work(number: int, *, text: str = "") -> int:
    return number


def stranger(number: int) -> int:
    return number


@service.handler
def plain(state: State, ctx: Context, what: str) -> None:
    match what:
        case "call":
            ctx.call("svc", "b", "plain")
        case "timer":
            ctx.timer(after=timedelta(seconds=1))
        case "run":
            ctx.run(work, 1)
        case "promise":
            ctx.promise(int)
        case "continue":
            ctx.continue_with("waiting")


@service.handler
async def waiting(state: State, ctx: Context, what: str) -> None:
    match what:
        case "later":
            ctx.reply_later()
        case "both":
            ctx.timer(after=timedelta(seconds=1), at=ctx.now)
        case "neither":
            ctx.timer()
        case "naive":
            ctx.timer(at=datetime(2030, 1, 1))  # noqa: DTZ001  on purpose
        case "zero":
            ctx.fork("svc", "\0a", "plain")
        case "long key":
            ctx.call("svc", "a" * 600, "plain")
        case "nobody":
            ctx.call("", "b", "plain")
        case "stranger":
            ctx.run(stranger, 1)
        case "many":
            ctx.run(work, 1, "text", 3)  # type: ignore[call-overload]  # on purpose
        case "twice":
            ctx.run(work, 1, number=2)  # type: ignore[arg-type, misc]  # on purpose
        case "wrong":
            ctx.run(work, "text")  # type: ignore[call-overload]  # on purpose
        case "large":
            ctx.run(work, 1, text="x" * 4000)
        case "large message":
            ctx.fork("svc", "b", "plain", {"what": "x" * 4000})
        case "promise":
            ctx.complete("nonsense")
        case "number":
            ctx.complete("1.x")
        case "large value":
            ctx.complete("1.1", "x" * 3000)


@service.handler
async def times(state: State, ctx: Context) -> None:
    past = datetime(1960, 1, 1, tzinfo=UTC)
    ctx.timer(at=past)
    ctx.timer(after=timedelta(0))
    ctx.timer(after=timedelta.max)
    ctx.call("other", "b", "x", deadline=past)
    await ctx.timer(at=datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC))


@service.handler
def many(state: State, ctx: Context, count: int) -> int:
    for _ in range(count):
        ctx.fork("other", "b", "plain")
    return count


@service.handler
async def many_turns(state: State, ctx: Context, count: int) -> int:
    for _ in range(count):
        await ctx.timer(after=timedelta(microseconds=1))
    return count


@pytest.fixture
def hub() -> Hub:
    return Hub(service, Limits(message_bytes_max=3500, reply_bytes_max=2000, operations_max=3))


@pytest.mark.parametrize("what", ["call", "timer", "run", "promise"])
def test_plain_handler_cannot_wait(hub: Hub, what: str) -> None:
    failed = hub.fail("plain", what=what)
    assert (failed.code, failed.type) == ("DL3023", "InvalidAwait")
    assert hub.own == []


@pytest.mark.parametrize(
    ("method", "what", "code"),
    [
        ("plain", "continue", "DL3049"),
        ("waiting", "later", "DL3049"),
        ("waiting", "both", "DL3049"),
        ("waiting", "neither", "DL3049"),
        ("waiting", "naive", "DL3049"),
        ("waiting", "nobody", "DL3049"),
        ("waiting", "zero", "DL3003"),
        ("waiting", "long key", "DL3006"),
        ("waiting", "stranger", "DL3049"),
        ("waiting", "many", "DL3049"),
        ("waiting", "twice", "DL3049"),
        ("waiting", "wrong", "DL3049"),
        ("waiting", "large", "DL3006"),
        ("waiting", "large message", "DL3006"),
        ("waiting", "promise", "DL3003"),
        ("waiting", "number", "DL3003"),
        ("waiting", "large value", "DL3006"),
    ],
)
def test_what_makes_no_sense_is_refused(hub: Hub, method: str, what: str, code: str) -> None:
    assert hub.fail(method, what=what).code == code


def test_times_that_are_past_or_far_off_are_brought_into_range() -> None:
    hub = Hub(service)
    invocation = hub.begin("times")
    waits = hub.waiting()[invocation]
    due = [int(what.split()[2]) for what in waits if what.startswith("timer")]
    assert due == [1001, 1001, MOMENT_MAX_US, 5_000_000]
    asked = decode_body(Request, decode(hub.sent[0][1]).idempotency_key)
    assert asked.deadline_us == 1001
    hub.restart()
    hub.tick()
    hub.tick()
    assert hub.executor.due().first_us == 0


def test_operations_have_a_maximum_per_turn_of_a_plain_handler(hub: Hub) -> None:
    assert hub.call("many", count=3) == 3
    assert hub.call("many", count=3) == 3
    assert hub.fail("many", count=4).code == "DL3006"
    assert len(hub.sent) == 6


def test_operations_have_a_maximum_per_invocation(hub: Hub) -> None:
    good, bad = hub.begin("many_turns", "a", count=3), hub.begin("many_turns", "b", count=4)
    hub.settle()
    assert hub.result(good) == 3
    assert hub.failure(bad) == "DL3006 TooLarge"
