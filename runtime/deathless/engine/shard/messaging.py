"""What a shard knows of its peers, and what its turns ask of the outside: the part of `shard` that messaging adds.

    run of a peer       -> session moves on, executor runs it       } outputs of the turns: messages into the outbox,
    run of ourselves    -> the same, and our outbox is trimmed      } results kept, activities to start and to stop
    record of the shard -> peers, outbox, executor                  } noted for the frame's event

Everything here is a function of the log's prefix: the primary and every follower do the same, and only the primary's
core is told what a frame asked for (`Asked`), to act once the frame is confirmed (I1).

Guarantees: equal runs and records give equal tables and an equal `Asked`. Does not: decide what to log, send anything.
Imports core, codec, base and the port of the executor.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Final

import msgspec

from deathless.base.errors import CorruptFrame, Internal, Parked
from deathless.base.times import Times
from deathless.codec.frames import Run
from deathless.codec.messages import Kind, decode, encode
from deathless.codec.peer_messages import (
    DISCARD,
    REDELIVER,
    RETRY_INPUT,
    SELF,
    SELF_SESSION,
    SETTLE,
    SKIP_INPUT,
    ActivityStart,
    Adopt,
    Attempt,
    Order,
    Outcome,
    PeerHello,
    Ran,
    RedeliveredFork,
    Reference,
    Request,
    Target,
    Trim,
    decode_body,
    encode_body,
    encode_response,
)
from deathless.codec.snapshot import ParkedRecord, Snapshot, UndeliveredRecord, UnknownRecord
from deathless.codec.streams.records import StreamOpened
from deathless.codec.traces import Span
from deathless.codec.wire import ReplyError, decode_struct, error_reply
from deathless.core.tables.outbox import Outbox
from deathless.core.tables.peer_table import PeerTable
from deathless.core.tables.results import Results
from deathless.core.tables.sessions import SessionTable
from deathless.core.tables.undelivered import Undelivered
from deathless.core.tables.unknown_outcomes import UnknownOutcomes
from deathless.engine.ports import Executor
from deathless.engine.shard.inputs import Inputs

NOTHING_WRITTEN: Final = hashlib.blake2b(digest_size=32).digest()
"""`Executor.rolling_update` when no turn wrote anything: then a record's digest is that of its bytes alone."""


_RESPONSE: Final = bytes([Kind.RESPONSE])  # how such a message begins


@dataclass(slots=True)
class Asked:
    """What the turns of one frame asked of the outside, in order."""

    moved: dict[Target, None] = field(default_factory=dict)  # outboxes that became longer
    starts: list[ActivityStart] = field(default_factory=list)
    stops: list[Reference] = field(default_factory=list)
    finished: list[tuple[int, bytes]] = field(default_factory=list)  # (invocation, reply) that a caller was promised
    turns: list[Ran] = field(default_factory=list)  # that no message names, for reports of divergences
    spans: list[Span] = field(default_factory=list)  # what is over, for traces
    unknown: list[UnknownRecord] = field(default_factory=list)  # activities that may have been done


class Messaging:
    """Outbox, peers, results and unknown outcomes of one shard; shared with the core, which reads them.

    Args:
        executor: runs what peers send, and what timers and activities give.
        sessions: the shard's; those of peers are begun and ended here.
    """

    def __init__(
        self,
        executor: Executor,
        sessions: SessionTable,
        outbox: Outbox,
        peers: PeerTable,
        results: Results,
        unknown: UnknownOutcomes,
        undelivered: Undelivered,
    ) -> None:
        self.outbox = outbox
        self.peers = peers
        self.results = results
        self.unknown = unknown
        self.undelivered = undelivered
        self.asked = Asked()
        self._age_us = 0  # of the shard
        self._executor = executor
        executor.limit_targets(outbox)
        self._sessions = sessions
        self.inputs = Inputs(executor, sessions.streams, self.take_outputs)

    def moved(self, times: Times) -> None:
        """The shard's times are these now."""
        self._age_us = times.age_us
        self.inputs.moved(times)

    def run_peer(self, run: Run, lsn: int, now_us: int, messages: Sequence[bytes]) -> list[int]:
        """Run what a peer sent, or we ourselves; gives a u32 digest per message.

        Raises: Internal when a run of ourselves is not what our outbox holds: the log and its outputs differ (I6).
        """
        session, first_seq, _, count = run
        self._sessions.accept_peer(run, messages)
        if not count:
            return []
        target = self._target(session)
        if target == SELF:
            self._take_in(first_seq, messages)
        digests = self._executor.execute_peer(target, first_seq, lsn, now_us, messages, session)
        if len(digests) != count:
            raise Internal(f"executor gave {len(digests)} digests for {count} messages")
        if target != SELF:
            for at, message in enumerate(messages):
                if message[:1] == _RESPONSE:
                    self._maybe_given_up(target, message, lsn + at, now_us)
        return digests

    def _maybe_given_up(self, target: Target, message: bytes, lsn: int, now_us: int) -> None:
        """A driver gave up a message for which nobody waits: it is listed, if the outbox holds it."""
        try:
            taken = decode(message)
            invocation, position = msgspec.structs.astuple(decode_body(Reference, taken.idempotency_key))
        except CorruptFrame:
            return  # the executor has said what it is
        held = range(self.outbox.first_position(target), self.outbox.next_position(target))
        if invocation or position not in held or self.undelivered.knows(target, position):
            return
        why = _error_text(taken.args)
        sent = self.outbox.messages_from(target, position, 1)[0]
        self.undelivered.add(UndeliveredRecord(lsn, target.service, target.shard, position, now_us, why, sent))

    def run_record(self, kind: int, body: bytes, lsn: int, now_us: int) -> bytes:
        """Take a record in; gives what its turns wrote in short, b"" when nothing.

        Raises: CorruptFrame for a kind or body that version 2 does not know.
        """
        executor = self._executor
        match kind:
            case Kind.PEER:
                hello = decode_body(PeerHello, body)
                if self.peers.introduce(hello, lsn) == lsn:
                    self._sessions.register_peer(lsn)
                return b""
            case Kind.STREAM:
                self.inputs.open(decode_body(StreamOpened, body), lsn)
                return b""
            case Kind.TRIM:
                trim = decode_body(Trim, body)
                target = Target(trim.service, trim.shard)
                self.outbox.trim(target, trim.through)
                self.undelivered.trimmed(target, self.outbox.first_position(target))
                return b""
            case Kind.OUTCOME:
                executor.outcome(lsn, now_us, decode_body(Outcome, body))
            case Kind.ATTEMPT:
                executor.attempt(lsn, now_us, decode_body(Attempt, body))
            case Kind.ORDER:
                order = decode_body(Order, body)
                if order.command == SETTLE:
                    self.unknown.settle(order.invocation, order.operation)
                    return b""
                if order.command in (REDELIVER, DISCARD):
                    self._see_to(order)
                    return b""
                if order.command in (RETRY_INPUT, SKIP_INPUT):
                    self.inputs.order(order)
                    return b""
                executor.order(lsn, now_us, order)
            case Kind.ADOPT:
                self._adopt(decode_body(Adopt, body), lsn, now_us)
            case _:
                raise CorruptFrame(f"message at lsn {lsn} has kind {kind}, which version 2 does not know")
        return self.settle()

    def advance(self, lsn: int, times: Times, *, caught_up: bool = True) -> bytes:
        """Do what a time record brings: results are forgotten, timers fire. Gives as `run_record`.

        `caught_up`: see `Executor.advance`.
        """
        self.results.expire(times.age_us)
        if not self._executor.due().reached(times):
            return b""
        self._executor.advance(lsn, times, caught_up=caught_up)
        return self.settle()

    def park(self, record: ParkedRecord, now_us: int) -> bytes:
        """Take a message of a peer in unrun (I11): who waits for it learns so. Gives as `run_record`."""
        self._sessions.accept_peer(Run(record.session, record.seq, 0, 1), [record.message])
        target = self._target(record.session)
        if target == SELF:
            self._take_in(record.seq, [record.message])
        try:
            kind, _, _, envelope, _ = decode(record.message)
            if kind == Kind.REQUEST:
                caller = decode_body(Request, envelope)
                reply = parked_reply(record.lsn)
                self._send(target, encode_response(Reference(caller.invocation, caller.operation), reply))
            elif kind == Kind.RESPONSE:
                # It is the turn behind the await that ends the process, so the invocation can go no further.
                self._kill(decode_body(Reference, envelope).invocation, record.lsn, now_us)
        except CorruptFrame:
            pass  # nobody can be told who waits for a message that nobody can read
        return self.settle()

    def park_invocation(self, record: ParkedRecord, now_us: int) -> bytes:
        """End an invocation whose turn ended its process, when no message of anybody caused that turn (I11).

        The record stands in session 0, with the invocation as its seq. Gives as `run_record`.
        """
        self._kill(record.seq, record.lsn, now_us)
        return self.settle()

    def take_outputs(self) -> None:
        """Take what turns gave since the last call: the tables now, the rest into `asked`."""
        outputs = self._executor.take_outputs()
        if outputs is None:
            return
        messages, results, starts, stops, turns, spans, unknown, refused = outputs
        for target, several in groupby(messages, itemgetter(0)):
            self.outbox.extend(target, [message for _, message in several])
            self.asked.moved[target] = None
        for invocation, reply in results:
            self.results.add(invocation, reply, self._age_us)
        for record in unknown:
            self.unknown.add(record)
        asked = self.asked
        asked.finished += results
        asked.starts += starts
        asked.stops += stops
        asked.turns += turns
        asked.spans += spans
        asked.unknown += unknown
        for lsn, target, reply in refused:
            self.inputs.refused(lsn, target, reply)

    def sent(self) -> list[tuple[Target, int]]:
        """Give (target, next position) of each outbox that the frame made longer."""
        return [(target, self.outbox.next_position(target)) for target in self.asked.moved]

    def restore(self, snapshot: Snapshot) -> None:
        """Replace the tables by a checkpoint's; the executor and the sessions are restored by the shard."""
        self.outbox.restore(snapshot.outbox)
        self.peers.restore(snapshot.peers)
        self.results.restore(snapshot.results)
        self.unknown.restore(snapshot.unknown)
        self.undelivered.restore(snapshot.undelivered)
        self._sessions.streams.restore(snapshot.streams, snapshot.refused)
        self.asked = Asked()
        self.check_invariants()

    def check_invariants(self) -> None:
        """Assert what must hold between the tables; linear in their items."""
        self.outbox.check_invariants()
        self.peers.check_invariants()
        self.results.check_invariants()
        self.unknown.check_invariants()
        self.undelivered.check_invariants()
        for peer in self.peers.peers():
            session = self._sessions.get(peer.session)
            assert session is not None
            assert session.peer
        ours = self._sessions.get(SELF_SESSION)
        assert ours is not None
        assert ours.next_seq == self.outbox.first_position(SELF), "our run trims our outbox"

    def _target(self, session: int) -> Target:
        if session == SELF_SESSION:
            return SELF
        target = self.peers.target_of(session)
        assert target is not None, f"session {session} is no peer's"
        return target

    def _take_in(self, first_seq: int, messages: Sequence[bytes]) -> None:
        """Trim our own outbox by what a run of ourselves takes from it."""
        held = self.outbox.messages_from(SELF, first_seq, sum(map(len, messages)))
        if held[: len(messages)] != list(messages):
            raise Internal(f"our own messages from position {first_seq} on are not those of the outbox")
        self.outbox.trim(SELF, first_seq + len(messages) - 1)

    def _adopt(self, adopt: Adopt, lsn: int, now_us: int) -> None:
        before = self.peers.get(Target(adopt.service, adopt.shard))
        now = self.peers.adopt(adopt, lsn)
        if now is None:
            return
        if before is not None:
            self._sessions.forget(before.session)
        self._sessions.register_peer(lsn)
        self.undelivered.positions_began_anew(now.target)
        self.outbox.reset(now.target)  # before the turns below run: what they send is for the new one
        self._executor.peer_replaced(lsn, now_us, now.target)

    def _see_to(self, order: Order) -> None:
        """An operator sends a message again that a driver gave up, or discards it."""
        record = self.undelivered.get(order.invocation)
        if record is None:
            return  # somebody else was faster
        target = Target(record.service, record.shard)
        self.undelivered.take(record.id, self.outbox.first_position(target))
        if order.command == REDELIVER:
            self._send(target, _again(record))

    def _kill(self, invocation: int, lsn: int, now_us: int) -> None:
        self._executor.order(lsn, now_us, Order("kill", invocation, 0, parked_reply(lsn)))

    def _send(self, target: Target, message: bytes) -> None:
        self.outbox.append(target, message)
        self.asked.moved[target] = None

    def settle(self) -> bytes:
        """Take outputs; give the bytes that stand for what was written, b"" for nothing."""
        self.take_outputs()
        wrote = self._executor.rolling_update()
        return b"" if wrote == NOTHING_WRITTEN else wrote


def _again(record: UndeliveredRecord) -> bytes:
    """Give the message that is sent again: the same, and it says at which position it was sent first."""
    kind, method, key, envelope, args = decode(record.message)
    fork = decode_body(RedeliveredFork, envelope)
    if not fork.position:
        fork = msgspec.structs.replace(fork, position=record.position)
    return encode(kind, method=method, key=key, idempotency_key=encode_body(fork), args=args)


def _error_text(reply: bytes) -> str:
    try:
        return decode_struct(ReplyError, reply[1:]).text
    except CorruptFrame:
        return "its driver gave no reason"


def parked_reply(lsn: int) -> bytes:
    """Give the reply to a message that was set aside by the PARKED record at `lsn` (I11)."""
    text = f"parked at lsn {lsn}: it ended its handler's process again and again"
    return error_reply(Parked.code, "Parked", text)


def describe(message: bytes, turns: Sequence[Ran]) -> str:
    """Say what a message is, and whose turns it caused, for the report of a divergence."""
    try:
        kind, method, key, _, _ = decode(message)
    except CorruptFrame:
        return "a malformed message"
    named = dict.fromkeys((handler, key) for _, handler, key in turns)
    if method:
        own = (method.decode(errors="replace"), key.decode(errors="replace"))
        named = {own: None} | named
    if not named:
        return f"handler 'record of kind {kind}' for key ''"
    return ", ".join(f"handler {handler!r} for key {key!r}" for handler, key in named)
