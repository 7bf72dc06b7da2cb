"""Was every acknowledged change applied exactly once, and every other at most once?

Input: the history, and the tags in the order the recovered state says they were applied, for each place that keeps
such a list. Imports nothing of ours but the history.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from deathless.simulation.checkers.history import Operation, Outcome, Violation


def check_exactly_once(operations: Iterable[Operation], applied: Sequence[str]) -> list[Violation]:
    """Compare acknowledged with applied.

    Args:
        operations: the history; those with an empty tag change nothing and are left out. An answer that is a typed
            error rolled its turn back: it must not be applied.
        applied: tag of every change in the recovered state.
    """
    counts = Counter(applied)
    violations: list[str] = []
    known: dict[str, Operation] = {}
    for operation in operations:
        if not operation.tag:
            continue
        assert operation.tag not in known, f"tag used twice: {operation.tag}"
        known[operation.tag] = operation
        count = counts.get(operation.tag, 0)
        if count > 1:
            violations.append(f"applied {count} times: {operation}")
        elif operation.outcome is Outcome.OK and not is_error(operation) and count == 0:
            violations.append(f"acknowledged and lost: {operation}")
        elif count and (operation.outcome is Outcome.REFUSED or is_error(operation)):
            violations.append(f"refused and yet applied: {operation}")
    violations.extend(f"applied, and nobody asked for it: {tag}" for tag in counts if tag not in known)
    return [Violation(checker="exactly_once", text=text) for text in violations]


def is_error(operation: Operation) -> bool:
    """True when the answer is a typed error of the handler."""
    return isinstance(operation.result, tuple) and operation.result[:1] == ("error",)
