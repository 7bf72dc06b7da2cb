"""Defects that others' systems had, or that a rewrite of ours could get, built into the product for one run.

Where a safeguard has a switch the switch is the mutant (test_mutants.py names those as well); these are the defects
that the product has no second way for. Each is a function that patches it, through pytest's MonkeyPatch, and says in
one line what is wrong then. None may change what the simulation itself records or judges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec
import pytest
from tests.encoded import encode_cancel

from deathless.base.errors import Overloaded
from deathless.base.shards import Sharding
from deathless.base.times import Due, Times
from deathless.codec.frames import Run
from deathless.codec.messages import Kind
from deathless.codec.peer_messages import SELF, SELF_SESSION, ActivityStart, Reference, Target
from deathless.codec.snapshot import OutboxRecord, SessionRecord
from deathless.codec.wire import Batch, Status, encode_peer_commit, error_reply, ok_reply
from deathless.core.effects import Effect, Send, StartActivity
from deathless.core.events import Conn
from deathless.core.primary.activities import Activities
from deathless.core.primary.admission import Admission, cut_messages
from deathless.core.primary.primary import Primary
from deathless.core.primary.sending import Outgoing, Outreach
from deathless.core.tables.outbox import Outbox
from deathless.core.tables.results import Results
from deathless.core.tables.sessions import Session, SessionTable
from deathless.engine.shard.shard import Shard
from deathless.execution.invocations.all_invocations import Invocations
from deathless.execution.invocations.journal import FORK, Event, Origin, SuspendedMessage
from deathless.execution.turn.operations import Call
from deathless.execution.turn.turn import Asked
from deathless.simulation.nodes.peer_links import PeerLink, PeerLinks
from deathless.simulation.world.spool import SimPiece

Mutant = Callable[[pytest.MonkeyPatch], None]
GIVEN_UP_US: Final = 150_000
ATTEMPTS_MAX: Final = 3
DAY_US: Final = 86_400_000_000
GAP_US: Final = 600_000_000
CACHE_MAX: Final = 2
NOBODY: Final = Reference(0, 0)


def acknowledged_from_memory(patch: pytest.MonkeyPatch) -> None:
    """A peer is told that its messages are taken in when they come, before they are in the log."""
    original = Admission.batch_received

    def batch_received(self: Any, conn: Conn, batch: Batch) -> list[Effect]:
        effects = original(self, conn, batch)
        session = self._sessions.get(batch.run.session)
        if session is not None and session.peer and self._conn_of.get(session.id) == conn:
            through = self._next.get(session.id, session.next_seq) - 1
            effects = [*effects, Send(conn, encode_peer_commit(session.id, through))]
        return effects

    patch.setattr(Admission, "batch_received", batch_received)


def checkpoints_without_outbox(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint keeps how far an outbox is, not what is in it."""
    original = Outbox.snapshot

    def snapshot(self: Outbox) -> list[OutboxRecord]:
        return [
            each if each.service == SELF.service
            else OutboxRecord(each.service, each.shard, each.first_position + len(each.messages), [])
            for each in original(self)
        ]  # fmt: skip

    patch.setattr(Outbox, "snapshot", snapshot)


def positions_outside_the_commit(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint forgets the position of an outbox that is empty just then, so that positions are given twice."""
    original = Outbox.snapshot

    def snapshot(self: Outbox) -> list[OutboxRecord]:
        return [each for each in original(self) if each.messages or each.service == SELF.service]

    patch.setattr(Outbox, "snapshot", snapshot)


def deleted_when_sent(patch: pytest.MonkeyPatch) -> None:
    """What is sent is forgotten, whether or not it arrives."""
    original = Outreach._pump

    def pump(self: Any, target: Target, peer: Outgoing, now: float) -> list[Effect]:
        effects = original(self, target, peer, now)
        if effects:
            self._trim(target, peer.cursor - 1, now)
        return effects

    patch.setattr(Outreach, "_pump", pump)


def retries_with_a_maximum(patch: pytest.MonkeyPatch) -> None:
    """A peer that was not reached a few times is not tried again."""
    original = PeerLinks._again

    def again(self: Any, link: PeerLink) -> None:
        if link.failures < ATTEMPTS_MAX:
            original(self, link)

    patch.setattr(PeerLinks, "_again", again)


def outbox_in_memory(patch: pytest.MonkeyPatch) -> None:
    """Who takes over sends what its own turns give, and nothing of what its predecessor left."""
    patch.setattr(Outreach, "begin", lambda _self: [])


def calls_given_up(patch: pytest.MonkeyPatch) -> None:
    """A call that has no reply soon fails in its handler, though it may have been run, or may yet be."""
    original = Asked.call

    def call(self: Any, address: tuple[str, str, str], arguments: bytes, decode: Any, due: Due) -> Call[Any]:
        return original(self, address, arguments, decode, due if any(due) else Due(self._turn.elapsed_us + GIVEN_UP_US))

    patch.setattr(Asked, "call", call)


def checkpoints_without_peers_positions(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint keeps who peers are, and not how far they were."""
    original = SessionTable.snapshot

    def snapshot(self: SessionTable) -> list[SessionRecord]:
        return [
            msgspec.structs.replace(each, next_seq=1, acked=0) if each.peer and each.id != SELF_SESSION else each
            for each in original(self)
        ]

    patch.setattr(SessionTable, "snapshot", snapshot)


def peers_forgotten_by_time(patch: pytest.MonkeyPatch) -> None:
    """Where peers stand is forgotten when logical time goes on by minutes at once."""
    original = Shard._move_to

    def move_to(self: Any, times: Times) -> None:
        before_us = self.place.time_us
        if before_us and times.time_us - before_us > GAP_US:
            for session in self.sessions._peers.values():
                if session.id != SELF_SESSION:
                    session.next_seq, session.acked = 1, 0
        original(self, times)

    patch.setattr(Shard, "_move_to", move_to)


def results_unrecorded(patch: pytest.MonkeyPatch) -> None:
    """What an invocation gave is told to who waits just then, and stands nowhere: a crash in between loses it."""

    def add(_self: Results, _invocation: int, _reply: bytes, _now_us: int) -> None:
        """Keep nothing."""

    patch.setattr(Results, "add", add)


def results_forgotten_by_time(patch: pytest.MonkeyPatch) -> None:
    """Replies are forgotten with the next tick of the clock, whether or not anybody got them."""
    original = Results.expire
    patch.setattr(Results, "expire", lambda self, now_us: original(self, now_us + 20_000 * DAY_US))


def replies_trimmed_unacknowledged(patch: pytest.MonkeyPatch) -> None:
    """A reply is given once and not kept."""

    def keep(self: SessionTable, session: Session, first_seq: int, replies: list[bytes]) -> None:
        """Keep nothing."""

    patch.setattr(SessionTable, "keep", keep)


def replies_computed_again(patch: pytest.MonkeyPatch) -> None:
    """A request that comes again is logged and run again under its number, and its sender told what that gives."""
    received, accept, keep = Admission.batch_received, SessionTable.accept, SessionTable.keep

    def batch_received(self: Any, conn: Conn, batch: Batch) -> list[Effect]:
        run, session = batch.run, self._sessions.get(batch.run.session)
        if session is None or session.peer or run.session in self._next or run.first_seq + run.count > session.next_seq:
            return received(self, conn, batch)
        self._conn_of[run.session] = conn
        messages = cut_messages(batch)
        self._enqueue(run, messages, sum(map(len, messages)))
        return []

    def accepted(self: SessionTable, run: Run, now_us: int) -> Session:
        session = self._sessions[run.session]
        if not run.count or run.first_seq >= session.next_seq:
            return accept(self, run, now_us)
        return accept(self, run._replace(count=0), now_us)

    def recorded(self: SessionTable, session: Session, first_seq: int, replies: list[bytes]) -> None:
        kept = session.kept
        if not kept or kept[-1][0] + len(kept[-1][1]) <= first_seq:
            keep(self, session, first_seq, replies)

    patch.setattr(Admission, "batch_received", batch_received)
    patch.setattr(SessionTable, "accept", accepted)
    patch.setattr(SessionTable, "keep", recorded)


def errors_unrecorded(patch: pytest.MonkeyPatch) -> None:
    """A caller is told what its call gave, and not that it failed."""
    original = Invocations.respond

    def respond(self: Invocations, origin: Origin, reply: bytes) -> None:
        if reply[0] == Status.OK:
            original(self, origin, reply)

    patch.setattr(Invocations, "respond", respond)


def progress_leaked(patch: pytest.MonkeyPatch) -> None:
    """Whoever asks for a key that is held is told so, as an error, in place of waiting."""
    original = Invocations._line_up

    def line_up(self: Any, message: SuspendedMessage) -> bytes | None:
        if message.received.origin.kind == FORK:
            return original(self, message)
        return error_reply(Overloaded.code, Overloaded.__name__, "another is in progress")

    patch.setattr(Invocations, "_line_up", line_up)


def second_message_nested(patch: pytest.MonkeyPatch) -> None:
    """A message runs on a key whose handler waits, which then goes on with what it had before it waited."""

    leave, resume = Invocations.leave, Invocations.resume

    def left(self: Any, invocation: Any, reply: bytes) -> None:
        self.tables.held.setdefault(invocation.received.key, invocation.id)  # another may have freed it
        leave(self, invocation, reply)

    def resumed(self: Any, invocation: Any, event: Event) -> None:
        invocation.current = self._entities.state.get(invocation.received.key)  # as if it knew of the others' changes
        resume(self, invocation, event)

    patch.setattr(Invocations, "_blocked", lambda *_: [])
    patch.setattr(Invocations, "leave", left)
    patch.setattr(Invocations, "resume", resumed)


def activities_not_begun_again(patch: pytest.MonkeyPatch) -> None:
    """Who takes over believes that what its predecessor asked for was done."""

    def begin(_self: Activities, _pending: Sequence[ActivityStart], _now: float, _wall_us: int) -> list[Effect]:
        return []

    patch.setattr(Activities, "begin", begin)


def activities_done_before_begun(patch: pytest.MonkeyPatch) -> None:
    """That an activity is done is logged, and only then is it begun."""

    def frame_confirmed(
        self: Any, starts: Iterable[ActivityStart], _stops: Sequence[Reference], _now: float, _wall_us: int
    ) -> list[Effect]:
        for start in starts:
            self._log(start, ok_reply(msgspec.msgpack.encode(start.name)), _beginning(start))
        return []

    patch.setattr(Activities, "frame_confirmed", frame_confirmed)


def _beginning(start: ActivityStart) -> Callable[[], Sequence[Effect]]:
    return lambda: [StartActivity(start)]


def runs_without_order(patch: pytest.MonkeyPatch) -> None:
    """Messages of a peer that stand in one frame run in the order of their bytes."""
    original = Admission._enqueue

    def enqueue(self: Any, run: Run, messages: Sequence[bytes], size: int) -> None:
        session = self._sessions.get(run.session)
        if session is not None and session.peer:
            messages = sorted(messages)
        original(self, run, messages, size)

    patch.setattr(Admission, "_enqueue", enqueue)


def positions_persisted_first(patch: pytest.MonkeyPatch) -> None:
    """Where a peer is is durable before what it sent: of what a crash took the position is left, and nothing else."""
    original, made = Admission.batch_received, Primary.__init__
    durable: dict[tuple[str, int], int] = {}  # (service, session) -> next position

    def init(self: Any, **arguments: Any) -> None:
        made(self, **arguments)
        self.admission.service = arguments["replica"].partition("-")[0]

    def batch_received(self: Any, conn: Conn, batch: Batch) -> list[Effect]:
        run, session = batch.run, self._sessions.get(batch.run.session)
        if session is None or not session.peer or self._conn_of.get(session.id) != conn:
            return original(self, conn, batch)
        place = self.service, session.id
        known = durable.get(place, 1)
        if self._next.get(session.id, session.next_seq) < known and run.first_seq + run.count <= known:
            return [Send(conn, encode_peer_commit(session.id, run.first_seq + run.count - 1))]
        effects = original(self, conn, batch)
        durable[place] = max(known, self._next.get(session.id, session.next_seq))
        return effects

    patch.setattr(Primary, "__init__", init)
    patch.setattr(Admission, "batch_received", batch_received)


def positions_in_a_bounded_cache(patch: pytest.MonkeyPatch) -> None:
    """Of the messages of a peer the last few are remembered: an older one that comes again is taken for new."""
    original = Admission.batch_received

    def batch_received(self: Any, conn: Conn, batch: Batch) -> list[Effect]:
        run, session = batch.run, self._sessions.get(batch.run.session)
        if session is not None and session.peer:
            expected = self._next.get(session.id, session.next_seq)
            if run.first_seq + run.count - 1 < expected - CACHE_MAX:
                batch = batch._replace(run=run._replace(first_seq=expected))
        return original(self, conn, batch)

    patch.setattr(Admission, "batch_received", batch_received)


def positions_not_rolled_back(patch: pytest.MonkeyPatch) -> None:
    """What a peer sent is rolled back for want of space, and its position in memory stays where it went."""
    original = Admission._forget_unexecuted

    def forget(self: Any) -> None:
        peers = {each for each in self._next if (known := self._sessions.get(each)) is not None and known.peer}
        kept = [(table, {each: table[each] for each in peers}) for table in (self._next, self._unconfirmed)]
        original(self)
        for table, numbers in kept:
            table.update(numbers)

    patch.setattr(Admission, "_forget_unexecuted", forget)


def replies_in_memory(patch: pytest.MonkeyPatch) -> None:
    """A reply to a peer is in the memory of who ran the request: who takes over has none, and drops the repetition."""
    original = Outreach.begin

    def begin(self: Any) -> list[Effect]:
        for queue in self._outbox._queues.values():
            for at, message in enumerate(queue.messages):
                if message[:1] == bytes([Kind.RESPONSE]):
                    queue.messages[at] = encode_cancel(NOBODY)
            size = queue.spilled + sum(map(len, queue.messages))
            self._outbox._bytes += size - queue.bytes
            queue.bytes = size
        return original(self)

    patch.setattr(Outreach, "begin", begin)


def read_positions_after_the_effect(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint holds what a client's last run did, and its position as it was before that."""
    accept, snapshot = SessionTable.accept, SessionTable.snapshot
    before: dict[tuple[int, int], int] = {}

    def accepted(self: SessionTable, run: Run, now_us: int) -> Session:
        session = self._sessions[run.session]
        if run.count:
            session.next_seq = run.first_seq  # what the log says counts
            before[id(self), run.session] = session.next_seq
        return accept(self, run, now_us)

    def copied(self: SessionTable) -> list[SessionRecord]:
        return [
            each if each.peer
            else msgspec.structs.replace(
                each,
                next_seq=(seq := max(each.acked + 1, before.get((id(self), each.id), each.next_seq))),
                replies={at: reply for at, reply in each.replies.items() if at < seq},
            )
            for each in snapshot(self)
        ]  # fmt: skip

    patch.setattr(SessionTable, "accept", accepted)
    patch.setattr(SessionTable, "snapshot", copied)


def inputs_logged_again_on_reconnect(patch: pytest.MonkeyPatch) -> None:
    """What a client repeats over a new connection is taken for new: whom it knows is remembered by connection."""
    original = Admission.batch_received

    def batch_received(self: Any, conn: Conn, batch: Batch) -> list[Effect]:
        run, session = batch.run, self._sessions.get(batch.run.session)
        if session is not None and not session.peer and self._conn_of.get(session.id, conn) != conn and run.count:
            expected = self._next.get(session.id, session.next_seq)
            batch = batch._replace(run=run._replace(first_seq=max(expected, run.first_seq)))
        return original(self, conn, batch)

    patch.setattr(Admission, "batch_received", batch_received)


def keys_on_another_shard(patch: pytest.MonkeyPatch) -> None:
    """A sender takes every service for one of a single shard."""
    patch.setattr(Sharding, "place", lambda *_: 0)


def pieces_released_too_early(patch: pytest.MonkeyPatch) -> None:
    """What stands in a spool is given free with the first of its messages that is trimmed, not with the last."""
    original = Outbox.trim

    def trim(self: Any, target: Target, through: int) -> int:
        count = original(self, target, through)
        queue = self._queues.get(target)
        if queue is not None and queue.runs and queue.first > queue.runs[0].first:
            queue.runs[0]._piece = SimPiece(b"")
            self._loaded.clear()
        return count

    patch.setattr(Outbox, "trim", trim)
