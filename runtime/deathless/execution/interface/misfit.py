"""A misfit: one thing of the old code, stored or under way, that the new code has no place for.

It is the same record wherever it is found: by comparing two interfaces, by migrating real state, by decoding what
waits. A tool shows its `text`; a program goes by `word` and `subject`.

    FieldDropped: Account.balance (float) of version 1 is not in version 2, 48,211 keys hold it; write
    @bank.migrate(from_=1), or drops=["Account.balance"]

Guarantees: equal finds are counted as one. Does not: find anything. Imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

_VERBS: Final = {"key": ("holds it", "hold it"), "item": ("holds it", "hold it"), "message": ("waits", "wait")}
"""What is said of one, and of several, by unit."""


class Misfit(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that does not fit."""

    word: str  # its kind: FieldDropped, HandlerGone ...
    subject: str  # what it is about: Account.balance, deposit, nightly
    what: str  # a statement, without a full stop
    remedy: str = ""  # what to do; empty: nothing has to be done
    count: int = 0  # how many there are; 0: not counted
    unit: str = "key"  # of the count, singular
    of: int = 0  # of how many; 0: not said
    first: str = ""  # one of them, by name

    @property
    def text(self) -> str:
        """Give it as one line."""
        said = f"{self.word}: {self.what}"
        if self.count:
            units = self.unit if (self.of or self.count) == 1 else f"{self.unit}s"
            if self.of:
                said += f", {self.count:,} of {self.of:,} {units}"
            else:
                one, several = _VERBS.get(self.unit, ("", ""))
                said += f", {self.count:,} {units} {one if self.count == 1 else several}".rstrip()
        if self.first:
            said += f" ({'it is' if self.count == 1 else 'the first is'} {self.first})"
        return f"{said}; {self.remedy}" if self.remedy else said


class Tally:
    """Counts finds while there may be millions of them: one misfit for each word and subject.

    Args:
        unit: of what is counted, singular.
    """

    __slots__ = ("_found", "unit")

    def __init__(self, unit: str = "key") -> None:
        self.unit = unit
        self._found: dict[tuple[str, str], Misfit] = {}

    def add(self, word: str, subject: str, what: str, remedy: str, first: str) -> None:
        """Count one find; what the first of its kind said is kept."""
        place = (word, subject)
        before = self._found.get(place)
        if before is None:
            self._found[place] = Misfit(word, subject, what, remedy, 1, self.unit, 0, first)
        else:
            self._found[place] = msgspec.structs.replace(before, count=before.count + 1)

    def extend(self, found: Iterable[Misfit]) -> None:
        """Count what another tally has given."""
        for each in found:
            place = (each.word, each.subject)
            before = self._found.get(place)
            self._found[place] = (
                each if before is None else msgspec.structs.replace(before, count=before.count + each.count)
            )

    def misfits(self, of: int = 0) -> list[Misfit]:
        """Give what was found, in the order in which it was.

        Args:
            of: how many were looked at; 0: not said.
        """
        return [msgspec.structs.replace(each, of=of) if of else each for each in self._found.values()]


def merged(static: Iterable[Misfit], counted: Iterable[Misfit]) -> list[Misfit]:
    """Give the misfits of a comparison, with the counts of those that were met in real state, and the others of these.

    A thing that both name is told once.
    """
    counts = {(each.word, each.subject): each for each in counted}
    told = []
    for each in static:
        met = counts.pop((each.word, each.subject), None)
        told.append(
            each if met is None else msgspec.structs.replace(each, count=met.count, unit=met.unit, first=met.first)
        )
    return told + list(counts.values())
