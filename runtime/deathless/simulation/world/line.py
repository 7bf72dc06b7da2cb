"""What a simulated supervisor and its worker tell each other; the twin of the shell's records.

Why a twin: shell and simulation may not know each other. Guarantees: plain records, delivered in order, a little
later, to the generation they were meant for. Does not: carry data of the service. Imports nothing of ours.
"""

from __future__ import annotations

from typing import NamedTuple


class TakeOver(NamedTuple):
    """To the worker: the primary of `epoch` is gone; others have applied `confirmed_lsn`."""

    epoch: int
    reason: str
    confirmed_lsn: int


class PrimaryIs(NamedTuple):
    """To the worker: who is primary, and whether its proof gets no answer from the lock store."""

    epoch: int
    replica: str
    client: str
    replication: str
    unproved: bool = False


class Deaths(NamedTuple):
    """To the worker: deaths counted in one message (I11)."""

    session: int
    seq: int
    deaths: int


class Diverged(NamedTuple):
    """To the worker: another replica computed something else than was logged (I6)."""

    replica: str
    text: str


class AskLock(NamedTuple):
    """To the worker: read the lock, and say which epoch it gave last."""


class Stop(NamedTuple):
    """To the worker: stop in order."""


class RoleIs(NamedTuple):
    """To the supervisor: the worker's role."""

    role: str
    epoch: int
    reason: str
    lsn: int


class AddressesAre(NamedTuple):
    """To the supervisor: where the worker listens."""

    client: str
    replication: str


class LockIs(NamedTuple):
    """To the supervisor: the epoch that the lock gave last, and the replica that holds it (empty: nobody)."""

    epoch: int
    holder: str


class Stopping(NamedTuple):
    """To the supervisor: the worker ends; code empty for an orderly end."""

    code: str
    text: str
    successor: str = ""  # replica that a primary has handed over to


ToWorker = TakeOver | PrimaryIs | Deaths | Diverged | AskLock | Stop
ToSupervisor = RoleIs | AddressesAre | LockIs | Stopping
