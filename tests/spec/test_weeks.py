"""A saga of weeks: a timer, a call, a timer, and at the end what was done is booked back; whatever happens meanwhile.

Half a week passes between two faults: one comes behind a checkpoint, the other behind what was logged since.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.spec.faults import FAULTS, ended
from tests.spec.town import Town

from deathless.codec.wire import Status

WEEK_S = timedelta(weeks=1).total_seconds()
LEAP_S = WEEK_S / 28
STEPS = 12  # behind each leap: whatever is due is done
WEEKS = 5


def pass_time(town: Town, seconds: float) -> None:
    """Let so much time pass, in leaps."""
    end = town.now + seconds
    while town.now < end:
        town.now += LEAP_S
        town.run(STEPS)


def begun(**arguments: int) -> Town:
    """A town whose shop has begun the saga."""
    town = Town([("subscribe", arguments)])
    town.steps_max = 20_000
    while not town.customer.invocations:
        town.step()
    return town


def nothing(_town: Town) -> None:
    """Nothing breaks."""


def checkpoint(town: Town) -> None:
    """Both houses make one, which who comes next loads."""
    for house in town.houses.values():
        while (made := house.maybe_checkpoint()) is None:
            town.step()
        house.checkpoint = made


@pytest.mark.parametrize("name", ["", *(name for name in FAULTS if " " in name)])
def test_saga_of_weeks_ends_as_if_nothing_had_happened(name: str) -> None:
    town = begun(weeks=WEEKS)
    fault = FAULTS[name] if name else nothing
    for week in range(WEEKS):
        pass_time(town, WEEK_S / 2)
        assert len(town.houses["shop"].now.engine.shard.executor.suspended()) == 1, f"it still waits in week {week}"
        checkpoint(town)
        fault(town)
        pass_time(town, WEEK_S / 2)
        fault(town)
    while not town.customer.served:
        pass_time(town, LEAP_S)
    story = ended(town)
    assert story.booked == [1, 2, 3, 4, -4, -3, -2, -1]
    assert story.cart()["steps"] == [f"week {week}" for week in range(1, WEEKS)]
    assert (story.strays(), story.recorded, story.differs) == ([], True, [])
    ((result,),) = story.town.customer.results.values()
    assert result[0] == Status.OK
    assert WEEKS * WEEK_S <= town.now < (WEEKS + 1) * WEEK_S, "each step waits its week, and hardly longer"


def test_timer_of_a_week_does_not_come_early() -> None:
    town = begun(weeks=WEEKS)
    pass_time(town, WEEK_S - 2 * LEAP_S)
    FAULTS["kill shop"](town)
    town.run(STEPS)
    assert town.houses["bank"].now.engine.shard.executor.state() == {}
    pass_time(town, 3 * LEAP_S)
    assert town.houses["bank"].now.engine.shard.executor.state() != {}
