"""Events are told one after the other: what an effect leads to comes behind the effects of the event it belongs to."""

from __future__ import annotations

import pytest

from deathless.core.supervisor.dispatch import Dispatch
from deathless.core.supervisor.effects import Announce, Effect, LookAgain, StartWorker
from deathless.core.supervisor.events import Event, HeartbeatDue, StopOrdered, WorkerStarted


def test_what_an_effect_leads_to_is_told_behind_it() -> None:
    happened: list[object] = []

    def handle(event: Event) -> list[Effect]:
        happened.append(event)
        return [StartWorker(), Announce()] if event == HeartbeatDue() else [LookAgain()]

    def do(effect: Effect) -> None:
        happened.append(effect)
        if effect == StartWorker():
            assert dispatch.ask(WorkerStarted()) == []

    dispatch = Dispatch(handle, do)
    assert dispatch.ask(HeartbeatDue()) == [StartWorker(), Announce()]
    assert happened == [HeartbeatDue(), StartWorker(), Announce(), WorkerStarted(), LookAgain()]


def test_effect_that_fails_keeps_nobody_from_going_on() -> None:
    def do(effect: Effect) -> None:
        raise OSError(str(effect))

    dispatch = Dispatch(lambda event: [LookAgain()] if event == HeartbeatDue() else [], do)
    with pytest.raises(OSError, match="LookAgain"):
        dispatch.take(HeartbeatDue())
    dispatch.take(StopOrdered())
