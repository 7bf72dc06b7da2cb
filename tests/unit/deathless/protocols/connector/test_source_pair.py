"""Both ends of a source with each other, through cuts, delays, reconnects and takeovers: nothing lost, nothing doubled.

Each rule of the primary and each safeguard of the machines is left out once, and then a run shows the loss.
"""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.deathless.protocols.connector.helpers import mutant_of
from tests.unit.deathless.protocols.connector.source_world import Rules, Tape, Violated, World, first_violation, tape_of

SEEDS: Final = range(400)
SOUND: Final = range(150)


@settings(max_examples=60)
@given(numbers=st.lists(st.integers(0, 65_535), max_size=300))
def test_each_message_is_taken_in_once_and_in_order_whatever_happens(numbers: list[int]) -> None:
    World(Tape(numbers)).run()


@pytest.mark.parametrize("seeds", [SOUND[at : at + 50] for at in range(0, len(SOUND), 50)])
def test_long_runs_lose_and_double_nothing(seeds: range) -> None:
    assert first_violation(seeds) == ""


def test_one_seed_gives_one_run() -> None:
    worlds = [World(tape_of(7)) for _ in range(2)]
    for world in worlds:
        world.run()
    assert [len(world.connections) for world in worlds] == [len(worlds[0].connections)] * 2
    assert len(worlds[0].connections) > 2, "a run without cuts shows little"


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        (Rules(by_position=True), "are acknowledged and not confirmed"),
        (Rules(by_id=False, welcome_confirmed=False), "stream"),
        (Rules(welcome_confirmed=False), "can't be confirmed"),
        (Rules(fence=False, by_id=False), "'end'"),
        (Rules(fence=False), "stands still"),
    ],
    ids=["by position", "not by id", "welcome before confirmed", "two owners and not by id", "two owners"],
)
def test_without_a_rule_of_the_primary_a_run_shows_it(rules: Rules, told: str) -> None:
    assert first_violation(SEEDS, told, rules=rules)


def test_an_end_is_taken_in_once_by_the_primarys_rule_or_by_what_the_worker_was_told() -> None:
    forgetful = mutant_of("source_worker", "        if stream.ended:  #", "        if False:  #").SourceWorker
    assert first_violation(SEEDS, "'end', 'end'", rules=Rules(ended_once=False), worker_class=forgetful)
    assert first_violation(SOUND, rules=Rules(ended_once=False)) == ""
    assert first_violation(SOUND, worker_class=forgetful) == ""


WORKER_MUTANTS: Final = {
    "acknowledged when it comes": (
        "stream.highest = max(stream.highest, ident)",
        "stream.highest = max(stream.highest, ident); self._confirm(frame.stream, stream, ident)",
    ),
    "end acknowledged when it comes": (
        "        stream.state = StreamState.ENDING\n        if stream.reached:",
        "        self._end(ident, stream, out)\n        if stream.reached:",
    ),
    "not sent again after a takeover": (
        "        if stream.kept:\n            out.append(ForwardM",
        "        if False:\n            out.append(ForwardM",
    ),
    "fence taken for a loss": (
        'self._fail(Deposed(f"stream {ident} has a newer owner", remedy="let one sender alone send it"), out)',
        "stream.reached = False",
    ),
    "begins at the client's position": ("ident, position_of(last))", "ident, position_of(MessageId(last or 0)))"),
    "credits never come back": (
        "self._kept_bytes -= _size(kept.popleft())\n            self._owed += 1",
        "kept.popleft()",
    ),
}
CLIENT_MUTANTS: Final = {
    "no position taken for an id": ("        last = last_of(frame.position)\n", "        last = frame.position\n"),
    "acknowledged by no position": (
        "self._streams[ident], last_of(position), told",
        "self._streams[ident], MessageId(self._streams[ident].sent) if last_of(position) is None else position, told",
    ),
    "end before the acknowledgements": ("if self.credits and stream.acked == stream.sent:", "if self.credits:"),
}


@pytest.mark.parametrize("name", WORKER_MUTANTS)
def test_without_a_safeguard_of_the_worker_a_run_shows_it(name: str) -> None:
    mutant = mutant_of("source_worker", *WORKER_MUTANTS[name])
    assert first_violation(SEEDS, worker_class=mutant.SourceWorker) != ""


@pytest.mark.parametrize("name", CLIENT_MUTANTS)
def test_without_a_safeguard_of_the_client_a_run_shows_it(name: str) -> None:
    mutant = mutant_of("source_client", *CLIENT_MUTANTS[name])
    assert first_violation(SEEDS, client_class=mutant.SourceClient) != ""


def test_a_world_that_can_not_come_to_its_end_is_seen() -> None:
    world = World(Tape([]))
    world.to_worker = lambda here, event: None  # type: ignore[method-assign]
    with pytest.raises(Violated, match="stands still"):
        world.run()
