"""Ticks of schedules: each exactly once, by logical time alone, wherever a checkpoint is taken."""

import datetime as dt
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.deathless.execution.messaging_bench import SELF, Entry, Hub, executor_of, ok, replay

from deathless.base.limits import Limits
from deathless.codec.messages import Kind, decode, encode
from deathless.codec.peer_messages import Order, ScheduleView, Target, Tick, encode_body
from deathless.execution.author.schedule import Missed
from deathless.execution.author.service import Service
from deathless.execution.invocations.journal import Origin, SuspendedSchedule, decode_record, encode_record
from deathless.execution.invocations.schedules import MISSED_MAX, ON_TIME_US
from deathless.execution.turn.context import Context

MINUTE = 60_000_000
BEGIN = 1_800_000_000_000_000 // MINUTE * MINUTE
DAY = 1440 * MINUTE


class State(msgspec.Struct):
    ticks: list[int] = []


def make(missed: Missed = "one", expression: str = "*/10 * * * *") -> Service:
    service = Service("svc", state=State)

    @service.schedule(expression, key="a", missed=missed)
    def run(state: State, ctx: Context, tick: dt.datetime) -> None:
        state.ticks.append(int(tick.timestamp()) * 1_000_000)

    return service


class Clock(Hub):
    """A hub whose time records are moved by hand."""

    def begin_time(self) -> None:
        assert self.executor.due().first_us == 1
        self.tick(BEGIN)
        self.deliver()

    def move(self, by_us: int, *, caught_up: bool = True) -> None:
        self.now_us += by_us
        self.step(Entry("record", self.lsn + 1, self.now_us, caught_up=caught_up))
        self.deliver()

    @property
    def ticks(self) -> list[int]:
        """Minutes from the beginning, of all ticks that ran."""
        state = self.executor.state().get(b"a")
        found = msgspec.msgpack.decode(state, type=State).ticks if state is not None else []
        return [(tick - BEGIN) // MINUTE for tick in found]

    @property
    def view(self) -> ScheduleView:
        return self.executor.schedules()[0]


def clock(service: Service) -> Clock:
    made = Clock(service)
    made.begin_time()
    return made


def test_new_schedule_begins_with_its_first_time_after_the_first_time_record() -> None:
    hub = Clock(make())
    assert (hub.view.new, hub.view.next_us, hub.view.last_us) == (True, 0, 0)
    hub.begin_time()
    assert hub.ticks == []
    assert hub.executor.due().first_us == BEGIN + 10 * MINUTE
    assert (hub.view.new, hub.view.next_us) == (False, BEGIN + 10 * MINUTE)


def test_tick_runs_when_it_is_due_and_once() -> None:
    hub = clock(make())
    hub.move(10 * MINUTE - 1)
    assert hub.ticks == []
    hub.move(1)
    hub.move(1)
    hub.move(MINUTE)
    assert hub.ticks == [10]
    assert hub.view.last_us == BEGIN + 10 * MINUTE
    assert hub.executor.due().first_us == BEGIN + 20 * MINUTE


@pytest.mark.parametrize(
    ("missed", "late_us", "ticks"),
    [
        ("one", 5 * MINUTE, [30]),
        ("all", 5 * MINUTE, [10, 20, 30]),
        ("skip", ON_TIME_US - 1, [30]),
        ("skip", ON_TIME_US, []),
    ],
)
def test_what_becomes_of_missed_ticks(missed: Missed, late_us: int, ticks: list[int]) -> None:
    hub = clock(make(missed))
    hub.move(30 * MINUTE + late_us)
    assert hub.ticks == ticks
    hub.move(40 * MINUTE - hub.now_us + BEGIN)
    assert hub.ticks == [*ticks, 40]


def test_at_most_so_many_missed_ticks_are_made_up_for_the_last_ones() -> None:
    hub = clock(make("all", "* * * * *"))
    hub.move(3 * DAY)
    assert hub.ticks == list(range(3 * 1440 - MISSED_MAX + 1, 3 * 1440 + 1))


def test_ticks_wait_until_logical_time_has_caught_up() -> None:
    hub = clock(make())
    for _ in range(5):
        hub.move(60 * MINUTE, caught_up=False)
        assert 0 < hub.executor.due().first_us <= hub.now_us
    assert hub.ticks == []
    hub.move(1)
    assert hub.ticks == [300]


def test_new_schedule_does_not_begin_before_logical_time_has_caught_up() -> None:
    hub = Clock(make())
    hub.now_us = BEGIN
    hub.move(0, caught_up=False)
    assert hub.view.new
    hub.move(60 * MINUTE)
    assert hub.executor.due().first_us == BEGIN + 70 * MINUTE


def test_ticks_are_sent_in_the_order_of_their_times_and_then_of_the_code() -> None:
    service = Service("svc", state=State)

    @service.schedule("*/20 * * * *", key="b", missed="all")
    @service.schedule("*/10 * * * *", key="a", missed="all")
    def run(state: State, ctx: Context) -> None: ...

    hub = clock(service)
    hub.now_us += 20 * MINUTE
    hub.record(None)
    assert [decode(message).key for message in hub.own] == [b"a", b"a", b"b"]


def slow() -> Service:
    service = Service("svc", state=State)

    @service.schedule("*/10 * * * *", key="a")
    async def run(state: State, ctx: Context, tick: dt.datetime) -> None:
        if len(state.ticks) == 2:
            raise ValueError("two are enough")
        await ctx.promise(int)
        state.ticks.append(int(tick.timestamp()) * 1_000_000)

    return service


def test_ticks_queue_for_their_key_and_are_never_refused() -> None:
    hub = Clock(slow(), Limits(key_queue_max=1, invocations_max=1))
    hub.begin_time()
    for _ in range(3):
        hub.move(10 * MINUTE)
    first, second, third = hub.view.invocations
    assert [view.origin for view in hub.executor.invocations()] == ["schedule run/a"] * 3
    for invocation in (first, second):
        hub.record(Order("resume", invocation, 0, ok(1)))
    assert hub.ticks == [10, 20]
    assert hub.view.problem == "DL3014 ValueError: two are enough"
    assert third not in hub.waiting()
    assert not hub.view.invocations


def test_problem_is_forgotten_when_a_tick_goes_well() -> None:
    service = Service("svc", state=State)

    @service.schedule("*/10 * * * *", key="a")
    def run(state: State, ctx: Context) -> None:
        if ctx.now_us < BEGIN + 15 * MINUTE:
            raise ValueError("x" * 1000)

    hub = clock(service)
    hub.move(10 * MINUTE)
    assert hub.view.problem.startswith("DL3014 ValueError: xxx")
    assert len(hub.view.problem) == 300
    hub.restart()
    assert hub.view.problem.endswith("...")
    hub.move(10 * MINUTE)
    assert hub.view.problem == ""


def test_tick_of_a_handler_that_replies_later_and_one_that_is_killed() -> None:
    service = Service("svc", state=State)

    @service.schedule("*/10 * * * *", key="a")
    def run(state: State, ctx: Context) -> None:
        ctx.reply_later()

    hub = clock(service)
    hub.move(10 * MINUTE)
    [waiting] = hub.view.invocations
    hub.restart()
    assert list(hub.view.invocations) == [waiting]
    hub.record(Order("kill", waiting))
    assert not hub.view.invocations
    assert "ended by an operator" in hub.view.problem


def test_only_ourselves_send_ticks() -> None:
    hub = clock(make())
    message = encode(
        Kind.FORK, method=b"nothing", key=b"a", idempotency_key=encode_body(Tick((), "run/a")), args=b"\x80"
    )
    hub.receive(message, peer=Target("other", 0))
    assert hub.view.problem == ""
    hub.receive(message)
    assert hub.view.problem == "DL3004 UnknownHandler: the service has no 'nothing'"


def test_tick_of_a_schedule_that_is_gone_runs_all_the_same() -> None:
    hub = clock(make())
    hub.now_us += 10 * MINUTE
    hub.record(None)
    [tick] = hub.own
    assert decode(tick).idempotency_key == encode_body(Tick((), "run/a"))
    hub.own = [tick.replace(b"run/a", b"nun/a")]
    hub.deliver()
    assert hub.ticks == [10]


@pytest.mark.parametrize(
    ("now", "kinds", "due_us"),
    [
        ("all", [], 30 * MINUTE),  # what is done with ticks that were missed is no time
        ("*/5 * * * *", [("run/a", "changed", "*/10 * * * * UTC", "*/5 * * * * UTC")], 30 * MINUTE),
        ("*/7 * * * *", [("run/a", "changed", "*/10 * * * * UTC", "*/7 * * * * UTC")], 28 * MINUTE),
        ("", [("run/a", "gone", "*/10 * * * * UTC", "")], -BEGIN),
    ],
)
def test_changed_schedule_goes_on_from_where_it_stood_and_all_changes_are_told(
    now: str, kinds: list[tuple[str, str, str, str]], due_us: int
) -> None:
    hub = clock(make())
    hub.move(25 * MINUTE)
    state, suspended = dict(hub.executor.state()), hub.executor.suspended()
    service = make("all") if now == "all" else make(expression=now) if now else Service("svc", state=State)
    executor = executor_of(service, hub.keys)
    executor.restore(state, suspended, same_code=False)
    assert executor.due().first_us == BEGIN + due_us
    changes = executor.restoration.schedule_changes()
    assert [(change.name, change.kind, change.before, change.now) for change in changes] == kinds
    assert all(change.seen_us == BEGIN + 25 * MINUTE for change in changes)
    assert not any(view.new for view in executor.schedules())


def test_new_schedule_is_told_and_begins_with_the_next_time_record() -> None:
    hub = clock(make())
    executor = executor_of(make(), hub.keys)
    executor.restore({}, [], same_code=False)
    [change] = executor.restoration.schedule_changes()
    assert (change.name, change.kind, change.before, change.seen_us) == ("run/a", "new", "", 0)
    assert executor.due().first_us == 1


def test_discarded_schedules_are_new_again() -> None:
    hub = clock(make())
    hub.executor.discard()
    assert hub.view.new


def test_the_earlier_of_timer_and_tick_is_due() -> None:
    service = make()

    @service.handler
    async def wait(state: State, ctx: Context, minutes: int) -> None:
        await ctx.timer(after=timedelta(minutes=minutes))

    hub = clock(service)
    hub.begin("wait", "t", minutes=12)
    assert hub.executor.due().first_us == BEGIN + 10 * MINUTE
    hub.begin("wait", "u", minutes=3)
    assert hub.executor.due().first_us == BEGIN + 3 * MINUTE
    assert hub.executor.timers_due().first_us == BEGIN + 3 * MINUTE
    hub.move(3 * MINUTE)
    assert hub.executor.timers_due().first_us == BEGIN + 12 * MINUTE
    hub.move(9 * MINUTE, caught_up=False)
    assert (hub.ticks, list(hub.waiting())) == ([], [])
    hub.move(0)
    assert hub.ticks == [10]


def test_record_of_a_schedule_reads_back() -> None:
    record = SuspendedSchedule(0, "run/a", "0 3 * * *", "UTC", 7, 5, "DL3014")
    assert decode_record(encode_record(record)) == record
    assert str(Origin(3, "run/a")) == "schedule run/a"


MOVES = st.lists(
    st.tuples(st.integers(0, 25 * MINUTE), st.booleans(), st.sampled_from(("move", "call", "wait"))),
    min_size=1,
    max_size=8,
)


@given(MOVES, st.sampled_from(("one", "all", "skip")))
@settings(deadline=None, max_examples=40)
def test_every_tick_is_decided_once_wherever_a_checkpoint_is_taken(
    moves: list[tuple[int, bool, str]], missed: Missed
) -> None:
    service = make(missed)

    @service.handler
    async def wait(state: State, ctx: Context) -> None:
        await ctx.timer(after=timedelta(minutes=7))

    hub = clock(service)
    for by_us, caught_up, what in moves:
        if what == "call":
            hub.begin("wait", "b")
        elif what == "wait":
            hub.begin("wait", "a")
        hub.move(by_us, caught_up=caught_up)
    hub.move(1)
    while hub.waiting():
        hub.move(8 * MINUTE)
    straight = replay(service, hub.log)
    assert replay(service, hub.log, restart=lambda at: True) == straight
    assert replay(service, hub.log, restart=lambda at: at % 3 == 0) == straight
    ticks = hub.ticks
    assert ticks == sorted(set(ticks))
    if missed == "all":
        assert ticks == list(range(10, (hub.now_us - BEGIN) // MINUTE + 1, 10))
    assert all(target == SELF for target, _ in straight.outputs.messages)
