"""A replica's life: one machine that routes events to the part that is in charge.

    RECOVERING -> FOLLOWING <-> TAKING_OVER -> PRIMARY
        |             |              |            |
        '-------------+------> STOPPED <----------'      (process ends)

RECOVERING loads the newest checkpoint and applies the confirmed log behind it. FOLLOWING runs `core.replica.follower`.
TAKING_OVER runs `core.replica.takeover`. PRIMARY runs `core.primary.primary`. A primary never goes back: deposed or
handed over, the process ends and its supervisor starts a fresh one (I8), so no state that might hold an unconfirmed
turn is ever reused.

Who sees what: other replicas' applied state is confirmed state (design 0003, "Who sees what"). Clients
that ask a follower are told who the primary is and are answered only stale queries.

Conflicts: a takeover order while a takeover runs, or as primary, is ignored; while the log is being read it waits for
the end of that. A newer primary seen while following is followed; while taking over, the lock decides; as primary, it
is hearsay and makes us ask the fence (I2). A failure in any state stops the replica.

Does not: IO, clocks. Imports core, codec, base.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final, assert_never

import msgspec

from deathless.base.errors import DeathlessError, UpgradeCalledOff
from deathless.base.ids import SYSTEM_SESSION
from deathless.base.limits import Limits
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.base.times import NEVER, Due, Times
from deathless.codec.frames import Cut
from deathless.codec.generations import FIRST, Generation
from deathless.codec.wire import Batch, Handover, Hello, Type, encode_queries, struct_packet
from deathless.codec.wire import RoleAt as RolePacket
from deathless.core.effects import (
    Effect,
    Recover,
    ReleaseLock,
    RunFrame,
    RunQueries,
    Send,
    StopReplica,
    TakeCheckpoint,
    TellRole,
)
from deathless.core.events import (
    UPSTREAM,
    ActivityEnded,
    AppliedReceived,
    AttachReceived,
    BatchesReceived,
    BuffersDrained,
    CheckpointAnnounced,
    CheckpointsFound,
    CheckpointVerified,
    CheckpointWritten,
    ClockTold,
    ConfirmedStored,
    Conn,
    ConnectionLost,
    ConnectionOpened,
    ControlRefused,
    ControlSynced,
    CopiesApplied,
    CutWritten,
    DeathsReported,
    DivergenceReported,
    Event,
    Failed,
    FollowReceived,
    FramesApplied,
    FrameSynced,
    HandoverReceived,
    HeadSet,
    LockRefused,
    LockSeen,
    LockTaken,
    LogRead,
    MachineSlept,
    Migrated,
    OfClient,
    OrderReceived,
    PeerCommitted,
    PeerHelloReceived,
    PeerLost,
    PeerReady,
    PrimarySeen,
    ProofAnswered,
    QueriesAnswered,
    QueriesReceived,
    RareForPrimary,
    Recovered,
    RegisterReceived,
    RunResult,
    SealsLinked,
    SpaceFound,
    SpaceRefused,
    StopOrdered,
    StreamBatchReceived,
    StreamHelloReceived,
    SwitchoverOrdered,
    TailRead,
    TakeoverOrdered,
    TimerFired,
    UpgradeFailed,
    UpstreamAnswered,
)
from deathless.core.primary.messaging import Tables
from deathless.core.primary.primary import Primary
from deathless.core.primary.session_owners import SessionOwners
from deathless.core.primary.suspicion import Suspicion
from deathless.core.replica.follower import Follower
from deathless.core.replica.takeover import Step, Takeover
from deathless.core.tables.sessions import SessionTable

DEATHS_MAX: Final = 1024  # messages whose deaths are remembered; the oldest goes first


class State(enum.Enum):
    """State of a replica; the picture is in the module's docstring. PRIMARY and below name the role told to others."""

    RECOVERING = "recovering"
    FOLLOWING = "standby"
    TAKING_OVER = "taking-over"
    PRIMARY = "primary"
    STOPPED = "stopped"


UPGRADER: Final = "upgrader"
"""Role of who holds the state for other code: it follows, and leads only by the upgrade that it was started for."""

MIGRATING_MAX_S: Final = 10.0
"""From reading the log to the cut of an upgrade. Others wait for a takeover as long (core.supervisor.detection)."""

KEY_STEP_US: Final = 1000
"""Between the times of two UUIDv7: they carry milliseconds."""


class Upgrading(msgspec.Struct):
    """The upgrade that a replica was started for, and how far it is with it."""

    id: bytes = b""  # empty: there is none
    at: int | None = None  # lsn at which the primary handed over to it; None: it did not
    by: float | None = None  # until when the migration may take, monotonic seconds; None: nothing is migrated


class HeardEpochs(msgspec.Struct):
    """Epochs of others that a replica goes by."""

    seen: int = 0  # of the primary that the supervisor named last
    met: int = 0  # highest that a takeover of ours met in the lock


class ShardPlace(msgspec.Struct):
    """Where the shard stands; the engine keeps it up to date, the core reads it."""

    lsn: int = 0
    chain: bytes = bytes(16)
    digest: bytes = bytes(16)
    times: Times = Times()
    due: Due = NEVER  # when a time record has work to do: a timer, a deadline
    generation: Generation = FIRST  # whose code's turns the state is made of

    @property
    def time_us(self) -> int:
        """Logical time, as handlers see it."""
        return self.times.time_us

    def begin_with(self, cut: Cut) -> None:
        """Who has run nothing yet is of the generation that the service began with, and of the level of its log.

        Args:
            cut: of the epoch whose frames are run next; that of a later generation begins with a checkpoint.
        """
        if self.lsn == 0 and cut.generation == FIRST.number:
            self.generation = cut.of_generation()


class Replica:
    """The machine. Call `handle` with each event and the clocks; carry out what it returns, in order.

    Args:
        replica: our name.
        sessions: the shard's session table (filled by the engine as frames run).
        place: where the shard stands.
        tables: what else of the shard is read here; the engine that joins core and shard sets it.
        activity_processes: how many run activities here; None: enough for all that may run.
        upgrade: id of the upgrade that this replica is to make; empty: it is none that does.
    """

    def __init__(
        self,
        *,
        replica: str,
        sessions: SessionTable,
        place: ShardPlace,
        limits: Limits,
        safeguards: Safeguards = ALL_SAFEGUARDS,
        tables: Tables | None = None,
        activity_processes: int | None = None,
        upgrade: bytes = b"",
    ) -> None:
        self.replica = replica
        self._upgrading = Upgrading(upgrade)
        self._activity_processes = activity_processes
        self.tables = tables or Tables()
        self.state = State.RECOVERING
        self.limits = limits
        self.safeguards = safeguards
        self.primary: Primary | None = None  # Invariant: set from PRIMARY on
        self.takeover: Takeover | None = None  # Invariant: set while TAKING_OVER
        self.follower = Follower(replica=replica, limits=limits, lsn=place.lsn)
        self.known_epoch = 0  # highest epoch that a primary was seen in, or that a lost takeover met in the lock
        self.known_primary = ""  # replica of the primary seen last
        self.known_address = ""  # its client address
        self.confirmed_lsn = 0  # highest lsn known confirmed
        self.deaths: dict[tuple[int, int], int] = {}  # (session, seq) -> deaths in that message (I11)
        self.suspicion = Suspicion(self.deaths)
        self.error: DeathlessError | None = None  # why the replica stopped; None: in order
        self._epochs = HeardEpochs()
        self._hearsay_proof: int | None = None  # a proof from this number on tells whether there is a successor
        self._told: tuple[str, int] = ("", 0)  # role and epoch that the supervisor was told last
        self._sessions = sessions
        self._place = place
        self._clients: set[Conn] = set()
        self.owners = SessionOwners(safeguards)
        self._pending_takeover: TakeoverOrdered | None = None  # waits for the stretch of the log that is being read
        self._stopping = False  # an orderly stop of a primary is under way

    @property
    def upgrade(self) -> bytes:
        """Id of the upgrade that we still have to make; empty: none."""
        return self._upgrading.id

    def begin(self) -> list[Effect]:
        """Start: recover."""
        return [TellRole(State.RECOVERING.value, 0, "started"), Recover()]

    def deadline(self) -> float | None:
        """When TimerFired is due next, seconds of the monotonic clock; None: never."""
        if self.state is State.FOLLOWING:
            return self.follower.deadline()
        if self.state is State.PRIMARY and self.primary is not None:
            return self.primary.deadline()
        return self._upgrading.by if self.state is State.TAKING_OVER else None

    @property
    def role(self) -> str:
        """The role told to others: recovering, standby, checkpointer, upgrader, taking-over, primary or stopped."""
        if self.state is State.FOLLOWING and self.upgrade:
            return UPGRADER
        if self.state is State.FOLLOWING and self.follower.checkpointer == self.replica:
            return "checkpointer"
        return self.state.value

    @property
    def role_for_clients(self) -> str:
        """As `role`; a primary that has heard of a successor sends its clients there, though its fence says nothing."""
        succeeded = self.primary is not None and self.known_epoch > self.primary.epoch
        return "standby" if succeeded else self.role

    def handle(self, event: Event, now: float, wall_us: int) -> list[Effect]:
        """Take one event in; `now` is monotonic seconds, `wall_us` the wall clock in microseconds."""
        if self.state is State.STOPPED:
            return []
        if isinstance(event, Failed):
            self.error = event.error
            effects: list[Effect] = [StopReplica(event.error)]
        elif self.primary is not None:
            effects = self._as_primary(self.primary, event, now, wall_us)
        else:
            effects = self._before_primary(event, now, wall_us)
        if effects and isinstance(effects[-1], StopReplica):
            self.state = State.STOPPED
        return effects

    # ---- the short way of a call -----------------------------------------------------------------------------

    @property
    def releases_at_once(self) -> bool:
        """May the frame that runs now be released right behind its sync, if we lead then (core.primary)?"""
        primary = self._undoubted
        return primary is not None and primary.releases_at_once

    @property
    def _undoubted(self) -> Primary | None:
        """The primary that we are, and neither stop being nor hear a successor of; None: we are none such."""
        if self.state is not State.PRIMARY or self._stopping or self._hearsay_proof is not None:
            return None
        return self.primary

    def short_frame(self, batches: Sequence[tuple[Conn, Batch]], now: float, wall_us: int) -> RunFrame | None:
        """Form a frame of what clients just sent, in one step; None: that is not all there is to do (core.primary)."""
        primary = self._undoubted
        return None if primary is None else primary.short_frame(batches, now, wall_us)

    def plain_replies(self, results: Sequence[RunResult]) -> dict[Conn, list[bytes]]:
        """Give what leaves, by connection, once a frame of `short_frame` is confirmed that gave replies alone."""
        assert self.primary is not None
        return self.primary.admission.plain_replies(results)

    def short_release(
        self, event: FrameSynced, now: float, wall_us: int, *, plain: bool = False
    ) -> tuple[dict[Conn, list[bytes]], list[Effect]]:
        """A frame is durable and was proved at once: give what leaves by connection, and what else is to be done."""
        primary = self.primary
        assert primary is not None
        primary.digest = self._place.digest
        released = primary.short_release(event, now, wall_us, plain=plain)
        self.confirmed_lsn = primary.confirmed_lsn
        return released

    # ---- primary ---------------------------------------------------------------------------------------------

    def _as_primary(self, primary: Primary, event: Event, now: float, wall_us: int) -> list[Effect]:
        """Route what is frequent; most frequent first."""
        match event:
            case BatchesReceived(batches):
                return primary.batches_received(batches)
            case BuffersDrained():
                return primary.buffers_drained(now, wall_us)
            case FrameSynced():
                primary.digest = self._place.digest
                return primary.frame_synced(event, now, wall_us)
            case ProofAnswered(number, owned):
                settled = self._settle(primary, primary.proof_answered(number, owned, now, wall_us))
                if self._hearsay_proof is None or not owned or number < self._hearsay_proof:
                    return settled
                return [*self._no_successor(primary), *settled]
            case QueriesReceived(conn, stale, ids, messages):
                return primary.queries_received(conn, stale, ids, messages)
            case QueriesAnswered():
                return primary.queries_answered(event)
            case AppliedReceived(conn, lsn):
                return self._settle(primary, primary.applied_received(conn, lsn, now))
            case RegisterReceived(conn, nonce):
                return primary.register_received(conn, nonce)
            case FollowReceived(conn, follow):
                return primary.follow_received(conn, follow)
            case ConnectionLost(conn):
                self._connection_lost(conn)
                return self._settle(primary, primary.connection_lost(conn, now, wall_us))
            case TimerFired():
                return self._settle(primary, primary.timer_fired(now, wall_us))
            case _:
                return self._settle(primary, self._as_primary_rarely(primary, event, now, wall_us))

    def _as_primary_rarely(self, primary: Primary, event: RareForPrimary, now: float, wall_us: int) -> list[Effect]:
        match event:
            case ConnectionOpened(conn, hello, name):
                return self._connection_opened(conn, hello, name)
            case ControlSynced(_, confirmed_lsn):
                return primary.control_synced(confirmed_lsn, now, wall_us)
            case ControlRefused():
                return primary.control_refused(now)
            case SpaceRefused(runs):
                return primary.space_refused(runs, now) if runs else []  # none: a probe found no room either
            case SpaceFound():
                return primary.space_found(now, wall_us)
            case MachineSlept(us):
                return primary.slept(us, now, wall_us)
            case ClockTold():
                return self._tell_time(now, wall_us)
            case SwitchoverOrdered():
                return primary.switchover_ordered(event, now, wall_us)
            case StopOrdered(at_once):
                self._stopping = True
                return primary.stop_ordered(now, wall_us, at_once=at_once)
            case ConfirmedStored(lsn):
                return primary.confirmed_stored(lsn, now)
            case DeathsReported():
                self._deaths_reported(event, now)
                self._forget_completed()
                return []
            case (
                PeerReady() | PeerCommitted() | PeerLost() | ActivityEnded() | AttachReceived() | PeerHelloReceived()
                | OrderReceived() | StreamHelloReceived() | StreamBatchReceived()
            ):  # fmt: skip
                return primary.message_received(event, now, wall_us)
            case CheckpointWritten() if self._stopping and primary.closed:
                return [ReleaseLock(), StopReplica(None)]
            case CheckpointWritten(lsn, name):
                return primary.checkpoint_written(lsn, name, now)
            case CheckpointAnnounced(conn, lsn, name):
                return primary.checkpoint_announced(conn, lsn, name)
            case CheckpointVerified(lsn, _, good):
                return primary.checkpoint_verified(lsn, good, now, wall_us)
            case CheckpointsFound(lsns):
                return primary.checkpoints_found(lsns, now, wall_us)
            case DivergenceReported():
                return primary.rebase(now)
            case PrimarySeen():
                return self._seen_as_primary(primary, event)
            case (
                LockSeen() | LockTaken() | LockRefused() | SealsLinked() | TailRead() | Migrated() | UpgradeFailed()
                | CutWritten() | HeadSet() | CopiesApplied() | Recovered() | LogRead() | UpstreamAnswered()
                | FramesApplied() | HandoverReceived() | TakeoverOrdered() | Failed()
            ):  # fmt: skip
                return []  # late: from before we were primary
            case _:
                assert_never(event)

    def _seen_as_primary(self, primary: Primary, seen: PrimarySeen) -> list[Effect]:
        """Of a successor we only hear; an idle primary asks the fence, which alone deposes (I2).

        The fence may be out of our reach for long: our clients, who get no answer from us meanwhile, are told at once.
        """
        if seen.replica == self.replica:
            self.known_address = seen.client_address
        if seen.epoch <= primary.epoch:
            return self._no_successor(primary)
        news = (seen.epoch, seen.client_address) != (self.known_epoch, self.known_address)
        self.known_epoch, self.known_primary, self.known_address = seen.epoch, seen.replica, seen.client_address
        told: list[Effect] = [self._role_packet(conn) for conn in sorted(self._clients)] if news else []
        self._hearsay_proof = primary.next_proof
        return [*told, *primary.doubt()]

    def _no_successor(self, primary: Primary) -> list[Effect]:
        """Whoever was said to succeed us does not: the supervisor takes it back, or a proof begun since then holds."""
        self._hearsay_proof = None
        if self.known_epoch <= primary.epoch or not self.safeguards.claims_bounded:
            return []
        self.known_epoch, self.known_primary, self.known_address = primary.epoch, self.replica, ""
        return [self._role_packet(conn) for conn in sorted(self._clients)]

    def _settle(self, primary: Primary, effects: list[Effect]) -> list[Effect]:
        """An orderly stop ends once everything admitted is confirmed and said so; clients hear of every end."""
        self.confirmed_lsn = max(self.confirmed_lsn, primary.confirmed_lsn)
        if effects and isinstance(effects[-1], StopReplica):
            data = struct_packet(Type.ROLE, RolePacket("standby", self.known_epoch, ""))
            return [*effects[:-1], *(Send(conn, data) for conn in sorted(self._clients)), effects[-1]]
        if primary.alone and primary.drained:
            primary.close()  # a last checkpoint makes the next start quick, and new code possible
            return [*effects, TakeCheckpoint()]
        return effects

    # ---- takeover --------------------------------------------------------------------------------------------

    def _handed_over(self, handover: Handover) -> list[Effect]:
        """The primary is gone in our favour: by a switchover, or by the upgrade that we are here for."""
        if handover.upgrade != self.upgrade:
            return []  # who waits for us takes over by itself, as after any that comes to nothing
        self.confirmed_lsn = max(self.confirmed_lsn, handover.lsn)
        if not self.upgrade:
            return self._takeover_ordered(TakeoverOrdered(handover.epoch, "switchover"))
        self._upgrading.at = handover.lsn
        effects = self._takeover_ordered(TakeoverOrdered(handover.epoch, "upgrade"))
        if not effects and self._pending_takeover is None:
            self._upgrading.at = None  # late: somebody leads since
        return effects

    def _takeover_ordered(self, order: TakeoverOrdered) -> list[Effect]:
        if self.state is not State.FOLLOWING or order.epoch < self._epochs.seen:
            return []
        if self.upgrade and self._upgrading.at is None:
            return []  # an upgrader leads by an upgrade alone
        if self.follower.reading:
            self._pending_takeover = order  # the stretch being read ends first; one writer of the state
            return []
        self.state = State.TAKING_OVER
        # Whom an earlier attempt met in the lock, and who has not shown up as primary since, is suspected as well.
        self.takeover = Takeover(
            suspected_epoch=max(order.epoch, self.known_epoch),
            confirmed_lsn=max(self.confirmed_lsn, order.confirmed_lsn if self.safeguards.ask_confirmed else 0),
            safeguards=self.safeguards,
            upgrade_at=self._upgrading.at,
        )
        told = self._tell_role(order.reason)
        return [told, *self.follower.leave(), *self.takeover.begin()]

    def _after_step(self, takeover: Takeover, effects: list[Effect], now: float, wall_us: int) -> list[Effect]:
        if takeover.step is Step.LOST and not takeover.holds_epoch:
            return [*effects, *self._takeover_lost(takeover, now)]
        if takeover.step is Step.DONE:
            return [*effects, *self._become_primary(takeover, now, wall_us)]
        if takeover.step is not Step.MIGRATING:
            self._upgrading.by = None
        elif self._upgrading.by is None:
            self._upgrading.by = now + MIGRATING_MAX_S
        return effects

    def _migration_overdue(self, now: float) -> list[Effect]:
        """The lock is held, and nobody serves: let another go on with the code of before."""
        if self.takeover is None or self._upgrading.by is None or now < self._upgrading.by:
            return []
        text = f"what the new code goes on with was not made within {MIGRATING_MAX_S:g} s"
        return self.takeover.handle(UpgradeFailed(UpgradeCalledOff(text)))

    def _takeover_lost(self, takeover: Takeover, now: float) -> list[Effect]:
        self._epochs.met = max(self._epochs.met, takeover.seen_epoch)
        self.known_epoch = max(self.known_epoch, self._epochs.met)
        self.takeover = None
        self._upgrading.at = None
        self.state = State.FOLLOWING
        self.follower.retry(now)
        return [self._tell_role("another replica was faster")]

    def _become_primary(self, takeover: Takeover, now: float, wall_us: int) -> list[Effect]:
        place = self._place
        self.takeover = None
        self._upgrading = Upgrading()
        self.state = State.PRIMARY
        self.known_epoch = max(takeover.epoch, self._epochs.seen)  # a later one that was seen: the fence will tell
        self.known_primary = self.replica
        self.confirmed_lsn = place.lsn
        self._forget_completed()
        self.suspicion.died(now)  # what is unexplained until now may be sent to us
        self.primary = Primary(
            replica=self.replica,
            epoch=takeover.epoch,
            sessions=self._sessions,
            limits=self.limits,
            safeguards=self.safeguards,
            lsn=place.lsn,
            chain=place.chain,
            times=place.times,
            gap_us=takeover.gap_us,
            now=now,
            wall_us=wall_us,
            deaths=self.deaths,
            suspicion=self.suspicion,
            tables=self.tables,
            owners=self.owners,
            activity_processes=self._activity_processes,
            generation_lsn=place.generation.lsn,
        )
        self.primary.digest = place.digest
        told = TellRole(self.role, takeover.epoch, "took over")
        roles = self._tell_time(now, wall_us)
        return [told, *roles, *self.primary.begin(now, wall_us)]

    # ---- before that -----------------------------------------------------------------------------------------

    def _before_primary(self, event: Event, now: float, wall_us: int) -> list[Effect]:
        """Route an event of a replica that recovers, follows or takes over."""
        match event:
            case (
                LockSeen() | LockTaken() | LockRefused() | SealsLinked() | TailRead() | Migrated() | UpgradeFailed()
                | CutWritten() | HeadSet() | ControlSynced() | ProofAnswered() | CopiesApplied()
            ):  # fmt: skip
                if self.takeover is None:
                    return []  # late: from an attempt that is over
                return self._after_step(self.takeover, self.takeover.handle(event), now, wall_us)
            case FramesApplied(lsn, messages, size, gap):
                self.confirmed_lsn = max(self.confirmed_lsn, lsn)
                return self.follower.frames_applied(lsn, messages, size, gap)
            case (
                ConnectionOpened() | BatchesReceived() | RegisterReceived() | FollowReceived() | QueriesReceived()
                | QueriesAnswered() | AttachReceived() | PeerHelloReceived() | OrderReceived() | StreamHelloReceived()
                | StreamBatchReceived()
            ):  # fmt: skip
                return self._of_client(event)
            case Recovered(lsn):
                return self._recovered(lsn)
            case PrimarySeen():
                return self._primary_seen(event)
            case UpstreamAnswered(following):
                if following.streaming:
                    self.confirmed_lsn = max(self.confirmed_lsn, following.lsn)
                effects = self.follower.upstream_answered(following)
                # Who recovered before it heard of its primary has told of none; a successor makes the role no other.
                if not self.follower.attached or (self.role, self.known_epoch) == self._told:
                    return effects
                return [*effects, self._tell_role("named by the primary")]
            case LogRead(lsn, end):
                return self._log_read(lsn, end, now)
            case ConnectionLost(conn):
                if conn == UPSTREAM:
                    self.follower.retry(now)
                self._connection_lost(conn)
                return []
            case TakeoverOrdered():
                return self._takeover_ordered(event)
            case HandoverReceived(handover):
                return self._handed_over(handover)
            case TimerFired():
                if self.state is not State.FOLLOWING:
                    return self._migration_overdue(now)
                return self.follower.timer_fired(now, self.known_primary, self.known_epoch)
            case CheckpointWritten(lsn, name):
                return self.follower.checkpoint_written(lsn, name)
            case StopOrdered():
                return [StopReplica(None)]
            case DeathsReported():
                self._deaths_reported(event, now)
                return []
            case (
                AppliedReceived() | BuffersDrained() | FrameSynced() | ControlRefused() | SpaceRefused() | SpaceFound()
                | SwitchoverOrdered() | CheckpointAnnounced() | CheckpointVerified() | DivergenceReported() | Failed()
                | CheckpointsFound() | ConfirmedStored()
                | PeerReady() | PeerCommitted() | PeerLost() | ActivityEnded() | MachineSlept()
                | ClockTold()
            ):  # fmt: skip
                return []  # a primary's
            case _:
                assert_never(event)

    def _of_client(self, event: OfClient) -> list[Effect]:
        """What clients of a replica that is not the primary get: who is, and stale answers."""
        match event:
            case ConnectionOpened(conn, hello, name):
                return self._connection_opened(conn, hello, name)
            case BatchesReceived(batches):
                return [self._role_packet(conn) for conn in dict.fromkeys(conn for conn, _ in batches)]
            case (
                RegisterReceived(conn) | FollowReceived(conn) | AttachReceived(conn) | PeerHelloReceived(conn)
                | OrderReceived(conn) | StreamHelloReceived(conn) | StreamBatchReceived(conn)
            ):  # fmt: skip
                return [self._role_packet(conn)]
            case QueriesReceived(conn, stale, ids, messages):
                if stale and self.state is not State.RECOVERING and not self.upgrade:
                    return [RunQueries(conn, ids, messages, stale)]
                return [self._role_packet(conn)]
            case QueriesAnswered(conn, ids, answers):
                return [Send(conn, encode_queries(ids, answers, stale=True, answers=True))]
            case _:
                assert_never(event)

    def _tell_role(self, reason: str) -> TellRole:
        self._told = (self.role, self.known_epoch)
        return TellRole(self.role, self.known_epoch, reason)

    def _recovered(self, lsn: int) -> list[Effect]:
        assert self.state is State.RECOVERING, self.state
        self.confirmed_lsn = max(self.confirmed_lsn, lsn)
        self.state = State.FOLLOWING
        self.follower.recovered(lsn)
        return [self._tell_role("recovered"), *self._maybe_follow()]

    def _primary_seen(self, seen: PrimarySeen) -> list[Effect]:
        if seen.replica == self.replica or (seen.epoch < self._epochs.seen and not self.safeguards.claims_bounded):
            return []
        moved = (seen.epoch, seen.replica) != (self._epochs.seen, self.known_primary)
        news = moved or seen.client_address != self.known_address
        self._epochs.seen = seen.epoch
        self.known_epoch = max(self._epochs.met, seen.epoch)  # a lower one: the lock knew none of the one before
        self.known_primary, self.known_address = seen.replica, seen.client_address
        told: list[Effect] = [self._role_packet(conn) for conn in sorted(self._clients)] if news else []
        left = self.follower.leave() if moved else []
        return [*told, *left, *self._maybe_follow()]

    def _maybe_follow(self) -> list[Effect]:
        return self.follower.follow(self.known_primary, self.known_epoch) if self.state is State.FOLLOWING else []

    def _log_read(self, lsn: int, end: bool, now: float) -> list[Effect]:
        self.confirmed_lsn = max(self.confirmed_lsn, lsn)
        effects = self.follower.log_read(lsn, end, now)
        order = self._pending_takeover
        if order is None or self.follower.reading:
            return effects
        self._pending_takeover = None
        return self._takeover_ordered(order) or effects  # none: a newer primary was seen meanwhile

    def _connection_opened(self, conn: Conn, hello: Hello, name: str) -> list[Effect]:
        if hello.kind in ("client", "peer"):
            self._clients.add(conn)
        self.owners.opened(conn, hello.secret, name)
        return []

    def _connection_lost(self, conn: Conn) -> None:
        self._clients.discard(conn)
        self.owners.lost(conn)

    def time_for_keys_us(self, now: float, wall_us: int) -> int:
        """Give the time from which who draws UUIDv7 keys goes on by its own clock; 0: we do not lead.

        It is behind what was forgotten, so that such a key is never refused for its time.
        """
        if self.primary is None:
            return 0
        return max(self.primary.time_us(now, wall_us), self.tables.keys_floor_us() + KEY_STEP_US)

    def _tell_time(self, now: float, wall_us: int) -> list[Effect]:
        """Tell all clients that we lead, and the time."""
        time_us = self.time_for_keys_us(now, wall_us)
        return [self._role_packet(conn, time_us) for conn in sorted(self._clients)]

    def _role_packet(self, conn: Conn, time_us: int = 0) -> Send:
        role = RolePacket(self.role_for_clients, self.known_epoch, self.known_address, time_us)
        return Send(conn, struct_packet(Type.ROLE, role))

    # ---- messages that kill ----------------------------------------------------------------------------------

    def _deaths_reported(self, event: DeathsReported, now: float) -> None:
        """I11: remember how often a message ended its process."""
        if not self.safeguards.park_killers:
            return
        key = (event.session, event.seq)
        self.deaths[key] = event.deaths
        if event.deaths:
            self.suspicion.died(now)
        else:
            del self.deaths[key]
        while len(self.deaths) > DEATHS_MAX:
            self.deaths.pop(next(iter(self.deaths)))

    def _forget_completed(self) -> None:
        """A message that the log holds has been completed by somebody: it is no killer."""
        for session_id, seq in list(self.deaths):
            if session_id == SYSTEM_SESSION:  # of an invocation; whether its turn was completed the log does not say
                if not self.tables.holds(seq):
                    del self.deaths[(session_id, seq)]
                continue
            stream = self._sessions.streams.get(session_id)
            if stream is not None:
                if stream.passed(seq):
                    del self.deaths[(session_id, seq)]
                continue
            session = self._sessions.get(session_id)
            if session is None or seq < session.next_seq:
                del self.deaths[(session_id, seq)]

    def check_invariants(self) -> None:
        """Raise AssertionError when the parts disagree on who is in charge."""
        assert (self.takeover is not None) <= (self.state in (State.TAKING_OVER, State.STOPPED))
        assert self.state is not State.TAKING_OVER or self.takeover is not None
        assert (self.primary is not None) <= (self.state in (State.PRIMARY, State.STOPPED))
        assert self.state is not State.PRIMARY or self.primary is not None
        assert self._pending_takeover is None or self.follower.reading
        assert self._epochs.seen <= self.known_epoch
        assert len(self.deaths) <= DEATHS_MAX
        self.follower.check_invariants()
        if self.primary is not None:
            self.primary.check_invariants()
