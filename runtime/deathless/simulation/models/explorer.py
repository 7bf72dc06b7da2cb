"""Breadth-first exploration of small protocol models.

Why it exists: the order of a few steps (write, sync, prove, release against take, seal, read) decides whether
anything can ever be lost. Seeded runs sample interleavings; a model of a few thousand states lets us visit
every one of them, in milliseconds, in the ordinary test run.

What it guarantees: every state that the model can reach is visited once, in order of distance from the start,
so the trace of a broken model is a shortest one; the order of visits, and with it the trace, is the order in
which the model names its steps and does not depend on hash values; a model that is larger than ``states_max``
raises and is never reported as holding.

What it does NOT guarantee: anything about the code that implements the protocol (the simulation and the
conformance suites do that), and nothing beyond the bounds that the model sets itself (replicas, frames, faults).

A crash or a freeze needs no step of its own: a process that is never scheduled again has crashed, one that is
scheduled again later was frozen. Two states that compare equal are one state; models therefore tag tuples of
different meaning, because named tuples of different classes with equal fields compare equal.

Imports nothing of ours. Pure.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

STATES_MAX = 1_000_000
"""Default bound on visited states; about 1 kB of memory each for the larger models."""

StateT = TypeVar("StateT", bound=Hashable)


class StatesMaxReachedError(RuntimeError):
    """The model has more states than allowed: nothing is known about it. Shrink its bounds or raise the limit."""


class Model(Protocol[StateT]):
    """What the explorer asks of a protocol model. All three must be functions of their arguments alone."""

    def initial(self) -> StateT:
        """Return the one state in which every run begins."""
        ...

    def steps(self, state: StateT) -> Iterable[tuple[str, StateT]]:
        """Yield (what happens, state after it) for each atomic step that any process can take now."""
        ...

    def fault(self, state: StateT) -> str:
        """Return why this state must never be reached, or an empty string if it is fine."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What an exploration found."""

    holds: bool
    # States visited, >= 1. For a broken model: visited until the fault was found.
    states: int
    # Steps from the start to the fault, a shortest such list. Invariant: empty if the model holds.
    trace: tuple[str, ...]
    # What is wrong in the last state of the trace. Invariant: empty if and only if the model holds.
    reason: str

    def __str__(self) -> str:
        """Render for the message of a failed assertion: one step per line."""
        if self.holds:
            return f"holds ({self.states} states)"
        return "\n  ".join((f"broken ({self.states} states): {self.reason}", *self.trace))


def explore(
    model: Model[StateT],
    *,
    goal: Callable[[StateT], bool] | None = None,
    states_max: int = STATES_MAX,
) -> Verdict:
    """Visit every reachable state of the model.

    Args:
        model: the protocol, its faults included.
        goal: if given, each reachable state must leave a way to some state for which this is true. That is how
            a loss is found that no single state shows: a message that can never be processed any more.
        states_max: visited states allowed, >= 1.

    Returns:
        A verdict that holds, or the shortest trace to a fault (faults are reported before lost goals).

    Raises:
        StatesMaxReachedError: more than ``states_max`` states; the caller shrinks the model.
    """
    start = model.initial()
    found: dict[StateT, tuple[StateT, str] | None] = {start: None}
    reason = model.fault(start)
    if reason:
        return Verdict(holds=False, states=1, trace=(), reason=reason)
    reached_from: dict[StateT, list[StateT]] = {}
    waiting = deque((start,))
    while waiting:
        state = waiting.popleft()
        for label, after in model.steps(state):
            if goal is not None:
                reached_from.setdefault(after, []).append(state)
            if after in found:
                continue
            found[after] = (state, label)
            reason = model.fault(after)
            if reason:
                return Verdict(holds=False, states=len(found), trace=_trace(found, after), reason=reason)
            if len(found) > states_max:
                raise StatesMaxReachedError(f"more than {states_max} states")
            waiting.append(after)
    if goal is not None:
        hopeless = _first_without_way_to(goal, found, reached_from)
        if hopeless is not None:
            trace = _trace(found, hopeless)
            return Verdict(holds=False, states=len(found), trace=trace, reason="the goal can no longer be reached")
    return Verdict(holds=True, states=len(found), trace=(), reason="")


def find(
    model: Model[StateT], wanted: Callable[[StateT], bool], *, states_max: int = STATES_MAX
) -> tuple[str, ...] | None:
    """Return a shortest trace to a state that is wanted, or None if no reachable state is.

    A model that holds because nothing ever happens in it proves nothing; with this a test shows that the
    interesting states (a takeover that served, a late packet of the deposed) are reached at all.

    Raises:
        StatesMaxReachedError: more than ``states_max`` states before one was found.
    """
    verdict = explore(_Wanted(model, wanted), states_max=states_max)
    return None if verdict.holds else verdict.trace


class _Wanted(Model[StateT]):
    """The same model with a wanted state in place of its faults."""

    def __init__(self, model: Model[StateT], wanted: Callable[[StateT], bool]) -> None:
        self._model = model
        self._wanted = wanted

    def initial(self) -> StateT:
        return self._model.initial()

    def steps(self, state: StateT) -> Iterable[tuple[str, StateT]]:
        return self._model.steps(state)

    def fault(self, state: StateT) -> str:
        return "wanted" if self._wanted(state) else ""


def _trace(found: dict[StateT, tuple[StateT, str] | None], last: StateT) -> tuple[str, ...]:
    """Return the labels from the start to ``last``, following how each state was found first."""
    labels: list[str] = []
    origin = found[last]
    while origin is not None:
        before, label = origin
        labels.append(label)
        origin = found[before]
    return tuple(reversed(labels))


def _first_without_way_to(
    goal: Callable[[StateT], bool],
    found: dict[StateT, tuple[StateT, str] | None],
    reached_from: dict[StateT, list[StateT]],
) -> StateT | None:
    """Return the first visited state from which no goal can be reached, or None if all can reach one."""
    hopeful = {state for state in found if goal(state)}
    waiting = deque(state for state in found if state in hopeful)
    while waiting:
        for before in reached_from.get(waiting.popleft(), ()):
            if before not in hopeful:
                hopeful.add(before)
                waiting.append(before)
    return next((state for state in found if state not in hopeful), None)
