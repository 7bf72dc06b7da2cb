"""What a witness of confirmed positions means to a log: what it must pass through, and what is said if it does not.

Why it exists: storage that is rolled back (a snapshot, a backup, half a copy) and damage at the end of the log leave a
log that is whole and too short. Served, it would lose acknowledged calls without a word. So the primary writes down
what is confirmed in places outside the log (docs/design/0013-witness.md), and whoever starts or takes over compares.

    a point names                                          the log
    another service                                        is not concerned: the place was used by somebody else
    an incarnation that was given up (`former`)            is not concerned: a person said so, by `deathless adopt`
    another incarnation of this service                    is older than a restore that it never heard of: refused
    an lsn above the log's end                             was rolled back, or lost its end: refused
    an lsn whose chain hash is another in the log          is another history: refused
    an lsn below the oldest frame that still stands        can't be compared: no refusal, and status says so
    an lsn with its chain hash in the log                  passes through it

Each point is compared by itself. The highest alone would not do: a log that was rolled back and has regrown past an
older point carries a newer one of its own.

Guarantees: nothing is refused that no restore or damage explains; points name only what was confirmed. Does not: read,
write, or decide where points stand. Imports codec and base.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from deathless.base.errors import LogTruncated
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.codec.witness import Point

YEAR_9999_S: Final = 253_402_300_799
RESTORED_REMEDY: Final = (
    "bring the newer files back; if they are lost, `deathless adopt --restored` goes on from this log and says what is "
    "gone"
)


class Sighting(NamedTuple):
    """A point, and where it was found."""

    point: Point
    where: str


class Owner(NamedTuple):
    """Whose log it is."""

    service_id: bytes
    incarnation: int
    former: frozenset[int] = frozenset()  # incarnations that a person gave up


def concerns(point: Point, owner: Owner, safeguards: Safeguards = ALL_SAFEGUARDS) -> bool:
    """Must the log of `owner` pass through this point, or be refused for it?"""
    if point.service_id != owner.service_id:
        return False
    if point.incarnation == owner.incarnation:
        return True
    return point.incarnation not in owner.former and safeguards.witness_of_unknown_incarnation


def check_incarnation(seen: Sighting, owner: Owner) -> None:
    """Refuse a log that is older than a restore it never heard of.

    Raises: LogTruncated.
    """
    point = seen.point
    if point.incarnation != owner.incarnation:
        raise LogTruncated(
            f"this directory is of incarnation {owner.incarnation:x}, but lsn {point.lsn} of incarnation "
            f"{point.incarnation:x} was confirmed {_when(point)} ({seen.where}): it is older than a restore of this "
            "service",
            remedy=RESTORED_REMEDY,
        )


def check_point(
    seen: Sighting,
    owner: Owner,
    *,
    end_lsn: int,
    epoch: int,
    chain_at: Callable[[int], bytes | None],
    safeguards: Safeguards = ALL_SAFEGUARDS,
) -> bool:
    """Compare one point with a log that was read to its end.

    Args:
        seen: the point.
        owner: whose log it is.
        end_lsn: lsn of the last message in the log.
        epoch: of the last frame, for the message alone.
        chain_at: gives the chain hash behind the message of an lsn; None: that part of the log was collected. An lsn
            within a frame has none and gives b"".
        safeguards: all on, but in tests.

    Returns: False: the point could not be compared.
    Raises: LogTruncated when the log does not pass through the point.
    """
    point = seen.point
    if not safeguards.witness_checked or not concerns(point, owner, safeguards):
        return True
    check_incarnation(seen, owner)
    if point.lsn > end_lsn:
        raise LogTruncated(
            f"the log ends at lsn {end_lsn} (epoch {epoch}), but lsn {point.lsn} was confirmed {_when(point)} "
            f"({seen.where})",
            remedy=RESTORED_REMEDY,
        )
    if point.lsn == 0 or not safeguards.witness_chain:
        return True
    chain = chain_at(point.lsn)
    if chain is None:
        return False
    if chain != point.chain:
        raise LogTruncated(
            f"lsn {point.lsn} has another history in this log than the one that was confirmed {_when(point)} "
            f"({seen.where})",
            remedy=RESTORED_REMEDY,
        )
    return True


def check_epoch(
    seen: Sequence[Sighting], owner: Owner, epoch: int | None, safeguards: Safeguards = ALL_SAFEGUARDS
) -> None:
    """Refuse a lock that never gave the epoch a point was confirmed in: it was rolled back with its directory.

    Args:
        seen: all points that are known before the lock is taken.
        owner: whose log it is.
        epoch: the last that the lock gave; None: the lock stands apart from the log, which tells itself if it is older.
        safeguards: all on, but in tests.

    Raises: LogTruncated. Nothing was taken or written yet.
    """
    if not safeguards.witness_checked:
        return
    for each in seen:
        if not concerns(each.point, owner, safeguards):
            continue
        check_incarnation(each, owner)
        if epoch is not None and each.point.epoch > epoch:
            raise LogTruncated(
                f"the lock gave epoch {epoch} last, but lsn {each.point.lsn} was confirmed in epoch {each.point.epoch} "
                f"{_when(each.point)} ({each.where})",
                remedy=RESTORED_REMEDY,
            )


def another_point(standing: Point | None) -> LogTruncated:
    """Give the error of a primary that finds a point in the lock store which it neither wrote nor read at its take.

    Nobody else may write there while it holds the lock: its own memory and log were put back to an older moment, as
    with a snapshot of a running machine.
    """
    found = "nothing" if standing is None else f"lsn {standing.lsn}, confirmed {_when(standing)},"
    return LogTruncated(
        f"the lock store says {found} where this primary wrote something else: this replica was put back to an older "
        "moment while it ran",
        remedy=RESTORED_REMEDY,
    )


def exact_end(seen: Sequence[Sighting], owner: Owner, head: int, boot: int) -> int | None:
    """Give the last confirmed lsn where a point tells it to the message; None: more may have been confirmed.

    A point is exact when it was written with an orderly stop, or stands in a page of this boot, which a primary writes
    before replies leave; and nobody has led after it (`head` is the last epoch that may have).
    """
    exact = [
        each.point.lsn
        for each in seen
        if concerns(each.point, owner)
        and each.point.epoch == head
        and (each.point.final or (boot != 0 and each.point.boot == boot))
    ]
    return max(exact, default=None)


class Trail:
    """Chain hashes behind the frames that a replica applied last, so that a takeover need not read them again.

    Args:
        frames_max: so many are kept; the oldest goes first.
    """

    def __init__(self, frames_max: int) -> None:
        self._chains: dict[int, bytes] = {}
        self._frames_max = frames_max

    def note(self, lsn: int, chain: bytes) -> None:
        """The state passed through this place."""
        chains = self._chains
        chains[lsn] = chain
        if len(chains) > self._frames_max:
            del chains[next(iter(chains))]

    def chain_at(self, lsn: int) -> bytes | None:
        """Give the chain hash there; None: not known here."""
        return self._chains.get(lsn)

    def clear(self) -> None:
        """Forget all: the state was replaced by another."""
        self._chains.clear()


class WitnessPace:
    """When a primary writes the lock store's point: after so long, and only if something was confirmed since.

    Args:
        interval_s: between two writes, seconds.
    """

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self._next = 0.0
        self._written_lsn = -1
        self.writing = False
        self.behind_since: float | None = None  # since when a write is owed or has had no answer

    def due(self, lsn: int, now: float) -> bool:
        """Is a write due?"""
        if lsn == self._written_lsn:
            self.behind_since = None
            return False
        if self.behind_since is None:
            self.behind_since = now
        return not self.writing and now >= self._next

    def began(self, now: float) -> None:
        """A write is on its way."""
        self.writing = True
        self._next = now + self.interval_s

    def written(self, lsn: int, now: float) -> None:
        """The point at `lsn` stands."""
        self.writing = False
        self._written_lsn = lsn
        self.behind_since = now  # what was confirmed meanwhile; `due` clears it where that is nothing


def _when(point: Point) -> str:
    seconds = min(point.at_us / 1e6, YEAR_9999_S)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if seconds else ""
    return " ".join(part for part in (text, f"by {point.by}" if point.by else "") if part) or "before"
