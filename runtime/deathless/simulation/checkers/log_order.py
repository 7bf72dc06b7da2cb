"""Is the log itself an order that explains every answer?

Why beside the search: finding some order is exponential in what is under way at once, checking a given one is not;
and a service whose log is not such an order is broken even if another order exists. Changes take the order of the log,
a read takes the earliest place that fits its answer, its time, and the reads before it; that choice loses nothing,
since later places only narrow what comes after.

Guarantees: a violation named is one. Input: the history of one model, and the tags in the order the log ran them.
Imports nothing of ours but history and models.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from deathless.simulation.checkers.history import Operation, Outcome, Violation
from deathless.simulation.checkers.models import Model

FOREVER = 1 << 62


def check_log_order(operations: Iterable[Operation], ran: Sequence[str], model: Model) -> list[Violation]:
    """Judge the operations of one model.

    Args:
        operations: the history; a tag that is not in `ran` was never applied.
        ran: tags in log order, each once, those whose turn was rolled back included.
        model: what one correct machine would answer.
    """
    listed = list(operations)
    by_tag = {op.tag: op for op in listed if op.tag}
    changes = [by_tag[tag] for tag in ran if tag in by_tag]
    reads = sorted((op for op in listed if not op.tag and op.outcome is Outcome.OK), key=lambda op: op.invoked_us)
    state = model.initial(tuple(sorted({key for op in listed for key in op.keys})))
    states = [state]
    violations: list[str] = []
    for change in changes:
        state, result = model.step(state, change)
        states.append(state)
        if change.outcome is Outcome.OK and change.result != result:
            violations.append(f"in log order the answer is {result}: {change}")
    violations += _times_of_changes(changes)
    placed: list[tuple[int, int]] = []  # (completed, place) of the reads so far
    for read in reads:
        low, high = _bounds(read, changes)
        low = max([low, *(place for completed, place in placed if completed < read.invoked_us)])
        found = next((at for at in range(low, high + 1) if model.step(states[at], read)[1] == read.result), None)
        if found is None:
            violations.append(f"no place from {low} to {high} in the log explains {read}")
        else:
            placed.append((_end_us(read), found))
    return [Violation(checker="log_order", text=text) for text in violations]


def _end_us(operation: Operation) -> int:
    if operation.outcome is not Outcome.OK or operation.completed_us is None:
        return FOREVER
    return operation.completed_us


def _times_of_changes(changes: Sequence[Operation]) -> list[str]:
    """None may stand behind one that began only after it had ended."""
    violations: list[str] = []
    earliest = changes[-1] if changes else None
    for change in reversed(changes):
        assert earliest is not None
        if _end_us(earliest) < change.invoked_us:
            violations.append(f"ended before {change} began, and stands behind it in the log: {earliest}")
        if _end_us(change) < _end_us(earliest):
            earliest = change
    return violations


def _bounds(read: Operation, changes: Sequence[Operation]) -> tuple[int, int]:
    """How many changes a read may have seen, at least and at most."""
    low = max((at + 1 for at, op in enumerate(changes) if _end_us(op) < read.invoked_us), default=0)
    end_us = _end_us(read)
    high = min((at for at, op in enumerate(changes) if op.invoked_us > end_us), default=len(changes))
    return low, high
