"""Is the sum over all accounts what was paid in, in every answer that reads all of them and at the end?

Holds for banks whose total changes only by deposits: the total read must lie between the deposits acknowledged
before the read began and those asked for before it ended. Imports nothing of ours but the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from deathless.simulation.checkers.history import Operation, Outcome, Violation


def check_conservation(operations: Iterable[Operation], balances: Mapping[str, int]) -> list[Violation]:
    """Judge totals; deposits are never negative.

    Args:
        operations: the history of one bank; ``total`` operations must name all its keys.
        balances: of every account in the recovered state.
    """
    listed = list(operations)
    deposits = [op for op in listed if op.action == "deposit" and op.outcome is not Outcome.REFUSED]
    violations: list[str] = []
    for operation in listed:
        if operation.action == "total" and operation.outcome is Outcome.OK:
            assert isinstance(operation.result, int)
            end_us = operation.completed_us
            assert end_us is not None
            low = _sum(d for d in deposits if d.completed_us is not None and d.completed_us < operation.invoked_us)
            high = _sum(d for d in deposits if d.invoked_us <= end_us)
            if not low <= operation.result <= high:
                violations.append(f"total outside [{low}, {high}]: {operation}")
    end = sum(balances.values())
    low = _sum(d for d in deposits if d.outcome is Outcome.OK)
    high = _sum(deposits)
    if not low <= end <= high:
        violations.append(f"the accounts hold {end} at the end, paid in were between {low} and {high}")
    violations.extend(f"account {key} holds {value}" for key, value in balances.items() if value < 0)
    return [Violation(checker="conservation", text=text) for text in violations]


def _sum(deposits: Iterable[Operation]) -> int:
    total = 0
    for deposit in deposits:
        assert isinstance(deposit.argument, int)
        total += deposit.argument
    return total
