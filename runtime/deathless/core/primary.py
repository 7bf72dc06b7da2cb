"""A primary's work: admission, group commit, release, the stream to followers, handing over.

    batch -> admitted -> (frame n: run, written, synced) -> proved = confirmed -> released
                              the next frame forms while this one is on its way

One frame is written at a time: the next one only after the previous sync returned; its proof may overlap the next
write, and a proof covers what was synced when it began (I1). What arrives meanwhile is the next frame: group commit
without a timer. Who sees what: clients and followers see confirmed frames only; queries see the last completed turn
and are released with a proof begun after they arrived that covers the frames whose turns they saw.

Conflicts: a batch below the next expected seq is answered again from the reply table, but only what is confirmed
(I3, I5); one above is dropped. A full disk refuses admission (507) and goes on confirming (I8). A definite no to a
proof deposes: nothing is released any more, ever (I2).

Does not: run handlers, write files, know clocks. Imports core, codec and base.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from deathless.base.errors import Deposed, OutOfSpace, Overloaded, SessionExpired, TooLarge
from deathless.base.ids import Seq, SessionId
from deathless.base.limits import Limits
from deathless.base.safeguards import Safeguards
from deathless.codec.frames import Confirm, FrameKind, Run
from deathless.codec.messages import HEADER_BYTES, Kind, encode_parked, encode_rebased, encode_register, encode_time
from deathless.codec.wire import (
    FRAME_HEAD,
    Batch,
    BatchRefused,
    Follow,
    Following,
    Handover,
    Registered,
    Type,
    encode_queries,
    encode_replies,
    packet,
    struct_packet,
)
from deathless.core.effects import (
    Collect,
    Effect,
    ProbeSpace,
    Prove,
    RunFrame,
    RunQueries,
    Send,
    StopReplica,
    TakeCheckpoint,
    VerifyCheckpoint,
    WriteControl,
)
from deathless.core.events import Conn, FrameSynced, QueriesAnswered, RunResult
from deathless.core.sessions import SessionTable

U64: Final = struct.Struct("<Q")
SPACE_RETRY_S: Final = 0.5  # a full disk is probed again after this
HANDOVER_MAX_S: Final = 5.0  # a switchover whose target does not catch up is called off after this


@dataclass(slots=True)
class InFlight:
    """A frame that ran and is durable, not confirmed. Invariant: nothing of it has left this process."""

    first_lsn: int
    last_lsn: int
    prev_chain: bytes
    raw: bytes
    roll: int
    offset: int
    results: Sequence[RunResult]
    registered: Sequence[tuple[bytes, int]]


@dataclass(slots=True)
class Proof:
    """A proof under way; covers what was synced, and the queries that had been answered, when it began."""

    number: int
    covers_lsn: int
    queries: list[QueriesAnswered]


@dataclass(slots=True)
class FollowerState:
    """A connected follower."""

    replica: str
    applied_lsn: int
    streaming: bool
    heard_at: float


@dataclass(slots=True)
class StreamFrame:
    """A confirmed frame kept for followers."""

    first_lsn: int
    last_lsn: int
    prev_chain: bytes
    packet: bytes


@dataclass(slots=True)
class Switchover:
    """A switchover under way."""

    conn: Conn
    request: int
    target: str
    deadline: float


Pending = tuple[Run, Sequence[bytes]]


@dataclass(slots=True)
class Counters:
    """Plain integers for metrics; they only grow."""

    calls: int = 0
    frames: int = 0
    bytes: int = 0
    refused: int = 0
    duplicates: int = 0
    dropped: int = 0
    queries: int = 0
    proofs: int = 0


class Primary:
    """State of a replica while it is the primary of `epoch`.

    Args:
        replica: our name.
        epoch: ours.
        sessions: the shard's table; read here, changed only where frames run.
        lsn, chain, time_us: where the shard stands: everything up to here is confirmed.
    """

    def __init__(
        self,
        *,
        replica: str,
        epoch: int,
        sessions: SessionTable,
        limits: Limits,
        safeguards: Safeguards,
        lsn: int,
        chain: bytes,
        time_us: int,
        now: float,
        deaths: dict[tuple[int, int], int],
    ) -> None:
        self.replica = replica
        self.epoch = epoch
        self.limits = limits
        self.safeguards = safeguards
        self.counters = Counters()
        self.confirmed_lsn = lsn  # Invariant: <= synced_lsn <= executed_lsn
        self.confirmed_chain = chain
        self.synced_lsn = lsn
        self.executed_lsn = lsn  # ran; equal to synced_lsn outside a frame's making
        self.header_confirmed_lsn = lsn  # highest confirmed lsn that a synced header carries; the opening frame's first
        self.digest = b""
        self._sessions = sessions
        self._time_us = time_us
        self._pending: deque[Pending] = deque()
        self._pending_messages = 0
        self._pending_bytes = 0
        self._admitted: dict[int, int] = {}  # session -> next seq to admit; Invariant: >= the table's next_seq
        self._conn_of: dict[int, Conn] = {}  # session -> its newest connection
        self._nonces: dict[bytes, Conn] = {}
        self._deaths = deaths
        self._writing = False  # a frame is being run and written
        self._running: Sequence[Pending] = ()  # runs handed out by RunFrame, FrameSynced not yet in
        self._in_flight: deque[InFlight] = deque()
        self._proof: Proof | None = None
        self._proof_number = 0
        self._queries: list[QueriesAnswered] = []
        self._queries_waiting = 0
        self._full = False
        self._space_probe_at: float | None = None
        self._idle_since: float | None = now
        self._followers: dict[Conn, FollowerState] = {}
        self._stream: deque[StreamFrame] = deque()
        self._stream_bytes = 0
        self._checkpointer = ""
        self._messages_since_checkpoint = 0
        self._bytes_since_checkpoint = 0
        self._checkpointing = False
        self._rebasing = False  # a follower diverged: checkpoint at once, then log REBASED
        self._verified: list[int] = []  # lsns of verified checkpoints, ascending
        self._collect_below: int | None = None
        self._switchover: Switchover | None = None
        self.switchover_failed: tuple[Conn, int, str] | None = None  # to be told to who asked
        self._doubted = False  # a successor is spoken of: prove, also with nothing to release
        self.closed = False  # the lock was handed on: release nothing, admit nothing

    # ---- admission -------------------------------------------------------------------------------------------

    def batch_received(self, conn: Conn, batch: Batch) -> list[Effect]:
        """Admit a client's messages, answer duplicates again, drop what comes too early (I3)."""
        run = batch.run
        session = self._sessions.get(SessionId(run.session))
        if session is None:
            return [self._refuse(conn, run, SessionExpired(f"session {run.session} is not known"), -1)]
        if self._switchover is not None or self.closed:
            return []  # the client sends it again to the next primary
        self._conn_of[run.session] = conn
        expected = self._admitted.get(run.session, session.next_seq)
        after = run.first_seq + run.count
        if run.count and run.first_seq > expected and self.safeguards.next_expected_only:
            self.counters.dropped += 1
            return []
        effects: list[Effect] = []
        if run.count and run.first_seq < expected and self.safeguards.dedup:
            effects = self._answer_again(conn, run, min(after, expected))
        skip = max(0, expected - run.first_seq) if self.safeguards.dedup else 0
        if run.count and skip >= run.count:
            run = Run(run.session, expected, run.acked, 0)
        # An acknowledgement counts only for what the session was ever sent.
        refusal = self._refusal(run, max(session.acked, min(run.acked, session.next_seq - 1)))
        if refusal is not None:
            return [*effects, self._refuse(conn, run, refusal[0], refusal[1])]
        if run.count == 0:
            if run.acked > session.acked:
                self._enqueue(Run(run.session, expected, run.acked, 0), (), 0)
            return effects
        messages = cut_messages(batch)[skip:]
        problem = self._misformed(messages)
        if problem is not None:
            return [*effects, self._refuse(conn, run, problem, -1)]
        size = sum(map(len, messages))
        first = run.first_seq + skip
        self._admitted[run.session] = after
        self._enqueue_parted(Run(run.session, first, run.acked, after - first), messages, size)
        return effects

    def register_received(self, conn: Conn, nonce: bytes) -> list[Effect]:
        """Log a registration; the session's id is its lsn (I5)."""
        if self._switchover is not None or self.closed or self._full:
            return []
        if self._pending_messages >= self.limits.pending_messages_max:
            return []
        self._nonces[nonce] = conn
        self._enqueue(Run(0, 0, 0, 1), (encode_register(nonce),), 32)
        return []

    def queries_received(self, conn: Conn, stale: bool, ids: Sequence[int], messages: Sequence[bytes]) -> list[Effect]:
        """Run queries on the last completed turn; release waits for the proof."""
        if self._queries_waiting + len(ids) > self.limits.pending_queries_max and not stale:
            self.counters.refused += len(ids)
            return [Send(conn, struct_packet(Type.BATCH_REFUSED, BatchRefused(0, ids[0], Overloaded.code, "queries", 50)))]
        self.counters.queries += len(ids)
        return [RunQueries(conn, ids, messages, stale)]

    def queries_answered(self, event: QueriesAnswered) -> list[Effect]:
        """Hold the answers until a proof that begins after now covers what they saw."""
        if event.stale or not self.safeguards.proof_for_query:
            return [Send(event.conn, encode_queries(event.ids, event.answers, stale=event.stale, answers=True))]
        self._queries.append(event)
        self._queries_waiting += len(event.ids)
        return []

    def _refusal(self, run: Run, acked: int) -> tuple[OutOfSpace | Overloaded, int] | None:
        """The named maximum that this run would pass, with the milliseconds to wait (I10)."""
        limits = self.limits
        if run.count == 0:
            return None
        if self._full:
            return OutOfSpace("no room in the log"), int(SPACE_RETRY_S * 1000)
        if self._pending_messages + run.count > limits.pending_messages_max:
            return Overloaded(f"pending messages at {limits.pending_messages_max}"), 20
        if self._pending_bytes > limits.pending_bytes_max:
            return Overloaded(f"pending bytes at {limits.pending_bytes_max}"), 20
        if run.first_seq + run.count - 1 - acked > limits.session_window_max:
            return Overloaded(f"more than {limits.session_window_max} messages without acknowledged reply"), 50
        live = [f.applied_lsn for f in self._followers.values() if f.streaming]
        if live and self.confirmed_lsn - max(live) > limits.follower_lag_messages_max:
            return Overloaded("followers lag behind"), 50
        return None

    def _misformed(self, messages: Sequence[bytes]) -> TooLarge | None:
        for message in messages:
            if len(message) > self.limits.message_bytes_max:
                return TooLarge(f"message of {len(message)} bytes, at most {self.limits.message_bytes_max}")
            if len(message) < HEADER_BYTES or message[0] != Kind.CALL:
                return TooLarge("clients send CALL messages only")
        return None

    def _refuse(self, conn: Conn, run: Run, error: Exception, retry_after_ms: int) -> Send:
        self.counters.refused += run.count
        code = getattr(error, "code", "DL9001")
        text = getattr(error, "message", str(error))
        body = BatchRefused(run.session, run.first_seq, code, text, retry_after_ms)
        return Send(conn, struct_packet(Type.BATCH_REFUSED, body))

    def _answer_again(self, conn: Conn, run: Run, before: int) -> list[Effect]:
        """Re-answer seqs [run.first_seq, before) from the reply table, confirmed ones only; the others come later."""
        self.counters.duplicates += before - run.first_seq
        if self.safeguards.reack_confirmed_only:
            running = [r for r, _ in self._running]
            for other in [*running, *(result.run for frame in self._in_flight for result in frame.results)]:
                if other.session == run.session and other.count:
                    before = min(before, other.first_seq)
        seqs, replies = self._sessions.replies_from(SessionId(run.session), Seq(run.first_seq), Seq(before - 1))
        return [Send(conn, encode_replies(run.session, seqs, replies))] if seqs else []

    def _enqueue(self, run: Run, messages: Sequence[bytes], size: int) -> None:
        self._pending.append((run, messages))
        self._pending_messages += len(messages)
        self._pending_bytes += size

    def _enqueue_parted(self, run: Run, messages: Sequence[bytes], size: int) -> None:
        """Enqueue a run in pieces that fit a frame; a message that killed its process too often goes as PARKED (I11)."""
        session, first, acked, count = run
        piece = min(self.limits.frame_messages_max // 2, 4096)
        if not self._deaths and count <= piece and size <= self.limits.frame_bytes_max // 2:
            self._enqueue(run, messages, size)
            return
        at = 0
        while at < count:
            if self._parks(session, first + at):
                parked = encode_parked(session, first + at, messages[at])
                self._enqueue(Run(0, 0, 0, 1), (parked,), len(parked))
                at += 1
                continue
            end, weight = at, 0
            while end < count and end - at < piece and not self._parks(session, first + end):
                weight += len(messages[end])
                if end > at and weight > self.limits.frame_bytes_max // 2:
                    weight -= len(messages[end])
                    break
                end += 1
            self._enqueue(Run(session, first + at, acked, end - at), messages[at:end], weight)
            at = end

    def _parks(self, session: int, seq: int) -> bool:
        return self._deaths.get((session, seq), 0) >= self.limits.deaths_before_parking

    # ---- frames ----------------------------------------------------------------------------------------------

    def next_frame(self, now: float, wall_us: int) -> list[Effect]:
        """Form the next frame from what is pending, if no write is on its way; begin a proof where one is owed."""
        if self.closed:
            return []
        effects: list[Effect] = []
        if not self._writing:
            effects = self._form(now, wall_us)
        if not effects:
            effects = self._maybe_prove()
        return effects

    def _form(self, now: float, wall_us: int) -> list[Effect]:
        if not self._pending or self._full:  # a full disk still confirms (I8)
            return self._maybe_close(now)
        self._writing = True
        self._idle_since = None
        limits = self.limits
        runs: list[Pending] = []
        time_us = min(wall_us, self._time_us + limits.time_jump_max_s * 1_000_000) if self._time_us else wall_us
        due = time_us >= self._time_us + limits.clock_step_us
        count, size = int(due), 0
        while self._pending:
            run, messages = self._pending[0]
            weight = sum(map(len, messages))
            if runs and (count + len(messages) > limits.frame_messages_max or size + weight > limits.frame_bytes_max):
                break
            self._pending.popleft()
            count += len(messages)
            size += weight
            runs.append((run, messages))
        if due or count == 0:  # acknowledgements alone make no frame
            runs.insert(0, (Run(0, 0, 0, 1), (encode_time(max(time_us, self._time_us)),)))
        self._pending_messages = max(0, self._pending_messages - count)
        self._pending_bytes = max(0, self._pending_bytes - size) if self._pending else 0
        if not self._pending:
            self._pending_messages = 0
        self._running = runs
        return [RunFrame(runs, self.confirmed_lsn)]

    def frame_synced(self, event: FrameSynced, now: float, wall_us: int) -> list[Effect]:
        """The frame ran and is durable: prove, and meanwhile form the next one (I1)."""
        frame = event.frame
        assert self._writing
        assert frame.first_lsn == self.executed_lsn + 1
        self._running = ()
        self.executed_lsn = self.synced_lsn = frame.last_lsn
        self._time_us = max(self._time_us, event.time_us)
        self.header_confirmed_lsn = max(self.header_confirmed_lsn, frame.confirmed_lsn)
        self._count(event)
        self._in_flight.append(
            InFlight(
                frame.first_lsn,
                frame.last_lsn,
                frame.prev_chain,
                event.raw,
                event.roll,
                event.offset,
                event.results,
                event.registered,
            )
        )
        self._writing = False
        return [*self._maybe_prove(), *self.next_frame(now, wall_us)]

    def _count(self, event: FrameSynced) -> None:
        counters = self.counters
        counters.frames += 1
        counters.calls += sum(result.run.count for result in event.results)
        counters.bytes += len(event.raw)
        self._messages_since_checkpoint += event.frame.count
        self._bytes_since_checkpoint += len(event.raw)
        if self._deaths:  # a message that completed is no killer (I11)
            for run, _ in event.results:
                for seq in range(run.first_seq, run.first_seq + run.count):
                    self._deaths.pop((run.session, seq), None)

    def control_synced(self, confirmed_lsn: int, now: float, wall_us: int) -> list[Effect]:
        """A closing frame is durable."""
        self._writing = False
        self.header_confirmed_lsn = max(self.header_confirmed_lsn, confirmed_lsn)
        return [*self._maybe_hand_over(now), *self.next_frame(now, wall_us)]

    def _maybe_prove(self) -> list[Effect]:
        """Begin a proof if something synced, or an answered query, waits for one and none is under way."""
        if self._proof is not None or self.closed:
            return []
        queries = [q for q in self._queries if q.saw_lsn <= self.synced_lsn]
        owed = queries or self._collect_below is not None or self._doubted
        if self.synced_lsn == self.confirmed_lsn and not owed:
            return []
        if queries:
            self._queries = [q for q in self._queries if q.saw_lsn > self.synced_lsn]
        self._doubted = False
        self._proof_number += 1
        self._proof = Proof(self._proof_number, self.synced_lsn, queries)
        self.counters.proofs += 1
        return [Prove(self._proof_number)]

    def doubt(self) -> list[Effect]:
        """Somebody speaks of a successor: begin a proof even with nothing to release."""
        self._doubted = True
        return self._maybe_prove()

    def proof_answered(self, number: int, owned: bool, now: float, wall_us: int) -> list[Effect]:
        """Release what the proof covers; a definite no deposes (I1, I2)."""
        proof = self._proof
        if proof is None or proof.number != number:
            return []
        self._proof = None
        if not owned and self.safeguards.prove_before_release:
            return self.deposed("the proof of ownership was answered with no")
        effects = self._release(proof, now)
        if self._collect_below is not None and not effects:
            effects.append(Collect(self._collect_below))
            self._collect_below = None
        effects.extend(self._maybe_checkpoint())
        effects.extend(self._maybe_hand_over(now))
        effects.extend(self.next_frame(now, wall_us))
        return effects

    def deposed(self, why: str) -> list[Effect]:
        """Nothing more leaves this process (I2)."""
        self.closed = True
        self._in_flight.clear()
        self._queries.clear()
        return [StopReplica(Deposed(f"epoch {self.epoch}: {why}"))]

    def _release(self, proof: Proof, now: float) -> list[Effect]:
        out: dict[Conn, list[bytes]] = {}
        covered = proof.covers_lsn if self.safeguards.proof_after_sync else self.executed_lsn
        assert self.confirmed_lsn <= covered <= self.executed_lsn
        while self._in_flight and self._in_flight[0].last_lsn <= covered:
            frame = self._in_flight.popleft()
            self.confirmed_lsn = frame.last_lsn
            self._collect_replies(frame, out)
            self._stream_frame(frame, out)
        for answered in proof.queries:
            self._queries_waiting -= len(answered.ids)
            out.setdefault(answered.conn, []).append(
                encode_queries(answered.ids, answered.answers, stale=False, answers=True)
            )
        if not self._in_flight and not self._pending:
            self._idle_since = now
        return [Send(conn, parts[0] if len(parts) == 1 else b"".join(parts)) for conn, parts in out.items()]

    def _collect_replies(self, frame: InFlight, out: dict[Conn, list[bytes]]) -> None:
        for run, replies in frame.results:
            if not run.count:
                continue
            session = run.session
            after = run.first_seq + run.count
            if self._admitted.get(session) == after:
                del self._admitted[session]
            conn = self._conn_of.get(session)
            if conn is not None:
                out.setdefault(conn, []).append(encode_replies(session, range(run.first_seq, after), replies))
        for nonce, session in frame.registered:
            conn = self._nonces.pop(nonce, None)
            if conn is not None:
                out.setdefault(conn, []).append(struct_packet(Type.REGISTERED, Registered(nonce, session)))

    # ---- idle, space, time -----------------------------------------------------------------------------------

    def _maybe_close(self, now: float) -> list[Effect]:
        """An idle primary closes with one frame that carries the last confirmed lsn and digest."""
        closing = self._switchover is not None
        idle = self._idle_since is not None and now - self._idle_since >= self.limits.idle_confirm_s
        settled = not self._in_flight and self.confirmed_lsn == self.executed_lsn
        if not settled or not (idle or closing) or self.header_confirmed_lsn >= self.confirmed_lsn:
            return []
        self._writing = True
        payload = msgspec.msgpack.encode(Confirm(self.digest))
        return [WriteControl(FrameKind.CONFIRM, payload, self.confirmed_lsn)]

    def space_refused(self, runs: Sequence[Pending], now: float) -> list[Effect]:
        """No room for the frame: refuse what waits, go on confirming (I8)."""
        self._writing = False
        self._running = ()
        self._full = True
        self._space_probe_at = now + SPACE_RETRY_S
        # There is room for one closing frame more; once that is refused too, it waits for space.
        self._idle_since = now if runs and not self._in_flight else None
        effects: list[Effect] = []
        refused = [*runs, *self._pending]
        self._pending.clear()
        self._pending_messages = self._pending_bytes = 0
        told: set[int] = set()
        for run, _ in refused:
            conn = self._conn_of.get(run.session)
            if run.session and run.count and run.session not in told and conn is not None:
                told.add(run.session)
                effects.append(self._refuse(conn, run, OutOfSpace("no room in the log"), int(SPACE_RETRY_S * 1000)))
        self._admitted.clear()
        self._nonces.clear()
        return effects

    def space_found(self, now: float) -> None:
        """There is room again: admit."""
        self._full = False
        self._space_probe_at = None
        if not self._in_flight:
            self._idle_since = now

    def timer_fired(self, now: float, wall_us: int) -> list[Effect]:
        """Do what is due."""
        effects: list[Effect] = []
        if self._space_probe_at is not None and now >= self._space_probe_at:
            self._space_probe_at = now + SPACE_RETRY_S
            effects.append(ProbeSpace())
        if self._switchover is not None and now >= self._switchover.deadline:
            self._call_off("the target did not catch up in time")
        effects.extend(self._maybe_hand_over(now))
        return [*effects, *self.next_frame(now, wall_us)]

    def deadline(self) -> float | None:
        """When timer_fired is due next, in seconds of the monotonic clock."""
        if self.closed:
            return None
        unsaid = self.header_confirmed_lsn < self.confirmed_lsn and not self._writing and not self._in_flight
        due = [
            self._space_probe_at,
            self._switchover.deadline if self._switchover is not None else None,
            self._idle_since + self.limits.idle_confirm_s if self._idle_since is not None and unsaid else None,
        ]
        return min((d for d in due if d is not None and d < float("inf")), default=None)

    # ---- followers -------------------------------------------------------------------------------------------

    def follow_received(self, conn: Conn, follow: Follow, now: float) -> list[Effect]:
        """Stream from where the follower stands, or tell it to read the log first."""
        state = FollowerState(follow.replica, follow.lsn, False, now)
        self._followers[conn] = state
        backlog = self._backlog(follow)
        if backlog is None:
            return [self._following(conn, False), *self._choose_checkpointer()]
        state.streaming = True
        effects: list[Effect] = [self._following(conn, True)]
        if backlog:
            effects.append(Send(conn, b"".join(backlog)))
        return [*effects, *self._choose_checkpointer()]

    def _backlog(self, follow: Follow) -> list[bytes] | None:
        """Packets behind (lsn, chain); None where the ring does not reach back so far, or the chain differs."""
        if follow.lsn == self.confirmed_lsn:
            return [] if follow.chain == self.confirmed_chain else None
        frames = [f for f in self._stream if f.first_lsn > follow.lsn]
        if not frames or frames[0].first_lsn != follow.lsn + 1 or frames[0].prev_chain != follow.chain:
            return None
        return [f.packet for f in frames]

    def _following(self, conn: Conn, streaming: bool) -> Send:
        body = Following(streaming, self.epoch, self.confirmed_lsn, self._checkpointer)
        return Send(conn, struct_packet(Type.FOLLOWING, body))

    def applied_received(self, conn: Conn, lsn: int, now: float) -> list[Effect]:
        """A follower's progress."""
        follower = self._followers.get(conn)
        if follower is not None:
            follower.applied_lsn = lsn
            follower.heard_at = now
        return self._maybe_hand_over(now)

    def connection_lost(self, conn: Conn, now: float, wall_us: int) -> list[Effect]:
        """Forget a connection; its sessions stay."""
        for session in [s for s, c in self._conn_of.items() if c == conn]:
            del self._conn_of[session]
        lost = self._followers.pop(conn, None)
        if lost is None:
            return []
        if self._switchover is not None and self._switchover.target == lost.replica and not self.closed:
            self._call_off("the target went away")
        return [*self._choose_checkpointer(), *self.next_frame(now, wall_us)]

    def _stream_frame(self, frame: InFlight, out: dict[Conn, list[bytes]]) -> None:
        """Stream a confirmed frame; no follower ever sees another (I1)."""
        self.confirmed_chain = frame.raw[64:80]
        data = packet(Type.FRAME, FRAME_HEAD.pack(frame.last_lsn, frame.offset, frame.roll, 0), frame.raw)
        self._stream.append(StreamFrame(frame.first_lsn, frame.last_lsn, frame.prev_chain, data))
        self._stream_bytes += len(data)
        while self._stream_bytes > self.limits.stream_buffer_bytes_max:
            self._stream_bytes -= len(self._stream.popleft().packet)
        for conn, follower in self._followers.items():
            if follower.streaming:
                out.setdefault(conn, []).append(data)

    def _choose_checkpointer(self) -> list[Effect]:
        """Keep the checkpointer while it streams; else name another, so the role moves by itself."""
        names = sorted(f.replica for f in self._followers.values() if f.streaming)
        chosen = self._checkpointer if self._checkpointer in names else (names[0] if names else "")
        if chosen == self._checkpointer:
            return []
        self._checkpointer = chosen
        self._checkpointing = False
        return [self._following(conn, True) for conn, f in self._followers.items() if f.streaming]

    # ---- checkpoints -----------------------------------------------------------------------------------------

    def _maybe_checkpoint(self) -> list[Effect]:
        """With no checkpointer alive the primary copies its state between frames and writes it in a helper (I9)."""
        due = (
            self._messages_since_checkpoint >= self.limits.checkpoint_every_messages
            or self._bytes_since_checkpoint >= self.limits.checkpoint_every_bytes
        )
        due = due and not self._checkpointer
        if not (due or self._rebasing) or self._checkpointing or self._in_flight or self._writing:
            return []
        self._checkpointing = True
        self._messages_since_checkpoint = self._bytes_since_checkpoint = 0
        return [TakeCheckpoint()]

    def rebase(self) -> list[Effect]:
        """A follower differs: we alone hold what was released, so checkpoint at once and log it (I6)."""
        self._rebasing = True
        return self._maybe_checkpoint()

    def checkpoint_written(self, lsn: int, name: str) -> list[Effect]:
        """A checkpoint of ours or of the checkpointer stands; have another process read it back."""
        self._checkpointing = False
        self._messages_since_checkpoint = self._bytes_since_checkpoint = 0
        return [VerifyCheckpoint(lsn, name)] if name else []

    def checkpoint_verified(self, lsn: int, good: bool) -> list[Effect]:
        """Count it; collect below the older of the two kept, after a proof, and below what every follower has."""
        if not good:
            return []
        if self._rebasing:
            self._rebasing = False
            self._enqueue(Run(0, 0, 0, 1), (encode_rebased(lsn),), 24)
        self._verified = sorted({*self._verified, lsn})[-self.limits.checkpoints_kept :]
        if len(self._verified) < self.limits.checkpoints_kept:
            return []
        floor = min([self._verified[0], *(f.applied_lsn for f in self._followers.values())])
        if floor > self.header_confirmed_lsn:
            floor = min(floor, max(self.header_confirmed_lsn, 0))
        if floor <= 0:
            return []
        self._collect_below = floor
        return self._maybe_prove()

    # ---- switchover ------------------------------------------------------------------------------------------

    def switchover_ordered(self, conn: Conn, request: int, target: str, now: float) -> str | None:
        """Begin a switchover. Returns: why it can't be, or None."""
        names = {f.replica for f in self._followers.values() if f.streaming}
        if self._switchover is not None:
            return "a switchover is under way"
        if not names:
            return "no follower is up to date"
        if target and target not in names:
            return f"{target} is not a follower that is up to date ({', '.join(sorted(names))})"
        standbys = names - {self._checkpointer} or names
        chosen = target or max(
            (f for f in self._followers.values() if f.replica in standbys), key=lambda f: (f.applied_lsn, f.replica)
        ).replica
        self._switchover = Switchover(conn, request, chosen, now + HANDOVER_MAX_S)
        return None

    def begin_stop(self, now: float) -> None:
        """An orderly stop: what is admitted ends, nothing new comes in; a follower that is up to date takes over."""
        if self.switchover_ordered(Conn(-1), 0, "", now) is not None:
            self._switchover = Switchover(Conn(-1), 0, "", float("inf"))

    @property
    def alone(self) -> bool:
        """Nobody takes over."""
        return self._switchover is not None and not self._switchover.target

    @property
    def drained(self) -> bool:
        """Everything admitted is confirmed, and a synced header says so."""
        return (
            not self._pending
            and not self._in_flight
            and not self._writing
            and self._proof is None
            and self.header_confirmed_lsn >= self.confirmed_lsn
        )

    def _maybe_hand_over(self, now: float) -> list[Effect]:
        switchover = self._switchover
        if switchover is None or not switchover.target or not self.drained or self.closed:
            return []
        for conn, follower in self._followers.items():
            if follower.replica == switchover.target:
                if follower.applied_lsn < self.confirmed_lsn:
                    return []
                self.closed = True
                body = Handover(self.epoch, self.confirmed_lsn)
                return [
                    Send(conn, struct_packet(Type.HANDOVER, body)),
                    StopReplica(Deposed(f"handed over to {switchover.target}", remedy="")),
                ]
        self._call_off("the target went away")
        return []

    def _call_off(self, why: str) -> None:
        switchover = self._switchover
        assert switchover is not None
        self._switchover = None
        if switchover.conn == Conn(-1):  # stopping: nobody is left to take over
            self._switchover = Switchover(Conn(-1), 0, "", float("inf"))
        else:
            self.switchover_failed = (switchover.conn, switchover.request, why)

    # ---- for others ------------------------------------------------------------------------------------------

    @property
    def followers(self) -> dict[str, int]:
        """Replica -> applied lsn of those that stream."""
        return {f.replica: f.applied_lsn for f in self._followers.values() if f.streaming}

    @property
    def checkpointer(self) -> str:
        """Replica that takes the checkpoints; empty: ourselves."""
        return self._checkpointer

    @property
    def full(self) -> bool:
        """The log has no room: calls are refused with 507."""
        return self._full

    def check_invariants(self) -> None:
        """Raise AssertionError when the order of I1 is broken."""
        assert self.confirmed_lsn <= self.synced_lsn <= self.executed_lsn
        assert self._pending_messages >= 0
        if self._in_flight:
            assert self._in_flight[0].first_lsn == self.confirmed_lsn + 1
            assert self._in_flight[-1].last_lsn == self.executed_lsn


def cut_messages(batch: Batch) -> list[bytes]:
    """Give the messages of a batch as a list."""
    ends = struct.unpack(f"<{batch.run.count}I", batch.ends)
    blob = batch.blob
    if len(ends) == 1:
        return [blob]
    return [blob[a:b] for a, b in zip((0, *ends), ends, strict=False)]


