"""A primary whose program ended hands over to a replica whose program is there."""

from __future__ import annotations

import pytest

from deathless.foreign.heirs import AGAIN_S, FRESH_S, Heirs
from deathless.shell.link.application_status import ApplicationStatus


def status(replica: str, at: int, state: str = "following", position: int = 10) -> ApplicationStatus:
    return ApplicationStatus(replica=replica, state=state, position=position, at_us=at)


def seen(*statuses: ApplicationStatus) -> Heirs:
    """Ours is r0, of which these are told anew at second 1."""
    heirs = Heirs("r0")
    heirs.saw([status(each.replica, each.at_us - 1) for each in statuses], 0.0)
    heirs.saw(statuses, 1.0)
    return heirs


def test_whoever_is_farthest_of_those_that_follow_is_chosen() -> None:
    told = [
        status("r0", 5, position=99),
        status("r1", 900),
        status("r2", 5, position=11),
        status("r3", 5, "loading", 50),
    ]
    assert seen(*told).choose(1.5) == "r2", "whatever the clocks of other machines say"


def test_it_is_asked_once_in_a_while() -> None:
    heirs = seen(status("r1", 5))
    assert heirs.choose(1.5) == "r1"
    heirs.saw([status("r1", 6)], 2.0)
    assert heirs.choose(2.5) == ""
    heirs.saw([status("r1", 7)], 1.5 + AGAIN_S)
    assert heirs.choose(1.5 + AGAIN_S) == "r1"


@pytest.mark.parametrize("state", ["ended", "loading", "waiting", "leading"])
def test_program_that_is_not_there_is_none(state: str) -> None:
    assert seen(status("r1", 5, state)).choose(1.5) == ""


def test_status_that_does_not_change_is_of_nobody() -> None:
    """It may have been left by a process that is gone: it counts only as long as it is news."""
    heirs = Heirs("r0")
    heirs.saw([status("r1", 5)], 0.0)
    heirs.saw([status("r1", 5)], 1.0)
    assert heirs.choose(1.0) == ""
    heirs.saw([status("r1", 6)], 2.0)
    assert heirs.choose(2.0 + FRESH_S + 0.1) == ""
    assert heirs.choose(2.0 + FRESH_S) == "r1"
