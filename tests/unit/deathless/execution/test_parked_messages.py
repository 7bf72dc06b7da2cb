"""A message that was set aside is run again by an order: once, as a new invocation, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from tests.encoded import encode_fork
from tests.unit.deathless.execution.messaging_bench import Hub, error, executor_of, ok, value

from deathless.base.errors import HandlerFailed, NotParked, UnknownHandler
from deathless.base.limits import Limits
from deathless.codec.messages import Kind, decode, encode
from deathless.codec.peer_messages import (
    SELF,
    Order,
    Ran,
    Reference,
    Request,
    encode_body,
    encode_request,
    encode_response,
)
from deathless.codec.wire import accepted_reply
from deathless.execution.author.service import Service
from deathless.execution.executor import HandlerExecutor
from deathless.execution.turn.context import Context
from deathless.execution.turn.running import PAGE_BYTES, Cells, Running, read_running

PARKED = 7  # lsn of the record that set it aside
LSN = 100


class State(msgspec.Struct):
    count: int = 0
    promise: str = ""


service = Service("svc", state=State)
seen: list[Running | None] = []
page = bytearray(PAGE_BYTES)


@service.handler
def add(state: State, ctx: Context, by: int = 1) -> int:
    seen.append(read_running(page))
    state.count += by
    return state.count


@service.handler
def where(state: State, ctx: Context) -> int:
    return ctx.lsn


@service.handler
def poor(state: State, ctx: Context) -> int:
    state.count = 999
    raise ValueError("no")


@service.handler
async def wait(state: State, ctx: Context) -> int:
    promise = ctx.promise(int)
    state.promise = promise.id
    return await promise


@service.handler
def later(state: State, ctx: Context) -> int:
    state.promise = ctx.reply_later()
    return 0


@service.handler(shared=True)
def settle(state: State, ctx: Context, promise: str) -> None:
    ctx.complete(promise, 5)


@service.handler(keys=("one", "two"))
def both(states: Mapping[str, State], ctx: Context, one: str, two: str) -> int:
    for state in states.values():
        state.count += 1
    return sum(state.count for state in states.values())


@service.query
def count(state: State) -> int:
    return state.count


def message(method: str, key: str = "a", idempotency_key: bytes = b"", **arguments: Any) -> bytes:
    args = msgspec.msgpack.encode(arguments)
    return encode(Kind.CALL, method=method.encode(), key=key.encode(), idempotency_key=idempotency_key, args=args)


def retry(hub: Hub, parked: bytes, lsn: int = LSN) -> bytes:
    why = hub.executor.retry(lsn, hub.now_us, PARKED, parked)
    hub.lsn = max(hub.lsn, lsn)
    hub.take()
    return why


def refused(why: bytes) -> str:
    return error(why).code


def test_a_call_is_run_as_a_new_invocation_whose_result_is_kept() -> None:
    hub = Hub(service)
    assert retry(hub, message("add", by=3)) == b""
    assert hub.result(LSN) == 3
    assert hub.value_of() == {"count": 3, "promise": ""}
    assert retry(hub, message("where"), 101) == b""
    assert hub.result(101) == 101


def test_what_it_raises_is_its_result_and_rolls_its_turn_back() -> None:
    hub = Hub(service)
    assert retry(hub, message("poor")) == b""
    assert hub.failure(LSN) == f"{HandlerFailed.code} ValueError"
    assert hub.executor.state() == {}


def test_a_handler_that_waits_begins_and_ends_later() -> None:
    hub = Hub(service)
    assert retry(hub, message("wait")) == b""
    assert list(hub.waiting()) == [LSN]
    hub.send("settle", promise=f"{LSN}.1")
    assert hub.result(LSN) == 5
    assert retry(hub, message("later", "b"), 200) == b""
    hub.send("settle", promise="200.0")
    assert hub.result(200) == 5


def test_it_waits_for_a_key_that_is_held_however_many_wait_already() -> None:
    hub = Hub(service, Limits(invocations_max=1, key_queue_max=1))
    hub.begin("wait")
    promise = next(iter(hub.waiting().values()))[0].split(",")[0].removeprefix("promise ")
    for lsn in (LSN, LSN + 1):
        assert retry(hub, message("add", by=2), lsn) == b""
    assert list(hub.waiting()) == [1, LSN, LSN + 1]
    hub.send("settle", promise=promise)
    assert (hub.result(LSN), hub.result(LSN + 1)) == (2, 4)


def test_one_too_many_is_refused_again_behind_it() -> None:
    hub = Hub(service, Limits(invocations_max=1, key_queue_max=1))
    assert retry(hub, message("wait")) == b""
    assert error(hub.send("add")).code == "DL1002"


@pytest.mark.parametrize(
    "parked",
    [
        encode_fork(method=b"add", key=b"a", args=b"\x80"),
        encode_request(Request(3, 1, 5, ("x/0/y",)), method=b"add", key=b"a", args=b"\x80"),
    ],
)
def test_what_another_service_sent_is_run_and_nobody_is_told(parked: bytes) -> None:
    hub = Hub(service)
    hub.now_us = 1_000_000  # the deadline of the request has passed; who waited was told that it is parked
    assert retry(hub, parked) == b""
    assert hub.result(LSN) == 1
    assert (hub.sent, hub.own) == ([], [])


@pytest.mark.parametrize(
    ("parked", "code"),
    [
        (b"", NotParked.code),
        (encode_response(Reference(3, 1), ok(1)), NotParked.code),
        (message("away"), UnknownHandler.code),
        (message("count"), UnknownHandler.code),
    ],
)
def test_what_begins_nothing_is_refused_and_changes_nothing(parked: bytes, code: str) -> None:
    hub = Hub(service)
    assert refused(retry(hub, parked)) == code
    assert (hub.results, hub.executor.state()) == ({}, {})
    assert hub.executor.rolling_update() == Hub(service).executor.rolling_update()


def test_its_idempotency_key_stands_for_it_afterwards() -> None:
    hub = Hub(service)
    assert retry(hub, message("add", "a", b"key", by=3)) == b""
    assert value(hub.send("add", "a", b"key", by=3)) == 3
    assert hub.value_of() == {"count": 3, "promise": ""}
    assert retry(hub, message("wait", "b", b"other"), 200) == b""
    assert hub.send("wait", "b", b"other") == accepted_reply(200)


def test_a_call_that_its_caller_has_sent_again_meanwhile_is_refused() -> None:
    hub = Hub(service)
    assert value(hub.send("add", "a", b"key", by=3)) == 3
    assert refused(retry(hub, message("add", "a", b"key", by=3))) == NotParked.code
    assert hub.value_of() == {"count": 3, "promise": ""}


def test_the_running_page_names_the_record_that_set_it_aside() -> None:
    seen.clear()
    hub = Hub(service)
    executor = HandlerExecutor(service, Limits(), bytes(32), hub.keys, Cells(page))
    executor.retry(LSN, 1, PARKED, message("add"))
    assert seen == [Running(0, PARKED)]
    assert read_running(page) is None


def test_its_turn_is_named_for_reports_of_divergences() -> None:
    executor = Hub(service).executor
    executor.retry(LSN, 1, PARKED, message("add"))
    outputs = executor.take_outputs()
    assert outputs is not None
    assert outputs.turns == [Ran(LSN, "add", "a")]


def test_every_replica_does_the_same() -> None:
    told = []
    for _ in range(2):
        hub = Hub(service)
        retry(hub, message("both", one="x", two="y"))
        retry(hub, message("wait"), 101)
        told.append((hub.results, hub.executor.state(), hub.executor.suspended(), hub.executor.rolling_update()))
    assert told[0] == told[1]


def test_what_waits_for_its_key_is_told_as_a_message_and_what_has_begun_is_not() -> None:
    hub = Hub(service)
    began = hub.begin("wait")
    waiting = hub.begin("add", "a", by=4)
    parked = hub.executor.not_begun(waiting)
    assert decode(parked) == (Kind.CALL, b"add", b"a", b"", msgspec.msgpack.encode({"by": 4}))
    assert hub.executor.not_begun(began) == hub.executor.not_begun(99) == b""
    hub.record(Order("kill", waiting))
    hub.record(Order("kill", began))
    assert retry(hub, parked) == b""
    assert hub.result(LSN) == 4


# ---- history -----------------------------------------------------------------------------------------------------


@service.handler
async def twice(state: State, ctx: Context, what: str) -> int:
    first = await ctx.call("bank", "k", "take", {"n": 1}, result=int)
    return first + await ctx.promise(int)


def given(hub: Hub, invocation: int, count_max: int = 10) -> list[tuple[object, ...]]:
    history = hub.executor.history(invocation, count_max)
    assert history is not None
    return [(each.operation, each.what, each.asked_us, each.lsn, each.at_us, each.reply) for each in history.given]


def test_a_history_says_what_an_invocation_was_given_in_order() -> None:
    hub = Hub(service)
    hub.now_us = 50
    invocation = hub.begin("twice", "a", what="x")
    history = hub.executor.history(invocation, 10)
    assert history is not None
    assert (msgspec.msgpack.decode(history.arguments), history.given, history.count) == ({"what": "x"}, [], 0)
    hub.now_us = 60
    ((target, sent),) = hub.sent
    caller = msgspec.msgpack.decode(decode(sent).idempotency_key)
    hub.receive(encode(Kind.RESPONSE, idempotency_key=encode_body(Reference(*caller[:2])), args=ok(4)), peer=target)
    ((_, what, *rest),) = given(hub, invocation)
    assert "bank" in str(what)
    assert rest == [50, hub.lsn, 60, ok(4)]


def test_a_history_survives_a_restart() -> None:
    hub = Hub(service)
    invocation = hub.begin("twice", "a", what="x")
    ((target, sent),) = hub.sent
    caller = msgspec.msgpack.decode(decode(sent).idempotency_key)
    hub.receive(encode(Kind.RESPONSE, idempotency_key=encode_body(Reference(*caller[:2])), args=ok(4)), peer=target)
    before = given(hub, invocation)
    suspended, state = hub.executor.suspended(), dict(hub.executor.state())
    hub.executor = executor_of(service, hub.keys)
    hub.executor.restore(state, suspended)
    assert given(hub, invocation) == before


def test_what_has_not_begun_or_owes_a_reply_has_no_history_yet() -> None:
    hub = Hub(service)
    hub.begin("wait")
    waiting = hub.begin("add", "a", by=4)
    owed = hub.begin("later", "b")
    history = hub.executor.history(waiting, 10)
    assert history is not None
    assert msgspec.msgpack.decode(history.arguments) == {"by": 4}
    assert hub.executor.history(owed, 10) is not None
    assert hub.executor.history(99, 10) is None
    assert SELF not in [target for target, _ in hub.sent]
