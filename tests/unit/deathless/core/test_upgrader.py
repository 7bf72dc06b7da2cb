"""An upgrader follows, and leads by its upgrade alone: by no order of a detector, no other hand-over, no late one."""

from __future__ import annotations

import pytest
from tests.unit.deathless.core.primary_world import WALL_US
from tests.unit.deathless.core.replica_life import CLIENT, HELLO, Life, following

from deathless.base.errors import UpgradeCalledOff
from deathless.codec.wire import Following, Handover, Type
from deathless.core import effects as fx
from deathless.core import events as ev
from deathless.core.replica.replica import MIGRATING_MAX_S, UPGRADER, State
from deathless.core.replica.takeover import Step

ID = b"of an upgrade..."


def upgrader() -> Life:
    """One that streams from r0, which leads in epoch 3."""
    return following(upgrade=ID)


def migrating() -> Life:
    """One that was handed over to, and makes what the new code goes on with."""
    life = upgrader()
    life.post(ev.HandoverReceived(Handover(3, 0, ID)))
    while not isinstance(life.todo[0], fx.Migrate):
        life.answer()
    return life


def test_an_upgrader_is_told_as_one_while_it_follows_and_as_a_replica_like_others_once_it_leads() -> None:
    life = upgrader()
    assert life.told[-1] == (UPGRADER, 3)
    life.post(ev.HandoverReceived(Handover(3, 0, ID)))
    assert life.told[-1] == (State.TAKING_OVER.value, 3)
    life.settle()
    assert life.told[-1] == (State.PRIMARY.value, 4)
    assert life.core.upgrade == b""


def test_an_upgrader_that_is_named_checkpointer_is_still_told_as_an_upgrader() -> None:
    life = upgrader()
    life.post(ev.UpstreamAnswered(Following(True, 3, 0, "r1")))
    assert life.core.role == UPGRADER


@pytest.mark.parametrize(
    "event",
    [
        ev.TakeoverOrdered(3, "the primary is dead"),
        ev.HandoverReceived(Handover(3, 0)),
        ev.HandoverReceived(Handover(3, 0, b"of another one..")),
        ev.HandoverReceived(Handover(2, 0, ID)),
    ],
    ids=["detector", "switchover", "another upgrade", "late"],
)
def test_an_upgrader_leads_by_its_own_upgrade_alone(event: ev.Event) -> None:
    life = upgrader()
    life.post(event)
    assert life.core.state.name == "FOLLOWING"
    assert life.todo == []
    life.post(ev.TakeoverOrdered(3, "what came before is no leave to lead"))
    assert life.core.state.name == "FOLLOWING"


def test_a_replica_that_makes_no_upgrade_is_not_handed_over_to_by_one() -> None:
    life = following()
    life.post(ev.HandoverReceived(Handover(3, 0, ID)))
    assert life.core.state.name == "FOLLOWING"


def test_an_upgrade_waits_for_the_stretch_of_the_log_that_is_being_read() -> None:
    life = upgrader()
    life.post(ev.FramesApplied(0, 0, 0, True))
    life.post(ev.HandoverReceived(Handover(3, 0, ID)))
    assert life.core.state.name == "FOLLOWING"
    assert life.todo == [fx.ReadLog()]
    life.settle()
    assert life.core.state.name == "PRIMARY"


def test_an_upgrade_that_meets_somebody_else_in_the_lock_is_over_and_the_upgrader_follows_on() -> None:
    life = upgrader()
    life.post(ev.HandoverReceived(Handover(3, 0, ID)))
    life.epoch = 4
    life.answer(good=False)
    assert life.core.role == UPGRADER
    life.post(ev.TakeoverOrdered(9, "what came before is no leave to lead"))
    assert life.core.state.name == "FOLLOWING"


def test_an_upgrader_answers_no_query_for_its_shard_holds_nothing_yet() -> None:
    life = upgrader()
    life.post(ev.QueriesReceived(CLIENT, True, [1], [b"q"]))
    assert life.sent[-1][1] == Type.ROLE
    assert life.todo == []


def test_an_upgrade_that_fails_lets_go_of_the_lock_and_ends_the_process() -> None:
    life = migrating()
    life.answer(good=False)
    assert [type(effect) for effect in life.todo] == [fx.ReleaseLock, fx.StopReplica]
    assert isinstance(life.todo[-1].error, UpgradeCalledOff)  # type: ignore[union-attr]  # as just seen
    assert life.core.state.name == "STOPPED"


def test_a_migration_that_takes_too_long_lets_go_of_the_lock_as_one_that_fails() -> None:
    life = migrating()
    due = life.core.deadline()
    assert due == life.now + MIGRATING_MAX_S
    life.now = due - 0.1
    life.post(ev.TimerFired())
    assert life.core.state.name == "TAKING_OVER"
    life.now = due
    effects = life.post(ev.TimerFired())
    assert effects[0] == fx.ReleaseLock()
    assert "within 10 s" in str(effects[-1].error)  # type: ignore[union-attr]  # it stops
    assert life.core.state.name == "STOPPED"


def test_once_the_cut_is_written_nothing_but_an_answer_ends_an_upgrade() -> None:
    life = migrating()
    life.answer()
    assert life.core.takeover is not None
    assert life.core.takeover.step is Step.CUTTING
    assert life.core.deadline() is None
    life.now += 10 * MIGRATING_MAX_S
    assert life.core.handle(ev.TimerFired(), life.now, WALL_US) == []
    life.settle()
    assert life.core.state.name == "PRIMARY"


def test_the_time_for_a_migration_is_counted_anew_for_each_attempt() -> None:
    life = migrating()
    first = life.core.deadline()
    life.post(ev.ConnectionOpened(ev.Conn(8), HELLO))
    assert life.core.deadline() == first
    other = upgrader()
    assert other.core.deadline() is None
