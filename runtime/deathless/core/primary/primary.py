"""A primary's work, in the order of I1: form, run and write a frame, sync, prove, release; the parts are beside it.

    admission -> (frame n: run, written, synced) -> proved = confirmed -> released to clients, streamed to followers
                         the next frame forms while this one is on its way

    core.primary.admission        what clients send: order, duplicates, maximums, parking
    core.primary.queries          queries, held until what they saw can't vanish
    core.primary.stream           followers, the ring of confirmed frames, who takes the checkpoints
    core.primary.checkpoint_plan  when one is due, which ones count, below what the log may go
    core.primary.handover         switchover and orderly stop, and the wait before either
    core.primary.messaging        peers, own work, waiting for results, activities, timers
    core.primary.frame_size             how much a frame holds

One frame is written at a time: the next one only after the previous sync returned; its proof may overlap the next
write, and a proof covers what was synced when it began (I1). What arrives meanwhile is the next frame: group commit
without a timer. After a frame that took long others are heard first: who waits for what it sent, confirms it then.

    writing: NOTHING --RunFrame------> FRAME ----synced | no space--> NOTHING
             NOTHING --WriteControl--> CLOSING --synced | no space--> NOTHING
    proof:   none --something synced, asked or owed--> one under way --answered yes--> none
                                                                     '-answered no---> gone (I2)

A proof without an answer holds release for as long as it takes; frames go on being written up to
`copies_bytes_max` of the limits, then admission fills up and refuses. A full disk refuses admission (507) and goes on
confirming (I8): the closing frame of an idle primary is tried even then.

Does not: run handlers, write files, know clocks. Imports core, codec and base.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from deathless.base.errors import Deposed
from deathless.base.ids import SYSTEM_SESSION
from deathless.base.limits import Limits
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.base.times import NEVER, Times
from deathless.codec.frames import Confirm, FrameKind, Run
from deathless.codec.messages import RECORDS_WITH_TURNS, encode_rebased, encode_time
from deathless.codec.wire import Batch, Follow
from deathless.core.effects import (
    Collect,
    Effect,
    ListCheckpoints,
    NoteConfirmed,
    ProbeSpace,
    Prove,
    RunFrame,
    Send,
    StopReplica,
    WriteControl,
)
from deathless.core.events import Conn, FrameSynced, OfMessaging, QueriesAnswered, SwitchoverOrdered
from deathless.core.primary.admission import SPACE_RETRY_S, Admission, Counters, why_no_room
from deathless.core.primary.attached import Unknown
from deathless.core.primary.checkpoint_plan import CheckpointPlan
from deathless.core.primary.frame_size import LONG_S, Pace, PeersPace
from deathless.core.primary.handover import Departure, Stage
from deathless.core.primary.in_flight import InFlight
from deathless.core.primary.messaging import Messaging, Tables
from deathless.core.primary.queries import Queries
from deathless.core.primary.session_owners import SessionOwners
from deathless.core.primary.stream import Stream, StreamFrame, frame_packet
from deathless.core.primary.suspicion import Suspicion
from deathless.core.tables.logical_time import LogicalTime
from deathless.core.tables.sessions import SessionTable

ASK_AGAIN_S: Final = 1.0
"""Seconds between two questions to the fence that are asked although nothing waits to be released."""


class Writing(enum.Enum):
    """What is on its way to the log."""

    NOTHING = "nothing"
    FRAME = "a frame with messages"
    CLOSING = "a closing frame"


class Formed(NamedTuple):
    """A frame, when it was formed."""

    at: float  # monotonic seconds
    optional: int = 0  # its messages that it could have left out
    alone: bool = True  # no record of it runs a turn


@dataclass(slots=True)
class Proof:
    """A proof under way; covers what was synced, answered or owed when it began."""

    number: int
    covers_lsn: int
    queries: list[QueriesAnswered]
    unknown: list[Unknown]
    collect_below: int | None


class Primary:
    """State of a replica while it is the primary of `epoch`.

    Args:
        replica: our name.
        epoch: ours.
        sessions: the shard's table; read here, changed only where frames run.
        lsn, chain, times, generation_lsn: where the shard stands, all confirmed; where its code's generation began.
        gap_us: what has passed since the last time record, as far as it is known.
        now, wall_us: monotonic seconds, and the wall clock.
        deaths: (session, seq) -> deaths in that message; shared with the replica that hears of them.
        suspicion: which frames are tried out; None: none. Shared likewise.
        tables: what else of the shard is read here.
        owners: whose the sessions are; shared with the replica that hears of connections.
        activity_processes: how many run activities; None: enough for all that may run.
    """

    def __init__(  # noqa: PLR0913 named arguments, each of its own type or unit
        self,
        *,
        replica: str,
        epoch: int,
        sessions: SessionTable,
        limits: Limits,
        safeguards: Safeguards,
        lsn: int,
        chain: bytes,
        times: Times,
        now: float,
        wall_us: int,
        gap_us: int = 0,
        deaths: dict[tuple[int, int], int],
        suspicion: Suspicion | None = None,
        tables: Tables | None = None,
        owners: SessionOwners | None = None,
        activity_processes: int | None = None,
        generation_lsn: int = 0,
    ) -> None:
        """Put the parts together; it is long because each of them, and each number kept here, has a line."""
        tables = tables or Tables()
        self.replica = replica
        self.epoch = epoch
        self.limits = limits
        self.safeguards = safeguards
        # What a test leaves out is tried where each safeguard has a step of its own.
        self._all_safeguards = safeguards == ALL_SAFEGUARDS
        self.counters = Counters()
        self.header_confirmed_lsn = lsn  # highest confirmed lsn that a synced header carries; the opening frame's first
        self.digest = b""  # rolling digest behind the last frame that ran
        self.stream = Stream(epoch=epoch, limits=limits, lsn=lsn, chain=chain)
        self.admission = Admission(
            sessions=sessions,
            limits=limits,
            safeguards=safeguards,
            counters=self.counters,
            deaths=deaths,
            lag=self.stream.lag,
            outbox_bytes=lambda: tables.outbox.bytes + tables.undelivered.bytes,
            outbox_memory=tables.outbox.relieve,
            crowd=tables.crowd,
            owners=owners,
        )
        self.messaging = Messaging(
            tables=tables,
            limits=limits,
            safeguards=safeguards,
            admission=self.admission,
            deaths=deaths,
            activity_processes=activity_processes,
        )
        self.departure = Departure(limits.handover_wait_s if safeguards.wait_for_once else 0.0, safeguards)
        self._due = tables.due
        self._outbox = tables.outbox
        self._undelivered = tables.undelivered
        self._queries = Queries(limits, safeguards, self.counters)
        self._checkpoints = CheckpointPlan(limits, generation_lsn if safeguards.checkpoints_of_this_generation else 0)
        self._time = LogicalTime(
            limits=limits, safeguards=safeguards, times=times, gap_us=gap_us, now=now, wall_us=wall_us
        )
        self._deaths = deaths
        self._suspicion = suspicion or Suspicion(deaths)
        self._pace = Pace(limits.frame_messages_max)
        self._peers_pace = PeersPace(limits.frame_messages_max)
        self._formed = Formed(now)  # the frame on its way, or the last one
        self._listen_since: float | None = None  # a frame took long: sockets are read before the next one
        self._writing = Writing.NOTHING
        self._in_flight = InFlight(lsn)
        self._proof: Proof | None = None
        self._proof_number = 0
        self._doubted = False  # a successor is spoken of: prove, also with nothing to release
        self._drained_queries = False  # a frame was due while queries ran: their answers ask for a proof by themselves
        self._collect_below: int | None = None  # owed once the next proof is answered
        self._collected = 0  # lsn of the last collection
        self._space_probe_at: float | None = None  # Invariant: set while full
        self._ask_at = now + ASK_AGAIN_S  # when the fence is asked with nothing to release
        self._due_at: float | None = None  # when a time record has work, as the clocks stood last; None: never
        self._close_refused = False  # there was no room for a closing frame; until there is
        self._idle_since: float | None = now  # since when nothing is under way
        # Invariant: None while a frame is written or waits for its proof, since no timer can close behind it.

    def begin(self, now: float, wall_us: int) -> list[Effect]:
        """We lead, and everything up to here is confirmed: go on with what the log leaves to be done."""
        noted = NoteConfirmed(self.confirmed_lsn, self.stream.chain)
        return [noted, *self.messaging.begin(now, self._time.elapsed_us(now)), *self.next_frame(now, wall_us)]

    # ---- from clients ----------------------------------------------------------------------------------------

    def batches_received(self, batches: Sequence[tuple[Conn, Batch]]) -> list[Effect]:
        """Admit clients' messages (core.primary.admission); on the way out they are left to the next primary."""
        if not self.departure.serving:
            return []
        admit = self.admission.batch_received
        return [effect for conn, batch in batches for effect in admit(conn, batch)]

    def register_received(self, conn: Conn, nonce: bytes) -> list[Effect]:
        """Log a registration; the session's id is its lsn (I5)."""
        if not self.departure.serving:
            return []
        return self.admission.register_received(conn, nonce)

    def queries_received(self, conn: Conn, stale: bool, ids: Sequence[int], messages: Sequence[bytes]) -> list[Effect]:
        """Run queries on the last completed turn; release waits for the proof."""
        return self._queries.received(conn, stale, ids, messages)

    def queries_answered(self, event: QueriesAnswered) -> list[Effect]:
        """Hold the answers until a proof that begins after now covers what they saw."""
        effects = self._queries.answered(event, self.confirmed_lsn)
        if self._drained_queries and not self._queries.running:
            self._drained_queries = False
            effects.extend(self._maybe_prove())
        return effects

    # ---- from peers, activities, and those who wait for results ----------------------------------------------

    def message_received(self, event: OfMessaging, now: float, wall_us: int) -> list[Effect]:
        """Route to core.primary.messaging, then write what there is to be written."""
        if self.closed:
            return []
        effects = self.messaging.handle(
            event,
            staying=self.departure.serving,
            writing=self._writing is Writing.FRAME,
            confirmed_lsn=self.confirmed_lsn,
            synced_lsn=self.synced_lsn,
            now=now,
        )
        if self.messaging.outreach.doubted:
            self.messaging.outreach.doubted = False
            self._doubted = True
        return [*effects, *self._maybe_hand_over(now), *self.next_frame(now, wall_us)]

    # ---- frames ----------------------------------------------------------------------------------------------

    def buffers_drained(self, now: float, wall_us: int) -> list[Effect]:
        """Every socket was read: form a frame."""
        self._listen_since = None
        return self.next_frame(now, wall_us)

    def next_frame(self, now: float, wall_us: int) -> list[Effect]:
        """Form the next frame from what is pending, if no write is on its way; begin a proof where one is owed."""
        if self.departure.stage is Stage.GONE:
            return []
        effects: list[Effect] = []
        if self._writing is Writing.NOTHING and self._listen_since is None:
            effects = self._maybe_form(now, wall_us) or self._maybe_close(now)
        if not effects:
            self._drained_queries = self._queries.running
            effects = self._maybe_prove()
        return effects

    def _maybe_form(self, now: float, wall_us: int) -> list[Effect]:
        """Form a frame if there is anything for it."""
        staying = self.departure.serving
        waiting = self.admission.waiting or self.messaging.waiting(staying=staying, now=now)
        due = self._due() if staying else NEVER  # when a time record has something to do
        if not waiting and due is NEVER:
            self._due_at = None
            return []
        times = self._time.draw(now, wall_us)
        timers = due.reached(times)
        self._due_at = self._time.due_at(now, times, due)
        if not (waiting or timers) or self.admission.full or not self._room:
            return []
        return self._form(now, times, timers=timers)

    def _form(self, now: float, times: Times, *, timers: bool) -> list[Effect]:
        self._writing = Writing.FRAME
        self._idle_since = None
        staying = self.departure.serving
        due = self._time.stale(times) or timers
        aside = self.messaging.set_aside()
        runs = self.messaging.fill(int(due) + len(aside), staying=staying)
        records = [record for run, messages in runs if run.session == SYSTEM_SESSION for record in messages]
        optional = sum(len(messages) for _, messages in runs) - len(records)
        alone = not (timers or aside or any(record[0] in RECORDS_WITH_TURNS for record in records))
        self._formed = Formed(now, optional, alone)
        # A frame is told by its lsns, so acknowledgements alone make none: they ride on a time record.
        if due or not any(messages for _, messages in runs):
            runs.insert(0, (Run(SYSTEM_SESSION, 0, 0, 1), (encode_time(times),)))
        runs = aside + runs
        try_out = self._suspicion.covers(runs, now) and self.safeguards.try_out_suspects
        return [RunFrame(runs, self.confirmed_lsn, try_out)]

    # ---- the short way ---------------------------------------------------------------------------------------

    @property
    def releases_at_once(self) -> bool:
        """May the frame that runs now be released right behind its sync, by a look that says that we lead?

        It may where its proof would be the only one and cover nothing else. Each flag that makes a difference is here.
        """
        return (
            self._all_safeguards
            and self._proof is None
            and not self._in_flight
            and not self._doubted
            and self._collect_below is None
            and self.departure.stage is Stage.STAYING
            and self._queries.none
            and not self.messaging.attached.owed
            and not self.messaging.outreach.doubted
        )

    @property
    def _at_rest(self) -> bool:
        """Is a frame of what clients just sent all there is to do? With `Admission.admit_plain`, every flag."""
        resting = self._writing is Writing.NOTHING and self._listen_since is None
        return resting and self.releases_at_once and self.messaging.quiet

    def short_frame(self, batches: Sequence[tuple[Conn, Batch]], now: float, wall_us: int) -> RunFrame | None:
        """Admit what clients sent and form its frame in one step, as `batches_received` and `buffers_drained` would.

        Returns: None: it is not all there is to do. Then nothing was changed, and these two are called.
        """
        if not (self._at_rest and self._suspicion.none(now)):
            return None
        times, due = self._time.draw(now, wall_us), self._due()
        if due is not NEVER and due.reached(times):
            return None
        runs = self.admission.admit_plain(batches)
        if runs is None:
            return None
        self._writing = Writing.FRAME
        self._idle_since = None
        self._formed = Formed(now, sum(run.count for run, _ in runs))
        if self._time.stale(times):
            runs.insert(0, (Run(SYSTEM_SESSION, 0, 0, 1), (encode_time(times),)))
        return RunFrame(runs, self.confirmed_lsn, plain=True)

    def short_release(
        self, event: FrameSynced, now: float, wall_us: int, *, plain: bool = False
    ) -> tuple[dict[Conn, list[bytes]], list[Effect]]:
        """A frame ran and is durable, it `releases_at_once`, and a proof that began then was answered yes.

        As `frame_synced` and `proof_answered`. Gives what leaves by connection, once what is confirmed was noted, and
        what else is to be done then; of a `plain` frame, one of `short_frame`, replies have left (see Admission).
        """
        self._ran(event, now)
        self._in_flight.passed(event)
        self._proof_number += 1
        self.counters.proofs += 1
        out: dict[Conn, list[bytes]] = {}
        effects: list[Effect] = []
        messaging = self.messaging
        if plain:
            self.admission.plain_confirmed()
        else:
            messaging.frame_synced(event)
            messaging.outreach.proof_began()
            messaging.outreach.proved()
            effects = self.admission.frame_confirmed(event.results, event.registered, out)
        frame, last_lsn = event.frame, self.confirmed_lsn
        data = frame_packet(last_lsn, event.roll, event.offset, event.raw)
        self.stream.publish(StreamFrame(frame.first_lsn, last_lsn, frame.prev_chain, data), frame.chain, out)
        if plain:
            self._idle_since = now
            due = self._due()
            self._due_at = None if due is NEVER else self._time.due_at(now, self._time.draw(now, wall_us), due)
            return out, self._maybe_checkpoint(now)
        effects += messaging.frame_confirmed(event, out, now, self._time.elapsed_us(now))
        if event.killers:
            self._suspicion.found(event.killers, now)
        if event.run_s >= LONG_S:
            self._listen_since = now
        if self.admission.full or not self.admission.waiting:
            self._idle_since = now
        effects += self._maybe_checkpoint(now)
        effects += self._maybe_hand_over(now)
        effects += self.next_frame(now, wall_us)
        return out, effects

    def _ran(self, event: FrameSynced, now: float) -> None:
        """Learn from a frame that ran and is durable; the next may be formed."""
        frame = event.frame
        assert self._writing is Writing.FRAME, self._writing
        self._writing = Writing.NOTHING
        self._time.moved(event.times)
        formed_at, optional, alone = self._formed
        self._pace.frame_ran(optional, event.run_s, alone=alone)
        self.admission.count_max = self._pace.count
        self._peers_pace.frame_took(frame.count, now - formed_at)
        self.admission.peers_count_max = self._peers_pace.count
        self.header_confirmed_lsn = max(self.header_confirmed_lsn, frame.confirmed_lsn)
        self._count(event)

    # ---- a frame that is durable -----------------------------------------------------------------------------

    def frame_synced(self, event: FrameSynced, now: float, wall_us: int) -> list[Effect]:
        """The frame ran and is durable: prove, and meanwhile form the next one (I1)."""
        self._ran(event, now)
        self._in_flight.append(event)
        self.messaging.frame_synced(event)
        if event.killers:
            self._suspicion.found(event.killers, now)
        if event.run_s >= LONG_S:
            self._listen_since = now
        effects = [*self._maybe_prove(), *self.next_frame(now, wall_us)]
        if not self.safeguards.witness_of_confirmed:
            effects.insert(0, NoteConfirmed(event.frame.last_lsn, event.frame.chain))
        return effects

    def _count(self, event: FrameSynced) -> None:
        counters = self.counters
        counters.frames += 1
        for run, _, _ in event.results:
            counters.calls += run[3]
        counters.bytes += len(event.raw)
        self._checkpoints.frame_logged(event.frame.count, len(event.raw))
        if self._deaths:  # a message that completed is no killer (I11)
            for run, _, _ in event.results:
                for seq in range(run.first_seq, run.first_seq + run.count):
                    self._deaths.pop((run.session, seq), None)

    def _maybe_close(self, now: float) -> list[Effect]:
        """An idle primary closes with one frame that carries the last confirmed lsn and digest."""
        leaving = not self.departure.serving
        idle = self._idle_since is not None and now >= self._idle_since + self.limits.idle_confirm_s
        if self._in_flight or self._close_refused or not (idle or leaving):
            return []
        if self.header_confirmed_lsn >= self.confirmed_lsn:
            return []
        self._writing = Writing.CLOSING
        payload = msgspec.msgpack.encode(Confirm(self.digest))
        return [WriteControl(FrameKind.CONFIRM, payload, self.confirmed_lsn)]

    def control_synced(self, confirmed_lsn: int, now: float, wall_us: int) -> list[Effect]:
        """A closing frame is durable."""
        assert self._writing is Writing.CLOSING, self._writing
        self._writing = Writing.NOTHING
        self.header_confirmed_lsn = max(self.header_confirmed_lsn, confirmed_lsn)
        return [*self._maybe_hand_over(now), *self.next_frame(now, wall_us)]

    # ---- proof and release -----------------------------------------------------------------------------------

    def _maybe_prove(self) -> list[Effect]:
        """Begin a proof if something synced, an answered query or a collection waits for one and none is under way."""
        if self._proof is not None or self.departure.stage is Stage.GONE:
            return []
        synced_lsn = self._in_flight.synced_lsn
        queries = self._queries.take(synced_lsn)
        unknown = self.messaging.attached.take(synced_lsn)
        owed = queries or unknown or self._doubted or self._collect_below is not None
        if synced_lsn == self._in_flight.confirmed_lsn and not owed:
            return []
        self._doubted = False
        self.messaging.outreach.proof_began()
        self._proof_number += 1
        self._proof = Proof(self._proof_number, synced_lsn, queries, unknown, self._collect_below)
        self.counters.proofs += 1
        return [Prove(self._proof_number)]

    @property
    def next_proof(self) -> int:
        """Number of the next proof that will begin."""
        return self._proof_number + 1

    def doubt(self) -> list[Effect]:
        """Somebody speaks of a successor: begin a proof even with nothing to release."""
        self._doubted = True
        return self._maybe_prove()

    def proof_answered(self, number: int, owned: bool, now: float, wall_us: int) -> list[Effect]:
        """Release what the proof covers; a definite no deposes, whichever proof it answers (I1, I2)."""
        if not owned and self.safeguards.prove_before_release:
            return self._deposed("the proof of ownership was answered with no")
        proof = self._proof
        if proof is None or proof.number != number:
            return []
        self._proof = None
        self.messaging.outreach.proved()
        effects = self._release(proof, now)
        if proof.collect_below is not None:
            kept_from = self._checkpoints.newest if self._short else self._checkpoints.floor
            effects.append(Collect(proof.collect_below, kept_from))
            self._collected = proof.collect_below
            if self._collect_below == proof.collect_below:
                self._collect_below = None
            if self.admission.full:
                self._space_probe_at = now
        effects.extend(self._maybe_checkpoint(now))
        effects.extend(self._maybe_hand_over(now))
        effects.extend(self.next_frame(now, wall_us))
        return effects

    def _deposed(self, why: str) -> list[Effect]:
        """Nothing more leaves this process (I2)."""
        self.departure.gone()
        return [StopReplica(Deposed(f"epoch {self.epoch}: {why}"))]

    def _release(self, proof: Proof, now: float) -> list[Effect]:
        out: dict[Conn, list[bytes]] = {}
        effects: list[Effect] = []
        covered = proof.covers_lsn if self.safeguards.proof_after_sync else self.synced_lsn
        before = self._in_flight.confirmed_lsn
        for event in self._in_flight.confirm(covered):
            frame = event.frame
            effects += self.admission.frame_confirmed(event.results, event.registered, out)
            data = frame_packet(frame.last_lsn, event.roll, event.offset, event.raw)
            streamed = StreamFrame(frame.first_lsn, frame.last_lsn, frame.prev_chain, data)
            self.stream.publish(streamed, frame.chain, out)
            effects += self.messaging.frame_confirmed(event, out, now, self._time.elapsed_us(now))
        confirmed_lsn = self._in_flight.confirmed_lsn
        self._queries.release(proof.queries, confirmed_lsn, out)
        self.messaging.attached.release(proof.unknown, out)
        under_way = self._in_flight or self._writing is Writing.FRAME
        if not under_way and (self.admission.full or not self.admission.waiting):
            self._idle_since = now
        sends = [Send(conn, parts[0] if len(parts) == 1 else b"".join(parts)) for conn, parts in out.items()]
        if confirmed_lsn == before:
            return [*sends, *effects]
        noted = NoteConfirmed(confirmed_lsn, self.stream.chain)
        if not self.safeguards.page_before_release:
            return [*sends, *effects, noted]
        return [noted, *sends, *effects]

    # ---- space and time --------------------------------------------------------------------------------------

    def space_refused(self, runs: Sequence[tuple[Run, Sequence[bytes]]], now: float) -> list[Effect]:
        """No room for the frame, which did not run: refuse what waits, go on confirming (I8)."""
        assert self._writing is Writing.FRAME, self._writing
        self._writing = Writing.NOTHING
        self._space_probe_at = now + SPACE_RETRY_S
        if not self._in_flight:
            self._idle_since = now
        told = self.messaging.frame_refused(now)
        return [*told, *self.admission.space_refused(runs), *self._free_space(), *self._maybe_prove()]

    def control_refused(self, now: float) -> list[Effect]:
        """No room for the closing frame: go on without one until there is."""
        assert self._writing is Writing.CLOSING, self._writing
        self._writing = Writing.NOTHING
        self._close_refused = True
        self._space_probe_at = now + SPACE_RETRY_S
        self.admission.full = True
        return [*self._free_space(), *self._maybe_hand_over(now), *self._maybe_prove()]

    def space_found(self, now: float, wall_us: int) -> list[Effect]:
        """There is room again: admit."""
        self.admission.full = False
        self._close_refused = False
        self._space_probe_at = None
        return self.next_frame(now, wall_us)

    def timer_fired(self, now: float, wall_us: int) -> list[Effect]:
        """Do what is due."""
        self._listen_since = None
        effects: list[Effect] = []
        if self._space_probe_at is not None and now >= self._space_probe_at and self._writing is Writing.NOTHING:
            self._space_probe_at = now + SPACE_RETRY_S
            effects += [ProbeSpace(), *self._free_space()]
        if now >= self._ask_at:  # a successor may have come and gone unheard: idle, nothing else would tell us
            self._ask_at = now + ASK_AGAIN_S
            self._doubted = True
        self.departure.timer_fired(now)
        effects.extend(self.messaging.timer_fired(now, staying=self.departure.serving))
        effects.extend(self._maybe_checkpoint(now))
        effects.extend(self._maybe_hand_over(now))
        return [*effects, *self.next_frame(now, wall_us)]

    def deadline(self) -> float | None:
        """When timer_fired is due next, in seconds of the monotonic clock; None: only events change anything."""
        if self._writing is not Writing.NOTHING or self.departure.stage is Stage.GONE:
            return None
        unsaid = self.header_confirmed_lsn < self._in_flight.confirmed_lsn and not self._close_refused
        closing = self._idle_since + self.limits.idle_confirm_s if self._idle_since is not None and unsaid else None
        dues = [self._listen_since, self._space_probe_at, self._ask_at, closing]
        dues += [self.departure.deadline(), self._checkpoints.deadline(), self.messaging.deadline()]
        if self.departure.serving and self._room and not self.admission.full:  # what makes a frame by itself
            dues += [self._due_at, self.messaging.outreach.trim_deadline]
        return min([due for due in dues if due is not None], default=None)

    @property
    def _room(self) -> bool:
        """May a further frame be written before the last are proved?"""
        return self._in_flight.bytes <= self.limits.copies_bytes_max

    def slept(self, us: int, now: float, wall_us: int) -> list[Effect]:
        """The machine slept: what passed meanwhile counts for timers."""
        self._time.slept(us)
        return self.next_frame(now, wall_us)

    def time_us(self, now: float, wall_us: int) -> int:
        """Give where logical time stands now, though no record says so yet."""
        return self._time.time_us(now, wall_us)

    def clock_stepped_us(self, now: float, wall_us: int) -> int:
        """Give by how much the wall clock is ahead of logical time, negative when behind; 0: they go together."""
        return self._time.stepped_us(now, wall_us)

    # ---- followers -------------------------------------------------------------------------------------------

    def follow_received(self, conn: Conn, follow: Follow) -> list[Effect]:
        """Stream from where the follower stands, or tell it to read the log first."""
        return self.stream.follow_received(conn, follow)

    def applied_received(self, conn: Conn, lsn: int, now: float) -> list[Effect]:
        """A follower's progress."""
        self.stream.applied_received(conn, lsn)
        return self._maybe_hand_over(now)

    def connection_lost(self, conn: Conn, now: float, wall_us: int) -> list[Effect]:
        """Forget a connection; its sessions stay."""
        self.admission.connection_lost(conn)
        self.messaging.connection_lost(conn)
        replica, effects = self.stream.connection_lost(conn)
        if not replica:
            return []
        self.departure.follower_lost(replica)
        return [*effects, *self._maybe_hand_over(now), *self.next_frame(now, wall_us)]

    # ---- checkpoints -----------------------------------------------------------------------------------------

    @property
    def _short(self) -> bool:
        """Has the log no room, so that one checkpoint is enough to let it go?"""
        return self.admission.full and self.safeguards.collect_when_full

    def _free_space(self) -> list[Effect]:
        """The log has no room: see which checkpoints stand; they, or one that is taken then, let some of it go."""
        return [ListCheckpoints()] if self._short else []

    def _maybe_checkpoint(self, now: float) -> list[Effect]:
        short_of = self.confirmed_lsn if self._short else 0
        return self._checkpoints.maybe_take(now, alone=not self.stream.checkpointer, short_of=short_of)

    def _owe_collection(self) -> None:
        """What may go by the checkpoints that count goes after the next proof."""
        if self._short:  # a follower that lags, or hangs, starts from the checkpoint
            below = min(self._checkpoints.newest, self.header_confirmed_lsn)
            if below <= self._collected:
                return
        else:
            below = self.stream.floor(min(self._checkpoints.floor, self.header_confirmed_lsn))
        if below > 0:
            self._collect_below = below

    def checkpoints_found(self, lsns: Sequence[int], now: float, wall_us: int) -> list[Effect]:
        """These stand verified on our log, whoever took them, and whoever led then."""
        self._checkpoints.found(lsns)
        self._owe_collection()
        return [*self._maybe_checkpoint(now), *self.next_frame(now, wall_us)]

    def rebase(self, now: float) -> list[Effect]:
        """A follower differs: we alone hold what was released, so checkpoint at once and log it (I6)."""
        self._checkpoints.rebase(self.synced_lsn)
        return self._maybe_checkpoint(now)

    def checkpoint_written(self, lsn: int, name: str, now: float) -> list[Effect]:
        """A checkpoint of ours stands, or could not be written (no name)."""
        return self._checkpoints.written(lsn, name, now)

    def checkpoint_announced(self, conn: Conn, lsn: int, name: str) -> list[Effect]:
        """A follower wrote a checkpoint; from anybody else it is not believed."""
        return self._checkpoints.announced(lsn, name) if self.stream.follows(conn) else []

    def checkpoint_verified(self, lsn: int, good: bool, now: float, wall_us: int) -> list[Effect]:
        """Count it; what may be collected now is collected after a proof."""
        if self._checkpoints.verified(lsn, good, now):
            self.admission.record(encode_rebased(lsn))
        look: list[Effect] = []
        if good:
            self._owe_collection()
            if not self._checkpoints.listed and self.safeguards.collect_when_full:
                look.append(ListCheckpoints())  # the one before it may be of a former epoch
        return [*look, *self._maybe_checkpoint(now), *self.next_frame(now, wall_us)]

    # ---- letting go ------------------------------------------------------------------------------------------

    def switchover_ordered(self, order: SwitchoverOrdered, now: float, wall_us: int) -> list[Effect]:
        """Begin a switchover, to the best follower if no target is named; `switchover_failed` says why it can't be."""
        self.departure.switchover_ordered(order, self.stream, now)
        return [*self._maybe_hand_over(now), *self.next_frame(now, wall_us)]

    def stop_ordered(self, now: float, wall_us: int, *, at_once: bool = False) -> list[Effect]:
        """An orderly stop: what is admitted ends, nothing new comes in; a follower that is up to date takes over."""
        self.departure.stop_ordered(now, at_once=at_once)
        return [*self._maybe_hand_over(now), *self.next_frame(now, wall_us)]

    def confirmed_stored(self, lsn: int, now: float) -> list[Effect]:
        """The lock store heard of a place: the successor may hear of it too."""
        self.departure.confirmed_stored(lsn)
        return self._maybe_hand_over(now)

    def close(self) -> None:
        """Nothing leaves this process any more."""
        self.departure.gone()

    @property
    def closed(self) -> bool:
        """Deposed, handed over, or stopped alone: release nothing, admit nothing."""
        return self.departure.stage is Stage.GONE

    @property
    def alone(self) -> bool:
        """Stopping, and nobody takes over."""
        return self.departure.stage is Stage.ALONE

    @property
    def drained(self) -> bool:
        """Everything admitted is confirmed, and a synced header says so (unless there is no room to say it)."""
        return (
            (self.admission.full or not (self.admission.waiting or self.messaging.records.waiting))
            and not self._in_flight
            and self._writing is Writing.NOTHING
            and self._proof is None
            and (self._close_refused or self.header_confirmed_lsn >= self.confirmed_lsn)
        )

    def _maybe_hand_over(self, now: float) -> list[Effect]:
        departure, activities = self.departure, self.messaging.activities
        if departure.stage is Stage.STAYING and not activities.holding:
            return []
        if departure.stage is Stage.WAITING:
            departure.look(self.stream, activities.under_way, now)
        effects = activities.hold(departure.stage is not Stage.STAYING)
        if departure.stage is not Stage.HANDING_OVER or not self.drained:
            return effects
        found = self.stream.find(departure.target)
        if found is None or not found[1].streaming or found[1].applied_lsn < self.confirmed_lsn:
            return effects
        return [*effects, *departure.hand_over(found[0], self.epoch, self.confirmed_lsn)]

    # ---- for others ------------------------------------------------------------------------------------------

    @property
    def confirmed_lsn(self) -> int:
        """Everything up to here is durable, and proved to be ours after it was."""
        return self._in_flight.confirmed_lsn

    @property
    def synced_lsn(self) -> int:
        """Everything up to here ran and is durable."""
        return self._in_flight.synced_lsn

    @property
    def switchover_failed(self) -> tuple[Conn, int, str] | None:
        """(connection, request, why) of a switchover that came to nothing; who has told it sets this to None."""
        return self.departure.failed

    @switchover_failed.setter
    def switchover_failed(self, told: None) -> None:
        self.departure.failed = told

    @property
    def followers(self) -> dict[str, int]:
        """Replica -> applied lsn of those that stream."""
        return self.stream.streaming

    @property
    def checkpointer(self) -> str:
        """Replica that takes the checkpoints; empty: ourselves."""
        return self.stream.checkpointer

    @property
    def full(self) -> bool:
        """The log has no room: calls are refused with 507."""
        return self.admission.full

    @property
    def outbox_full(self) -> bool:
        """Messages to peers have no room: clients' calls are refused with 503."""
        return bool(why_no_room(self.limits, self._outbox.bytes + self._undelivered.bytes, self._outbox.memory_bytes))

    def check_invariants(self) -> None:
        """Raise AssertionError when the order of I1, or an `Invariant:` of a part, is broken."""
        assert self.header_confirmed_lsn <= self.confirmed_lsn
        self._in_flight.check_invariants()
        assert self._proof is None or self._proof.covers_lsn <= self.synced_lsn
        assert self.admission.full == (self._space_probe_at is not None)
        assert self._idle_since is None or not (self._in_flight or self._writing is Writing.FRAME)
        self.admission.check_invariants()
        self.messaging.check_invariants()
        self._queries.check_invariants()
        self.stream.check_invariants()
        self._checkpoints.check_invariants()
        self.departure.check_invariants()
