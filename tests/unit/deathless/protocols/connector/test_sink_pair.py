"""Both ends of a sink with each other, through cuts, deaths, takeovers and votes to abort: each byte committed once.

Each safeguard of the machines is left out once, and then a run shows the loss.
"""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.deathless.protocols.connector.helpers import mutant_of
from tests.unit.deathless.protocols.connector.sink_world import OUTPUT, World, first_violation
from tests.unit.deathless.protocols.connector.source_world import Tape, Violated, tape_of

SEEDS: Final = range(400)
SOUND: Final = range(150)


@settings(max_examples=60)
@given(numbers=st.lists(st.integers(0, 65_535), max_size=300))
def test_each_byte_is_committed_once_and_in_order_whatever_happens(numbers: list[int]) -> None:
    World(Tape(numbers)).run()


@pytest.mark.parametrize("seeds", [SOUND[at : at + 50] for at in range(0, len(SOUND), 50)])
def test_long_runs_lose_and_double_nothing(seeds: range) -> None:
    assert first_violation(seeds) == ""


def test_runs_have_deaths_takeovers_aborts_and_transactions_in_doubt() -> None:
    worlds = [World(tape_of(seed)) for seed in range(20)]
    for world in worlds:
        world.run()
        assert world.storage.committed == OUTPUT
    assert sum(world.epoch > 1 for world in worlds) > 5
    assert sum(world.aborts > 0 for world in worlds) > 5
    assert sum(len(world.links) > 3 for world in worlds) > 5


def test_a_deposed_runtime_that_holds_its_list_against_a_newer_note_takes_for_done_what_is_not() -> None:
    found = first_violation([2071], leaders_only=False)
    assert "is taken for committed and is not" in found
    assert first_violation([2071]) == ""


COORDINATOR_MUTANTS: Final = {
    "what is in doubt is passed over": ("        if unknown:\n", "        if False:\n"),
    "done once it is said": (
        "            self._list(State.SETTLING, out)\n\n    def _say_again",
        "            self._state = State.READY; out.append(SinkReady(position=self._position))\n\n    def _say_again",
    ),
    "voted on before all is sent": ("        if offset == block.end:\n", "        if True:\n"),
}
PARTICIPANT_MUTANTS: Final = {
    "a vote without the storage": (
        "        out.append(Prepare(transaction=said.transaction, ranges=said.ranges))",
        "        self._reply(said, True, out)",
    ),
    "nothing is listed": ("ReplyUncommitted(rtag, tuple(self._doubt))", "ReplyUncommitted(rtag, ())"),
    "data while something is in doubt": (
        "self._state = State.IN_DOUBT if self._doubt else State.READY\n",
        "self._state, self._doubt = State.READY, {}\n",
    ),
    "offsets go on behind an abort": ("stream.begin = stream.end = self._committed.get(ident, 0)", "pass"),
    "a list overtakes what is being done": (
        "_HELD: Final = frozenset({State.ADMITTING, State.PREPARING, State.RESOLVING})",
        "_HELD: Final = frozenset({State.ADMITTING})",
    ),
}


@pytest.mark.parametrize("name", COORDINATOR_MUTANTS)
def test_without_a_safeguard_of_the_coordinator_a_run_shows_it(name: str) -> None:
    mutant = mutant_of("sink_coordinator", *COORDINATOR_MUTANTS[name])
    assert first_violation(SEEDS, coordinator_class=mutant.SinkCoordinator) != ""


@pytest.mark.parametrize("name", PARTICIPANT_MUTANTS)
def test_without_a_safeguard_of_the_participant_a_run_shows_it(name: str) -> None:
    mutant = mutant_of("sink_participant", *PARTICIPANT_MUTANTS[name])
    assert first_violation(SEEDS, participant_class=mutant.SinkParticipant) != ""


def test_a_world_that_can_not_come_to_its_end_is_seen() -> None:
    world = World(Tape([]))
    world.store = lambda link: None  # type: ignore[method-assign]
    with pytest.raises(Violated, match="stands still"):
        world.run()
