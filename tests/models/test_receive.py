"""Receive only the next expected message, with its position in one record, and never give up.

I3, I4. A sender numbers its messages and sends each again until it is acknowledged; a send may fail while the next
one succeeds. The wire delivers what it carries any number of times, in any order, or drops it. The receiver's
memory is synced at any moment, and lost in a crash; acknowledgements are cumulative and may be lost.

What must hold: no message is processed twice; one that was reported failed is never processed; and from every state
all messages can still be processed (a loss is a state from which they cannot).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import pytest

from deathless.simulation.models.explorer import explore, find

MESSAGES = 2
TWICE = "a message is processed twice"
FAILED_BUT_RAN = "a message that was reported failed is processed"
GOAL_LOST = "the goal can no longer be reached"


class Accept(StrEnum):
    """Which messages the receiver runs, and when it notes that it has them."""

    EVERYTHING = "everything"
    NOTED_FIRST = "the next expected; its position is made durable before it runs"
    ABOVE_HIGHEST = "any above the highest seen; message and position in one record"
    NEXT_EXPECTED = "the next expected; message and position in one record"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The defaults are the design."""

    accept: Accept = Accept.NEXT_EXPECTED
    gives_up: bool = False
    # Acknowledge what is in memory, or only what is synced.
    acks_from_memory: bool = False


class Receiver(NamedTuple):
    """What the receiver knows: in memory, and a copy on its disk."""

    position: int = 0
    processed: tuple[int, ...] = ()


class State(NamedTuple):
    """Sender, wire, receiver."""

    acked: int = 0
    gave_up: bool = False
    wire: frozenset[int] = frozenset()
    memory: Receiver = Receiver()
    disk: Receiver = Receiver()
    # Noted and not yet run; 0: none. Only with NOTED_FIRST.
    due: int = 0


def done(state: State) -> bool:
    """All processed for good, or given up on."""
    return state.gave_up or set(state.disk.processed) == set(range(1, MESSAGES + 1))


@dataclass(frozen=True, slots=True)
class Delivery:
    """One sender, one receiver."""

    rules: Rules

    def initial(self) -> State:
        return State()

    def fault(self, state: State) -> str:
        processed = state.memory.processed
        if len(set(processed)) != len(processed):
            return TWICE
        return FAILED_BUT_RAN if state.gave_up and len(processed) > state.acked else ""

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        yield from self.send(state)
        for message in sorted(state.wire):
            yield f"wire drops {message}", state._replace(wire=state.wire - {message})
            yield f"wire delivers {message}", self.receive(state, message)
        if state.due:
            memory = state.memory._replace(processed=(*state.memory.processed, state.due))
            yield f"receiver runs {state.due}", state._replace(memory=memory, due=0)
        yield "receiver syncs", state._replace(disk=state.memory)
        yield "receiver crashes", state._replace(memory=state.disk, due=0)

    def send(self, state: State) -> Iterator[tuple[str, State]]:
        if state.gave_up:
            return
        for message in range(state.acked + 1, MESSAGES + 1):
            yield f"sender sends {message}", state._replace(wire=state.wire | {message})
        known = state.memory if self.rules.acks_from_memory else state.disk
        if known.position > state.acked and not state.due:
            yield f"sender hears that {known.position} arrived", state._replace(acked=known.position)
        if self.rules.gives_up and state.acked < MESSAGES:
            yield "sender gives up and reports failure", state._replace(gave_up=True)

    def receive(self, state: State, message: int) -> State:
        """Run the message, or leave it; what is left counts as a wish to hear the acknowledgement again."""
        memory = state.memory
        ran = Receiver(max(memory.position, message), (*memory.processed, message))
        match self.rules.accept:
            case Accept.EVERYTHING:
                return state._replace(memory=ran)
            case Accept.NOTED_FIRST if message == memory.position + 1 and not state.due:
                noted = memory._replace(position=message)
                return state._replace(memory=noted, disk=noted, due=message)
            case Accept.ABOVE_HIGHEST if message > memory.position:
                return state._replace(memory=ran)
            case Accept.NEXT_EXPECTED if message == memory.position + 1:
                return state._replace(memory=ran)
            case _:
                return state


def test_next_expected_with_its_position_in_one_record_loses_and_doubles_nothing() -> None:
    model = Delivery(Rules())
    verdict = explore(model, goal=done)
    assert verdict.holds, str(verdict)
    # Duplicates of what was processed and messages ahead of their turn do arrive.
    assert find(model, lambda state: state.memory.position == 1 and state.wire == {1, 2}) is not None
    assert find(model, lambda state: state.acked == MESSAGES) is not None


@pytest.mark.parametrize(
    ("reason", "rules", "step"),
    [
        pytest.param(TWICE, Rules(accept=Accept.EVERYTHING), "wire delivers 1", id="no deduplication"),
        pytest.param(GOAL_LOST, Rules(accept=Accept.NOTED_FIRST), "receiver crashes", id="position durable before"),
        pytest.param(GOAL_LOST, Rules(accept=Accept.ABOVE_HIGHEST), "wire delivers 2", id="above the highest seen"),
        pytest.param(FAILED_BUT_RAN, Rules(gives_up=True), "sender gives up and reports failure", id="gives up"),
        pytest.param(GOAL_LOST, Rules(acks_from_memory=True), "receiver crashes", id="acknowledged from memory"),
    ],
)
def test_receiver_or_sender_that_does_otherwise_loses_or_doubles(reason: str, rules: Rules, step: str) -> None:
    verdict = explore(Delivery(rules), goal=done)
    assert not verdict.holds
    assert verdict.reason == reason, str(verdict)
    assert step in verdict.trace
