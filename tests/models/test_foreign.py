"""Applications that emit late, every interleaving: the rules of the design hold, other readings of it break.

docs/design/0030-ambrosia-protocol.md. The model and its faults are described in
``deathless.simulation.models.foreign_model``; ``Rules()`` is the design. A row of BROKEN changes what its name says and
must stay red, with the violation given: it is the test that the rule is needed and that the model can see it.

Bounds: one takeover, two or three inputs, at most one impulse and one trim.
"""

from dataclasses import replace

import pytest

from deathless.simulation.models.explorer import explore, find
from deathless.simulation.models.foreign_model import ForeignModel, State, Status, Violation
from deathless.simulation.models.foreign_rules import Application, Impulse, Rules, Successor, Welcome, Witness

DESIGN = Rules()
THREE = Rules(inputs=3)
COLD = Rules(successor=Successor.COLD)
FEWER = Rules(application=Application.FEWER, inputs=3)
CLOCK = Rules(application=Application.CLOCK)
IMPULSES = Rules(impulse=Impulse.LOGGED_FIRST)

HOLDS = {
    "the design, a standby takes over": DESIGN,
    "the design, three inputs": THREE,
    "the design, a cold start takes over": replace(COLD, inputs=3),
    "impulses are logged first": IMPULSES,
    "impulses are logged first, and a cold start takes over": replace(IMPULSES, successor=Successor.COLD, inputs=1),
    "an application emits one fewer": FEWER,
    "an application emits one fewer behind a checkpoint": replace(FEWER, successor=Successor.COLD),
    "an application reads a clock": replace(CLOCK, inputs=3),
    "an application reads a clock, and positions alone count": replace(CLOCK, witness=Witness.NEVER),
    # What is forgotten unseen is found at the welcome: a chain in the log finds it earlier, and at followers.
    "one fewer, and the log says only how many were confirmed": replace(FEWER, trim_has_chain=False),
}

BROKEN = {
    "what is written is delivered": (Violation.DIFFERS, replace(DESIGN, deliver_confirmed=False)),
    "one fewer, and positions alone count": (Violation.DIFFERS, replace(FEWER, witness=Witness.NEVER)),
    "one fewer, and compared on forgetting": (Violation.DIFFERS, replace(FEWER, witness=Witness.ON_FORGETTING)),
    "one fewer, and the receiver tells what is confirmed": (
        Violation.DIFFERS,
        replace(FEWER, welcome=Welcome.CONFIRMED),
    ),
    "one fewer, and an older connection is heard": (Violation.DIFFERS, replace(FEWER, fences=False)),
    "what was emitted is counted when the checkpoint is ordered": (
        Violation.LOST,
        replace(COLD, count_at_message=False),
    ),
    "outputs without confirmation are not in the checkpoint": (
        Violation.LOST,
        replace(COLD, output_in_checkpoint=False),
    ),
    "impulses go out at once, in one count, and positions alone count": (
        Violation.DIFFERS,
        replace(DESIGN, impulse=Impulse.IN_ONE_COUNT, witness=Witness.NEVER),
    ),
    "impulses go out at once, in one count": (Violation.STALL, replace(DESIGN, impulse=Impulse.IN_ONE_COUNT)),
    "an application that is behind its receiver is an error": (Violation.STALL, replace(DESIGN, waits_behind=False)),
}


@pytest.mark.parametrize("reading", HOLDS)
def test_outputs_hold_in_every_interleaving(reading: str) -> None:
    verdict = explore(ForeignModel(HOLDS[reading]))
    assert verdict.holds, str(verdict)


@pytest.mark.parametrize("reading", BROKEN)
def test_a_reading_that_drops_a_rule_breaks(reading: str) -> None:
    violation, rules = BROKEN[reading]
    verdict = explore(ForeignModel(rules))
    assert not verdict.holds
    assert verdict.reason.startswith(violation), str(verdict)


def leads(state: State) -> bool:
    return state.successor.status is Status.LEADS


def test_model_reaches_a_successor_whose_application_is_behind_its_receiver_and_one_that_sends_on() -> None:
    def behind(state: State) -> bool:
        told = state.successor.told or ()
        return leads(state) and len(state.successor.emitted) < len(told)

    def sends_on(state: State) -> bool:
        told = state.successor.told or ()
        return leads(state) and state.receiver.logged == ("o1", "o2", "o3") and told == ("o1",)

    assert find(ForeignModel(THREE), behind) is not None
    assert find(ForeignModel(THREE), sends_on) is not None


def test_model_reaches_a_confirmation_in_the_log_of_what_was_not_emitted_yet() -> None:
    def wanted(state: State) -> bool:
        return leads(state) and len(state.successor.trimmed) > len(state.successor.emitted)

    assert find(ForeignModel(DESIGN), wanted) is not None


def test_model_reaches_a_deposed_process_that_goes_on_writing_and_is_heard_until_it_is_replaced() -> None:
    def wanted(state: State) -> bool:
        deposed = state.first.status is Status.DEPOSED
        return deposed and leads(state) and len(state.first.log) > len(state.log) and state.receiver.hears == "A"

    assert find(ForeignModel(DESIGN), wanted) is not None


def test_model_reaches_a_checkpoint_whose_outputs_its_successor_sends() -> None:
    def wanted(state: State) -> bool:
        inside = len(state.checkpoint.emitted)
        return leads(state) and state.successor.told == () and state.successor.sent > 1 and inside == 2

    assert find(ForeignModel(COLD), wanted) is not None


def test_an_application_that_emits_fewer_is_stopped_where_that_shows() -> None:
    def wanted(state: State) -> bool:
        return state.successor.status is Status.STOPPED

    assert find(ForeignModel(FEWER), wanted) is not None
    assert find(ForeignModel(THREE), wanted) is None
