"""What suspended handlers and messages that wait may keep, and what happens at the maximum (I10)."""

from __future__ import annotations

from datetime import timedelta

import msgspec
from msgspec.structs import replace
from tests.unit.deathless.execution.executor_bench import SEED, Keys
from tests.unit.deathless.execution.messaging_bench import Hub, error

from deathless.base.limits import Limits
from deathless.codec.messages import Kind, encode
from deathless.codec.peer_messages import Order, Request, Sender, Target, encode_body, encode_request
from deathless.execution.author.service import Service
from deathless.execution.executor import HandlerExecutor
from deathless.execution.invocations.tables import DUE_AT_ONCE_MAX
from deathless.execution.turn.context import Context
from deathless.execution.turn.running import PAGE_BYTES, Cells

OTHER = Target("other", 0)


class State(msgspec.Struct):
    promises: list[str] = []
    text: str = ""
    seen: list[str] = []


service = Service("svc", state=State)


@service.handler
async def nap(state: State, ctx: Context, text: str = "") -> None:
    await ctx.timer(after=timedelta(seconds=1))


@service.handler
async def naps(state: State, ctx: Context, count: int) -> int:
    return len(await ctx.gather(*(ctx.timer(after=timedelta(seconds=1)) for _ in range(count))))


@service.handler
async def waits(state: State, ctx: Context, count: int = 1) -> list[str]:
    promises = [ctx.promise(str) for _ in range(count)]
    state.promises = [promise.id for promise in promises]
    found: list[str] = []
    for promise in promises:
        try:
            found.append(await promise)
        except Exception as failed:  # noqa: BLE001  what it is, is what is looked at
            found.append(type(failed).__name__ + str(failed))
    return [f"{one[:4]}{'TooLarge' in one or 'at most' in one}" for one in found]


@service.handler
async def calls(state: State, ctx: Context, count: int, text: str) -> None:
    await ctx.gather(*(ctx.call("other", "k", "take", {"text": text}) for _ in range(count)))


@service.handler
async def goes_on(state: State, ctx: Context, text: str) -> None:
    await ctx.timer(after=timedelta(seconds=1))
    ctx.continue_with("nap", {"text": text})


@service.handler
async def goes_on_with_much(state: State, ctx: Context) -> None:
    ctx.continue_with("nap", {"text": "x" * 1000})


@service.handler(shared=True)
def settle(state: State, ctx: Context, promise: str, value: str) -> None:
    ctx.complete(promise, value)


@service.handler(shared=True)
def write(state: State, ctx: Context, text: str) -> None:
    state.text = text


@service.handler
def plain(state: State, ctx: Context, text: str = "") -> int:
    return len(text)


def fork(method: str, key: str = "a", **arguments: object) -> bytes:
    envelope, args = encode_body(Sender(())), msgspec.msgpack.encode(arguments)
    return encode(Kind.FORK, method=method.encode(), key=key.encode(), idempotency_key=envelope, args=args)


def restarted(hub: Hub, limits: Limits) -> HandlerExecutor:
    """Give another executor from a checkpoint of this one."""
    executor = HandlerExecutor(service, limits, SEED, Keys(), Cells(bytearray(PAGE_BYTES)))
    executor.restore(dict(hub.executor.state()), hub.executor.suspended())
    return executor


def test_i10_what_is_suspended_is_counted_and_the_same_behind_a_checkpoint() -> None:
    hub = Hub(service)
    hub.begin("nap", "a", text="x" * 100)
    hub.begin("waits", "b", count=2)
    first, _ = msgspec.msgpack.decode(hub.executor.state()[b"b"], type=State).promises
    hub.call("settle", "b", promise=first, value="y" * 50)
    hub.call("write", "b", text="z" * 70)
    hub.begin("goes_on", "c", text="w" * 30)
    hub.receive(*[fork("plain", text="v" * 200)] * 3, peer=OTHER)
    crowd = hub.executor.crowd()
    assert (crowd.invocations, crowd.waiting) == (6, 3)
    assert crowd.bytes > 3 * 200 + 100 + 50 + 30
    assert restarted(hub, Limits()).crowd() == crowd
    hub.record(Order("cancel", hub.lsn))
    assert hub.executor.crowd().bytes < crowd.bytes - 200
    hub.tick(hub.now_us + 1_000_000)
    assert restarted(hub, Limits()).crowd() == hub.executor.crowd()
    hub.tick(hub.now_us + 1_000_000)
    for view in hub.executor.invocations():
        hub.record(Order("kill", view.invocation))
    assert hub.executor.crowd() == (0, 0, 0)


def test_i10_a_call_that_would_be_suspended_is_refused_at_the_maximum_of_bytes_and_a_fork_is_not() -> None:
    limits = Limits(suspended_bytes_max=5000)
    hub = Hub(service, limits)
    hub.begin("nap", "a", text="x" * 6000)
    for method, key in (("nap", "b"), ("plain", "a"), ("nap", "a")):
        refused = error(hub.send(method, key))
        assert (refused.code, "5000 bytes" in refused.text) == ("DL1002", True)
    assert hub.call("plain", "b", text="abc") == 3
    hub.receive(fork("plain", text="abc"), fork("nap", "c"), peer=OTHER)
    assert hub.executor.crowd()[:2] == (3, 1)
    hub.tick()
    hub.begin("nap", "b")


def test_i10_the_chain_of_a_request_counts_and_is_the_same_behind_a_checkpoint() -> None:
    hub = Hub(service)
    chain = ("x" * 200,) * 100 + ("y",) * 1000
    for number, key in enumerate("ab", 1):
        request = Request(5, number, 0, chain)
        hub.receive(encode_request(request, method=b"nap", key=key.encode(), args=b"\x80"), peer=OTHER)
        request = replace(request, operation=number + 2)
        hub.receive(encode_request(request, method=b"plain", key=b"a", args=b"\x80"), peer=OTHER)
    assert hub.executor.crowd()[:2] == (4, 2)
    assert hub.executor.crowd().bytes > 4 * (200 * 100 + 50 * 1000)
    assert restarted(hub, Limits()).crowd() == hub.executor.crowd()
    hub.tick()
    assert hub.executor.crowd() == (0, 0, 0)


def test_i10_what_a_handler_asked_for_and_the_state_of_a_shared_key_count() -> None:
    hub = Hub(service)
    hub.begin("calls", "a", count=10, text="x" * 500)
    before = hub.executor.crowd().bytes
    assert before > 10 * 500
    hub.begin("calls", "b", count=20, text="x" * 500)
    per_call = (hub.executor.crowd().bytes - 2 * before) / 10
    assert 500 < per_call < 600
    assert restarted(hub, Limits()).crowd() == hub.executor.crowd()
    hub.call("write", "a", text="y" * 5000)  # what the handler left is kept beside it
    assert restarted(hub, Limits()).crowd() == hub.executor.crowd()


def test_i10_a_turn_that_asks_for_more_than_is_kept_fails() -> None:
    limits = Limits(journal_bytes_max=5000)
    hub = Hub(service, limits)
    invocation = hub.begin("calls", "a", count=8, text="x" * 500)
    refused = error(hub.send("calls", "b", count=12, text="x" * 500))
    assert (refused.code, "5000 bytes" in refused.text) == ("DL3006", True)
    assert [view.invocation for view in hub.executor.invocations()] == [invocation]


def test_i10_what_a_handler_asked_for_before_there_was_a_limit_comes_back() -> None:
    hub = Hub(service)
    hub.begin("calls", "a", count=12, text="x" * 500)
    assert restarted(hub, Limits(journal_bytes_max=5000)).suspended() == hub.executor.suspended()


def test_i10_a_reply_beyond_the_journal_of_an_invocation_is_given_as_an_error() -> None:
    limits = Limits(journal_bytes_max=1000)
    hub = Hub(service, limits)
    invocation = hub.begin("waits", "b", count=4)
    promises = msgspec.msgpack.decode(hub.executor.state()[b"b"], type=State).promises
    for promise, value in zip(promises, ("a" * 900, "b" * 300, "ok", "c" * 300), strict=True):
        hub.call("settle", "b", promise=promise, value=value)
    assert restarted(hub, limits).suspended() == hub.executor.suspended()
    assert hub.result(invocation) == ["aaaaFalse", "CallTrue", "okFalse", "CallTrue"]
    assert hub.executor.crowd() == (0, 0, 0)


def test_i10_a_handler_whose_state_others_change_beyond_its_journal_ends_with_an_error() -> None:
    hub = Hub(service, Limits(journal_bytes_max=1000))
    invocation = hub.begin("waits", "b", count=3)
    promises = msgspec.msgpack.decode(hub.executor.state()[b"b"], type=State).promises
    for promise, size in zip(promises[:2], (400, 700), strict=True):
        hub.call("write", "b", text="x" * size)
        hub.call("settle", "b", promise=promise, value="ok")
    assert hub.failure(invocation) == "DL3006 TooLarge"
    assert hub.executor.crowd() == (0, 0, 0)
    assert hub.call("plain", "b") == 0, "its key is free"


def test_i10_what_another_handler_goes_on_with_is_no_larger_than_a_message() -> None:
    hub = Hub(service, Limits(message_bytes_max=500))
    invocation = hub.begin("goes_on", "a", text="x")
    hub.tick()
    assert invocation in hub.waiting()
    assert error(hub.send("goes_on_with_much", "b")).code == "DL3006"


def test_i10_so_many_timers_fire_in_one_record_and_the_rest_in_the_next() -> None:
    hub = Hub(service)
    most = DUE_AT_ONCE_MAX
    invocation = hub.begin("naps", "a", count=2 * most + 1)
    now_us = hub.executor.due().first_us + 5
    for left in (most + 1, 1):
        hub.tick(now_us)
        assert len(hub.waiting()[invocation]) == left
        assert 0 < hub.executor.due().first_us <= now_us, "the next record follows at once"
    hub.tick(now_us)
    assert (hub.result(invocation), hub.executor.due().first_us) == (2 * most + 1, 0)
