"""Did the operations happen one at a time, each between its invocation and its answer?

The search is Wing and Gong's with Lowe's memoisation: take an operation that no other was answered before, apply it
to the model, go on; go back when an answer would have to come that the model does not give. A pair (operations
taken, state) that failed once is not tried again. Keys that no operation joins are judged apart, which is exact
(linearizability is local) and makes the search short.

An operation without an answer may be taken at any later time, or after all others, where nobody sees it; it needs
not be dropped. A refused one was never applied and is left out.

Guarantees: a violation named is one; no violation means that an order exists. Does not: run for ever: above
``STATES_MAX`` pairs it raises. Imports nothing of ours but history and models.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from deathless.simulation.checkers.history import Operation, Outcome, Violation
from deathless.simulation.checkers.models import Model, State

STATES_MAX: Final = 400_000
FOREVER: Final = 1 << 62


class InconclusiveError(RuntimeError):
    """The search is larger than allowed: nothing is known. Make the history shorter or less concurrent."""


class _Entry:
    """An invocation or an answer in the list of what is left to explain."""

    __slots__ = ("answer", "bit", "next", "operation", "previous")

    def __init__(self, operation: Operation, bit: int) -> None:
        self.operation = operation
        self.bit = bit
        self.answer: _Entry | None = None  # of an invocation: its answer's entry; of an answer: None
        self.next: _Entry | None = None
        self.previous: _Entry | None = None


def _lift(entry: _Entry) -> None:
    """Take an invocation and its answer out of the list."""
    answer = entry.answer
    assert answer is not None
    for each in (entry, answer):
        assert each.previous is not None
        each.previous.next = each.next
        if each.next is not None:
            each.next.previous = each.previous


def _unlift(entry: _Entry) -> None:
    """Put them back, in the reverse order."""
    answer = entry.answer
    assert answer is not None
    for each in (answer, entry):
        assert each.previous is not None
        each.previous.next = each
        if each.next is not None:
            each.next.previous = each


def _entries(operations: Sequence[Operation]) -> _Entry:
    """Give the head (a dummy) of the list of invocations and answers by time.

    An answer at the very time of an invocation comes after it: the two count as concurrent.
    """
    timed: list[tuple[int, int, int, _Entry]] = []
    for index, operation in enumerate(operations):
        call, answer = _Entry(operation, 1 << index), _Entry(operation, 1 << index)
        call.answer = answer
        end_us = _end_us(operation)
        timed.append((operation.invoked_us, 0, index, call))
        timed.append((end_us, 1, index, answer))
    timed.sort(key=lambda item: item[:3])
    head = _Entry(operations[0], 0)
    last = head
    for *_, entry in timed:
        last.next, entry.previous = entry, last
        last = entry
    return head


def _explain(operations: Sequence[Operation], model: Model, states_max: int) -> Operation | None:
    """Give None when an order exists, else the answer at which the deepest search got stuck."""
    keys = tuple(dict.fromkeys(key for operation in operations for key in operation.keys))
    head = _entries(operations)
    state = model.initial(keys)
    taken = 0
    tried = {(taken, state)}
    stack: list[tuple[_Entry, State]] = []
    deepest, stuck = -1, operations[0]
    entry = head.next
    while head.next is not None:
        assert entry is not None
        if entry.answer is not None:
            operation = entry.operation
            after, result = model.step(state, operation)
            if operation.outcome is Outcome.UNKNOWN or operation.result == result:
                pair = (taken | entry.bit, after)
                if pair not in tried:
                    if len(tried) >= states_max:
                        raise InconclusiveError(f"{len(operations)} operations on {keys}: over {states_max} states")
                    tried.add(pair)
                    stack.append((entry, state))
                    taken, state = pair
                    _lift(entry)
                    entry = head.next
                    continue
            entry = entry.next
            continue
        # An answer that nothing taken explains: go back.
        if len(stack) > deepest:
            deepest, stuck = len(stack), entry.operation
        if not stack:
            return stuck
        entry, before = stack.pop()
        state = before
        taken &= ~entry.bit
        _unlift(entry)
        entry = entry.next
    return None


def _groups(operations: Iterable[Operation]) -> list[list[Operation]]:
    """Split by keys that no operation joins."""
    parent: dict[str, str] = {}

    def root(key: str) -> str:
        while parent.setdefault(key, key) != key:
            key = parent[key]
        return key

    listed = list(operations)
    for operation in listed:
        first = root(operation.keys[0])
        for key in operation.keys[1:]:
            parent[root(key)] = first
    groups: dict[str, list[Operation]] = {}
    for operation in listed:
        groups.setdefault(root(operation.keys[0]), []).append(operation)
    return list(groups.values())


def check_linearizable(
    operations: Iterable[Operation], model: Model, *, states_max: int | None = None
) -> list[Violation]:
    """Judge the operations of one model.

    Args:
        operations: the history.
        model: what one correct machine would answer.
        states_max: of the search; None: STATES_MAX.

    Raises: InconclusiveError when the search is too large; the caller must not count that as good.
    """
    violations: list[Violation] = []
    applied = [operation for operation in operations if operation.outcome is not Outcome.REFUSED]
    for group in _groups(applied):
        stuck = _explain(group, model, states_max or STATES_MAX)
        if stuck is not None:
            keys = tuple(dict.fromkeys(key for operation in group for key in operation.keys))
            around = "; ".join(str(other) for other in group if _overlap(other, stuck))
            text = f"keys {keys}: no order explains the answer of {stuck}; around it: {around}"
            violations.append(Violation(checker="linearizability", text=text))
    return violations


def _overlap(one: Operation, other: Operation) -> bool:
    """True for operations that are under way at the same time as `other`."""
    return one.invoked_us <= _end_us(other) and other.invoked_us <= _end_us(one)


def _end_us(operation: Operation) -> int:
    """When it must have been applied: one without an answer may be applied long after its caller gave up."""
    if operation.outcome is Outcome.UNKNOWN or operation.completed_us is None:
        return FOREVER
    return operation.completed_us
