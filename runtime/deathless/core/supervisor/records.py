"""What a supervisor and its worker tell each other.

Guarantees: plain records, whatever carries them (a socket pair as JSON lines, or the simulation). Does not: carry data
of the service.
"""

from __future__ import annotations

import msgspec


class TakeOver(msgspec.Struct, tag="take-over", frozen=True):
    """To the worker: the primary of `epoch` is gone; others have applied `confirmed_lsn`."""

    epoch: int
    reason: str
    confirmed_lsn: int = 0


class PrimaryIs(msgspec.Struct, tag="primary-is", frozen=True):
    """To the worker: who is primary, and whether its proof gets no answer from the lock store."""

    epoch: int
    replica: str
    client: str
    replication: str
    unproved: bool = False


class Deaths(msgspec.Struct, tag="deaths", frozen=True):
    """To the worker: deaths counted in one message (I11)."""

    session: int
    seq: int
    deaths: int


class Diverged(msgspec.Struct, tag="diverged", frozen=True):
    """To the worker: another replica computed something else than was logged (I6)."""

    replica: str
    text: str


class AskLock(msgspec.Struct, tag="ask-lock", frozen=True):
    """To the worker: read the lock, and say which epoch it gave last."""


class Stop(msgspec.Struct, tag="stop", frozen=True):
    """To the worker: stop in order; `at_once`: a primary does not wait for activities that must run at most once."""

    at_once: bool = False


class RoleIs(msgspec.Struct, tag="role-is", frozen=True):
    """To the supervisor: the worker's role."""

    role: str
    epoch: int
    reason: str
    lsn: int


class AddressesAre(msgspec.Struct, tag="addresses-are", frozen=True):
    """To the supervisor: where the worker is reached, and the fingerprint of its code (hexadecimal)."""

    client: str
    replication: str
    fingerprint: str = ""


class LockIs(msgspec.Struct, tag="lock-is", frozen=True):
    """To the supervisor: the epoch that the lock gave last, and the replica that holds it (empty: nobody)."""

    epoch: int
    holder: str


class Stopping(msgspec.Struct, tag="stopping", frozen=True):
    """To the supervisor: the worker ends; code empty for an orderly end."""

    code: str
    text: str
    successor: str = ""  # replica that a primary has handed over to


ToWorker = TakeOver | PrimaryIs | Deaths | Diverged | AskLock | Stop
ToSupervisor = RoleIs | AddressesAre | LockIs | Stopping
