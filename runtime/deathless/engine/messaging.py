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

from deathless.base.errors import CorruptFrame, Internal, Parked
from deathless.codec.frames import Run
from deathless.codec.messages import Kind, decode
from deathless.codec.peer_messages import (
    SELF,
    SELF_SESSION,
    SETTLE,
    ActivityStart,
    Adopt,
    Attempt,
    Order,
    Outcome,
    PeerHello,
    Ran,
    Reference,
    Request,
    Target,
    Trim,
    decode_body,
    encode_response,
)
from deathless.codec.snapshot import ParkedRecord, Snapshot, UnknownRecord
from deathless.codec.traces import Span
from deathless.codec.wire import error_reply
from deathless.core.outbox import Outbox
from deathless.core.peer_table import PeerTable
from deathless.core.results import Results
from deathless.core.sessions import SessionTable
from deathless.core.unknown_outcomes import UnknownOutcomes
from deathless.engine.ports import Executor

NOTHING_WRITTEN: Final = hashlib.blake2b(digest_size=32).digest()
"""`Executor.rolling_update` when no turn wrote anything: then a record's digest is that of its bytes alone."""


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
    ) -> None:
        self.outbox = outbox
        self.peers = peers
        self.results = results
        self.unknown = unknown
        self.asked = Asked()
        self._executor = executor
        executor.limit_targets(outbox)
        self._sessions = sessions

    def run_peer(self, run: Run, lsn: int, now_us: int, messages: Sequence[bytes]) -> list[int]:
        """Run what a peer sent, or we ourselves; gives a u32 digest per message.

        Raises: Internal when a run of ourselves is not what our outbox holds: the log and its outputs differ (I6).
        """
        session, first_seq, _, count = run
        self._sessions.accept_peer(run)
        if not count:
            return []
        target = self._target(session)
        if target == SELF:
            self._take_in(first_seq, messages)
        digests = self._executor.execute_peer(target, first_seq, lsn, now_us, messages, session)
        if len(digests) != count:
            raise Internal(f"executor gave {len(digests)} digests for {count} messages")
        return digests

    def run_record(self, kind: int, body: bytes, lsn: int, now_us: int) -> bytes:
        """Take a record in; gives what its turns wrote in short, b"" when nothing.

        Raises: CorruptFrame for a kind or body that version 1 does not know.
        """
        executor = self._executor
        match kind:
            case Kind.PEER:
                hello = decode_body(PeerHello, body)
                if self.peers.introduce(hello, lsn) == lsn:
                    self._sessions.register_peer(lsn)
                return b""
            case Kind.TRIM:
                trim = decode_body(Trim, body)
                self.outbox.trim(Target(trim.service, trim.shard), trim.through)
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
                executor.order(lsn, now_us, order)
            case Kind.ADOPT:
                self._adopt(decode_body(Adopt, body), lsn, now_us)
            case _:
                raise CorruptFrame(f"message at lsn {lsn} has kind {kind}, which version 1 does not know")
        return self.settle(now_us)

    def advance(self, lsn: int, now_us: int, *, caught_up: bool = True) -> bytes:
        """Do what logical time brings: results are forgotten, timers fire. Gives as `run_record`.

        `caught_up` False: time was moved as far as one record may, so it lags.
        """
        self.results.expire(now_us)
        if not 0 < self._executor.due_us() <= now_us:
            return b""
        self._executor.advance(lsn, now_us, caught_up=caught_up)
        return self.settle(now_us)

    def park(self, record: ParkedRecord, now_us: int) -> bytes:
        """Take a message of a peer in unrun (I11): who waits for it learns so. Gives as `run_record`."""
        self._sessions.accept_peer(Run(record.session, record.seq, 0, 1))
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
        return self.settle(now_us)

    def park_invocation(self, record: ParkedRecord, now_us: int) -> bytes:
        """End an invocation whose turn ended its process, when no message of anybody caused that turn (I11).

        The record stands in session 0, with the invocation as its seq. Gives as `run_record`.
        """
        self._kill(record.seq, record.lsn, now_us)
        return self.settle(now_us)

    def take_outputs(self, now_us: int) -> None:
        """Take what turns gave since the last call: the tables now, the rest into `asked`."""
        outputs = self._executor.take_outputs()
        if outputs is None:
            return
        messages, results, starts, stops, turns, spans, unknown = outputs
        for target, several in groupby(messages, itemgetter(0)):
            self.outbox.extend(target, [message for _, message in several])
            self.asked.moved[target] = None
        for invocation, reply in results:
            self.results.add(invocation, reply, now_us)
        for record in unknown:
            self.unknown.add(record)
        asked = self.asked
        asked.finished += results
        asked.starts += starts
        asked.stops += stops
        asked.turns += turns
        asked.spans += spans
        asked.unknown += unknown

    def sent(self) -> list[tuple[Target, int]]:
        """Give (target, next position) of each outbox that the frame made longer."""
        return [(target, self.outbox.next_position(target)) for target in self.asked.moved]

    def restore(self, snapshot: Snapshot) -> None:
        """Replace the tables by a checkpoint's; the executor and the sessions are restored by the shard."""
        self.outbox.restore(snapshot.outbox)
        self.peers.restore(snapshot.peers)
        self.results.restore(snapshot.results)
        self.unknown.restore(snapshot.unknown)
        self.asked = Asked()
        self.check_invariants()

    def check_invariants(self) -> None:
        """Assert what must hold between the tables; linear in their items."""
        self.outbox.check_invariants()
        self.peers.check_invariants()
        self.results.check_invariants()
        self.unknown.check_invariants()
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
        self.outbox.reset(now.target)  # before the turns below run: what they send is for the new one
        self._executor.peer_replaced(lsn, now_us, now.target)

    def _kill(self, invocation: int, lsn: int, now_us: int) -> None:
        self._executor.order(lsn, now_us, Order("kill", invocation, 0, parked_reply(lsn)))

    def _send(self, target: Target, message: bytes) -> None:
        self.outbox.append(target, message)
        self.asked.moved[target] = None

    def settle(self, now_us: int) -> bytes:
        """Take outputs; give the bytes that stand for what was written, b"" for nothing."""
        self.take_outputs(now_us)
        wrote = self._executor.rolling_update()
        return b"" if wrote == NOTHING_WRITTEN else wrote


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
