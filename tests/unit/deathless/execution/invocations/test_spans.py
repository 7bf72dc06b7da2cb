"""What is noted of traces, and that it changes nothing else (docs/design/0010-traces.md)."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from tests.unit.deathless.execution.executor_bench import SEED
from tests.unit.deathless.execution.messaging_bench import SELF, Hub, Target, error, log_of, replay, value

from deathless.base.limits import Limits
from deathless.codec.messages import Kind, decode, encode
from deathless.codec.peer_messages import (
    Order,
    Reference,
    Request,
    Sender,
    TracedFork,
    TracedRequest,
    decode_body,
    encode_body,
    encode_response,
)
from deathless.codec.traces import Span, SpanKind, from_traceparent, span_id, traced, traceparent, within
from deathless.codec.wire import accepted_invocation, error_reply, ok_reply
from deathless.execution.author.service import Service
from deathless.execution.invocations.spans import Spans
from deathless.execution.turn.context import Context
from deathless.execution.turn.operations import CANCELLED

HEADER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE = from_traceparent(HEADER)
UNSAMPLED = from_traceparent(HEADER[:-2] + "00")
OTHER = Target("other", 0)


class State(msgspec.Struct):
    count: int = 0


service = Service("svc", state=State)


@service.handler
def add(state: State, ctx: Context, by: int = 1) -> int:
    state.count += by
    return state.count


@service.handler
def fails(state: State, ctx: Context) -> None:
    raise ValueError("no")


@service.handler
def tell(state: State, ctx: Context, text: str = "") -> None:
    ctx.fork("other", "k", "hear", {"text": text})
    ctx.fork("other", "l", "hear")


@service.handler
def later(state: State, ctx: Context) -> str:
    return ctx.reply_later()


@service.activity(attempts_max=2, first_delay=0.0)
def work(what: str) -> str:
    return what


@service.handler
async def ask(state: State, ctx: Context) -> object:
    state.count += 1
    return await ctx.call("other", "its key", "answer")


@service.handler
async def give_up(state: State, ctx: Context, how: str) -> None:
    call = ctx.call("other", "k", "answer", deadline=timedelta(seconds=1) if how == "deadline" else None)
    if how == "cancel":
        call.cancel()
    if how in ("deadline", "wait"):
        await call


@service.handler
async def use(state: State, ctx: Context) -> str:
    return await ctx.run(work, "it")


@service.handler
async def nap(state: State, ctx: Context) -> None:
    await ctx.timer(after=timedelta(seconds=1))


@service.handler
async def goes_on(state: State, ctx: Context) -> None:
    ctx.continue_with("ask")


def call_of(hub: Hub, method: str, trace: bytes = TRACE, idempotency_key: bytes = b"", **arguments: object) -> bytes:
    return traced(hub.message(method, "a", idempotency_key, **arguments), trace)


def call(hub: Hub, method: str, trace: bytes = TRACE, **arguments: object) -> bytes:
    return hub.run([traced(hub.message(method, "a", b"", **arguments), trace)])[0]


def own_id(invocation: int, operation: int = 0) -> bytes:
    return span_id(SEED, 0, invocation, operation)


@pytest.fixture
def hub() -> Hub:
    return Hub(service)


def sent_trace(message: bytes) -> bytes:
    """The context in the envelope of a message."""
    kind, _, _, envelope, _ = decode(message)
    if kind == Kind.FORK:
        return decode_body(TracedFork, envelope).trace
    return decode_body(TracedRequest, envelope).trace


def answer(hub: Hub, reply: bytes) -> None:
    """Reply to the last request."""
    asked = decode_body(Request, decode(hub.sent[-1][1]).idempotency_key)
    hub.receive(encode_response(Reference(asked.invocation, asked.operation), reply), peer=OTHER)


def test_a_plain_handler_is_a_span_under_its_caller(hub: Hub) -> None:
    assert value(call(hub, "add", by=3)) == 3
    assert hub.spans == [
        Span(SpanKind.CALL, TRACE, own_id(1), "svc", "add", "a", 1, 0, 0, hub.now_us, b""),
    ]


def test_an_error_is_told(hub: Hub) -> None:
    reply = call(hub, "fails")
    assert [span.error for span in hub.spans] == [reply[1:]]
    assert error(reply).type == "ValueError"


@pytest.mark.parametrize("trace", [UNSAMPLED, bytes(25)])
def test_what_is_not_sampled_is_not_noted(hub: Hub, trace: bytes) -> None:
    assert value(call(hub, "add", trace)) == 1
    assert hub.spans == []


def test_a_call_without_a_context_notes_nothing_and_sends_what_it_always_sent(hub: Hub) -> None:
    hub.send("tell")
    assert [decode(message).idempotency_key for _, message in hub.sent] == [encode_body(Sender())] * 2
    hub.begin("ask")
    assert decode(hub.sent[-1][1]).idempotency_key == encode_body(Request(2, 1, 0, ("svc/0/a",)))
    assert hub.spans == []


def test_a_context_is_no_part_of_the_request(hub: Hub) -> None:
    """The same key with another context, and with none, is the same request; with other arguments it is not."""
    assert value(hub.run([call_of(hub, "add", TRACE, b"once")])[0]) == 1
    assert value(hub.run([call_of(hub, "add", within(TRACE, b"\x07" * 8), b"once")])[0]) == 1
    assert value(hub.send("add", "a", b"once")) == 1
    assert hub.run([call_of(hub, "add", TRACE, b"once", by=2)]) == [b"\x01refused"]
    assert value(hub.send("add", "a", b"other")) == 2
    assert value(hub.run([call_of(hub, "add", TRACE, b"other")])[0]) == 2
    assert len(hub.spans) == 1


def test_what_is_refused_for_lack_of_room_can_be_sent_again_under_its_key() -> None:
    hub = Hub(service, Limits(invocations_max=1))
    hub.begin("ask")
    message = call_of(hub, "later", TRACE, b"k")
    assert error(hub.run([message])[0]).code == "DL1002"
    assert hub.keys.remembered == 0


def test_forks_carry_the_span_that_sent_them(hub: Hub) -> None:
    call(hub, "tell")
    assert [sent_trace(message) for _, message in hub.sent] == [within(TRACE, own_id(1))] * 2


def test_an_unsampled_context_travels_too(hub: Hub) -> None:
    call(hub, "tell", UNSAMPLED)
    assert sent_trace(hub.sent[0][1]) == within(UNSAMPLED, own_id(1))


@pytest.mark.parametrize("spare", [0, 1])
def test_a_message_that_would_be_too_long_goes_without(spare: int) -> None:
    """Tracing changes nothing that is done: what fits without a context is sent."""
    hub = Hub(service)
    call(hub, "tell", text="x" * 5000)
    size = len(hub.sent[0][1])
    hub = Hub(service, Limits(message_bytes_max=size - spare, frame_bytes_max=1 << 20))
    call(hub, "tell", text="x" * 5000)
    assert bool(sent_trace(hub.sent[0][1])) is (spare == 0)


def test_an_envelope_that_would_be_too_long_goes_without(hub: Hub) -> None:
    chain = ("c" * 65_500,)
    envelope = encode_body(TracedRequest(1, 2, 0, chain, TRACE))
    hub.receive(encode(Kind.REQUEST, method=b"ask", key=b"a", idempotency_key=envelope, args=b"\x80"), peer=OTHER)
    assert [sent_trace(message) for _, message in hub.sent] == [b""]
    assert decode_body(Request, decode(hub.sent[0][1]).idempotency_key).chain[0] == chain[0]


def test_a_call_is_a_span_between_the_handler_and_its_callee(hub: Hub) -> None:
    invocation = accepted_invocation(call(hub, "ask"))
    assert invocation == 1
    context = sent_trace(hub.sent[0][1])
    assert context == within(TRACE, own_id(1, 1))
    began_us, hub.now_us = hub.now_us, hub.now_us + 50
    answer(hub, ok_reply(b"\x05"))
    below = within(TRACE, own_id(1))
    assert hub.spans == [
        Span(SpanKind.REQUEST, below, own_id(1, 1), "other", "answer", "its key", 1, 1, 0, began_us, b""),
        Span(SpanKind.CALL, TRACE, own_id(1), "svc", "ask", "a", 1, 0, 0, began_us, b""),
    ]


def test_a_request_of_a_peer_is_a_span_under_the_callers(hub: Hub) -> None:
    envelope = encode_body(TracedRequest(7, 1, 0, (), TRACE))
    hub.receive(encode(Kind.REQUEST, method=b"add", key=b"a", idempotency_key=envelope, args=b"\x80"), peer=OTHER)
    assert [(span.kind, span.trace) for span in hub.spans] == [(SpanKind.CALL, TRACE)]


@pytest.mark.parametrize("peer", [OTHER, SELF])
def test_a_fork_is_a_span_that_nobody_waits_for(hub: Hub, peer: Target) -> None:
    envelope = encode_body(TracedFork((), "", TRACE))
    plain = encode(Kind.FORK, method=b"add", key=b"a", idempotency_key=encode_body(Sender()), args=b"\x80")
    fork = encode(Kind.FORK, method=b"add", key=b"a", idempotency_key=envelope, args=b"\x80")
    hub.receive(plain, fork, plain, peer=peer)
    assert hub.value_of() == {"count": 3}
    assert [(span.kind, span.trace, span.invocation) for span in hub.spans] == [(SpanKind.FORK, TRACE, 2)]


@pytest.mark.parametrize("trace", [b"short", bytes(25)])
def test_what_is_no_context_in_an_envelope_is_none(hub: Hub, trace: bytes) -> None:
    envelope = encode_body(TracedFork((), "", trace))
    hub.receive(encode(Kind.FORK, method=b"tell", key=b"a", idempotency_key=envelope, args=b"\x80"), peer=OTHER)
    assert [decode(message).idempotency_key for _, message in hub.sent] == [encode_body(Sender())] * 2
    assert hub.spans == []


def test_an_activity_is_one_span_with_all_its_attempts(hub: Hub) -> None:
    call(hub, "use")
    assert hub.executor.traceparent(1, 1) == traceparent(within(TRACE, own_id(1, 1)))
    hub.outcome(hub.starts[0], ("DL3030", "ValueError", "no"))
    assert hub.spans == []
    hub.tick(hub.now_us + 1)
    hub.outcome(hub.starts[1], "done")
    first, second = hub.spans
    assert first == Span(
        SpanKind.ACTIVITY, within(TRACE, own_id(1)), own_id(1, 1), "svc", "work", "a", 1, 1, 2, 1_000, b""
    )
    assert second.kind == SpanKind.CALL


def test_an_activity_of_no_trace_has_no_header(hub: Hub) -> None:
    hub.begin("use")
    assert hub.executor.traceparent(1, 1) == ""
    assert hub.executor.traceparent(99, 1) == ""


@pytest.mark.parametrize("how", ["cancel", "forget"])
def test_a_call_that_is_given_up_is_a_span_too(hub: Hub, how: str) -> None:
    """What it caused at the other side would hang in the air without it."""
    call(hub, "give_up", how=how)
    assert [(span.kind, span.error) for span in hub.spans] == [(SpanKind.REQUEST, CANCELLED[1:]), (SpanKind.CALL, b"")]


def test_a_call_whose_deadline_passes_is_one_span(hub: Hub) -> None:
    call(hub, "give_up", how="deadline")
    hub.tick()
    assert [span.kind for span in hub.spans] == [SpanKind.REQUEST, SpanKind.CALL]
    assert b"DeadlineExceeded" in hub.spans[0].error


@pytest.mark.parametrize("command", ["cancel", "kill"])
def test_what_an_operator_ends_is_told_with_its_error(hub: Hub, command: str) -> None:
    call(hub, "give_up", how="wait")
    hub.record(Order(command, 1))
    assert [span.kind for span in hub.spans] == [SpanKind.REQUEST, SpanKind.CALL]
    assert all(b"Cancelled" in span.error for span in hub.spans)


def test_an_invocation_that_goes_on_as_another_is_one_span(hub: Hub) -> None:
    call(hub, "goes_on")
    answer(hub, ok_reply(b"\xc0"))
    assert [(span.kind, span.method) for span in hub.spans] == [(SpanKind.REQUEST, "answer"), (SpanKind.CALL, "ask")]


def test_a_timer_is_no_span(hub: Hub) -> None:
    call(hub, "nap")
    hub.tick()
    assert [(span.kind, span.method) for span in hub.spans] == [(SpanKind.CALL, "nap")]


def test_a_handler_that_replies_later_is_a_span_of_its_turn(hub: Hub) -> None:
    call(hub, "later")
    assert [(span.method, span.error) for span in hub.spans] == [("later", b"")]


def test_a_message_that_waits_for_its_key_keeps_its_context(hub: Hub) -> None:
    call(hub, "ask")
    hub.run([call_of(hub, "add")])
    hub.restart()
    answer(hub, ok_reply(b"\xc0"))
    assert [span.method for span in hub.spans] == ["answer", "ask", "add"]
    assert hub.spans[-1].trace == TRACE


def test_a_successor_ends_what_its_predecessor_began_and_notes_nothing_else(hub: Hub) -> None:
    """`restart` asserts that nothing is given by an invocation that is run again."""
    call(hub, "ask")
    assert hub.spans == []
    hub.restart()
    answer(hub, error_reply("DL3014", "ValueError", "no"))
    assert [(span.kind, span.span) for span in hub.spans] == [
        (SpanKind.REQUEST, own_id(1, 1)), (SpanKind.CALL, own_id(1)),
    ]  # fmt: skip
    assert all(span.error for span in hub.spans)


def test_what_was_set_aside_keeps_its_context(hub: Hub) -> None:
    assert hub.executor.retry(5, 1_000, 3, call_of(hub, "add", TRACE, b"k")) == b""
    hub.take()
    assert [(span.trace, span.invocation) for span in hub.spans] == [(TRACE, 5)]
    assert value(hub.run([call_of(hub, "add", TRACE, b"k")])[0]) == 1


def test_a_state_is_the_same_with_a_context_and_without() -> None:
    one, two = Hub(service), Hub(service)
    for method in ("add", "fails", "tell", "ask"):
        call(one, method)
        two.send(method)
    for each in (one, two):
        answer(each, ok_reply(b"\x05"))
    assert one.executor.state() == two.executor.state()
    assert one.results == two.results
    assert one.spans
    assert not two.spans


def test_noting_spans_enters_no_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub(service)
    call(hub, "ask")
    call(hub, "add", by=2)
    answer(hub, ok_reply(b"\x05"))
    noted = replay(service, log_of(hub))
    monkeypatch.setattr(Spans, "handled", lambda *_: None)
    monkeypatch.setattr(Spans, "resolved", lambda *_: None)
    unnoted = replay(service, log_of(hub))
    assert (noted.digests, noted.outputs) == (unnoted.digests, unnoted.outputs)


@pytest.mark.parametrize("method", ["nobody", "add"])
def test_a_broken_call_with_a_context_is_refused(hub: Hub, method: str) -> None:
    if method == "nobody":
        assert error(call(hub, method)).code == "DL3004"
        return
    for at in (2, 4, 6):
        broken = bytearray(call_of(hub, method))
        broken[at : at + 2] = b"\xff\xff"
        assert error(hub.run([bytes(broken)])[0]).text == "the message is malformed"
    assert hub.spans == []
