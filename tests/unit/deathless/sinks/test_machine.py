"""The sink's machine: blocks, the fence, what stops it, holds; and random stories in which each row is stored once."""

from __future__ import annotations

import random

import msgspec
import pytest

from deathless.base.errors import (
    DeathlessError,
    Deposed,
    SinkColumnsChanged,
    SinkRowRefused,
    SinkRowsDropped,
    SinkTableUnfit,
    SinkTaken,
    SinkTipMismatch,
    SinkUnavailable,
)
from deathless.sinks.machine import (
    AGAIN_MAX_S,
    AGAIN_MIN_S,
    DEPOSED_S,
    STOPPED_MAX_S,
    STOPPED_MIN_S,
    Ceased,
    Close,
    DropHold,
    Effect,
    Failed,
    GiveUp,
    Hold,
    HoldSeen,
    Led,
    Look,
    Looked,
    Open,
    Policy,
    SinkMachine,
    State,
    StoreOpened,
    Write,
    WriteRefused,
    Written,
)
from deathless.sinks.port import Opened, Tip

POLICY = Policy(block_rows=10, block_s=5.0, hold_bytes_max=1000)
LOOK = Look(floor=1, first=1, next=4, schema="n:int64", hold=None, held_bytes=0)
NEW = Tip(0, 7, "", 0)


def look(**changes: object) -> Looked:
    return Looked(msgspec.structs.replace(LOOK, **changes))


def told(position: int = 0, **changes: object) -> StoreOpened:
    tip = msgspec.structs.replace(NEW, next_position=position, columns="c" if position else "")
    named = {name: changes.pop(name) for name in ("foreign", "retired") if name in changes}
    return StoreOpened(msgspec.structs.replace(Opened(msgspec.structs.replace(tip, **changes), "c"), **named))


def opening(seen: Looked | None = None) -> SinkMachine:
    """A machine whose store is being opened."""
    machine = SinkMachine("facts", POLICY, 7)
    assert machine.step(Led(3), 0.0) == []
    effects = machine.step(seen or look(), 0.0)
    assert [each for each in effects if not isinstance(each, DropHold | Hold)] == [Open(3, "n:int64")]
    return machine


def ready(position: int = 1, seen: Looked | None = None) -> SinkMachine:
    machine = opening(seen)
    machine.step(told(position), 0.0)
    return machine


# ---- blocks -----------------------------------------------------------------------------------------------------


def test_nothing_is_opened_before_rows_are_published_and_beside_no_primary() -> None:
    machine = SinkMachine("facts", POLICY, 7)
    assert machine.step(look(), 0.0) == []
    assert machine.step(Led(3), 0.0) == [Open(3, "n:int64")]
    machine = SinkMachine("facts", POLICY, 7)
    machine.step(Led(3), 0.0)
    assert machine.step(look(schema="", next=1), 0.0) == []


def test_sink_that_is_new_holds_rows_before_it_waits_for_a_block() -> None:
    machine = SinkMachine("facts", POLICY, 7)
    machine.step(Led(3), 0.0)
    assert machine.step(look(), 0.0) == [Hold(HoldSeen(1, 1, 0)), Open(3, "n:int64")], "before the store was reached"
    assert machine.step(told(), 0.0) == []
    assert (machine.state, machine.deadline) == (State.READY, 5.0)
    assert machine.step(None, 4.9) == []
    assert machine.step(None, 5.0) == [Write(1, 4, 0)], "the store stands at nothing"


def test_block_closes_at_its_rows_or_its_age() -> None:
    machine = ready(1)
    assert machine.step(look(next=25, hold=HoldSeen(1, 1, 0)), 1.0) == [Write(1, 11, 1)]
    assert machine.step(Written(11), 2.0) == [Hold(HoldSeen(11, 1, 0)), Write(11, 21, 11)]
    assert machine.step(Written(21), 3.0) == [Hold(HoldSeen(21, 1, 0))]
    assert machine.deadline == 8.0
    assert machine.step(None, 8.0) == [Write(21, 25, 21)]
    assert machine.step(Written(23), 9.0) == [Hold(HoldSeen(23, 1, 0))], "fewer rows than wanted were stored"
    assert machine.position == 23


def test_nothing_is_written_twice_while_a_block_is_under_way() -> None:
    machine = ready(1, look(next=30))
    assert machine.state is State.WRITING
    assert machine.step(look(next=40, hold=HoldSeen(1, 1, 0)), 1.0) == []
    assert machine.step(None, 100.0) == []


def test_other_columns_of_the_rows_are_judged_by_the_store_first() -> None:
    machine = ready(1)
    assert machine.step(look(schema="n:int64,m:int64?", hold=HoldSeen(1, 1, 0)), 1.0) == [Open(3, "n:int64,m:int64?")]


def test_end_of_leading_and_a_later_epoch_let_go_of_the_store() -> None:
    machine = ready()
    assert machine.step(Led(3), 1.0) == []
    assert machine.step(Led(4), 1.0) == [Close(), Open(4, "n:int64")]
    assert machine.step(Written(4), 1.0) == [], "of what was let go of"
    assert machine.step(Ceased(), 2.0) == [Close()]
    assert machine.step(told(1), 2.0) == []
    assert machine.step(Failed(SinkUnavailable("late")), 2.0) == []
    assert (machine.state, machine.deadline) == (State.IDLE, None)


# ---- what goes wrong ----------------------------------------------------------------------------------------------


def test_store_that_is_away_is_tried_again_after_pauses_that_double() -> None:
    machine, now, pauses = opening(), 0.0, []
    for _ in range(12):
        assert machine.step(Failed(SinkUnavailable("away")), now) == [Close()]
        assert machine.deadline is not None
        assert machine.step(None, machine.deadline - 0.01) == []
        pauses.append(machine.deadline - now)
        now = machine.deadline
        assert machine.step(None, now) == [Open(3, "n:int64")]
    assert pauses[:3] == [AGAIN_MIN_S, 2 * AGAIN_MIN_S, 4 * AGAIN_MIN_S]
    assert pauses[-1] == AGAIN_MAX_S
    machine.step(told(1), now)
    assert machine.problem is None


def test_deposed_sink_leaves_the_other_one_alone_for_a_while() -> None:
    machine = ready(1, look(next=30))
    assert machine.step(Failed(Deposed("epoch 4 writes")), 1.0) == [Close()]
    assert machine.deadline == 1.0 + DEPOSED_S


@pytest.mark.parametrize(
    ("seen", "opened", "error"),
    [
        (look(), told(2, foreign=("service other",)), SinkTaken),
        (look(), told(2, retired="shop 77"), SinkTaken),
        (look(), told(2, incarnation=6), SinkTipMismatch),
        (look(), told(2, columns="d"), SinkColumnsChanged),
        (look(hold=HoldSeen(3, 1, 0)), told(2), SinkTipMismatch),
        (look(hold=HoldSeen(3, 1, 0)), told(0), SinkTipMismatch),
        (look(), told(5), SinkTipMismatch),
        (look(first=3, floor=3), told(2), SinkRowsDropped),
        (look(), Failed(SinkTableUnfit("no table")), SinkTableUnfit),
        (look(), Failed(SinkTipMismatch("moved")), SinkTipMismatch),
    ],
)
def test_what_an_operator_must_see_to_stops_the_sink_by_name(
    seen: Looked, opened: StoreOpened | Failed, error: type[DeathlessError]
) -> None:
    machine = opening(seen)
    assert machine.step(opened, 0.0) == []
    assert (machine.state, type(machine.problem)) == (State.STOPPED, error)
    if isinstance(opened, StoreOpened):
        assert "sink facts" in str(machine.problem)
    assert machine.deadline == STOPPED_MIN_S
    assert machine.step(None, STOPPED_MIN_S) == [Open(3, "n:int64")], "it looks again by itself"
    machine.step(opened, STOPPED_MIN_S)
    assert machine.deadline == 3 * STOPPED_MIN_S


@pytest.mark.parametrize(
    ("seen", "opened"),
    [
        (look(hold=HoldSeen(3, 1, 0)), told(3)),
        (look(hold=HoldSeen(2, 1, 0)), told(3)),  # died between a block and its hold
        (look(hold=HoldSeen(2, 2, 0)), told(0)),  # died between the first hold and the first block
        (look(hold=HoldSeen(3, 1, 0)), told(2, adoption=1)),  # an operator has adopted the store
        (look(), told(4)),
        (look(first=2, floor=3), told(2)),  # below the floor, and there
        (look(), told(0, incarnation=6)),  # nothing of that one was stored
        (look(), told(2, columns="")),  # adopted
    ],
)
def test_sink_goes_on_where_all_is_well(seen: Looked, opened: StoreOpened) -> None:
    machine = opening(seen)
    machine.step(opened, 0.0)
    assert (machine.state, machine.problem) == (State.READY, None)


def test_refused_row_stops_the_sink_at_its_position_with_all_before_it_stored() -> None:
    machine = ready(1, look(next=30))
    stored, bad, now = 1, 7, 0.0
    effects: list[Effect] = [Write(1, 11, 1)]
    while machine.state is State.WRITING:
        write = next(each for each in effects if isinstance(each, Write))
        assert (write.start, write.expected) == (stored, stored)
        if write.start <= bad < write.end:
            effects = machine.step(WriteRefused(write.end, "no"), now)
        else:
            stored = write.end
            effects = machine.step(Written(stored), now)
    assert (stored, machine.state) == (7, State.STOPPED)
    assert isinstance(machine.problem, SinkRowRefused)
    assert "position 7 is refused: no" in str(machine.problem)


def test_refused_row_is_kept_by_the_store_where_it_may_and_the_sink_goes_on() -> None:
    machine = SinkMachine("facts", msgspec.structs.replace(POLICY, dead_letters=True), 7)
    machine.step(Led(3), 0.0)
    machine.step(look(next=9), 0.0)
    machine.step(told(7), 0.0)
    assert machine.step(None, 5.0) == [Write(7, 9, 7)]
    assert machine.step(WriteRefused(9, "no"), 5.0) == [Write(7, 8, 7)]
    assert machine.step(WriteRefused(8, "no"), 5.0) == [GiveUp(7, 7, "no")]
    assert (machine.state, machine.step(None, 50.0)) == (State.WRITING, [])
    assert machine.step(Written(8), 5.0) == [Hold(HoldSeen(8, 1, 0))]
    assert machine.problem is None
    assert machine.step(None, 10.0) == [Write(8, 9, 8)]
    assert machine.step(WriteRefused(9, "no"), 10.0) == [GiveUp(8, 8, "no")]
    machine.step(Failed(SinkRowRefused("too many are kept")), 10.0)
    assert machine.state.name == "STOPPED"
    assert isinstance(machine.problem, SinkRowRefused)


def test_refused_row_is_tried_alone_again_and_then_all_goes_on() -> None:
    machine = ready(7, look(next=8))
    assert machine.step(None, 5.0) == [Write(7, 8, 7)]
    machine.step(WriteRefused(8, "no"), 5.0)
    seen = look(next=30, hold=HoldSeen(7, 7, 0))
    assert machine.step(seen, 5.1) == []
    assert machine.step(None, 7.0) == [Open(3, "n:int64")]
    assert machine.step(told(7), 7.0) == [Write(7, 8, 7)], "that row alone"
    assert isinstance(machine.problem, SinkRowRefused), "until it is stored"
    assert machine.step(Written(8), 7.0) == [Hold(HoldSeen(8, 7, 0)), Write(8, 18, 8)]
    assert machine.problem is None


def test_row_that_an_operator_skipped_is_no_problem_any_more() -> None:
    machine = ready(7, look(next=8))
    machine.step(None, 5.0)
    machine.step(WriteRefused(8, "no"), 5.0)
    machine.step(None, 7.0)
    assert machine.step(told(8), 7.0) == [Hold(HoldSeen(8, 1, 0))]
    assert (machine.state, machine.problem) == (State.READY, None)


def test_pauses_of_a_stopped_sink_end_at_their_maximum() -> None:
    machine, now, last = opening(), 0.0, 0.0
    for _ in range(10):
        machine.step(told(2, columns="d"), now)
        assert machine.deadline is not None
        last, now = machine.deadline - now, machine.deadline
        machine.step(None, now)
    assert last == STOPPED_MAX_S


# ---- holds --------------------------------------------------------------------------------------------------------


def test_hold_that_keeps_too_much_is_dropped_whatever_the_store_does() -> None:
    machine = opening(look(hold=HoldSeen(1, 1, 0), held_bytes=1000))
    assert machine.step(look(hold=HoldSeen(1, 1, 0), held_bytes=1001), 1.0) == [DropHold(1001)]
    assert machine.hold_dropped
    assert machine.step(look(held_bytes=1001), 1.0) == []
    machine.step(told(2), 1.0)
    assert machine.look is not None
    assert machine.look.hold is None, "not before there is less"
    assert machine.step(look(held_bytes=999), 2.0) == [Hold(HoldSeen(2, 2, 0))]
    assert not machine.hold_dropped


def test_store_that_was_never_reached_has_its_rows_held_within_the_limit() -> None:
    machine = SinkMachine("facts", POLICY, 7)
    machine.step(Led(3), 0.0)
    assert machine.step(look(held_bytes=1001), 0.0) == [Open(3, "n:int64")]
    machine.step(Failed(SinkUnavailable("away")), 0.0)
    assert machine.step(look(floor=2, held_bytes=1000), 0.1) == [Hold(HoldSeen(2, 2, 0))]
    assert machine.step(None, 1.0) == [Open(3, "n:int64")]
    assert machine.step(told(3), 1.0) == [Hold(HoldSeen(3, 2, 0))], "what was stored is let go of"


def test_hold_without_a_limit_stays() -> None:
    machine = SinkMachine("facts", msgspec.structs.replace(POLICY, hold_bytes_max=0), 7)
    machine.step(Led(3), 0.0)
    assert machine.step(look(hold=HoldSeen(1, 1, 0), held_bytes=1 << 60), 0.0) == [Open(3, "n:int64")]


@pytest.mark.parametrize(
    ("hold", "adoption", "begins"),
    [(None, 0, 3), (HoldSeen(2, 2, 0), 0, 2), (HoldSeen(3, 2, 0), 1, 2), (None, 1, 2), (HoldSeen(3, 3, 1), 1, 3)],
)
def test_sink_without_rows_in_its_store_begins_where_they_are_kept(
    hold: HoldSeen | None, adoption: int, begins: int
) -> None:
    machine = opening(look(first=2, floor=3, hold=hold))
    machine.step(told(0, adoption=adoption), 0.0)
    assert machine.step(None, 5.0) == [Write(begins, 4, 0)]


def test_hold_of_an_earlier_adoption_begins_anew() -> None:
    machine = opening(look(hold=HoldSeen(3, 1, 0)))
    assert machine.step(told(2, adoption=1), 0.0) == [Hold(HoldSeen(2, 2, 1))]


# ---- stories ------------------------------------------------------------------------------------------------------


class Story:
    """A store and a topic in memory, and machines that come and go."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.rows: list[int] = []
        self.tip = NEW
        self.bad = {at for at in range(1, 60) if self.chance.random() < 0.05}
        self.look = LOOK
        self.machine = SinkMachine("facts", POLICY, 7)
        self.epoch = 0
        self.now = 0.0

    def run(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Hold():
                    if self.chance.random() < 0.9:
                        self.look = msgspec.structs.replace(self.look, hold=effect.hold)
                case Open():
                    self.run(self.machine.step(self.opened(), self.now))
                case Write():
                    self.run(self.machine.step(self.written(effect), self.now))
                case _:
                    pass

    def opened(self) -> StoreOpened | Failed:
        if self.chance.random() < 0.1:
            return Failed(SinkUnavailable("away"))
        return StoreOpened(Opened(self.tip, "c"))

    def written(self, write: Write) -> Written | WriteRefused | Failed:
        end = self.chance.randint(write.start + 1, write.end)
        if self.bad & set(range(write.start, end)):
            return WriteRefused(end, "no")
        if self.chance.random() < 0.1:
            return Failed(SinkUnavailable("before"))
        assert write.expected == self.tip.next_position
        self.rows += range(write.start, end)
        self.tip = Tip(end, 7, "c", 0)
        return Failed(SinkUnavailable("behind")) if self.chance.random() < 0.1 else Written(end)

    def step(self) -> None:
        self.now += self.chance.choice((0.1, 3.0, 40.0))
        chance = self.chance.random()
        if chance < 0.1 or not self.epoch:
            self.epoch += 1
            if self.chance.random() < 0.5:
                self.machine = SinkMachine("facts", POLICY, 7)
            self.run(self.machine.step(Led(self.epoch), self.now))
        elif chance < 0.5:
            self.look = msgspec.structs.replace(self.look, next=min(60, self.look.next + self.chance.randint(0, 9)))
        elif chance < 0.55 and isinstance(self.machine.problem, SinkRowRefused):
            self.bad.discard(self.tip.next_position or 1)
        self.run(self.machine.step(Looked(self.look), self.now))


@pytest.mark.parametrize("seed", range(60))
def test_each_row_is_stored_once_and_in_order_whatever_fails(seed: int) -> None:
    story = Story(seed)
    for _ in range(600):
        story.step()
    assert story.rows == [*range(1, 60)]
