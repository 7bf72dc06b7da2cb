"""What of a checkpoint does not fit the code that reads it, said so that a person understands it.

    HANDLER_GONE      the service has no such handler any more, or none of that kind
    IN_FLIGHT_DIFFERS run again, it asks for something else than it did, or ends, or looks at another item
    ACTIVITY_GONE     it had asked for an activity that the service has no more
    RESULT_TYPE       what it was given does not fit the type that it is asked for with
    STATE_DIFFERS     run again, it leaves another state
    ARGUMENTS_DIFFER  a message waits whose arguments the handler does not take
    UNTRANSLATED      translating what is kept of it failed
    CARRY_RAISED      what would carry it raised
    CARRY_UNFIT       what would carry it gave what can't go on, or changed the state
    CARRY_DIFFERS     what would carry it gave two things for one
    CARRY_OPEN        it can't be carried while it waits for what can't be taken back

Guarantees: plain values. Does not: find them (`restoration`, `execution.examination`). Imports nothing of ours.
"""

from __future__ import annotations

from typing import Final

import msgspec

HANDLER_GONE: Final = "HandlerGone"
IN_FLIGHT_DIFFERS: Final = "InFlightDiffers"
ACTIVITY_GONE: Final = "ActivityGone"
RESULT_TYPE: Final = "ResultType"
STATE_DIFFERS: Final = "StateDiffers"
ARGUMENTS_DIFFER: Final = "ArgumentsDiffer"
UNTRANSLATED: Final = "Untranslated"
CARRY_RAISED: Final = "CarryRaised"
CARRY_UNFIT: Final = "CarryUnfit"
CARRY_DIFFERS: Final = "CarryNotDeterministic"
CARRY_OPEN: Final = "CarryOpen"


class UnfitInvocation(msgspec.Struct, array_like=True, frozen=True):
    """One invocation, or one message that waits, that the code does not fit."""

    code: str  # one of the words above
    handler: str
    invocation: int  # lsn of the message that began it
    key: str
    what: str  # what it does otherwise: `asks for stock.take in turn 2, had asked for stock.reserve`
    turn: int = 0  # from 1; 0: it is not about a turn
    expected: str = ""  # what it had asked for, in words; empty: it is not about that, or nobody knows
    found: str = ""  # what it asks for now, in words; empty: likewise, or nothing

    def __str__(self) -> str:
        """Say it in a sentence without its end."""
        return f"{self.handler} (lsn {self.invocation}, key {self.key}) {self.what}"


class Unfit(Exception):
    """Raised where an invocation that is run again does something else.

    Args:
        misfit: what.
    """

    def __init__(self, misfit: UnfitInvocation) -> None:
        super().__init__(str(misfit))
        self.misfit = misfit
