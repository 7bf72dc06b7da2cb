"""Deaths of workers are counted by message, and the oldest are forgotten."""

from __future__ import annotations

from deathless.core.supervisor.message_deaths import DEATHS_MAX, MessageDeaths


def test_deaths_are_counted_by_message() -> None:
    deaths = MessageDeaths()
    for session, seq in ((1, 1), (1, 2), (1, 1)):
        deaths.met(session, seq)
    assert deaths.counts == [(1, 1, 2), (1, 2, 1)]


def test_messages_met_first_are_forgotten_first() -> None:
    deaths = MessageDeaths()
    for seq in range(DEATHS_MAX + 2):
        deaths.met(7, seq)
    assert len(deaths.counts) == DEATHS_MAX
    assert deaths.counts[0] == (7, 2, 1)
