"""When an application is to give a checkpoint; pure.

Guarantees: one at a time; the replica that is to checkpoint is asked first, any other once ALONE times as much is due.
Does not: count time. Imports this package.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from deathless.foreign.rows import Given

ALONE: Final = 4


class Every(NamedTuple):
    """How much is delivered between two checkpoints."""

    rows: int
    bytes: int


class CheckpointPlan:
    """One application's.

    Args:
        every: how much is delivered between two.
    """

    __slots__ = ("_bytes", "_every", "_rows", "checkpointer", "first_is_kept", "under_way", "wanted")

    def __init__(self, every: Every) -> None:
        self.checkpointer = False  # this replica is to take them; its owner's to set
        self.under_way = False  # the application was told to give one, or gives it
        self.wanted = False  # it asked for one
        self.first_is_kept = False  # the one at position 0 is durable
        self._every = every
        self._rows = 0  # since the last one
        self._bytes = 0  # likewise

    @property
    def is_due(self) -> bool:
        """Whether it is time for one."""
        factor = 1 if self.checkpointer else ALONE
        much = self._rows >= factor * self._every.rows or self._bytes >= factor * self._every.bytes
        return bool(self._rows) and not self.under_way and (self.wanted or much)

    def delivered(self, row: Given) -> None:
        """The application was given this."""
        self._rows += 1
        self._bytes += len(row.items)

    def begin(self) -> None:
        """The application is told to give one."""
        self.taken()
        self.under_way = True

    def taken(self) -> None:
        """The application was told to give one, or another replica has one."""
        self._rows = self._bytes = 0
