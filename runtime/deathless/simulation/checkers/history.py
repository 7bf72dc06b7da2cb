"""What callers saw: operations with the times they were asked and answered.

Guarantees: an operation is invoked once and completed at most once; one without an answer is UNKNOWN: it may have
been applied, may be applied later, or never. Times are microseconds on one clock that all callers share. Every
operation that changes something carries a tag that no other has. Imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

Value = int | str | None | tuple["Value", ...]
"""Arguments and results as the models compare them."""


class Outcome(StrEnum):
    """How an operation ended for its caller."""

    OK = "ok"  # the service answered; a typed error of the handler is an answer too
    REFUSED = "refused"  # definitely not applied, and never will be
    UNKNOWN = "unknown"  # no answer


@dataclass(slots=True, kw_only=True)
class Operation:
    """One operation of one caller; completed in place by the History.

    Invariant: `completed_us` is None exactly while `outcome` is UNKNOWN and nobody gave up.
    """

    number: int  # ordinal in the history, from 0
    caller: str  # who asked; one caller may have several under way
    session: str  # whose order must be kept; empty: none
    action: str  # name in the model
    keys: tuple[str, ...]  # what it touches
    argument: Value  # of the action
    tag: str  # unique; empty for operations that change nothing
    invoked_us: int
    completed_us: int | None = None
    outcome: Outcome = Outcome.UNKNOWN
    result: Value = None  # only with OK

    def __str__(self) -> str:
        end = "never" if self.completed_us is None else str(self.completed_us)
        what = f"{self.action}{self.keys}({self.argument})"
        return f"[{self.invoked_us}..{end}] {self.caller} {what} {self.tag} -> {self.outcome} {self.result}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """Something that must never happen, and did.

    Attributes:
        checker: name of the judge.
        text: what, with the operations or bytes concerned.
    """

    checker: str
    text: str

    def __str__(self) -> str:
        return f"{self.checker}: {self.text}"


class History:
    """Operations in the order they were invoked."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []

    def __iter__(self) -> Iterator[Operation]:
        return iter(self.operations)

    def __len__(self) -> int:
        return len(self.operations)

    def invoke(
        self,
        *,
        caller: str,
        action: str,
        keys: tuple[str, ...],
        argument: Value,
        tag: str,
        now_us: int,
        session: str = "",
    ) -> Operation:
        """Record that an operation was asked for."""
        operation = Operation(
            number=len(self.operations),
            caller=caller,
            session=session,
            action=action,
            keys=keys,
            argument=argument,
            tag=tag,
            invoked_us=now_us,
        )
        self.operations.append(operation)
        return operation

    def complete(self, operation: Operation, *, outcome: Outcome, result: Value, now_us: int) -> None:
        """Record its answer."""
        assert operation.completed_us is None, f"completed twice: {operation}"
        operation.completed_us = now_us
        operation.outcome = outcome
        operation.result = result
