"""Carries a replica's effects out in order, over the ports; decides nothing.

    event -> core.replica -> effects -> (log, lock, shard, outside) -> events -> ...

One queue, one loop: the effects of an event are carried out before the next event is taken, so the order written in
`core.effects` is the order of the world. Only a frame waits until no event does: to run and sync it takes long, and
what the proof of the frame before it releases shall not wait for that. Completions go through `Outside.complete`: the
real world appends them at once, the simulation delays, drops or freezes them.

Guarantees: an error of the file system, a corrupt log or a broken invariant stops the replica (I8); nothing is retried
on the same descriptor. Space is reserved before messages run (I6). Does not: sockets, processes, clocks of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import assert_never

import msgspec

from deathless.base.errors import (
    CorruptFrame,
    DeathlessError,
    Deposed,
    ForeignDirectory,
    Internal,
    LockUnavailable,
    LogTruncated,
    OutOfSpace,
    StoreOlderThanLog,
    UpgradeRequired,
)
from deathless.base.limits import Limits
from deathless.base.lock_stores import SEAL, STORE
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.base.storage import Use, waits
from deathless.codec.frames import Cut, Frame, FrameKind, data_bytes, decode_frame, padded
from deathless.codec.snapshot import Snapshot
from deathless.codec.wire import FRAME_HEAD
from deathless.codec.witness import Point
from deathless.core import effects as fx
from deathless.core import events as ev
from deathless.core.primary.messaging import Tables
from deathless.core.primary.suspicion import Runs, set_aside
from deathless.core.replica.replica import Replica, ShardPlace, State
from deathless.core.tables.logical_time import Anchor, gap_us
from deathless.engine.ports import AsyncLock, Holder, Lock, LockView, LogStore, ServiceRecord, Tail
from deathless.engine.replica.failures import as_ours
from deathless.engine.replica.outside import Outside
from deathless.engine.replica.witness_keeper import WitnessKeeper
from deathless.engine.shard.shard import Shard
from deathless.execution.turn.running import Running

READ_BYTES = 32 << 20  # of log applied between two looks at the rest of the world
READ_AGAIN_S = 0.1  # between two readings of a log's end that found bytes changed
ANCHOR_US = 100_000  # between two anchors
SLEPT_MIN_US = 100_000  # less than this between two clocks that are read one after the other is no sleep


class ReplicaEngine:
    """One replica of one shard.

    Args:
        core: the machine; shares `shard.place` and `shard.sessions`, and gets the shard's other tables here.
        log: the shard's segments, opened for this service's identity.
        service: what the lock store says of the service; its fence is "seal" (a look for the successor's seal in the
            directory) or "etcd" (one linearizable read of the lock).
        store_id: the lock store this log belongs to.
        adopted: (fingerprint of other code, lsn) pairs from which an operator lets this code go on.
        former: incarnations of this service that an operator gave up.
        witness_s: seconds between two points of the witness in the lock store; None: as the limits say.
        what_differs: says how the code with a fingerprint differs from ours; empty: nobody knows.
    """

    def __init__(  # noqa: PLR0913 - one argument per part of the world that an engine joins
        self,
        *,
        core: Replica,
        shard: Shard,
        log: LogStore,
        service: ServiceRecord,
        store_id: str,
        fingerprint: bytes,
        outside: Outside,
        limits: Limits,
        adopted: frozenset[tuple[bytes, int]] = frozenset(),
        former: frozenset[int] = frozenset(),
        witness_s: float | None = None,
        what_differs: Callable[[bytes], str] = lambda _: "",
        safeguards: Safeguards = ALL_SAFEGUARDS,
    ) -> None:
        self._adopted = adopted
        self._what_differs = what_differs
        self.core = core
        self.shard = shard
        core.tables = Tables(
            outbox=shard.outbox,
            peers=shard.peers,
            results=shard.results,
            undelivered=shard.undelivered,
            unknown=shard.unknown,
            activities=shard.executor.activities,
            crowd=shard.executor.crowd,
            holds=shard.executor.holds,
            retried=shard.take_retried,
            due=lambda: shard.place.due,
            keys_floor_us=lambda: shard.keys.floor_us,
        )
        self.log = log
        self.service = service
        self.store_id = store_id
        self.fingerprint = fingerprint
        self.outside = outside
        self.witness = WitnessKeeper(
            log=log,
            outside=outside,
            service=service,
            former=former,
            replica=core.replica,
            interval_s=limits.witness_s if witness_s is None else witness_s,
            safeguards=safeguards,
        )
        self.holder: Holder | None = None
        self.log_epoch = 0  # epoch of the last frame applied
        self.proved_at: float | None = None  # when the last proof said that the lock is ours; None: none did yet
        self.unproved_since: float | None = None  # when the lock was asked for the proof under way; None: there is none
        self.releasing = False  # the lock is being let go of in order
        self._view: LockView | None = None
        self._tail: Tail | None = None
        self._corrupt = ""  # what the last reading of the log's end found changed
        self._limits = limits
        self._safeguards = safeguards
        self._queue: deque[ev.Event] = deque()
        self._frame: fx.RunFrame | None = None  # to be run once the queue is empty; the core forms one at a time
        self._busy = False
        self._stopped = False
        self._anchor = outside.clock.anchor()  # of the last TIME record that this replica met
        now = outside.clock.now()  # first, and there the other way round: for the same reason
        self._boot_ahead_us = outside.clock.boot_us() - now * 1e6  # what the boot's clock shows beyond the steady one

    # ---- the loop --------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start: recover and follow."""
        self._carry_out(self.core.begin())
        self._drain()

    def post(self, event: ev.Event) -> None:
        """Take an event in and carry everything out that follows from it."""
        self._queue.append(event)
        self._drain()

    def deadline(self) -> float | None:
        """When `TimerFired` is due, seconds of the monotonic clock."""
        return self.core.deadline()

    @property
    def place(self) -> ShardPlace:
        """Where the shard stands."""
        return self.shard.place

    def _drain(self) -> None:
        if self._busy:
            return
        self._busy = True
        try:
            while not self._stopped:
                if self._queue:
                    self._take(self._queue.popleft())
                elif self._frame is not None:
                    frame, self._frame = self._frame, None
                    self._run(frame)
                else:
                    break
        finally:
            self._busy = False

    def _take(self, event: ev.Event) -> None:
        try:
            # The steady clock, by which the core's timers go, stood still while the machine slept. That is told before
            # each event: a timer that is asked for before its sleep is noticed would fire early by it.
            outside = self.outside
            boot_us = outside.clock.boot_us()  # first: what passes between the two readings is then no sleep
            now, wall_us = outside.clock.now(), outside.clock.wall_us()
            ahead_us = boot_us - now * 1e6
            if ahead_us - self._boot_ahead_us >= SLEPT_MIN_US:
                slept = ev.MachineSlept(round(ahead_us - self._boot_ahead_us))
                self._boot_ahead_us = ahead_us
                effects = self.core.handle(slept, now, wall_us)
                effects += self.core.handle(event, now, wall_us)
            else:
                effects = self.core.handle(event, now, wall_us)
        except Exception as error:  # noqa: BLE001 a broken invariant stops the replica, whatever it raises (I8)
            self._fail(as_ours(error, type(event).__name__))
            return
        self._carry_out(effects)

    def _carry_out(self, effects: Sequence[fx.Effect]) -> None:
        for effect in effects:
            try:
                if type(effect) is fx.Send:  # one for each client of a frame
                    self.outside.clients.send(effect.conn, effect.data)
                else:
                    self._perform(effect)
            except Exception as error:  # noqa: BLE001 as above: no retry, no log-and-continue
                self._fail(as_ours(error, type(effect).__name__))
                return

    def _run(self, frame: fx.RunFrame) -> None:
        try:
            self.outside.process.complete(self._run_frame(frame))
        except Exception as error:  # noqa: BLE001  as above
            self._fail(as_ours(error, type(frame).__name__))

    def _fail(self, error: DeathlessError) -> None:
        """I8: any sync error, corrupt log or broken invariant stops the replica."""
        if self._stopped:
            return
        self._queue.clear()
        self._frame = None
        self._carry_out(self.core.handle(ev.Failed(error), self.outside.clock.now(), self.outside.clock.wall_us()))

    def _perform(self, effect: fx.Effect) -> None:
        complete = self.outside.process.complete
        match effect:
            case fx.Send(conn, data):
                self.outside.clients.send(conn, data)
            case fx.RunFrame():
                assert self._frame is None
                self._frame = effect
            case fx.Prove(number):
                self._prove(number)
            case fx.NoteConfirmed(lsn, chain):
                holder = self.holder
                assert holder is not None
                self.witness.note(holder.epoch, lsn, chain)
            case fx.RunQueries(conn, ids, messages, stale):
                place = self.place
                answers = [self.shard.executor.query(message, place.time_us) for message in messages]
                complete(ev.QueriesAnswered(conn, ids, answers, place.lsn, stale))
            case fx.WriteControl(kind, payload, confirmed_lsn):
                complete(self._write_control(kind, payload, confirmed_lsn))
            case fx.ProbeSpace():
                room = self.log.reserve(padded(self._limits.frame_bytes_max))
                complete(ev.SpaceFound() if room else ev.SpaceRefused(()))
            case fx.ExportSpans(spans):
                self.outside.watchers.export_spans(spans)
            case fx.ReportUnknown(records):
                self.outside.watchers.report_unknown(records)
            case fx.DialPeer() | fx.SendPeer() | fx.DropPeer() | fx.StartActivity() | fx.StopActivity():
                self._reach_out(effect)
            case fx.Disconnect(conn):
                self.outside.clients.disconnect(conn)
            case fx.SendUpstream(data):
                self.outside.upstream.send(data)
            case fx.TellRole(role, epoch, reason):
                self.outside.watchers.tell_role(role, epoch, reason)
            case fx.StopReplica(error, successor):
                if successor:
                    self._hand_over()
                self._stopped = True
                self.outside.process.end(error, successor)
            case (
                fx.ReadLock() | fx.TakeLock() | fx.LinkSeals() | fx.ReadTail() | fx.WriteCut() | fx.SetHead()
                | fx.RemoveUnread() | fx.ApplyCopies() | fx.ReleaseLock()
            ):  # fmt: skip
                self._take_over(effect)
            case fx.Recover():
                self._recover()
            case fx.ReadLog():
                self._read_log()
            case fx.FollowPrimary(replica, _):
                self.outside.upstream.follow(replica)
            case fx.AskUpstream():
                self.outside.upstream.ask(self.place.lsn, self.place.chain)
            case fx.LeavePrimary():
                self.outside.upstream.leave()
            case fx.TakeCheckpoint():
                self.take_checkpoint()
            case fx.VerifyCheckpoint(lsn, name):
                self.outside.checkpoints.verify(
                    name, lambda good: self.outside.process.complete(ev.CheckpointVerified(lsn, name, good))
                )
            case fx.ListCheckpoints() | fx.Collect():
                self._collect(effect)
            case _:
                assert_never(effect)

    def _collect(self, effect: fx.ListCheckpoints | fx.Collect) -> None:
        """See what may go, or remove it; on a volume that is read-only just now what stands stays."""
        if isinstance(effect, fx.ListCheckpoints):
            assert self.holder is not None
            found = self.outside.process.complete
            self.outside.checkpoints.count(self.holder.epoch, lambda lsns: found(ev.CheckpointsFound(lsns)))
            return
        self._remove(lambda: self.outside.checkpoints.prune(effect.checkpoints_from))
        self._remove(lambda: self.log.collect(effect.lsn))

    def _remove(self, remove: Callable[[], object]) -> None:
        """Remove files; where the volume is read-only just now they stay until the next time."""
        try:
            remove()
        except OSError as error:
            if not waits(error, Use.CHECKPOINT):
                raise

    def _reach_out(self, effect: fx.DialPeer | fx.SendPeer | fx.DropPeer | fx.StartActivity | fx.StopActivity) -> None:
        match effect:
            case fx.SendPeer(target, data):
                self.outside.peers.send(target, data)
            case fx.DialPeer(target):
                self.outside.peers.dial(target)
            case fx.DropPeer(target):
                self.outside.peers.drop(target)
            case fx.StartActivity(start):
                self.outside.activities.start(start)
            case fx.StopActivity(reference):
                self.outside.activities.stop(reference)
            case _:
                assert_never(effect)

    # ---- the primary's log -----------------------------------------------------------------------------------

    def _run_frame(self, wanted: fx.RunFrame) -> ev.Event:
        runs, killers = wanted.runs, list[bytes]()
        if not self._reserve(runs):
            return ev.SpaceRefused(runs)
        if wanted.try_out:
            runs, killers = self._without_killers(runs)
            if not self._reserve(runs):  # records that park carry more than what they park
                return ev.SpaceRefused(runs)
        place = self.place
        first_lsn = place.lsn + 1
        began = self.outside.clock.now()
        done = self.shard.execute(runs)
        run_s = self.outside.clock.now() - began
        frame, raw = self.log.append(
            FrameKind.DATA, done.payload, first_lsn=first_lsn, count=done.count, confirmed_lsn=wanted.confirmed_lsn
        )
        self.log.sync()
        place.chain = frame.chain
        self.log_epoch = frame.epoch
        self._met_times()
        roll, offset = self.log.last_place()
        return ev.FrameSynced(
            frame,
            raw,
            roll,
            offset,
            done.results,
            done.registered,
            place.times,
            done.sent,
            done.starts,
            done.stops,
            done.finished,
            done.spans,
            run_s,
            done.unknown,
            killers,
        )

    def _met_times(self) -> None:
        """A frame just came from who wrote it: remember how its times stand to our machine's clock.

        Not for each: an anchor of ANCHOR_US ago tells as well what has passed since.
        """
        elapsed_us = self.place.times.elapsed_us
        if self._anchor is None or elapsed_us - self._anchor.elapsed_us >= ANCHOR_US:
            self._anchor = Anchor(elapsed_us, self.outside.clock.boot_us())
            self.outside.clock.note_anchor(self._anchor)

    def _reserve(self, runs: Runs) -> bool:
        """Is there room for a frame of these?"""
        count = blob = 0
        for _, messages in runs:
            count += len(messages)
            blob += sum(map(len, messages))
        room = self.log.reserve(data_bytes(len(runs), count, blob))
        return room or not self._safeguards.reserve_before_run

    def _without_killers(self, runs: Runs) -> tuple[Runs, list[bytes]]:
        """Try a frame out until it survives; gives it with each message parked that a copy died of, and its handler.

        What is named a second time, although it was set aside, stays: it can't be left out of its frame.
        """
        killers: list[bytes] = []
        found: set[Running] = set()
        while (killer := self.outside.process.try_out(runs)) is not None and killer not in found:
            found.add(killer)
            runs, method = set_aside(runs, killer.session, killer.seq)
            killers.append(method)
        return runs, killers

    def _write_control(self, kind: int, payload: bytes, confirmed_lsn: int) -> ev.Event:
        # No `reserve`: it asks for a spare segment too, and on a full disk a takeover must still open and confirm (I8).
        try:
            self.log.append(kind, payload, first_lsn=self._log_end() + 1, count=0, confirmed_lsn=confirmed_lsn)
        except OutOfSpace:
            if kind == FrameKind.OPENING:
                raise
            return ev.ControlRefused()
        self.log.sync()
        return ev.ControlSynced(kind, confirmed_lsn)

    def _log_end(self) -> int:
        """Lsn of the last message in our segment; during a takeover the copies are not applied yet."""
        if self._tail is not None and self._tail.unconfirmed:
            return self._tail.unconfirmed[-1][0].last_lsn
        return self.place.lsn

    def _prove(self, number: int) -> None:
        holder = self.holder
        assert holder is not None
        if self.service.fence == SEAL:
            self._proof_answered(number, not self.log.sealed(holder.epoch))
            return
        self.unproved_since = self.outside.clock.now()
        ask = _owns if self._safeguards.hold_without_answer else _owns_or_guess
        self.outside.lock.ask(partial(ask, holder), partial(self._proof_answered, number))

    def _proof_answered(self, number: int, owned: bool) -> None:
        self.unproved_since = None
        if owned:
            self.proved_at = self.outside.clock.now()
        self.outside.process.complete(ev.ProofAnswered(number, owned))

    # ---- takeover --------------------------------------------------------------------------------------------

    def _take_over(self, effect: fx.Effect) -> None:
        complete = self.outside.process.complete
        match effect:
            case fx.ReadLock():
                self.outside.lock.ask(lambda lock: lock.view(), self._lock_seen)
            case fx.TakeLock():
                self._take_lock()
            case fx.LinkSeals(first, last):
                self.log.link_seals(first, last)
                complete(ev.SealsLinked())
            case fx.ReadTail(head, confirmed_lsn):
                try:
                    complete(self._read_tail(head, confirmed_lsn))
                except (StoreOlderThanLog, LogTruncated) as error:
                    self._doubt_tail(error)
                except CorruptFrame as error:
                    self._read_again(effect, error)
            case fx.WriteCut(epoch):
                self._write_cut(epoch)
                complete(ev.CutWritten())
            case fx.SetHead():
                holder = self.holder
                assert holder is not None
                point = self.witness.point(holder.epoch, *self._copies_end())
                self.outside.lock.ask(
                    lambda lock: lock.set_head(holder, point), lambda revision: complete(ev.HeadSet(revision))
                )
            case fx.RemoveUnread():
                self._remove(self.log.remove_unread)
            case fx.ApplyCopies():
                self._apply_copies()
            case fx.ReleaseLock():
                released = self.holder
                if released is not None:
                    self._release(released)
            case _:
                raise Internal(f"{effect} is not a step of the takeover")

    def _release(self, holder: Holder) -> None:
        """Let go of the lock in order; with it the witness says that nothing was confirmed after this."""
        self.releasing = True
        last = self.witness.last(holder.epoch)

        def done(_: object) -> None:
            self.releasing = False

        self.outside.lock.ask(lambda lock: lock.release(holder, last), done)

    def _hand_over(self) -> None:
        """Leave a last witness: the successor, which writes its own once it leads, may end before that.

        It is not waited for: once the successor has taken the lock, the store refuses it.
        """
        holder = self.holder
        assert holder is not None
        point = self.witness.last(holder.epoch)
        if point is None or self.service.fence != STORE:
            return
        self.releasing = True

        def done(_: object) -> None:
            self.releasing = False

        self.outside.lock.ask(lambda lock: lock.witness(holder, point), done)

    def _lock_seen(self, view: LockView) -> None:
        self._view = view
        if view.store_id != self.store_id:
            self._fail(ForeignDirectory(f"the lock store is {view.store_id!r}, this log belongs to {self.store_id!r}"))
            return
        epoch, replica = (view.holder.epoch, view.holder.replica) if view.holder is not None else (0, "")
        live = view.service is not None and view.service.live
        state = ev.LockState(view.epoch, view.head, epoch, replica, view.revision, live)
        self.outside.process.complete(ev.LockSeen(state))

    def _take_lock(self) -> None:
        view = self._view
        assert view is not None

        def done(holder: Holder | None) -> None:
            self.holder = holder
            if holder is None:
                self.outside.process.complete(ev.LockRefused())
            elif self.service.fence == STORE:
                self.outside.lock.ask(lambda lock: lock.confirmed(holder), partial(taken, holder))
            else:
                taken(holder, None)

        def taken(holder: Holder, stored: Point | None) -> None:
            self.witness.stored = stored
            self.outside.process.complete(ev.LockTaken(holder.epoch, view.head))

        self.outside.lock.take(self.core.replica, self.outside.process.nonce(), view, done)

    def _read_tail(self, head: int, confirmed_lsn: int) -> ev.Event:
        """Everything confirmed is applied first, in stretches; what is left are the copies."""
        place = self.place
        view = self._view
        assert view is not None
        self._check_code(self.log.check_store(head, view.epoch, view.revision))
        end = head == 0
        while not end:
            end = self._read_stretch(head)
        seen = self.witness.sightings()
        ends_at = self.witness.ends_at(seen, head)
        tail = self.log.read_tail(head, place.lsn, place.chain, confirmed_lsn, ends_at=ends_at)
        frames = [frame for frame, _ in [*tail.confirmed, *tail.unconfirmed]]
        self.witness.check_tail(seen, head, frames[-1].last_lsn if frames else place.lsn, self.log_epoch, frames)
        self.witness.passed_over = tail.passed_over
        self._apply(tail.confirmed)
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
            if self.core.state is State.TAKING_OVER and not self._stopped:
                self._carry_out([effect])
                self._drain()

        self.outside.process.pause(READ_AGAIN_S, again)

    def _copies_end(self) -> tuple[int, bytes]:
        """(lsn, chain) behind the copies, which are confirmed once head is set."""
        tail = self._tail
        if tail is not None and tail.unconfirmed:
            last = tail.unconfirmed[-1][0]
            return last.last_lsn, last.chain
        return self.place.lsn, self.place.chain

    def _doubt_tail(self, error: DeathlessError) -> None:
        """A successor that opened, or collected, since we took the lock leaves a log that looks broken to us."""
        holder = self.holder
        assert holder is not None
        deposed = Deposed(f"epoch {holder.epoch}: a successor was faster than our look at the log")
        self.outside.lock.ask(lambda lock: lock.owns(holder), lambda owned: self._fail(error if owned else deposed))

    def _write_cut(self, epoch: int) -> None:
        tail = self._tail
        assert tail is not None
        service = self.service
        cut = Cut(
            tail.position,
            service.name,
            service.service_id,
            service.incarnation,
            service.fence,
            self.store_id,
            self.fingerprint,
            self.core.replica,
            len(tail.unconfirmed),
        )
        self.log.write_cut(epoch, msgspec.msgpack.encode(cut), tail, incarnation=service.incarnation)

    def _apply_copies(self) -> None:
        tail = self._tail
        assert tail is not None
        self._tail = None
        self._apply(tail.unconfirmed)
        holder = self.holder
        assert holder is not None

        def applied() -> ev.Event:
            outside = self.outside
            gap = gap_us(
                self.place.times,
                self._anchor,
                boot_us=outside.clock.boot_us(),
                wall_us=outside.clock.wall_us(),
                safeguards=self._safeguards,
            )
            return ev.CopiesApplied(self.place.lsn, gap)

        def live(owned: bool) -> None:
            if owned:
                self.outside.process.complete(applied())
            else:
                self.outside.process.complete(ev.Failed(Deposed("a successor was faster before the service went live")))

        if self._view is not None and self._view.service is not None and self._view.service.live:
            self.outside.process.complete(applied())
        else:
            self.outside.lock.ask(lambda lock: lock.go_live(holder), live)

    # ---- following -------------------------------------------------------------------------------------------

    def _apply(self, frames: Sequence[tuple[Frame, bytes]]) -> None:
        for frame, _ in frames:
            self.shard.apply(frame)
            self.witness.applied(frame)
            self.log_epoch = frame.epoch

    def _recover(self) -> None:
        self._load_newer(-1)
        self._read_all()

    def _read_all(self) -> None:
        """Apply everything confirmed."""

        def read(view: LockView) -> bool:
            self._check_code(self.log.check_store(view.head, view.epoch, view.revision))
            end = view.head == 0
            while not end:
                end = self._read_stretch(view.head)
            self.witness.check_recovered(view.head, self.place.lsn, self.log_epoch)
            return end

        self._read_below(State.RECOVERING, read, lambda _: self.outside.process.complete(ev.Recovered(self.place.lsn)))

    def _read_below(
        self,
        state: State,
        read: Callable[[LockView], bool],
        done: Callable[[bool], None],
        before: LockView | None = None,
    ) -> None:
        """Look at the lock and read the log of its head, while we are in `state`; `done` with what `read` gives.

        Between the two looks a successor may open, and collect what an older head leads to: the log looks newer than
        the store, or files are missing that must be there. That is believed once the lock, looked at again, is as it
        was `before`; an old store stays as it is, and a lost file lost.
        """

        def look(view: LockView) -> None:
            if self.core.state is not state or self._stopped:
                return
            try:
                end = read(view)
            except (StoreOlderThanLog, LogTruncated) as error:
                # Not by the revision: an etcd's grows with whatever else is written there, and this would never end.
                if before is None or before[:4] != view[:4]:  # service, epoch, head, holder
                    self._read_below(state, read, done, view)
                else:
                    self._fail(error)
                return
            except Exception as error:  # noqa: BLE001 as in `_carry_out`
                self._fail(as_ours(error, "reading the log"))
                return
            done(end)

        self.outside.lock.ask(lambda lock: lock.view(), look)

    def _adopts(self, fingerprint: bytes, lsn: int) -> bool:
        """Did an operator accept our code for state that other code made, at just this lsn?"""
        return (fingerprint, lsn) in self._adopted or not self._safeguards.check_fingerprint

    def _check_code(self, cut: Cut | None) -> None:
        """Another fingerprint never replays; it upgrades (I6)."""
        if cut is None or cut.fingerprint == self.fingerprint or self._adopts(cut.fingerprint, self.place.lsn):
            return
        raise UpgradeRequired(
            f"the log of epoch {self.log_epoch} was written by other code, interpreter or libraries, or with other "
            f"limits of what is replicated{self._told_difference(cut.fingerprint)}"
        )

    def _told_difference(self, theirs: bytes) -> str:
        told = self._what_differs(theirs)
        return f": {told}" if told else ""

    def follower_refusal(self, fingerprint: bytes) -> UpgradeRequired | None:
        """Why a follower with this fingerprint may not have our stream; None: it may."""
        if fingerprint == self.fingerprint or not self._safeguards.check_fingerprint:
            return None
        return UpgradeRequired(
            f"primary {self.core.replica} runs other code, interpreter or libraries, or other limits of what is "
            f"replicated{self._told_difference(fingerprint)}"
        )

    def _read_log(self) -> None:
        self._read_below(
            State.FOLLOWING,
            lambda view: view.head == 0 or self._read_stretch(view.head),
            lambda end: self.outside.process.complete(ev.LogRead(self.place.lsn, end)),
        )

    def _load_newer(self, lsn: int) -> bool:
        """Load the newest checkpoint if it stands above `lsn`. False: it does not, or there is none."""
        snapshot = self.outside.checkpoints.load_newest()
        if snapshot is None or snapshot.lsn <= lsn:
            return False
        if snapshot.fingerprint != self.fingerprint and not self._adopts(snapshot.fingerprint, snapshot.lsn):
            told = self._told_difference(snapshot.fingerprint)
            raise UpgradeRequired(f"the checkpoint at lsn {snapshot.lsn} was made by other code{told}")
        self.shard.restore(snapshot)
        self.witness.restored(self.place.lsn, self.place.chain)
        self.log_epoch = snapshot.epoch
        return True

    def _read_stretch(self, head: int) -> bool:
        place = self.place
        try:
            frames, end = self.log.read(head, place.lsn, place.chain, bytes_max=READ_BYTES)
        except LogTruncated:
            # Collection does not wait for a replica that nobody reaches: what it lacks is in a checkpoint then.
            if not self._load_newer(place.lsn):
                raise
            frames, end = self.log.read(head, place.lsn, place.chain, bytes_max=READ_BYTES)
        self._apply(frames)
        return end

    def frames_received(self, packets: Sequence[bytes]) -> None:
        """Apply frames of the primary's stream (bodies of FRAME packets); they are confirmed (I1)."""
        if self.core.state is not State.FOLLOWING or self._stopped:
            return
        messages = size = 0
        gap = False
        last: tuple[Frame, bytes] | None = None
        try:
            for body in packets:
                frame = decode_frame(body, FRAME_HEAD.size)
                if frame is None:
                    gap = True
                    break
                if frame.last_lsn <= self.place.lsn:
                    continue
                if frame.first_lsn != self.place.lsn + 1 or frame.prev_chain != self.place.chain:
                    gap = True
                    break
                self.shard.apply(frame)
                self.witness.applied(frame)
                self.log_epoch = frame.epoch
                last = (frame, body)
                messages += frame.count
                size += len(body)
            if last is not None:
                _, offset, roll, _ = FRAME_HEAD.unpack_from(last[1])
                self.log.note_place(last[0], roll, offset)
                self._met_times()
        except Exception as error:  # noqa: BLE001 as in `_carry_out`
            self._fail(as_ours(error, "frames of the stream"))
            return
        self.post(ev.FramesApplied(self.place.lsn, messages, size, gap))

    # ---- checkpoints -----------------------------------------------------------------------------------------

    def take_checkpoint(self) -> None:
        """Copy the state between frames and have it written; announced once it is confirmed."""
        service = self.service

        def snapshot() -> Snapshot:
            return self.shard.snapshot(
                service=service.name,
                service_id=service.service_id,
                incarnation=service.incarnation,
                epoch=self.log_epoch,
                fingerprint=self.fingerprint,
            )

        complete = self.outside.process.complete
        place, write = self.place, self.outside.checkpoints.write
        write(snapshot, place.lsn, place.chain, lambda lsn, name: complete(ev.CheckpointWritten(lsn, name)))


def _owns(holder: Holder, lock: Lock | AsyncLock) -> bool | Awaitable[bool]:
    return lock.owns(holder)


def _owns_or_guess(holder: Holder, lock: Lock | AsyncLock) -> bool | Awaitable[bool]:
    """What must never be done: take no answer for a yes (I1)."""
    try:
        return lock.owns(holder)
    except LockUnavailable:
        return True
