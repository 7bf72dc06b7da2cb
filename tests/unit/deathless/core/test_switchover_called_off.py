"""What a primary is told while it lets go, and that it must not have forgotten when it stays after all."""

from __future__ import annotations

from tests.unit.deathless.core.messaging_world import Place, start

from deathless.codec.messages import Kind
from deathless.codec.peer_messages import Outputs
from deathless.core import effects as fx
from deathless.core import events as ev
from deathless.core.primary.handover import HANDOVER_MAX_S, Stage


def test_the_outcome_of_an_activity_that_ended_during_a_switchover_is_logged_when_it_is_called_off() -> None:
    place = Place()
    place.script.give = Outputs([], [], [start(1)], [], [])
    place.send(place.session, 1, b"x")
    place.settle()
    assert place.effects(fx.StartActivity) == [fx.StartActivity(start(1))]
    place.primary.departure.enter(Stage.HANDING_OVER)  # to a follower that does not catch up
    place.primary.departure.target = "r2"
    place.primary.departure._deadline = place.now + HANDOVER_MAX_S
    place.tell(ev.ActivityEnded(9, 1, 1, b"\x00done"))
    assert place.owes(fx.RunFrame) == 0
    place.close_frame()
    place.fire(HANDOVER_MAX_S + 1)
    assert place.primary.departure.stage is Stage.STAYING
    assert place.records() == [Kind.OUTCOME]
    place.settle()
    assert place.primary.messaging.activities.running == 0
    assert b"outcome" in place.script.ran


def test_no_more_of_these_are_kept_than_can_run() -> None:
    place = Place()
    place.primary.departure.enter(Stage.HANDING_OVER)
    place.primary.departure.target = "r2"
    place.primary.departure._deadline = place.now + HANDOVER_MAX_S
    for _ in range(place.primary.limits.activities_max + 1):
        place.tell(ev.ActivityEnded(9, 1, 1, b"\x00nobody runs it"))
    assert len(place.primary.messaging._ended) == place.primary.limits.activities_max
    place.settle()
    place.fire(HANDOVER_MAX_S + 1)
    assert place.owes(fx.RunFrame) == 0
