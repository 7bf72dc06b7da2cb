"""Messages that wait: for the key an invocation holds, for a promise, for one that goes on in its place."""

from collections.abc import Mapping
from datetime import timedelta

import msgspec
import pytest
from tests.unit.deathless.execution.messaging_bench import SELF, Hub, Target, error, kinds, ok, reference, value

from deathless.base.errors import Internal
from deathless.base.limits import Limits
from deathless.base.times import Times
from deathless.codec.messages import Kind, decode, encode
from deathless.codec.peer_messages import Order, Ran, Request, Sender, encode_body
from deathless.codec.wire import accepted_reply
from deathless.execution.author.service import Service
from deathless.execution.invocations.all_invocations import Invocations
from deathless.execution.turn.context import Context

OTHER = Target("other", 3)


class State(msgspec.Struct):
    count: int = 0
    promise: str = ""


service = Service("svc", state=State)


@service.handler
def add(state: State, ctx: Context, by: int = 1) -> int:
    state.count += by
    return state.count


@service.handler
def where(state: State, ctx: Context) -> tuple[int, int]:
    return ctx.lsn, ctx.now_us


@service.handler
def fails(state: State, ctx: Context) -> None:
    state.count = 999
    ctx.fork("svc", "b", "add")
    raise ValueError("no")


@service.handler
async def nap(state: State, ctx: Context, seconds: int = 1) -> int:
    state.count += 1
    await ctx.timer(after=timedelta(seconds=seconds))
    state.count += 10
    return state.count


@service.handler
async def at_once(state: State, ctx: Context) -> int:
    state.count += 1
    return state.count


@service.handler
async def waits(state: State, ctx: Context) -> int:
    promise = ctx.promise(int)
    state.promise = promise.id
    given = await promise  # before the state is read: others may change it while this waits
    state.count += given
    return state.count


@service.handler(shared=True)
def settle(state: State, ctx: Context, value: int = 5) -> int:
    state.count += 100
    if state.promise:
        ctx.complete(state.promise, value)
    return state.count


@service.handler
def settle_id(state: State, ctx: Context, promise: str, value: object = None) -> None:
    ctx.complete(promise, value)


@service.handler(shared=True)
async def watches(state: State, ctx: Context) -> list[int]:
    seen = [state.count]
    for _ in range(2):
        await ctx.timer(after=timedelta(seconds=1))
        state.count += 1
        seen.append(state.count)
    return seen


@service.handler
def later(state: State, ctx: Context) -> int:
    state.promise = ctx.reply_later()
    return 0


@service.handler(keys=("one", "two"))
def both(states: Mapping[str, State], ctx: Context, one: str, two: str) -> int:
    for state in states.values():
        state.count += 1
    if one != two:
        ctx.fork("svc", "c", "add")
    return sum(state.count for state in states.values())


@service.handler(keys=("one", "two"))
def both_later(states: Mapping[str, State], ctx: Context, one: str, two: str) -> int:
    states[one].promise = ctx.reply_later()
    return 0


@service.handler
async def calls(state: State, ctx: Context, key: str, method: str) -> object:
    return await ctx.call("svc", key, method)


@pytest.fixture
def hub() -> Hub:
    return Hub(service)


def request(method: str, key: str = "a", *, chain: tuple[str, ...] = (), deadline_us: int = 0) -> bytes:
    envelope = encode_body(Request(7, 1, deadline_us, chain))
    return encode(Kind.REQUEST, method=method.encode(), key=key.encode(), idempotency_key=envelope, args=b"\x80")


def fork(method: str, key: str = "a", arguments: bytes = b"\x80") -> bytes:
    envelope = encode_body(Sender())
    return encode(Kind.FORK, method=method.encode(), key=key.encode(), idempotency_key=envelope, args=arguments)


def test_handler_that_never_waits_is_answered_at_once(hub: Hub) -> None:
    assert hub.call("at_once") == 1
    assert hub.executor.suspended() == []
    assert hub.executor.invocations() == []


def test_handler_that_waits_is_answered_with_its_invocation_and_later_with_its_result(hub: Hub) -> None:
    assert hub.send("nap") == accepted_reply(1)
    assert hub.value_of() == {"count": 1, "promise": ""}
    assert hub.executor.holds(1)
    hub.tick()
    assert hub.result(1) == 11
    assert not hub.executor.holds(1)


def test_message_for_a_held_key_waits_its_turn(hub: Hub) -> None:
    first, second = hub.begin("nap"), hub.begin("add")
    third = hub.begin("where")
    assert hub.call("add", "b") == 1
    assert hub.waiting()[second] == ("key a, since 1000 us",)
    hub.tick()
    assert hub.result(first) == 11
    assert hub.result(second) == 12
    assert hub.result(third) == [third, 1_001_000]


def test_query_sees_the_last_completed_turn() -> None:
    asked = Service("asked", state=State)
    asked.handler(nap)

    @asked.query
    def count(state: State) -> int:
        return state.count

    hub = Hub(asked)
    hub.begin("nap")
    assert value(hub.ask("count")) == 1


def test_waiting_handlers_of_one_key_run_one_after_the_other(hub: Hub) -> None:
    ids = [hub.begin("nap") for _ in range(3)]
    for invocation, count in zip(ids, (11, 22, 33), strict=True):
        assert invocation not in hub.results
        hub.tick()
        assert hub.result(invocation) == count


def test_failure_of_a_message_that_waited_is_its_own(hub: Hub) -> None:
    hub.begin("nap")
    failing, following = hub.begin("fails"), hub.begin("add")
    hub.tick()
    assert hub.failure(failing) == "DL3014 ValueError"
    assert hub.result(following) == 12
    assert hub.own == []


def test_turns_that_a_message_does_not_name_are_told(hub: Hub) -> None:
    hub.send("nap")
    hub.send("add")
    hub.executor.advance(9, Times.at(2_000_000))
    outputs = hub.executor.take_outputs()
    assert outputs is not None
    assert outputs.turns == [Ran(9, "nap", "a"), Ran(9, "add", "a")]


def test_key_queue_has_a_maximum() -> None:
    hub = Hub(service, Limits(key_queue_max=1))
    hub.begin("nap")
    hub.begin("add")
    assert error(hub.send("add")).code == "DL1002"
    hub.receive(fork("add"))
    hub.tick()
    assert hub.value_of() == {"count": 13, "promise": ""}


def test_refusal_is_not_what_an_idempotency_key_stands_for() -> None:
    hub = Hub(service, Limits(key_queue_max=1))
    hub.begin("nap")
    first = hub.send("add", "a", b"first")
    assert error(hub.send("add", "a", b"second")).code == "DL1002"
    assert hub.send("add", "a", b"first") == first
    hub.tick()
    assert value(hub.send("add", "a", b"second")) == 13


def test_accepted_reply_is_what_an_idempotency_key_stands_for(hub: Hub) -> None:
    first = hub.send("nap", "a", b"key")
    hub.tick()
    assert hub.send("nap", "a", b"key") == first
    assert hub.value_of() == {"count": 11, "promise": ""}


def test_invocations_have_a_maximum() -> None:
    hub = Hub(service, Limits(invocations_max=2))
    hub.begin("nap", "a")
    hub.begin("later", "b")
    assert error(hub.send("nap", "c")).code == "DL1002"
    assert error(hub.send("add", "a")).code == "DL1002"
    assert error(hub.send("later", "d")).code == "DL1002"
    assert b"d" not in hub.executor.state()
    assert hub.call("add", "c") == 1
    hub.receive(fork("nap", "c"), fork("later", "e"))
    assert len(hub.executor.invocations()) == hub.executor.invocation_count() == 4


def test_promise_is_completed_from_another_turn(hub: Hub) -> None:
    invocation = hub.begin("waits")
    assert hub.call("settle") == 100
    assert hub.result(invocation) == 105


def test_state_that_others_changed_between_turns_is_the_handlers(hub: Hub) -> None:
    watching = hub.begin("watches")
    hub.call("add", by=50)
    hub.tick()
    hub.call("add", by=5)
    hub.restart()
    hub.tick()
    assert hub.result(watching) == [0, 51, 57]


def test_completion_of_what_is_gone_changes_nothing(hub: Hub) -> None:
    invocation = hub.begin("waits")
    for promise in (f"{invocation}.7", f"{invocation}.0", "99.1", "99.0"):
        hub.call("settle_id", "b", promise=promise)
    assert hub.results == {}
    hub.call("settle_id", "b", promise=f"{invocation}.1", value=3)
    hub.call("settle_id", "b", promise=f"{invocation}.1", value=4)
    assert hub.result(invocation) == 3


def test_timer_is_not_completed_as_a_promise(hub: Hub) -> None:
    invocation = hub.begin("nap")
    hub.call("settle_id", "b", promise=f"{invocation}.1")
    assert hub.results == {}


def test_plain_handler_may_reply_later(hub: Hub) -> None:
    reply = hub.send("later")
    assert reply == accepted_reply(1)
    assert hub.waiting() == {1: ("promise 1.0, since 1000 us",)}
    assert hub.call("add") == 1
    hub.restart()
    hub.call("settle_id", "b", promise="1.0", value=42)
    assert hub.result(1) == 42
    assert hub.waiting() == {}


def test_reply_later_that_does_not_fit_is_an_error(hub: Hub) -> None:
    invocation = hub.begin("later")
    hub.call("settle_id", "b", promise=f"{invocation}.0", value="text")
    assert hub.failure(invocation) == "DL3014 ValidationError"


def test_caller_of_a_plain_handler_that_replies_later_waits(hub: Hub) -> None:
    hub.receive(request("later"), peer=OTHER)
    assert hub.sent == []
    hub.call("settle_id", "b", promise="1.0", value=42)
    [(target, message)] = hub.sent
    assert (target, reference(message).invocation, decode(message).args) == (OTHER, 7, ok(42))


def test_request_is_answered_with_a_response(hub: Hub) -> None:
    hub.receive(request("add"), request("fails"), request("nothing"), peer=OTHER)
    assert kinds([message for _, message in hub.sent]) == ["RESPONSE"] * 3
    replies = [decode(message).args for _, message in hub.sent]
    assert value(replies[0]) == 1
    assert [error(reply).code for reply in replies[1:]] == ["DL3014", "DL3004"]


def test_fork_is_answered_by_nobody(hub: Hub) -> None:
    hub.receive(fork("add"), fork("fails"), fork("nothing"), fork("nap"), fork("add", arguments=b"\x93"))
    hub.tick()
    assert (hub.sent, hub.results, hub.own) == ([], {}, [])
    assert hub.value_of() == {"count": 12, "promise": ""}


def test_reply_too_large_for_a_message_is_an_error() -> None:
    large = Service("large", state=State)

    @large.handler
    def shout(state: State, ctx: Context) -> str:
        return "x" * 5000

    hub = Hub(large, Limits(message_bytes_max=4000))
    hub.receive(request("shout"), peer=OTHER)
    assert error(decode(hub.sent[0][1]).args).code == "DL3006"


def test_call_into_a_key_of_its_own_chain_fails_at_once(hub: Hub) -> None:
    invocation = hub.begin("calls", key="a", method="add")
    hub.settle()
    assert hub.failure(invocation) == "DL3021 CallCycle"


def test_call_through_another_key_into_its_own_fails_at_once() -> None:
    ring = Service("ring", state=State)

    @ring.handler
    async def ask(state: State, ctx: Context, way: list[str]) -> str:
        return await ctx.call("ring", way[0], "ask", {"way": way[1:]}, result=str)

    hub = Hub(ring)
    invocation = hub.begin("ask", "a", way=["b", "a"])
    hub.settle()
    assert hub.failure(invocation) == "DL3021 CallCycle"


def test_shared_handler_of_a_key_of_the_chain_is_no_cycle(hub: Hub) -> None:
    invocation = hub.begin("calls", key="a", method="settle")
    hub.settle()
    assert hub.result(invocation) == 100


def test_chain_of_a_shared_handler_does_not_name_its_key() -> None:
    free = Service("free", state=State)

    @free.handler(shared=True)
    async def ask(state: State, ctx: Context) -> int:
        return await ctx.call("free", "a", "add", result=int)

    free.handler(add)
    hub = Hub(free)
    invocation = hub.begin("ask")
    hub.settle()
    assert hub.result(invocation) == 1


def test_request_whose_deadline_is_past_is_not_run(hub: Hub) -> None:
    hub.own += [request("add", deadline_us=1000), request("add", deadline_us=1001)]
    hub.deliver()
    assert hub.value_of() == {"count": 1, "promise": ""}


def test_deadline_of_another_service_is_by_a_clock_that_is_not_ours(hub: Hub) -> None:
    hub.receive(request("add", deadline_us=1), peer=OTHER)
    assert [decode(message).args[0] for _, message in hub.sent] == [0]
    assert hub.value_of() == {"count": 1, "promise": ""}


def test_request_whose_deadline_passed_while_it_waited_is_not_run(hub: Hub) -> None:
    hub.begin("nap")
    hub.own.append(request("add", deadline_us=2000))
    hub.deliver()
    hub.tick()
    assert hub.value_of() == {"count": 11, "promise": ""}


def test_handler_of_several_keys_waits_for_each_of_them(hub: Hub) -> None:
    hub.begin("nap", "a", seconds=1)
    hub.begin("nap", "b", seconds=2)
    waiting = hub.begin("both", "x", one="a", two="b")
    assert hub.waiting()[waiting] == ("key a, since 1000 us",)
    hub.tick()
    assert hub.waiting()[waiting] == ("key b, since 1000 us",)
    hub.restart()
    hub.tick()
    assert hub.result(waiting) == 24
    hub.settle()
    assert hub.value_of("c") == {"count": 1, "promise": ""}


def test_later_reply_of_several_keys_that_is_refused_can_be_tried_again() -> None:
    hub = Hub(service, Limits(invocations_max=1))
    hub.begin("later", "z")
    arguments = {"one": "a", "two": "b"}
    assert error(hub.send("both_later", "x", b"key", **arguments)).code == "DL1002"
    assert b"a" not in hub.executor.state()
    hub.record(Order("kill", 1))
    assert hub.send("both_later", "x", b"key", **arguments) == accepted_reply(hub.lsn)


def test_handler_of_several_free_keys_runs_beside_a_held_one(hub: Hub) -> None:
    hub.begin("nap", "a")
    assert hub.call("both", "x", one="b", two="b") == 1
    assert hub.call("both", "x", one="b", two="c") == 3
    assert hub.fail("both", "x", one="b").code == "DL3003"
    assert hub.call("deathless.probe", "a", series="a", number=0) == 1
    assert hub.fail("nothing").code == "DL3004"


def test_handler_of_several_keys_and_built_in_ones_answer_peers(hub: Hub) -> None:
    arguments = msgspec.msgpack.encode({"one": "a", "two": "a"})
    hub.receive(fork("both", arguments=arguments))
    hub.receive(fork("deathless.probe", arguments=msgspec.msgpack.encode({"series": "s", "number": 0})))
    assert hub.value_of() == {"count": 1, "promise": ""}
    held = value(hub.ask("deathless.probe.read", "", series="s"))
    assert isinstance(held, dict)
    assert held["count"] == 1


def test_service_of_one_object_holds_its_one_key() -> None:
    one = Service("one", state=State, single=True)
    one.handler(nap)
    one.handler(add)
    hub = Hub(one)
    hub.begin("nap", "x")
    waiting = hub.begin("add", "y")
    hub.receive(fork("add", "z"))
    hub.tick()
    assert hub.result(waiting) == 12
    assert hub.executor.state() == {b"": msgspec.msgpack.encode(State(count=13))}


def test_first_turn_that_fails_leaves_nothing(hub: Hub) -> None:
    assert hub.fail("nap", seconds="x").code == "DL3003"
    assert hub.fail("nap", "\0").code == "DL3003"
    assert hub.waiting() == {}
    assert hub.executor.state() == {}


def test_message_that_frees_a_key_has_what_that_caused_in_its_digest() -> None:
    def run(by: int) -> tuple[list[int], list[int]]:
        hub = Hub(service)
        hub.begin("waits")
        hub.send("add", by=by)
        digests = hub.executor.execute(3, 3, 3, 7, [hub.message("settle", "a"), hub.message("where", "b")])[1]
        return digests[:1], digests[1:]

    (caused, after), (other, after_other) = run(1), run(2)
    assert caused != other
    assert after == after_other


def test_record_has_what_it_caused_in_the_rolling_digest() -> None:
    def run(seconds: int) -> bytes:
        hub = Hub(service)
        hub.begin("nap", seconds=1)
        if seconds == 2:
            hub.begin("add")
        hub.executor.rolling_update()
        hub.tick()
        return hub.executor.rolling_update()

    assert run(1) != run(2)


def test_error_of_ours_while_a_turn_is_carried_out_is_no_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> None:
        raise Internal("broken")

    monkeypatch.setattr(Invocations, "run_todo", broken)
    with pytest.raises(Internal):
        Hub(service).send("settle_id", promise="1.1")
    monkeypatch.setattr(Invocations, "_send", broken)
    with pytest.raises(Internal):
        Hub(service).send("both", "x", one="a", two="b")
    with pytest.raises(Internal):
        Hub(service).receive(fork("settle_id", arguments=msgspec.msgpack.encode({"promise": "1.1"})))


def test_orders_and_peers_of_nothing_change_nothing(hub: Hub) -> None:
    before = hub.executor.rolling_update()
    hub.record(Order("cancel", 9))
    hub.record(SELF)
    assert hub.executor.rolling_update() == before
