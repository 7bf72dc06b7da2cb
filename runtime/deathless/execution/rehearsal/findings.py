"""What a rehearsal found: differences by handler, counted, and how often each handler was met.

    ReplyDiffers   a caller gets another reply                     reply
    Raised         it fails where the former code did not           reply
    NotRun         the new code can't run what the former one ran  reply
    CallsDiffer    it sends, waits for or starts something else    calls
    TurnsDiffer    something runs in one of the two alone          calls
    StateDiffers   a state is not what its migration gives         state

The words at the right are what an author declares, see `changes(changed=...)`. Whatever of a handler is of one kind is
one finding: the first is shown, the others are counted.

Guarantees: memory grows with handlers, not with messages. Does not: compare. Imports base and codec.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from deathless.execution.values.failure import bounded

SHOWN_CHARS: Final = 200
NOT_DETERMINISTIC: Final = "NotDeterministic"
ENDED: Final = "Ended"
"""The process of the new code ended; on the other end nobody can say more of it."""
ASPECTS: Final[Mapping[str, str]] = {
    "ReplyDiffers": "reply",
    "Raised": "reply",
    "NotRun": "reply",
    "CallsDiffer": "calls",
    "TurnsDiffer": "calls",
    "StateDiffers": "state",
}
"""What an author declares of a handler for such a difference to be meant."""


class Difference(msgspec.Struct, rename="camel", omit_defaults=True):
    """All differences of one kind of one handler."""

    kind: str
    handler: str  # its name in the new code
    lsn: int  # of the first one; 0: at the end of the run
    key: str = ""  # likewise
    expected: str = ""  # what the former code did, cut
    found: str = ""  # what the new code did, cut
    count: int = 1
    declared: str = ""  # why it is meant; empty: nobody says so

    @property
    def text(self) -> str:
        """Give it as one line."""
        where = f"lsn {self.lsn:,}" if self.lsn else "the end"
        where += f", key {self.key}" if self.key else ""
        first = f"{'it is' if self.count == 1 else f'{self.count:,} times, the first is'} {where}"
        what = f": expected {self.expected}, found {self.found}" if self.expected or self.found else ""
        return f"{self.kind}: {self.handler or '(no handler)'} ({first}){what}"


class Coverage(msgspec.Struct, rename="camel"):
    """How often a handler of the new code was met."""

    handler: str
    turns: int = 0  # of it that were compared
    left_out: int = 0  # that were not, because their key or invocation had left the comparison


class Findings:
    """What was found so far."""

    def __init__(self) -> None:
        self._differences: dict[tuple[str, str, bool], Difference] = {}

    def add(self, difference: Difference) -> None:
        """Count one, or what another has counted."""
        difference.expected, difference.found = cut(difference.expected), cut(difference.found)
        place = (difference.kind, difference.handler, bool(difference.declared))
        known = self._differences.get(place)
        if known is None:
            self._differences[place] = difference
        else:
            known.count += difference.count

    def differences(self) -> list[Difference]:
        """Give all, in the order in which the first of each was found."""
        return list(self._differences.values())


def merged(found: Iterable[Iterable[Difference]]) -> list[Difference]:
    """Give the findings of several runs, each thing once."""
    result = Findings()
    for differences in found:
        for each in differences:
            result.add(msgspec.structs.replace(each))
    return result.differences()


def cut(text: str) -> str:
    """Give a text no longer than is shown."""
    return bounded(text, SHOWN_CHARS)
