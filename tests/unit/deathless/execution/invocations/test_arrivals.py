"""What comes for an invocation: each thing once, from whom it was asked, and nothing for what is gone."""

from datetime import timedelta

import msgspec
import pytest
from tests.unit.deathless.execution.messaging_bench import SELF, Hub, Target, error, kinds, ok, reference

from deathless.base.errors import DeadlineExceeded
from deathless.base.limits import Limits
from deathless.codec.messages import Kind, decode, encode
from deathless.codec.peer_messages import Attempt, Order, Outcome, Reference, Request, encode_body
from deathless.codec.snapshot import UnknownRecord
from deathless.codec.wire import error_reply
from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context
from deathless.execution.turn.running import Running

STOCK = Target("stock", 0)


class State(msgspec.Struct):
    seen: list[str] = []


service = Service("shop", state=State)


@service.activity(attempts_max=3, first_delay=1.0, factor=2.0)
def charge(cents: int) -> str:
    return str(cents)


@service.activity(at_most_once=True, timeout=5, heartbeat=0.5)
def ship(item: str) -> str:
    return item


@service.handler
async def buy(state: State, ctx: Context, wait_us: int = 0) -> int:
    state.seen.append("asked")
    deadline = timedelta(microseconds=wait_us) if wait_us else None
    got = await ctx.call("stock", "apples", "take", {"count": 2}, result=int, deadline=deadline)
    state.seen.append(f"got {got} at {ctx.now_us}")
    return got


@service.handler
async def patient(state: State, ctx: Context) -> int:
    try:
        await ctx.call("stock", "apples", "take", {"count": 2}, result=int, deadline=timedelta(microseconds=500))
    except DeadlineExceeded:
        state.seen.append("late")
    return await ctx.call("stock", "pears", "take", {"count": 3}, result=int)


@service.handler
async def pay(state: State, ctx: Context, cents: int) -> str:
    return await ctx.run(charge, cents)


@service.handler
async def send(state: State, ctx: Context) -> str:
    return await ctx.run(ship, item="pear")


@service.handler
async def two(state: State, ctx: Context) -> list[int]:
    first, second = ctx.call("stock", "a", "take", result=int), ctx.call("stock", "b", "take", result=int)
    return list(await ctx.gather(second, first))


@service.handler
async def approve(state: State, ctx: Context) -> str:
    return await ctx.promise(str)


@service.handler
async def timers(state: State, ctx: Context) -> list[str]:
    late, early = ctx.timer(after=timedelta(seconds=2)), ctx.timer(after=timedelta(seconds=1))
    first = await ctx.race(late, early)
    state.seen.append("early" if first is early else "late")
    await late
    return state.seen


@service.handler
def add(state: State, ctx: Context) -> int:
    state.seen.append("added")
    return len(state.seen)


@service.handler
def later(state: State, ctx: Context) -> str:
    state.seen.append(ctx.reply_later())
    return ""


@pytest.fixture
def hub() -> Hub:
    return Hub(service)


def response(invocation: int, reply: bytes, operation: int = 1) -> bytes:
    envelope = encode_body(Reference(invocation, operation))
    return encode(Kind.RESPONSE, idempotency_key=envelope, args=reply)


def request(method: str, operation: int = 1) -> bytes:
    envelope = encode_body(Request(7, operation))
    return encode(Kind.REQUEST, method=method.encode(), key=b"a", idempotency_key=envelope, args=b"\x80")


def cancel(operation: int = 1) -> bytes:
    return encode(Kind.CANCEL, idempotency_key=encode_body(Reference(7, operation)))


def test_response_resumes_who_asked(hub: Hub) -> None:
    invocation = hub.begin("buy")
    [(target, message)] = hub.sent
    assert (target, decode(message).method, decode(message).args) == (STOCK, b"take", b"\x81\xa5count\x02")
    hub.now_us = 5000
    hub.receive(response(invocation, ok(2)), peer=STOCK)
    assert hub.result(invocation) == 2
    assert hub.value_of() == {"seen": ["asked", "got 2 at 5000"]}


def test_second_response_and_one_for_nobody_change_nothing(hub: Hub) -> None:
    invocation = hub.begin("buy")
    hub.receive(response(invocation, ok(2), 7), response(99, ok(2)), peer=STOCK)
    assert hub.results == {}
    hub.receive(response(invocation, ok(2)), response(invocation, ok(3)), peer=STOCK)
    assert hub.result(invocation) == 2


def test_response_of_another_than_was_asked_changes_nothing(hub: Hub) -> None:
    invocation = hub.begin("buy")
    for peer in (SELF, Target("stock", 1), Target("thief", 0)):
        hub.receive(response(invocation, ok(2)), peer=peer)
    assert hub.results == {}


@pytest.mark.parametrize(("reply", "code"), [(b"", "DL3018"), (b"\x02", "DL3018"), (b"\x00\xa1x", "DL3018")])
def test_response_that_cannot_be_read_fails_the_call(hub: Hub, reply: bytes, code: str) -> None:
    invocation = hub.begin("buy")
    hub.receive(response(invocation, reply), peer=STOCK)
    assert hub.failure(invocation) == f"{code} CallFailed"


@pytest.mark.parametrize(
    ("callee", "code"),
    [("STOCK1", "DL3018"), ("DL3048", "DL3018"), ("DL3003", "DL3018"), ("DL3014", "DL3014"), ("DL3023", "DL3014")],
)
def test_error_of_the_callee_is_raised_in_the_caller(hub: Hub, callee: str, code: str) -> None:
    invocation = hub.begin("buy")
    hub.receive(response(invocation, error_reply(callee, "SoldOut", "no apples")), peer=STOCK)
    failed = error(hub.results[invocation])
    assert (failed.code, failed.type, failed.text) == (code, "CallFailed", f"{callee} SoldOut: no apples")


def test_responses_may_come_in_any_order(hub: Hub) -> None:
    invocation = hub.begin("two")
    hub.receive(response(invocation, ok(2), 2), peer=STOCK)
    hub.restart()
    hub.receive(response(invocation, ok(1), 1), peer=STOCK)
    assert hub.result(invocation) == [2, 1]


def test_deadline_cancels_the_call(hub: Hub) -> None:
    invocation = hub.begin("buy", wait_us=500)
    assert hub.executor.due().first_us == 1500
    hub.tick()
    assert hub.failure(invocation) == "DL3022 DeadlineExceeded"
    assert kinds([message for _, message in hub.sent]) == ["REQUEST", "CANCEL"]
    assert reference(hub.sent[1][1]) == Reference(invocation, 1)
    hub.receive(response(invocation, ok(2)), peer=STOCK)
    assert hub.executor.due().first_us == 0


def test_reply_that_comes_behind_its_deadline_changes_nothing_of_a_handler_that_goes_on(hub: Hub) -> None:
    invocation = hub.begin("patient")
    hub.tick()
    assert kinds([message for _, message in hub.sent]) == ["REQUEST", "CANCEL", "REQUEST"]
    hub.receive(response(invocation, ok(7)), peer=STOCK)
    assert hub.results == {}
    hub.restart()
    hub.receive(response(invocation, ok(7)), peer=STOCK)
    assert hub.results == {}
    hub.receive(response(invocation, ok(3), 2), peer=STOCK)
    assert hub.result(invocation) == 3


def test_deadline_of_an_answered_call_is_nothing(hub: Hub) -> None:
    invocation = hub.begin("buy", wait_us=500)
    hub.receive(response(invocation, ok(2)), peer=STOCK)
    assert hub.executor.due().first_us == 0
    hub.begin("buy", "b", wait_us=5000)
    hub.now_us = 9000
    hub.record(None)
    assert hub.executor.due().first_us == 0


def test_time_that_is_not_due_does_nothing(hub: Hub) -> None:
    hub.begin("timers")
    hub.executor.rolling_update()
    nothing = hub.executor.rolling_update()
    hub.tick(1500)
    assert hub.executor.rolling_update() == nothing


def test_timers_fire_in_the_order_of_their_deadlines(hub: Hub) -> None:
    invocation = hub.begin("timers")
    hub.tick(9_000_000)
    assert hub.result(invocation) == ["early"]


def test_deadline_of_what_is_gone_is_passed_over(hub: Hub) -> None:
    hub.begin("buy", "a", wait_us=500)
    hub.begin("buy", "b", wait_us=500)
    hub.record(Order("kill", 1))
    hub.tick(2000)
    assert hub.failure(2) == "DL3022 DeadlineExceeded"


@service.handler
async def end(state: State, ctx: Context) -> None:
    await ctx.timer(after=timedelta(seconds=1))
    raise MemoryError


def test_i11_running_page_names_the_invocation_whose_timer_ends_the_process(hub: Hub) -> None:
    hub.begin("buy")
    invocation = hub.begin("end", "b")
    with pytest.raises(MemoryError):
        hub.tick()
    assert hub.running == Running(0, invocation)


def test_i11_running_page_names_nobody_when_a_records_turns_are_over(hub: Hub) -> None:
    hub.begin("timers")
    hub.tick()
    assert hub.running is None


def test_i11_an_invocation_that_is_set_aside_ends_with_the_error_given(hub: Hub) -> None:
    ended, queued = hub.begin("buy"), hub.begin("buy")
    for invocation in (queued, ended):
        hub.record(Order("kill", invocation, 0, error_reply("DL3015", "Parked", "it ended its process")))
    assert hub.failure(ended) == hub.failure(queued) == "DL3015 Parked"


def test_activity_gives_its_result(hub: Hub) -> None:
    invocation = hub.begin("pay", cents=5)
    [start] = hub.starts
    assert (start.name, start.arguments, start.attempt, start.at_most_once) == (
        "charge",
        b"\x81\xa5cents\x05",
        1,
        False,
    )
    assert hub.executor.activities() == [start]
    hub.outcome(start, "receipt")
    assert hub.result(invocation) == "receipt"
    assert hub.executor.activities() == []


def test_attempt_that_failed_is_followed_by_another_until_the_policy_ends(hub: Hub) -> None:
    invocation = hub.begin("pay", cents=5)
    for attempt, not_before_us in ((2, 1_001_000), (3, 2_001_000)):
        hub.outcome(hub.starts[-1], ("DL3014", "ValueError", "declined"))
        start = hub.starts[-1]
        assert (start.attempt, start.not_before_us, start.key) == (attempt, not_before_us, hub.starts[0].key)
        hub.restart()
        assert hub.executor.activities() == [start]
    hub.outcome(hub.starts[-1], ("DL3014", "ValueError", "declined"))
    assert hub.failure(invocation) == "DL3030 ActivityFailed"
    assert "attempt 3: declined" in error(hub.results[invocation]).text
    assert len(hub.starts) == 3


def test_outcome_of_another_attempt_or_of_nothing_is_ignored(hub: Hub) -> None:
    invocation = hub.begin("pay", cents=5)
    hub.outcome(hub.starts[0], ("DL3014", "ValueError", "declined"))
    for outcome in (Outcome(invocation, 1, 1, ok("x")), Outcome(invocation, 2, 2, ok("x")), Outcome(9, 1, 1, ok("x"))):
        hub.record(outcome)
    assert hub.results == {}


def test_result_that_is_too_large_is_a_failure_that_is_not_tried_again() -> None:
    hub = Hub(service, Limits(reply_bytes_max=100))
    invocation = hub.begin("pay", cents=5)
    hub.outcome(hub.starts[0], "x" * 200)
    assert len(hub.starts) == 1
    told = error(hub.results[invocation])
    assert told.type == "ActivityFailed"
    assert "it gave" in told.text
    assert "bytes, at most 100" in told.text


def test_what_can_not_succeed_ends_with_its_first_attempt(hub: Hub) -> None:
    invocation = hub.begin("pay", cents=5)
    hub.outcome(hub.starts[0], ("DL3034", "Stolen", "the card is stolen"))
    assert len(hub.starts) == 1
    assert "attempt 1: the card is stolen" in error(hub.results[invocation]).text


def test_at_most_once_activity_is_never_begun_again(hub: Hub) -> None:
    invocation = hub.begin("send")
    [start] = hub.starts
    assert (start.at_most_once, start.attempted) == (True, False)
    assert (start.timeout_us, start.heartbeat_us) == (5_000_000, 500_000)
    hub.record(Attempt(invocation, 1, 2))
    assert not hub.executor.activities()[0].attempted
    hub.record(Attempt(invocation, 1, 1))
    hub.record(Attempt(invocation, 9, 1))
    hub.restart()
    assert hub.executor.activities()[0].attempted
    hub.outcome(start, ("DL1006", "OutcomeUnknown", "its process is gone"))
    assert hub.failure(invocation) == "DL3014 OutcomeUnknown"
    assert len(hub.starts) == 1
    case = UnknownRecord(invocation, 1, "send", b"a", "ship", start.key, hub.lsn, hub.now_us)
    assert hub.unknown == [case], "operators are told"
    hub.outcome(start, ("DL1006", "OutcomeUnknown", "its process is gone"))
    assert hub.unknown == [case], "once"


def test_an_outcome_that_is_known_or_that_nobody_waits_for_is_not_listed(hub: Hub) -> None:
    failed, killed = hub.begin("send"), hub.begin("send", "b")
    hub.outcome(hub.starts[0], ("DL3030", "ActivityFailed", "its process ended"))
    hub.record(Order("kill", killed))
    hub.outcome(hub.starts[1], ("DL1006", "OutcomeUnknown", "its process is gone"))
    assert (hub.failure(failed), hub.unknown) == ("DL3030 ActivityFailed", [])


def test_an_attempt_of_unknown_outcome_behind_which_there_is_another_is_not_listed(hub: Hub) -> None:
    hub.begin("pay", cents=5)
    for _ in range(3):
        assert hub.unknown == []
        hub.outcome(hub.starts[-1], ("DL1006", "OutcomeUnknown", "no answer came"))
    assert [record.activity for record in hub.unknown] == ["charge"]


def test_operator_cancels_what_an_invocation_waits_for(hub: Hub) -> None:
    calling, paying = hub.begin("buy", "a"), hub.begin("pay", "b", cents=1)
    hub.record(Order("cancel", calling))
    hub.record(Order("cancel", paying))
    assert hub.failure(calling) == hub.failure(paying) == "DL3019 Cancelled"
    assert kinds([message for _, message in hub.sent]) == ["REQUEST", "CANCEL"]
    assert hub.stops == [Reference(paying, 1)]


def test_operator_ends_an_invocation(hub: Hub) -> None:
    paying, waiting, owing = hub.begin("pay", cents=1), hub.begin("add"), hub.begin("later", "b")
    hub.record(Order("kill", paying))
    assert hub.failure(paying) == "DL3019 Cancelled"
    assert hub.result(waiting) == 1
    assert hub.stops == [Reference(paying, 1)]
    hub.record(Order("kill", owing))
    assert hub.failure(owing) == "DL3019 Cancelled"


def test_operator_ends_what_has_not_begun(hub: Hub) -> None:
    paying, first, second = hub.begin("pay", cents=1), hub.begin("add"), hub.begin("add")
    hub.record(Order("cancel", first))
    hub.record(Order("kill", second))
    assert hub.failure(first) == hub.failure(second) == "DL3019 Cancelled"
    hub.outcome(hub.starts[0], "receipt")
    assert hub.result(paying) == "receipt"
    assert hub.value_of() == {"seen": []}


def test_operator_completes_a_promise(hub: Hub) -> None:
    first, second, owing = hub.begin("approve", "a"), hub.begin("approve", "b"), hub.begin("later", "c")
    hub.record(Order("resume", first, 0, ok("yes")))
    hub.record(Order("resume", second, 1, error_reply("DL3048", "Refused", "no")))
    hub.record(Order("resume", owing, 0, ok("done")))
    assert hub.result(first) == "yes"
    assert hub.failure(second) == "DL3018 CallFailed"
    assert hub.result(owing) == "done"


def test_order_that_makes_no_sense_changes_nothing(hub: Hub) -> None:
    approving, paying = hub.begin("approve", "a"), hub.begin("pay", "b", cents=1)
    for order in (
        Order("dance", approving),
        Order("resume", approving, 0, b""),
        Order("resume", approving, 7, ok("x")),
        Order("resume", paying, 1, ok("x")),
        Order("resume", 99, 0, ok("x")),
        Order("kill", 99),
    ):
        hub.record(order)
    assert hub.results == {}
    assert list(hub.waiting()) == [approving, paying]


def test_caller_that_waits_no_more_cancels_what_works_for_it(hub: Hub) -> None:
    hub.receive(request("buy", 1), request("add", 2), peer=STOCK)
    hub.receive(cancel(2), cancel(3), peer=STOCK)
    assert kinds([message for _, message in hub.sent]) == ["REQUEST", "RESPONSE"]
    hub.receive(cancel(1), peer=Target("thief", 0))
    assert len(hub.waiting()) == 1
    hub.restart()
    hub.receive(cancel(1), peer=STOCK)
    assert hub.waiting() == {}
    assert [error(decode(m).args).type for _, m in hub.sent if decode(m).kind == Kind.RESPONSE] == ["Cancelled"] * 2


def test_caller_may_cancel_a_reply_that_is_owed_and_what_waits_after_a_restart(hub: Hub) -> None:
    hub.begin("approve")
    hub.receive(request("add", 2), peer=STOCK)
    other = encode(Kind.REQUEST, method=b"later", key=b"b", idempotency_key=encode_body(Request(7, 3)), args=b"\x80")
    hub.receive(other, peer=STOCK)
    hub.restart()
    hub.receive(cancel(2), cancel(3), peer=STOCK)
    assert [error(decode(message).args).type for _, message in hub.sent] == ["Cancelled"] * 2
    assert list(hub.waiting()) == [1]


def test_calls_of_a_peer_that_was_created_anew_fail(hub: Hub) -> None:
    first, second = hub.begin("buy", "a"), hub.begin("two", "b")
    hub.record(Target("stock", 1))
    assert hub.results == {}
    hub.record(STOCK)
    assert hub.failure(first) == hub.failure(second) == "DL3016 PeerReplaced"


@pytest.mark.parametrize("restart", [False, True])
def test_peer_that_was_created_anew_is_not_told_what_the_one_before_it_asked(hub: Hub, restart: bool) -> None:
    owed = encode(Kind.REQUEST, method=b"later", key=b"b", idempotency_key=encode_body(Request(7, 3)), args=b"\x80")
    for peer in (STOCK, Target("stock", 1)):
        hub.receive(request("approve", 1), request("add", 2), owed, peer=peer)
    hub.record(STOCK)
    if restart:
        hub.restart()
    hub.receive(cancel(1), cancel(2), cancel(3), peer=STOCK)
    assert (len(hub.waiting()), hub.sent) == (6, [])
    for invocation in list(hub.waiting()):
        hub.record(Order("kill", invocation))
    assert {target for target, _ in hub.sent} == {Target("stock", 1)}
    assert len(hub.sent) == 3


def test_messages_of_peers_that_make_no_sense_change_nothing(hub: Hub) -> None:
    broken = [
        b"",
        encode(Kind.CALL, method=b"add", key=b"a", args=b"\x80"),
        encode(Kind.FORK, method=b"add", key=b"a", args=b"\x80"),
        encode(Kind.REQUEST, method=b"add", key=b"a", idempotency_key=b"\x91\x01", args=b"\x80"),
        encode(Kind.RESPONSE, idempotency_key=b"x"),
        encode(Kind.CANCEL),
        encode(Kind.TIME),
    ]
    hub.receive(*broken, peer=STOCK)
    assert hub.executor.state() == {}
    assert hub.sent == []
