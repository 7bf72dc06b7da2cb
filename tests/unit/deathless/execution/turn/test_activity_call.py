"""What an activity knows of its own call, and that nobody else knows one."""

from __future__ import annotations

import pytest

from deathless.base.errors import Closed
from deathless.execution.turn.activity_call import ActivityCall, begin, current_activity, end


def test_there_is_a_call_between_its_begin_and_its_end() -> None:
    with pytest.raises(Closed):
        current_activity()
    call = ActivityCall("charge", "key-1", 3, lambda: None)
    begin(call)
    assert current_activity() is call
    assert (call.name, call.key, call.attempt) == ("charge", "key-1", 3)
    end()
    with pytest.raises(Closed):
        current_activity()


def test_a_heartbeat_is_handed_on() -> None:
    beats: list[int] = []
    ActivityCall("charge", "key-1", 1, lambda: beats.append(1)).heartbeat()
    assert beats == [1]
