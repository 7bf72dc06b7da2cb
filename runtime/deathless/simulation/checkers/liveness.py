"""Does everything come to its end once faults have stopped?

Input: the history and the time from which nothing was broken any more. Imports nothing of ours but the history.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from deathless.simulation.checkers.history import Operation, Outcome, Violation


def check_liveness(
    operations: Iterable[Operation], *, healed_us: int, bound_us: int, gone: Collection[str] = ()
) -> list[Violation]:
    """Every operation must be answered at most ``bound_us`` after the healing, or after it was asked for.

    Args:
        operations: the history.
        healed_us: when the last fault ended.
        bound_us: how long an answer may take from then on.
        gone: callers that were killed themselves; nobody waits for their answers.
    """
    violations: list[str] = []
    for operation in operations:
        if operation.caller in gone:
            continue
        limit_us = max(healed_us, operation.invoked_us) + bound_us
        if operation.completed_us is None:
            violations.append(f"no answer by {limit_us} us: {operation}")
        elif operation.completed_us > limit_us and operation.outcome is not Outcome.UNKNOWN:
            violations.append(f"answer later than {limit_us} us: {operation}")
    return [Violation(checker="liveness", text=text) for text in violations]
