"""Keeps a replica's witness of what is confirmed: writes it while we lead, compares the log with it before we do.

Why it exists: `core.replica.witness` says what a point means; this joins it with the log, the lock and the world
outside.

    while following     remembers the chain hashes of the frames applied last
    at recovery         compares the points at or below what was applied
    at a takeover       compares every point once the log was read to its end, under the lock
    as primary          writes each confirmed place down before replies leave (a page in memory: no sync, no call of the
                        lock), and in the lock store at most each `interval_s` while it moved
                            and before a successor is told

Guarantees: nothing is served from a log that does not pass through each point. Does not: touch files or sockets; a
frame gains neither a sync nor a call of the lock. May import core, codec and base.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from deathless.base.lock_stores import STORE
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.codec.frames import Frame
from deathless.codec.witness import Point
from deathless.core.replica.witness import Owner, Sighting, Trail, WitnessPace, check_point, exact_end
from deathless.engine.ports import Holder, LogStore, ServiceRecord
from deathless.engine.replica.outside import Outside

TRAIL_FRAMES: Final = 16_384  # chain hashes kept; more than a primary confirms between two points in the lock store
BEHIND_S: Final = 10.0  # a write that is owed for longer than this, and the interval, is told


class WitnessKeeper:
    """One replica's part in the witness.

    Args:
        log: the shard's log.
        outside: where points are written and found.
        service: whose log it is, with the incarnation that counts now.
        former: incarnations that a person gave up.
        replica: our name.
        interval_s: between two points in the lock store, seconds.
        safeguards: all on, but in tests.
    """

    def __init__(
        self,
        *,
        log: LogStore,
        outside: Outside,
        service: ServiceRecord,
        former: frozenset[int],
        replica: str,
        interval_s: float,
        safeguards: Safeguards = ALL_SAFEGUARDS,
    ) -> None:
        self.owner = Owner(service.service_id, service.incarnation, former)
        self.stored: Point | None = None  # what the lock store had when we took the lock
        self.passed_over = ""  # a damaged frame behind the log's end that nobody can have been told of
        self.not_comparable: list[str] = []  # points below the oldest frame that still stands
        self.missing = False  # the lock store's point was gone during our reign and was put back
        self._log = log
        self._outside = outside
        self._replica = replica
        self._in_store = service.fence == STORE
        self._safeguards = safeguards
        self._trail = Trail(TRAIL_FRAMES)
        self._pace = WitnessPace(interval_s)
        self._passed: set[Point] = set()  # points that our state was seen to pass through
        self._place: tuple[int, bytes] | None = None  # what was noted last as primary

    # ---- following -------------------------------------------------------------------------------------------

    def applied(self, frame: Frame) -> None:
        """A confirmed frame was applied."""
        self._trail.note(frame.last_lsn, frame.chain)

    def restored(self, lsn: int, chain: bytes) -> None:
        """The state was replaced by a checkpoint's."""
        self._trail.clear()
        self._passed.clear()
        self._trail.note(lsn, chain)

    # ---- comparing -------------------------------------------------------------------------------------------

    def sightings(self) -> list[Sighting]:
        """Find every point there is: in memory, in files, and what the lock store had when the lock was taken."""
        found = list(self._outside.witness.sightings())
        if self.stored is not None:
            found.append(Sighting(self.stored, "lock store"))
        return found

    def ends_at(self, seen: Sequence[Sighting], head: int) -> int | None:
        """Give the last confirmed lsn, where a point tells it to the message."""
        return exact_end(seen, self.owner, head, self._outside.witness.boot())

    def check_recovered(self, head: int, lsn: int, epoch: int) -> None:
        """Compare the points at or below what was applied.

        Raises: LogTruncated; what reading the log raises.
        """
        below = [each for each in self.sightings() if each.point.lsn <= lsn]
        self._check(below, head, lsn, epoch, ())

    def check_tail(self, seen: Sequence[Sighting], head: int, lsn: int, epoch: int, tail: Sequence[Frame]) -> None:
        """Compare every point with a log whose last message is `lsn`; `tail` are frames read and not applied yet.

        Raises: as `check_recovered`.
        """
        self._check(seen, head, lsn, epoch, tail)

    def _check(self, seen: Sequence[Sighting], head: int, lsn: int, epoch: int, tail: Sequence[Frame]) -> None:
        unapplied: dict[int, bytes] = {frame.last_lsn: frame.chain for frame in tail}

        def chain_at(lsn: int) -> bytes | None:
            return unapplied.get(lsn) or self._trail.chain_at(lsn) or self._log.chain_at(head, lsn)

        self.not_comparable.clear()
        for each in seen:
            if each.point in self._passed:
                continue
            if check_point(each, self.owner, end_lsn=lsn, epoch=epoch, chain_at=chain_at, safeguards=self._safeguards):
                self._passed.add(each.point)
            else:
                self.not_comparable.append(f"lsn {each.point.lsn} ({each.where})")

    # ---- leading ---------------------------------------------------------------------------------------------

    def point(self, epoch: int, lsn: int, chain: bytes, *, final: bool = False) -> Point:
        """Give the point of a place that we confirmed."""
        owner = self.owner
        at_us = self._outside.clock.wall_us()
        return Point(owner.service_id, owner.incarnation, epoch, lsn, chain, at_us, self._replica, final)

    def note(self, epoch: int, lsn: int, chain: bytes) -> None:
        """Write a confirmed place down; replies that show it leave after this."""
        first = self._place is None
        self._place = (lsn, chain)
        self._outside.witness.note_confirmed(self.point(epoch, lsn, chain), first=first)

    def last(self, epoch: int) -> Point | None:
        """Write down that we stop in order, and give the point for the lock store; None: we confirmed nothing."""
        if self._place is None or not self._safeguards.witness_at_stop:
            return None
        point = self.point(epoch, *self._place, final=True)
        self._outside.witness.note_confirmed(point, first=False)
        return point

    def maybe_store(self, holder: Holder | None) -> None:
        """Write the point of the lock store, if one is due. Called now and then while we lead; waits for nothing."""
        if self._place is None or holder is None or not self._in_store:
            return
        lsn, chain = self._place
        now = self._outside.clock.now()
        if not self._pace.due(lsn, now):
            return
        self._pace.began(now)
        point = self.point(holder.epoch, lsn, chain)

        def written(fresh: bool | None) -> None:
            self.missing = self.missing or fresh is True
            self._pace.written(lsn, self._outside.clock.now())

        self._outside.lock.ask(lambda lock: lock.witness(holder, point), written)

    def store(self, holder: Holder, done: Callable[[], None]) -> None:
        """Write the point of the lock store now; `done` once it stands there, or where none is to be written."""
        if self._place is None or not self._in_store:
            done()
            return
        point = self.point(holder.epoch, *self._place)
        self._outside.lock.ask(lambda lock: lock.witness(holder, point), lambda _: done())

    def set_interval(self, interval_s: float) -> None:
        """Have so many seconds between two points in the lock store from now on."""
        self._pace.interval_s = interval_s

    @property
    def behind_s(self) -> float:
        """For how long a point of the lock store has been owed, seconds; 0: none is."""
        since = self._pace.behind_since
        return 0.0 if since is None or not self._in_store else max(0.0, self._outside.clock.now() - since)

    def status(self) -> dict[str, object]:
        """What operators are told."""
        behind = self.behind_s > BEHIND_S + self._pace.interval_s
        return {
            "behind": behind,
            "missing": self.missing,
            "passedOver": self.passed_over,
            "notComparable": list(self.not_comparable),
        }
