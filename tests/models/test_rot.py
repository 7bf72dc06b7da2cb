"""A log that ends too early: torn by a power cut, or rotten under frames that were released?

design 0003, "The end of the log". A primary appends, syncs and proves frames, tells a
follower what is confirmed at some later moment, and releases. A power cut leaves any part of what was not synced;
one frame may rot. The successor reads frames up to the first bad one and must decide what that is. Two things help
it: a valid frame behind the bad one, and the follower, which knows an lsn as confirmed and has the frames up to it.

What must hold: no released frame that the follower has heard of is lost; and a log that is merely torn is not refused.
(A rotten last frame that no other replica has heard of is one medium fault too many for one copy: not claimed.)
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

import pytest

from deathless.simulation.models.explorer import explore, find

FRAMES = 3
LOST = "a released frame that a replica knows to be confirmed is lost"
NEEDLESS = "a log that is merely torn is refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The defaults are the design; each field switches one part of it off."""

    asks_replicas: bool = True
    looks_behind: bool = True
    # Refuse whenever a bad frame is found, without looking further.
    refuses_any_bad_frame: bool = False


class Phase(StrEnum):
    """What the primary does next."""

    APPEND = "appends"
    SYNC = "syncs"
    PROVE = "proves and releases"
    ENDED = "has ended"


class Outcome(StrEnum):
    """What the successor made of the log."""

    NONE = "not read"
    SERVED = "served"
    REFUSED = "refused as corrupt"


class State(NamedTuple):
    """The file as flags: True is a valid frame. The follower knows ``told`` frames to be confirmed."""

    phase: Phase = Phase.APPEND
    frames: tuple[bool, ...] = ()
    synced: int = 0
    confirmed: int = 0
    told: int = 0
    rotten: bool = False
    outcome: Outcome = Outcome.NONE
    view: int = 0


@dataclass(frozen=True, slots=True)
class Ends:
    """One primary with its follower, one successor; the follower answers, or it does not."""

    rules: Rules
    follower_answers: bool = True

    def initial(self) -> State:
        return State()

    def fault(self, state: State) -> str:
        known = min(state.told, state.confirmed) if self.follower_answers else 0
        if state.outcome is Outcome.SERVED and state.view < known:
            return LOST
        # With a valid frame behind the bad one the loss is in plain sight, whoever answers.
        if state.outcome is Outcome.SERVED and state.view < state.confirmed and any(state.frames[state.view :]):
            return LOST
        return NEEDLESS if state.outcome is Outcome.REFUSED and not state.rotten else ""

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        if state.phase is not Phase.ENDED:
            yield from self.write(state)
            yield from self.cut_power(state)
        elif state.outcome is Outcome.NONE:
            yield self.read(state)
        if state.told < state.confirmed and state.phase is not Phase.ENDED:
            yield f"follower hears that {state.confirmed} are confirmed", state._replace(told=state.confirmed)
        if not state.rotten and state.outcome is Outcome.NONE:
            for index in range(state.synced):
                frames = (*state.frames[:index], False, *state.frames[index + 1 :])
                yield f"frame {index} rots", state._replace(frames=frames, rotten=True)

    def write(self, state: State) -> Iterator[tuple[str, State]]:
        match state.phase:
            case Phase.APPEND if len(state.frames) < FRAMES:
                yield "primary appends", state._replace(phase=Phase.SYNC, frames=(*state.frames, True))
            case Phase.SYNC:
                yield "primary syncs", state._replace(phase=Phase.PROVE, synced=len(state.frames))
            case Phase.PROVE:
                proved = state._replace(phase=Phase.APPEND, confirmed=len(state.frames))
                yield "primary proves and releases", proved
            case Phase.APPEND | Phase.ENDED:
                return

    def cut_power(self, state: State) -> Iterator[tuple[str, State]]:
        """The last frame, if it was not synced, is gone, torn, or whole."""
        kept = state.frames[: state.synced]
        for label, tail in (("without", ()), ("with a torn", (False,)), ("with a whole", (True,))):
            if len(kept) + len(tail) <= len(state.frames) and (tail or len(kept) == state.synced):
                yield f"power cut {label} last frame", state._replace(phase=Phase.ENDED, frames=(*kept, *tail))

    def read(self, state: State) -> tuple[str, State]:
        """Read to the first bad frame, then judge it."""
        end = state.frames.index(False) if False in state.frames else len(state.frames)
        refused = state._replace(outcome=Outcome.REFUSED)
        if end < len(state.frames):
            if self.rules.refuses_any_bad_frame:
                return "successor refuses any bad frame", refused
            if self.rules.looks_behind and any(state.frames[end:]):
                return "successor finds a valid frame behind a bad one", refused
        if self.rules.asks_replicas and self.follower_answers and end < state.told:
            # The follower has applied these frames and gives them.
            return f"successor takes frames {end} to {state.told} from the follower", served(state, state.told)
        return f"successor takes the log to end at {end}", served(state, end)


def served(state: State, view: int) -> State:
    return state._replace(outcome=Outcome.SERVED, view=view)


DESIGN = Rules()


@pytest.mark.parametrize("follower_answers", [True, False])
def test_bad_frame_is_told_from_a_torn_tail(follower_answers: bool) -> None:
    model = Ends(DESIGN, follower_answers)
    verdict = explore(model)
    assert verdict.holds, str(verdict)

    def torn_and_served(state: State) -> bool:
        return state.outcome is Outcome.SERVED and False in state.frames and not state.rotten

    assert find(model, torn_and_served) is not None
    assert find(model, lambda state: state.outcome is Outcome.REFUSED) is not None


def test_rotten_last_frame_is_taken_from_the_follower_that_knows_it() -> None:
    trace = find(Ends(DESIGN), lambda state: state.outcome is Outcome.SERVED and state.frames == (False,))
    assert trace is not None
    assert find(Ends(DESIGN), lambda state: state.rotten and state.view == state.told == FRAMES) is not None


@pytest.mark.parametrize(
    ("reason", "rules", "follower_answers"),
    [
        pytest.param(LOST, replace(DESIGN, asks_replicas=False), True, id="no replica is asked"),
        pytest.param(LOST, replace(DESIGN, looks_behind=False), False, id="nothing behind the bad frame is looked for"),
        pytest.param(NEEDLESS, replace(DESIGN, refuses_any_bad_frame=True), True, id="any bad frame is refused"),
    ],
)
def test_end_of_log_judged_by_less_loses_frames_or_refuses_a_good_log(
    reason: str, rules: Rules, follower_answers: bool
) -> None:
    verdict = explore(Ends(rules, follower_answers))
    assert not verdict.holds
    assert verdict.reason == reason, str(verdict)
    assert any(step.startswith(("power cut", "frame")) for step in verdict.trace)
