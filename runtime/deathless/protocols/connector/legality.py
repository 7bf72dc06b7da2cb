"""What is legal when: one table per machine, and the errors for what is not in it.

Why: a check that is spread over the branches of a machine can't be read, tested or compared with the protocol's text.
Here each machine has one table, state -> what may come -> in which states of its stream, and asks it before anything
else is done. What is not in the table is illegal.

Two kinds of things come, and what is wrong with them is told to different people: a frame of the other end
(InvalidArgument: it is sent back as ERROR, and that connection ends), and a word of the program around the machine
(InvalidUse: it is raised before anything changed, since that program has a bug).

Guarantees: asking changes nothing. Does not: name the next state; the machine's branches do. Imports base only.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final, Generic, TypeVar

from deathless.base.errors import InvalidArgument, InvalidUse

S = TypeVar("S", bound=enum.Enum)
T = TypeVar("T", bound=enum.Enum)

FRAME_REMEDY: Final = "connect again and send frames in the order that docs/formats/connector.md gives"
USE_REMEDY: Final = (
    "a bug of the program that drives this connection: the table in the machine's module says what may come"
)


class Table(Generic[S, T]):
    """What one machine takes.

    Args:
        rows: state of the connection -> class of what comes -> the states of its stream in which it is legal; None: it
            concerns no stream, or any.
    """

    __slots__ = ("rows",)

    def __init__(self, rows: Mapping[S, Mapping[type, AbstractSet[T] | None]]) -> None:
        self.rows = rows

    def allows(self, state: S, kind: type, stream: T | None = None) -> bool:
        """Is it legal in this state, for a stream in that one?"""
        row = self.rows[state]
        if kind not in row:
            return False
        wanted = row[kind]
        return wanted is None or stream in wanted

    def check_frame(self, state: S, kind: type, stream: T | None = None, *, what: str = "") -> None:
        """Do nothing if a frame of this class is legal.

        Raises: InvalidArgument, for the other end; the machine answers ERROR.
        """
        if not self.allows(state, kind, stream):
            raise InvalidArgument(self._told(state, kind, stream, what), remedy=FRAME_REMEDY)

    def check_event(self, state: S, kind: type, stream: T | None = None, *, what: str = "") -> None:
        """Do nothing if an event of this class is legal.

        Raises: InvalidUse, for the program around the machine; nothing was changed.
        """
        if not self.allows(state, kind, stream):
            raise InvalidUse(self._told(state, kind, stream, what), remedy=USE_REMEDY)

    def _told(self, state: S, kind: type, stream: T | None, what: str) -> str:
        where = f"connection {state.name}" + (f", stream {stream.name}" if stream is not None else "")
        legal = ", ".join(sorted(each.__name__ for each in self.rows[state])) or "nothing"
        return f"{kind.__name__}{f' ({what})' if what else ''} is not legal now ({where}); legal are: {legal}"


def misuse(text: str) -> InvalidUse:
    """Give the error for a word of the program around the machine whose values can't be."""
    return InvalidUse(text, remedy=USE_REMEDY)


def violation(text: str, remedy: str = FRAME_REMEDY) -> InvalidArgument:
    """Give the error for a frame of the other end whose values can't be."""
    return InvalidArgument(text, remedy=remedy)
