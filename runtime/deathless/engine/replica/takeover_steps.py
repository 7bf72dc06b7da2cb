"""Carries out the steps of a takeover (core.replica.takeover says in which order), and lets go of the lock.

    ReadLock -> TakeLock -> LinkSeals -> ReadTail -> [Migrate ->] WriteCut -> SetHead -> ... -> ApplyCopies

What a step found out and a later one needs stands here: the lock as it was seen, the holder that we became, the tail.

Guarantees: the log is read under the lock, through fresh descriptors; a log that looks broken is believed only
while the lock is ours. Does not: decide what follows. May import core, codec and base.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from deathless.base.errors import (
    CorruptFrame,
    DeathlessError,
    Deposed,
    ForeignDirectory,
    Internal,
    LogTruncated,
    StoreOlderThanLog,
)
from deathless.base.lock_stores import STORE
from deathless.base.safeguards import Safeguards
from deathless.base.storage import Use, waits
from deathless.codec.frames import Cut, Frame
from deathless.codec.witness import Point
from deathless.core import effects as fx
from deathless.core import events as ev
from deathless.core.replica.replica import UPGRADER, ShardPlace, State
from deathless.core.tables.logical_time import gap_us
from deathless.engine.ports import Holder, LockView, Tail
from deathless.engine.replica.failures import as_ours
from deathless.engine.replica.met_times import MetTimes
from deathless.engine.replica.upgrade_steps import Upgrade, UpgradeSteps
from deathless.execution.ready import Ready

if TYPE_CHECKING:
    from deathless.engine.replica.replica_engine import ReplicaEngine

READ_AGAIN_S: Final = 0.1  # between two readings of a log's end that found bytes changed


class TakeoverSteps:
    """One replica's; each of its attempts.

    Args:
        engine: whose loop takes the answers, and which stops where a step fails.
        met: times that this process met.
        safeguards: all on, but in tests.
        upgrade: that this replica is here to make; None: none.
    """

    def __init__(
        self, engine: ReplicaEngine, met: MetTimes, safeguards: Safeguards, upgrade: Upgrade | None = None
    ) -> None:
        self.holder: Holder | None = None  # what we are in the lock; None: we never took it
        self.releasing = False  # the lock is being let go of in order
        self._engine = engine
        self._log = engine.log
        self._service = engine.service
        self._outside = engine.outside
        self._applying = engine.applying
        self._witness = engine.witness
        self._met = met
        self._safeguards = safeguards
        self._view: LockView | None = None
        self._tail: Tail | None = None
        self._corrupt = ""  # what the last reading of the log's end found changed
        self._upgrade = None if upgrade is None else UpgradeSteps(engine, upgrade, self._goes_behind, safeguards)

    @property
    def _place(self) -> ShardPlace:
        return self._engine.place

    def perform(self, effect: fx.Effect) -> None:
        """Do one step, or begin it."""
        complete = self._outside.process.complete
        match effect:
            case fx.ReadLock():
                self._outside.lock.ask(lambda lock: lock.view(), self._lock_seen)
            case fx.TakeLock():
                self._take_lock()
            case fx.LinkSeals(first, last):
                self._log.link_seals(first, last)
                complete(ev.SealsLinked())
            case fx.ReadTail(head, confirmed_lsn):
                try:
                    complete(self._read_tail(head, confirmed_lsn))
                except (StoreOlderThanLog, LogTruncated) as error:
                    self._doubt_tail(error)
                except CorruptFrame as error:
                    self._read_again(effect, error)
            case fx.Migrate(epoch):
                if self._upgrade is None:
                    raise Internal("only who was started for an upgrade makes one")
                self._upgrade.migrate(epoch)
            case fx.WriteCut(epoch):
                self._write_cut(epoch)
                complete(ev.CutWritten())
            case fx.SetHead():
                holder = self.holder
                assert holder is not None
                point = self._witness.point(holder.epoch, *self._copies_end())
                self._outside.lock.ask(
                    lambda lock: lock.set_head(holder, point), lambda revision: complete(ev.HeadSet(revision))
                )
            case fx.RemoveUnread():
                remove(self._log.remove_unread)
            case fx.ApplyCopies():
                self._apply_copies()
            case fx.StoreConfirmed(lsn):
                leading = self.holder
                assert leading is not None
                self._witness.store(leading, lambda: complete(ev.ConfirmedStored(lsn)))
            case fx.ReleaseLock():
                released = self.holder
                if released is not None:
                    self._release(released)
            case _:
                raise Internal(f"{effect} is not a step of the takeover")

    def _release(self, holder: Holder) -> None:
        """Let go of the lock in order; with it the witness says that nothing was confirmed after this."""
        self.releasing = True
        last = self._witness.last(holder.epoch)

        def done(_: object) -> None:
            self.releasing = False

        self._outside.lock.ask(lambda lock: lock.release(holder, last), done)

    def hand_over(self) -> None:
        """Say in the witness that nothing was confirmed after it; that all of it was, the store knows by now.

        It is not waited for: once the successor has taken the lock, the store refuses it.
        """
        holder = self.holder
        assert holder is not None
        point = self._witness.last(holder.epoch)
        if point is None or self._service.fence != STORE:
            return
        self.releasing = True

        def done(_: object) -> None:
            self.releasing = False

        self._outside.lock.ask(lambda lock: lock.witness(holder, point), done)

    def _lock_seen(self, view: LockView) -> None:
        self._view = view
        if view.store_id != self._engine.store_id:
            self._engine.fail(
                ForeignDirectory(f"the lock store is {view.store_id!r}, this log belongs to {self._engine.store_id!r}")
            )
            return
        if not self._is_of_our_generation(view):
            return
        epoch, replica = (view.holder.epoch, view.holder.replica) if view.holder is not None else (0, "")
        live = view.service is not None and view.service.live
        state = ev.LockState(view.epoch, view.head, epoch, replica, view.revision, live)
        self._outside.process.complete(ev.LockSeen(state))

    def _is_of_our_generation(self, view: LockView) -> bool:
        try:
            self._applying.check_head(view)
        except Exception as error:  # noqa: BLE001 as where an effect is carried out: it stops the replica (I8)
            self._engine.fail(as_ours(error, "reading head's cut"))
            return False
        return True

    def make_ready(self, ready: Ready) -> Iterator[None]:
        """See UpgradeSteps; only of an upgrader."""
        assert self._upgrade is not None
        return self._upgrade.make_ready(ready)

    @property
    def is_ready(self) -> bool:
        """See UpgradeSteps."""
        return self._upgrade is not None and self._upgrade.is_ready

    def look_for_upgrade(self) -> None:
        """Of an upgrader: end where this upgrade, or another one, was made: who made it may not live to say so."""

        def seen(view: LockView) -> None:
            if self._engine.core.role == UPGRADER and view.store_id == self._engine.store_id:
                self._is_of_our_generation(view)

        if self._engine.core.role == UPGRADER:
            self._outside.lock.ask(lambda lock: lock.view(), seen)

    def _take_lock(self) -> None:
        view = self._view
        assert view is not None

        def done(holder: Holder | None) -> None:
            self.holder = holder
            if holder is None:
                self._outside.process.complete(ev.LockRefused())
            elif self._service.fence == STORE:
                self._outside.lock.ask(lambda lock: lock.confirmed(holder), partial(taken, holder))
            else:
                taken(holder, None)

        def taken(holder: Holder, stored: Point | None) -> None:
            self._witness.stored = stored
            self._outside.process.complete(ev.LockTaken(holder.epoch, view.head))

        self._outside.lock.take(self._engine.core.replica, self._outside.process.nonce(), view, done)

    def _read_tail(self, head: int, confirmed_lsn: int) -> ev.Event:
        """Everything confirmed is applied first, in stretches; what is left are the copies."""
        place = self._place
        view = self._view
        assert view is not None
        cut = self._log.check_store(head, view.epoch, view.revision)
        if cut is None:
            self._applying.begin_log()
        self._applying.check_code(cut)
        read = head == 0
        while not read:
            read = self._applying.read_stretch(head)
        seen = self._witness.sightings()
        ends_at = self._witness.ends_at(seen, head)
        tail = self._log.read_tail(head, place.lsn, place.chain, confirmed_lsn, ends_at=ends_at)
        frames = [frame for frame, _ in [*tail.confirmed, *tail.unconfirmed]]
        self._witness.check_tail(
            seen, head, frames[-1].last_lsn if frames else place.lsn, self._applying.log_epoch, frames
        )
        self._witness.passed_over = tail.passed_over
        self._applying.apply(tail.confirmed)
        self._tail = tail
        last = tail.unconfirmed[-1][0].last_lsn if tail.unconfirmed else place.lsn
        return ev.TailRead(ev.TailSummary(tail.position, place.lsn, last, len(tail.unconfirmed)))

    def _read_again(self, effect: fx.ReadTail, error: CorruptFrame) -> None:
        """Believe that bytes changed once two readings, some time apart, say the same: a cache may still be filling."""
        if self._corrupt == error.message:
            self._doubt_tail(error)
            return
        self._corrupt = error.message

        def again() -> None:
            if self._engine.core.state is State.TAKING_OVER and not self._engine.stopped:
                self._engine.repeat(effect)

        self._outside.process.pause(READ_AGAIN_S, again)

    def _goes_behind(self, frame: Frame) -> None:
        """Have a frame of ours written as the copies are: with the cut, and confirmed with it."""
        tail = self._tail
        assert tail is not None
        self._tail = Tail(tail.confirmed, [(frame, b"")], tail.position)

    @property
    def log_end(self) -> int:
        """Lsn of the last message in our segment; during a takeover the copies are not applied yet."""
        return self._copies_end()[0]

    def _copies_end(self) -> tuple[int, bytes]:
        """(lsn, chain) behind the copies, which are confirmed once head is set."""
        tail = self._tail
        if tail is not None and tail.unconfirmed:
            last = tail.unconfirmed[-1][0]
            return last.last_lsn, last.chain
        return self._place.lsn, self._place.chain

    def _doubt_tail(self, error: DeathlessError) -> None:
        """A successor that opened, or collected, since we took the lock leaves a log that looks broken to us."""
        holder = self.holder
        assert holder is not None
        deposed = Deposed(f"epoch {holder.epoch}: a successor was faster than our look at the log")
        self._outside.lock.ask(
            lambda lock: lock.owns(holder), lambda owned: self._engine.fail(error if owned else deposed)
        )

    def _write_cut(self, epoch: int) -> None:
        tail = self._tail
        assert tail is not None
        service, place = self._service, self._place
        cut = Cut(
            tail.position,
            service.name,
            service.service_id,
            service.incarnation,
            service.fence,
            self._engine.store_id,
            self._engine.fingerprint,
            self._engine.core.replica,
            len(tail.unconfirmed),
            *place.generation,
        )
        self._log.write_cut(epoch, cut.encode(), tail, incarnation=service.incarnation)

    def _apply_copies(self) -> None:
        tail = self._tail
        assert tail is not None
        self._tail = None
        self._applying.apply([pair for pair in tail.unconfirmed if pair[0].last_lsn > self._place.lsn])
        holder = self.holder
        assert holder is not None

        def applied() -> ev.Event:
            outside = self._outside
            gap = gap_us(
                self._place.times,
                self._met.anchor,
                boot_us=outside.clock.boot_us(),
                wall_us=outside.clock.wall_us(),
                safeguards=self._safeguards,
            )
            return ev.CopiesApplied(self._place.lsn, gap)

        def live(owned: bool) -> None:
            if owned:
                self._outside.process.complete(applied())
            else:
                self._outside.process.complete(
                    ev.Failed(Deposed("a successor was faster before the service went live"))
                )

        if self._view is not None and self._view.service is not None and self._view.service.live:
            self._outside.process.complete(applied())
        else:
            self._outside.lock.ask(lambda lock: lock.go_live(holder), live)


def remove(remove: Callable[[], object]) -> None:
    """Remove files; where the volume is read-only just now they stay until the next time."""
    try:
        remove()
    except OSError as error:
        if not waits(error, Use.CHECKPOINT):
            raise
