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

import dataclasses
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import assert_never

from deathless.base.errors import (
    DeathlessError,
    LockUnavailable,
    LogTruncated,
    OutOfSpace,
    StoreOlderThanLog,
)
from deathless.base.ids import ChainHash, Digest, Epoch, Fingerprint, Incarnation, Lsn
from deathless.base.limits import Limits
from deathless.base.lock_stores import SEAL
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.codec.frames import Frame, FrameKind, decode_frame, padded
from deathless.codec.snapshot import Snapshot
from deathless.codec.wire import FRAME_HEAD, Batch
from deathless.core import effects as fx
from deathless.core import events as ev
from deathless.core.primary.messaging import Tables
from deathless.core.replica.replica import Replica, ShardPlace, State
from deathless.engine.ports import AsyncLock, Holder, Lock, LockView, LogStore, ServiceRecord
from deathless.engine.replica.applying import Applying, Code
from deathless.engine.replica.failures import as_ours
from deathless.engine.replica.frame_runner import FrameRunner
from deathless.engine.replica.met_times import MetTimes
from deathless.engine.replica.outside import Outside
from deathless.engine.replica.takeover_steps import TakeoverSteps, remove
from deathless.engine.replica.upgrade_steps import FormerRunner, Upgrade
from deathless.engine.replica.witness_keeper import WitnessKeeper
from deathless.engine.shard.shard import Shard

SLEPT_MIN_US = 100_000  # less than this between two clocks that are read one after the other is no sleep


class ReplicaEngine:
    """One replica of one shard.

    Args:
        core: the machine; shares `shard.place` and `shard.sessions`, and gets the shard's other tables here.
        log: the shard's segments, opened for this service's identity.
        service: what the lock store says of the service; its fence is "seal" (a look for the successor's seal in the
            directory) or "etcd" (one linearizable read of the lock).
        store_id: the lock store this log belongs to.
        code: what runs here, and what may be gone on with.
        former: incarnations of this service that an operator gave up.
        witness_s: seconds between two points of the witness in the lock store; None: as the limits say.
        short_way: calls may take it (design 0025); False: a simulation tries how it goes without.
        upgrade: that this replica is here to make; `code` is then the former one. None: it is a replica like others.
    """

    def __init__(  # noqa: PLR0913 - one argument per part of the world that an engine joins
        self,
        *,
        core: Replica,
        shard: Shard,
        log: LogStore,
        service: ServiceRecord,
        store_id: str,
        code: Code,
        outside: Outside,
        limits: Limits,
        former: frozenset[int] = frozenset(),
        witness_s: float | None = None,
        safeguards: Safeguards = ALL_SAFEGUARDS,
        short_way: bool = True,
        upgrade: Upgrade | None = None,
    ) -> None:
        """Put the parts together; it is long because each of them, and each number kept here, has a line."""
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
            level=lambda: shard.place.generation.level,
        )
        self.log = log
        self.service = service
        self.store_id = store_id
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
        self.proved_at: float | None = None  # when the last proof said that the lock is ours; None: none did yet
        self.unproved_since: float | None = None  # when the lock was asked for the proof under way; None: there is none
        self._limits = limits
        self._safeguards = safeguards
        self._queue: deque[ev.Event] = deque()
        self._frame: fx.RunFrame | None = None  # to be run once the queue is empty; the core forms one at a time
        self._busy = False
        self.stopped = False
        met = MetTimes(outside.clock)
        self.applying = Applying(
            place=shard.place,
            runner=shard if upgrade is None else FormerRunner(upgrade.former, shard.place),
            log=log,
            checkpoints=outside.checkpoints,
            witness=self.witness,
            code=code,
            replica=core.replica,
            safeguards=safeguards,
            upgrades_from=None if upgrade is None else upgrade.from_generation,
        )
        self.takeover = TakeoverSteps(self, met, safeguards, upgrade)
        self._frames = FrameRunner(
            core=core,
            shard=shard,
            log=log,
            outside=outside,
            witness=self.witness,
            met=met,
            safeguards=safeguards,
            short_way=short_way and service.fence == SEAL,  # a look at the directory answers at once
        )
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

    def batches_received(self, batches: Sequence[tuple[ev.Conn, Batch]]) -> None:
        """Take in what clients sent until every socket was read: in one step where nothing else is to be done."""
        if not (batches and self._short_way(batches)):
            if batches:
                self.post(ev.BatchesReceived(batches))
            self.post(ev.BuffersDrained())

    def deadline(self) -> float | None:
        """When `TimerFired` is due, seconds of the monotonic clock."""
        return self.core.deadline()

    @property
    def holder(self) -> Holder | None:
        """What we are in the lock; None: we never took it."""
        return self.takeover.holder

    @property
    def fingerprint(self) -> bytes:
        """Of the code whose turns are run here."""
        return self.applying.code.fingerprint

    @property
    def place(self) -> ShardPlace:
        """Where the shard stands."""
        return self.shard.place

    def _drain(self) -> None:
        if self._busy:
            return
        self._busy = True
        try:
            while not self.stopped:
                if self._queue:
                    self._take(self._queue.popleft())
                elif self._frame is not None:
                    frame, self._frame = self._frame, None
                    self._run(frame)
                else:
                    break
        finally:
            self._busy = False

    def _short_way(self, batches: Sequence[tuple[ev.Conn, Batch]]) -> bool:
        """Form, run, prove and release a frame of what clients sent, in one step. False: nothing was done."""
        if not self._frames.short_way or self._busy or self.stopped or self._queue or self._frame is not None:
            return False
        clock = self.outside.clock
        boot_us = clock.boot_us()
        now, wall_us = clock.now(), clock.wall_us()
        if boot_us - now * 1e6 - self._boot_ahead_us >= SLEPT_MIN_US:
            return False
        self._busy = True
        try:
            wanted = self.core.short_frame(batches, now, wall_us)
            if wanted is None:
                return False
            self._run_and_release(wanted)
        except Exception as error:  # noqa: BLE001 a broken invariant stops the replica, whatever it raises (I8)
            self.fail(as_ours(error, "the short way"))
        finally:
            self._busy = False
        if self._queue or self._frame is not None:
            self._drain()
        return True

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
            self.fail(as_ours(error, type(event).__name__))
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
                self.fail(as_ours(error, type(effect).__name__))
                return

    def _run_and_release(self, wanted: fx.RunFrame) -> None:
        event, effects, proved_at = self._frames.run(wanted, self.holder)
        if self.holder is not None and not isinstance(event, ev.SpaceRefused):
            self.applying.log_epoch = self.holder.epoch
        if event is not None:
            self.outside.process.complete(event)
            return
        self.proved_at = proved_at
        if effects:
            self._carry_out(effects)

    def _run(self, frame: fx.RunFrame) -> None:
        try:
            self._run_and_release(frame)
        except Exception as error:  # noqa: BLE001  as above
            self.fail(as_ours(error, type(frame).__name__))

    def repeat(self, effect: fx.Effect) -> None:
        """Carry an effect out once more."""
        self._carry_out([effect])
        self._drain()

    def fail(self, error: DeathlessError) -> None:
        """I8: any sync error, corrupt log or broken invariant stops the replica."""
        if self.stopped:
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
                    self.takeover.hand_over()
                self.stopped = True
                self.outside.process.end(error, successor)
            case (
                fx.ReadLock() | fx.TakeLock() | fx.LinkSeals() | fx.ReadTail() | fx.Migrate() | fx.WriteCut()
                | fx.SetHead() | fx.RemoveUnread() | fx.ApplyCopies()
                | fx.StoreConfirmed() | fx.ReleaseLock()
            ):  # fmt: skip
                self.takeover.perform(effect)
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
        remove(lambda: self.outside.checkpoints.prune(effect.checkpoints_from))
        remove(lambda: self.log.collect(effect.lsn))

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

    def _write_control(self, kind: int, payload: bytes, confirmed_lsn: int) -> ev.Event:
        # No `reserve`: it asks for a spare segment too, and on a full disk a takeover must still open and confirm (I8).
        try:
            self.log.append(kind, payload, first_lsn=self.takeover.log_end + 1, count=0, confirmed_lsn=confirmed_lsn)
        except OutOfSpace:
            if kind == FrameKind.OPENING:
                raise
            return ev.ControlRefused()
        self.log.sync()
        return ev.ControlSynced(kind, confirmed_lsn)

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

    # ---- following -------------------------------------------------------------------------------------------

    def _recover(self) -> None:
        """Load a checkpoint, and apply everything confirmed behind it."""

        def read(view: LockView) -> bool:
            cut = self.log.check_store(view.head, view.epoch, view.revision)
            self.applying.load(cut, self.place.lsn or -1)
            self.applying.check_code(cut)
            end = view.head == 0
            while not end:
                end = self.applying.read_stretch(view.head)
            self.witness.check_recovered(view.head, self.place.lsn, self.applying.log_epoch)
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
            if self.core.state is not state or self.stopped:
                return
            try:
                end = read(view)
            except (StoreOlderThanLog, LogTruncated) as error:
                # Not by the revision: an etcd's grows with whatever else is written there, and this would never end.
                if before is None or before[:4] != view[:4]:  # service, epoch, head, holder
                    self._read_below(state, read, done, view)
                else:
                    self.fail(error)
                return
            except Exception as error:  # noqa: BLE001 as in `_carry_out`
                self.fail(as_ours(error, "reading the log"))
                return
            done(end)

        self.outside.lock.ask(lambda lock: lock.view(), look)

    def _read_log(self) -> None:
        self._read_below(
            State.FOLLOWING,
            lambda view: view.head == 0 or self.applying.read_stretch(view.head),
            lambda end: self.outside.process.complete(ev.LogRead(self.place.lsn, end)),
        )

    def frames_received(self, packets: Sequence[bytes]) -> None:
        """Apply frames of the primary's stream (bodies of FRAME packets); they are confirmed (I1)."""
        if self.core.state is not State.FOLLOWING or self.stopped:
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
                self.applying.apply_one(frame)
                last = (frame, body)
                messages += frame.count
                size += len(body)
            if last is not None:
                _, offset, roll, _ = FRAME_HEAD.unpack_from(last[1])
                self.log.note_place(last[0], roll, offset)
                self._frames.met.met(self.place.times.elapsed_us)
        except Exception as error:  # noqa: BLE001 as in `_carry_out`
            self.fail(as_ours(error, "frames of the stream"))
            return
        self.post(ev.FramesApplied(self.place.lsn, messages, size, gap))

    # ---- checkpoints -----------------------------------------------------------------------------------------

    def take_checkpoint(self) -> None:
        """Copy the state between frames and have it written; announced once it is confirmed."""
        complete = self.outside.process.complete
        place, write = self.place, self.outside.checkpoints.write
        write(self.snapshot, place.lsn, place.chain, lambda lsn, name: complete(ev.CheckpointWritten(lsn, name)))

    def snapshot(self) -> Snapshot:
        """Copy all of the shard."""
        service = self.service
        return self.shard.snapshot(
            service=service.name,
            service_id=service.service_id,
            incarnation=service.incarnation,
            epoch=self.applying.log_epoch,
            fingerprint=self.fingerprint,
        )

    def here(self, snapshot: Snapshot) -> Snapshot:
        """Give what the shard was restored from as a checkpoint at its place now; nothing else may have changed."""
        place, service = self.place, self.service
        return dataclasses.replace(
            snapshot,
            service=service.name,
            service_id=service.service_id,
            incarnation=Incarnation(service.incarnation),
            epoch=Epoch(self.applying.log_epoch),
            fingerprint=Fingerprint(self.fingerprint),
            lsn=Lsn(place.lsn),
            chain=ChainHash(place.chain),
            digest=Digest(place.digest),
            generation=place.generation,
        )


def _owns(holder: Holder, lock: Lock | AsyncLock) -> bool | Awaitable[bool]:
    return lock.owns(holder)


def _owns_or_guess(holder: Holder, lock: Lock | AsyncLock) -> bool | Awaitable[bool]:
    """What must never be done: take no answer for a yes (I1)."""
    try:
        return lock.owns(holder)
    except LockUnavailable:
        return True
