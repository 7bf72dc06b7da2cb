"""A planned hand-over waits for activities that must run at most once, and serves meanwhile (core.primary.handover)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.deathless.core.messaging_world import TOOL, Place, start
from tests.unit.deathless.core.primary_world import SMALL

from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.codec.messages import Kind
from deathless.codec.peer_messages import Outputs
from deathless.codec.wire import Type
from deathless.core import effects as fx
from deathless.core import events as ev
from deathless.core.events import SwitchoverOrdered
from deathless.core.primary.handover import Stage

FOLLOWER = 51
WAIT_S = 4.0
WAITS = replace(SMALL, handover_wait_s=WAIT_S)
DONE = ev.ActivityEnded(9, 1, 1, b"\x00done")


def under_way(*, safeguards: Safeguards = ALL_SAFEGUARDS, wait_s: float = WAIT_S, once: bool = True) -> Place:
    """A primary with a follower that is up to date and an activity that runs."""
    place = Place(replace(SMALL, handover_wait_s=wait_s), safeguards)
    place.follow("r1", FOLLOWER, place.place.lsn, place.place.chain)
    ask(place, 1, once=once)
    assert [effect.start.operation for effect in started(place)] == [1]
    caught_up(place)
    return place


def ask(place: Place, operation: int, *, once: bool = True) -> None:
    """A call whose turn asks for an activity is served."""
    before = len(place.replies(place.session))
    place.script.give = Outputs([], [], [start(operation, once=once)], [], [])
    place.send(place.session, before + 1, b"x")
    place.settle()
    assert len(place.replies(place.session)) == before + 1


def started(place: Place) -> list[fx.StartActivity]:
    return [effect for effect in place.effects(fx.StartActivity) if isinstance(effect, fx.StartActivity)]


def caught_up(place: Place) -> None:
    """What is confirmed is said in the log, and the follower has it all."""
    place.settle()
    if place.owes(fx.WriteControl):
        place.close_frame()
    place.applied(FOLLOWER)


def order(place: Place, what: str) -> None:
    if what == "stop":
        place.do(place.primary.stop_ordered(place.now, place.wall_us))
    else:
        place.do(place.primary.switchover_ordered(SwitchoverOrdered(TOOL, 1, ""), place.now, place.wall_us))


def handed_over(place: Place) -> bool:
    return Type.HANDOVER in place.to(FOLLOWER)


@pytest.mark.parametrize("what", ["switchover", "stop"])
def test_it_waits_for_the_outcome_serves_calls_and_then_hands_over(what: str) -> None:
    place = under_way()
    order(place, what)
    ask(place, 2, once=False)
    assert [effect.start.operation for effect in started(place)] == [2], "what may run twice goes on"
    caught_up(place)
    assert not handed_over(place)
    place.tell(DONE)
    assert place.records() == [Kind.OUTCOME]
    caught_up(place)
    assert b"outcome" in place.script.ran
    caught_up(place)
    assert handed_over(place)
    assert place.primary.closed


def test_none_begins_meanwhile_and_its_attempt_is_not_in_the_log_that_the_successor_reads() -> None:
    place = under_way()
    order(place, "switchover")
    ask(place, 2)
    assert started(place) == []
    assert place.primary.messaging.activities.under_way == 1
    place.tell(DONE)
    caught_up(place)
    caught_up(place)
    assert handed_over(place)
    assert place.script.ran.count(b"attempt") == 1


def test_one_whose_attempt_is_on_its_way_to_the_log_begins_and_is_waited_for() -> None:
    place = Place(WAITS)
    place.follow("r1", FOLLOWER, place.place.lsn, place.place.chain)
    place.script.give = Outputs([], [], [start(1, once=True)], [], [])
    place.send(place.session, 1, b"x")
    place.drained()
    place.sync()
    place.prove()
    order(place, "switchover")
    caught_up(place)
    assert [effect.start.operation for effect in started(place)] == [1]
    assert not handed_over(place)


@pytest.mark.parametrize("busy", [False, True])
def test_what_runs_at_the_end_of_the_wait_is_given_up_also_while_calls_keep_coming(busy: bool) -> None:
    place = under_way()
    order(place, "switchover")
    caught_up(place)
    assert place.primary.deadline() is not None
    place.now += WAIT_S
    if busy:  # a frame is always on its way, so no timer fires
        place.send(place.session, 2, b"y")
        place.settle()
    else:
        place.fire()
    caught_up(place)
    assert handed_over(place)
    assert b"outcome" not in place.script.ran


@pytest.mark.parametrize(
    ("safeguards", "wait_s"), [(ALL_SAFEGUARDS, 0.0), (Safeguards(wait_for_once=False), WAIT_S)], ids=["0", "off"]
)
def test_without_the_wait_it_hands_over_at_once_and_the_outcome_is_lost(safeguards: Safeguards, wait_s: float) -> None:
    place = under_way(safeguards=safeguards, wait_s=wait_s)
    order(place, "switchover")
    caught_up(place)
    assert handed_over(place)
    place.tell(DONE)
    assert place.owes(fx.RunFrame) == 0


def test_what_may_run_twice_is_not_waited_for() -> None:
    place = under_way(once=False)
    order(place, "switchover")
    caught_up(place)
    assert handed_over(place)


def test_a_stop_at_once_does_not_wait() -> None:
    place = under_way()
    place.do(place.primary.stop_ordered(place.now, place.wall_us, at_once=True))
    caught_up(place)
    assert handed_over(place)


def test_a_stop_that_nobody_takes_over_after_waits_as_well() -> None:
    place = under_way()
    place.do(place.primary.connection_lost(ev.Conn(FOLLOWER), place.now, place.wall_us))
    order(place, "stop")
    ask(place, 2, once=False)
    seen = [place.primary.alone]
    place.tell(DONE)
    place.settle()
    assert [*seen, place.primary.alone] == [False, True]
    assert b"outcome" in place.script.ran


def test_a_switchover_that_comes_to_nothing_begins_what_it_held() -> None:
    place = under_way()
    order(place, "switchover")
    ask(place, 2)
    place.do(place.primary.connection_lost(ev.Conn(FOLLOWER), place.now, place.wall_us))
    told = [place.primary.switchover_failed]  # it may be back before the wait is over
    place.tell(DONE)
    place.settle()
    assert place.primary.departure.stage is Stage.STAYING
    assert [*told, place.primary.switchover_failed] == [None, (TOOL, 1, "no follower is up to date")]
    place.settle()
    assert [effect.start.operation for effect in started(place)] == [2]


def test_an_outcome_that_a_full_disk_holds_up_is_waited_for() -> None:
    place = under_way()
    order(place, "switchover")
    place.tell(DONE)
    place.refuse()
    place.applied(FOLLOWER)
    assert not handed_over(place)
    place.do(place.primary.space_found(place.now, place.wall_us))
    caught_up(place)
    caught_up(place)
    assert handed_over(place)
    assert b"outcome" in place.script.ran
