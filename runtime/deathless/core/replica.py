"""A replica's life: one machine that routes events to the part that is in charge.

    RECOVERING -> FOLLOWING <-> TAKING_OVER -> PRIMARY -> (process ends)
                      |              |
                      '-> STOPPED <--'

RECOVERING loads the newest checkpoint and applies the confirmed log behind it. FOLLOWING streams from the primary; the
shared log stays the truth, so a gap, a lost connection or a lag behind the stream's ring is healed by reading it.
TAKING_OVER runs `core.takeover`. PRIMARY runs `core.primary`. A primary never goes back: deposed or handed over, the
process ends and its supervisor starts a fresh one (I8), so no state that might hold an unconfirmed turn is ever reused.

Who sees what: other replicas' applied state is confirmed state (design section 5, "none ever rolls back"). Clients
that ask a follower are told who the primary is and are answered only stale queries.

Conflicts: a takeover order while a takeover runs, or as primary, is ignored. A newer primary seen while following is
followed; while taking over, the lock decides. A failure in any state stops the replica.

Does not: IO, clocks. Imports core, codec, base.
"""

from __future__ import annotations

import enum

import msgspec

from deathless.base.errors import DeathlessError
from deathless.base.limits import Limits
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.codec.wire import Role as RolePacket
from deathless.codec.wire import Following, Type, encode_queries, packet, struct_packet
from deathless.core.effects import (
    AskUpstream,
    Effect,
    FollowPrimary,
    LeavePrimary,
    ReadLog,
    Recover,
    ReleaseLock,
    RunQueries,
    Send,
    SendUpstream,
    StopReplica,
    TakeCheckpoint,
    TellRole,
)
from deathless.core.events import (
    UPSTREAM,
    AppliedReceived,
    BatchReceived,
    BuffersDrained,
    CheckpointAnnounced,
    CheckpointVerified,
    CheckpointWritten,
    Conn,
    ConnectionLost,
    ConnectionOpened,
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
    PrimarySeen,
    ProofAnswered,
    QueriesAnswered,
    QueriesReceived,
    Recovered,
    RegisterReceived,
    SealsLinked,
    SpaceFound,
    SpaceRefused,
    StopOrdered,
    SwitchoverOrdered,
    TailRead,
    TakeoverOrdered,
    TimerFired,
    UpstreamAnswered,
)
from deathless.core.primary import U64, Primary
from deathless.core.sessions import SessionTable
from deathless.core.takeover import Step, Takeover

FOLLOW_RETRY_S = 0.05  # a follower without stream asks again after this


class State(enum.Enum):
    """State of a replica; the picture is in the module's docstring. PRIMARY and below name the role told to others."""

    RECOVERING = "recovering"
    FOLLOWING = "standby"
    TAKING_OVER = "taking-over"
    PRIMARY = "primary"
    STOPPED = "stopped"


class ShardPlace(msgspec.Struct):
    """Where the shard stands; the engine keeps it up to date, the core reads it."""

    lsn: int = 0
    chain: bytes = bytes(16)
    digest: bytes = bytes(16)
    time_us: int = 0


class Replica:
    """The machine. Call `handle` with each event and the clocks; carry out what it returns, in order.

    Args:
        replica: our name.
        sessions: the shard's session table (filled by the engine as frames run).
        place: where the shard stands.
    """

    def __init__(
        self,
        *,
        replica: str,
        sessions: SessionTable,
        place: ShardPlace,
        limits: Limits,
        safeguards: Safeguards = ALL_SAFEGUARDS,
    ) -> None:
        self.replica = replica
        self.state = State.RECOVERING
        self.limits = limits
        self.safeguards = safeguards
        self.primary: Primary | None = None
        self.takeover: Takeover | None = None
        self.known_epoch = 0  # highest epoch a primary was seen in
        self.known_primary = ""  # its replica
        self.known_address = ""  # its client address
        self.confirmed_lsn = 0  # highest lsn known confirmed
        self.checkpointer = ""  # replica that takes checkpoints, as the primary named it
        self.deaths: dict[tuple[int, int], int] = {}
        self.error: DeathlessError | None = None
        self._sessions = sessions
        self._place = place
        self._clients: set[Conn] = set()
        self._following = False  # a connection to the primary stands or is being made
        self._streaming = False
        self._reading = False  # a stretch of the log is being applied
        self._retry_at: float | None = None
        self._pending_takeover: TakeoverOrdered | None = None
        self._messages_since_checkpoint = 0
        self._bytes_since_checkpoint = 0
        self._checkpointing = False
        self._stopping = False

    def begin(self) -> list[Effect]:
        """Start: recover."""
        return [TellRole(State.RECOVERING.value, 0, "started"), Recover()]

    def deadline(self) -> float | None:
        """When TimerFired is due next, seconds of the monotonic clock; None: never."""
        if self.state is State.STOPPED:
            return None
        return self.primary.deadline() if self.primary is not None else self._retry_at

    @property
    def role(self) -> str:
        """The role told to others: recovering, standby, checkpointer, taking-over, primary or stopped."""
        if self.state is State.FOLLOWING and self.checkpointer == self.replica:
            return "checkpointer"
        return self.state.value

    def handle(self, event: Event, now: float, wall_us: int) -> list[Effect]:
        """Take one event in; `now` is monotonic seconds, `wall_us` the wall clock in microseconds."""
        if self.state is State.STOPPED:
            return []
        effects = self._route(event, now, wall_us)
        if any(isinstance(effect, StopReplica) for effect in effects):
            self.state = State.STOPPED
        return effects

    def _route(self, event: Event, now: float, wall_us: int) -> list[Effect]:
        if isinstance(event, Failed):
            self.error = event.error
            return [StopReplica(event.error)]
        if self.primary is not None:
            return self._as_primary(self.primary, event, now, wall_us)
        if self.takeover is not None:
            effects = self._taking_over(self.takeover, event, now)
            if effects is not None:
                return effects
        return self._as_follower(event, now)

    # ---- primary ---------------------------------------------------------------------------------------------

    def _as_primary(self, primary: Primary, event: Event, now: float, wall_us: int) -> list[Effect]:
        match event:
            case BatchReceived(conn, batch):
                return primary.batch_received(conn, batch)
            case BuffersDrained():
                return primary.next_frame(now, wall_us)
            case FrameSynced():
                primary.digest = self._place.digest
                return primary.frame_synced(event, now, wall_us)
            case ProofAnswered(number, owned):
                return self._after_proof(primary, primary.proof_answered(number, owned, now, wall_us))
            case QueriesReceived(conn, stale, ids, messages):
                return primary.queries_received(conn, stale, ids, messages)
            case QueriesAnswered():
                return primary.queries_answered(event)
            case RegisterReceived(conn, nonce):
                return primary.register_received(conn, nonce)
            case AppliedReceived(conn, lsn):
                return self._after_proof(primary, primary.applied_received(conn, lsn, now))
            case FollowReceived(conn, follow):
                return primary.follow_received(conn, follow, now)
            case ConnectionOpened(conn, hello):
                return self._client_opened(conn, hello.kind)
            case ConnectionLost(conn):
                self._clients.discard(conn)
                return self._after_proof(primary, primary.connection_lost(conn, now, wall_us))
            case ControlSynced(_, confirmed_lsn):
                return self._after_proof(primary, primary.control_synced(confirmed_lsn, now, wall_us))
            case SpaceRefused(runs):
                return primary.space_refused(runs, now)
            case SpaceFound():
                primary.space_found(now)
                return primary.next_frame(now, wall_us)
            case TimerFired():
                return self._after_proof(primary, primary.timer_fired(now, wall_us))
            case _:
                return self._as_primary_rarely(primary, event, now, wall_us)

    def _as_primary_rarely(self, primary: Primary, event: Event, now: float, wall_us: int) -> list[Effect]:
        match event:
            case SwitchoverOrdered(conn, request, target):
                refused = primary.switchover_ordered(conn, request, target, now)
                if refused is not None:
                    primary.switchover_failed = (conn, request, refused)
                return primary.next_frame(now, wall_us)
            case StopOrdered():
                self._stopping = True
                primary.begin_stop(now)
                return self._after_proof(primary, primary.next_frame(now, wall_us))
            case DeathsReported(session, seq, deaths):
                self._note_deaths(session, seq, deaths)
                return []
            case CheckpointWritten() if self._stopping and primary.closed:
                return [ReleaseLock(), StopReplica(None)]
            case CheckpointWritten(lsn, name) | CheckpointAnnounced(lsn, name):
                return primary.checkpoint_written(lsn, name)
            case DivergenceReported():
                return primary.rebase()
            case CheckpointVerified(lsn, _, good):
                return primary.checkpoint_verified(lsn, good)
            case PrimarySeen(epoch, replica, address):
                if epoch > primary.epoch and replica != self.replica:
                    # Hearsay; an idle primary asks the fence, which alone deposes (I2).
                    self.known_epoch, self.known_primary, self.known_address = epoch, replica, address
                    return primary.doubt()
                elif replica == self.replica:
                    self.known_address = address
                return []
            case _:
                return []

    def _after_proof(self, primary: Primary, effects: list[Effect]) -> list[Effect]:
        """An orderly stop ends once everything admitted is confirmed and said so."""
        if primary.confirmed_lsn > self.confirmed_lsn:
            self.confirmed_lsn = primary.confirmed_lsn
        for effect in effects:
            if isinstance(effect, StopReplica):
                assert effect is effects[-1]
                role = RolePacket("standby", self.known_epoch, "")
                return [*effects[:-1], *(Send(c, struct_packet(Type.ROLE, role)) for c in sorted(self._clients)), effect]
        if self._stopping and primary.alone and primary.drained and not primary.closed:
            primary.closed = True  # a last checkpoint makes the next start quick, and new code possible
            return [*effects, TakeCheckpoint()]
        return effects

    # ---- takeover --------------------------------------------------------------------------------------------

    def _taking_over(self, takeover: Takeover, event: Event, now: float) -> list[Effect] | None:
        """Give the effects, or None when the event is not the takeover's."""
        match event:
            case (
                LockSeen()
                | LockTaken()
                | LockRefused()
                | SealsLinked()
                | TailRead()
                | CutWritten()
                | HeadSet()
                | ControlSynced()
                | ProofAnswered()
                | CopiesApplied()
            ):
                effects = takeover.handle(event)
            case _:
                return None
        if takeover.step is Step.LOST and not effects:
            return self._takeover_lost(now)
        if takeover.step is Step.DONE:
            return [*effects, *self._become_primary(takeover, now)]
        return effects

    def _takeover_lost(self, now: float) -> list[Effect]:
        if self.takeover is not None:  # whoever suspects nobody next time suspects the holder we met
            self.known_epoch = max(self.known_epoch, self.takeover.seen_epoch)
        self.takeover = None
        self.state = State.FOLLOWING
        self._retry_at = now + FOLLOW_RETRY_S
        return [TellRole(self.role, self.known_epoch, "another replica was faster")]

    def _become_primary(self, takeover: Takeover, now: float) -> list[Effect]:
        self.takeover = None
        self.state = State.PRIMARY
        self.known_epoch = takeover.epoch
        self.known_primary = self.replica
        self.confirmed_lsn = self._place.lsn
        self.primary = Primary(
            replica=self.replica,
            epoch=takeover.epoch,
            sessions=self._sessions,
            limits=self.limits,
            safeguards=self.safeguards,
            lsn=self._place.lsn,
            chain=self._place.chain,
            time_us=self._place.time_us,
            now=now,
            deaths=self.deaths,
        )
        self.primary.digest = self._place.digest
        effects: list[Effect] = [TellRole("primary", takeover.epoch, "took over")]
        return [*effects, *(self._role_packet(conn) for conn in sorted(self._clients))]

    # ---- follower --------------------------------------------------------------------------------------------

    def _as_follower(self, event: Event, now: float) -> list[Effect]:
        match event:
            case Recovered(lsn):
                self.confirmed_lsn = max(self.confirmed_lsn, lsn)
                self.state = State.FOLLOWING
                return [TellRole(self.role, self.known_epoch, "recovered"), *self._maybe_follow(now)]
            case PrimarySeen(epoch, replica, address):
                return self._primary_seen(epoch, replica, address, now)
            case UpstreamAnswered(following):
                return self._upstream_answered(following)
            case FramesApplied(lsn, messages, size, gap):
                return self._frames_applied(lsn, messages, size, gap)
            case LogRead(lsn, end):
                return self._log_read(lsn, end, now)
            case ConnectionLost(conn) if conn == UPSTREAM:
                self._following = self._streaming = False
                self._retry_at = now + FOLLOW_RETRY_S
                return []
            case ConnectionLost(conn):
                self._clients.discard(conn)
                return []
            case TakeoverOrdered():
                return self._takeover_ordered(event)
            case HandoverReceived(handover):
                self.confirmed_lsn = max(self.confirmed_lsn, handover.lsn)
                return self._takeover_ordered(TakeoverOrdered(handover.epoch, "switchover"))
            case TimerFired():
                return self._timer_fired(now)
            case StopOrdered():
                return [StopReplica(None)]
            case DeathsReported(session, seq, deaths):
                self._note_deaths(session, seq, deaths)
                return []
            case CheckpointWritten(lsn, name):
                self._checkpointing = False
                if not name:
                    return []
                body = struct_packet(Type.CHECKPOINT, RolePacket(name, lsn, self.replica))
                return [SendUpstream(body)] if self._following else []
            case _:
                return self._client_of_follower(event)

    def _client_of_follower(self, event: Event) -> list[Effect]:
        """What clients of a replica that is not the primary get: who is, and stale answers."""
        match event:
            case ConnectionOpened(conn, hello):
                return self._client_opened(conn, hello.kind)
            case BatchReceived(conn, _) | RegisterReceived(conn, _) | FollowReceived(conn, _):
                return [self._role_packet(conn)]
            case QueriesReceived(conn, stale, ids, messages):
                if stale and self.state is not State.RECOVERING:
                    return [RunQueries(conn, ids, messages, stale)]
                return [self._role_packet(conn)]
            case QueriesAnswered(conn, ids, answers):
                return [Send(conn, encode_queries(ids, answers, stale=True, answers=True))]
            case _:
                return []

    def _client_opened(self, conn: Conn, kind: str) -> list[Effect]:
        if kind == "client":
            self._clients.add(conn)
        return []

    def _role_packet(self, conn: Conn) -> Send:
        return Send(conn, struct_packet(Type.ROLE, RolePacket(self.role, self.known_epoch, self.known_address)))

    def _primary_seen(self, epoch: int, replica: str, address: str, now: float) -> list[Effect]:
        if epoch < self.known_epoch or replica == self.replica:
            return []
        news = (epoch, replica, address) != (self.known_epoch, self.known_primary, self.known_address)
        moved = (epoch, replica) != (self.known_epoch, self.known_primary)
        self.known_epoch, self.known_primary, self.known_address = epoch, replica, address
        effects: list[Effect] = []
        if news:
            effects.extend(self._role_packet(conn) for conn in sorted(self._clients))
        if moved and self._following:
            self._following = self._streaming = False
            effects.append(LeavePrimary())
        return [*effects, *self._maybe_follow(now)]

    def _maybe_follow(self, now: float) -> list[Effect]:
        if self.state is not State.FOLLOWING or self._following or not self.known_primary:
            return []
        self._following = True
        self._retry_at = None
        return [FollowPrimary(self.known_primary, self.known_epoch)]

    def _upstream_answered(self, following: Following) -> list[Effect]:
        if not self._following or self.state is not State.FOLLOWING:
            return []
        before = self.role
        self.checkpointer = following.checkpointer
        self._streaming = following.streaming
        effects: list[Effect] = []
        if following.streaming:
            self.confirmed_lsn = max(self.confirmed_lsn, following.lsn)
        elif not self._reading:
            self._reading = True
            effects.append(ReadLog())
        if self.role != before:
            effects.append(TellRole(self.role, self.known_epoch, "named by the primary"))
        return effects

    def _frames_applied(self, lsn: int, messages: int, size: int, gap: bool) -> list[Effect]:
        self.confirmed_lsn = max(self.confirmed_lsn, lsn)
        if not self._following:
            return []
        effects: list[Effect] = [SendUpstream(packet(Type.APPLIED, U64.pack(lsn)))]
        if gap and not self._reading:
            self._streaming = False
            self._reading = True
            effects.append(ReadLog())
        self._messages_since_checkpoint += messages
        self._bytes_since_checkpoint += size
        return [*effects, *self._maybe_checkpoint()]

    def _maybe_checkpoint(self) -> list[Effect]:
        """I9: the checkpointer takes the checkpoints, so the primary need not."""
        due = (
            self._messages_since_checkpoint >= self.limits.checkpoint_every_messages
            or self._bytes_since_checkpoint >= self.limits.checkpoint_every_bytes
        )
        if not due or self._checkpointing or self.checkpointer != self.replica:
            return []
        self._checkpointing = True
        self._messages_since_checkpoint = self._bytes_since_checkpoint = 0
        return [TakeCheckpoint()]

    def _log_read(self, lsn: int, end: bool, now: float) -> list[Effect]:
        self.confirmed_lsn = max(self.confirmed_lsn, lsn)
        if not end:
            return [ReadLog()]
        self._reading = False
        if self._pending_takeover is not None:
            order, self._pending_takeover = self._pending_takeover, None
            return self._takeover_ordered(order)
        if self._following:
            return [AskUpstream()]
        self._retry_at = now + FOLLOW_RETRY_S
        return []

    def _timer_fired(self, now: float) -> list[Effect]:
        if self._retry_at is None or now < self._retry_at:
            return []
        self._retry_at = None
        return self._maybe_follow(now)

    def _takeover_ordered(self, order: TakeoverOrdered) -> list[Effect]:
        if self.takeover is not None or self.state is not State.FOLLOWING or order.epoch < self.known_epoch:
            return []
        if self._reading:
            self._pending_takeover = order  # the stretch being read ends first; one writer of the state
            return []
        self.state = State.TAKING_OVER
        self.takeover = Takeover(
            suspected_epoch=order.epoch, confirmed_lsn=self.confirmed_lsn, safeguards=self.safeguards
        )
        leave: list[Effect] = [LeavePrimary()] if self._following else []
        self._following = self._streaming = False
        return [TellRole(self.role, self.known_epoch, order.reason), *leave, *self.takeover.begin()]

    def _note_deaths(self, session: int, seq: int, deaths: int) -> None:
        if self.safeguards.park_killers:
            self.deaths[(session, seq)] = max(deaths, self.deaths.get((session, seq), 0))
            while len(self.deaths) > 1024:
                self.deaths.pop(next(iter(self.deaths)))
