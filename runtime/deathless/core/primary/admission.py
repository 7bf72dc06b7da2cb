"""What clients and peers send to a primary, up to the frame that takes it in: order, duplicates, maximums, parking.

    batch -> (its session's owner?) -> (I3: the next expected seq?) -> (I10: within every maximum?)
                 | no: BATCH_REFUSED               | lower: answered again     | no: BATCH_REFUSED with the time to wait
                                                   | higher: dropped           '-> pending -> take() -> frame

Whose a session is, `core.primary.session_owners` says; until it has said yes nothing of a batch counts, not its
acknowledgement either.

Per session two numbers say where it stands while anything of it is unconfirmed:

    first unconfirmed <= seq < next to admit        both go away once everything admitted is confirmed

Who sees what: a duplicate is answered from the reply table below "first unconfirmed" only (I1, I3, I5). That a
session is not known may follow from a frame that is not confirmed yet; then the refusal waits for that frame (I1).

A peer's batch is a run of its session like any other, but for this: it counts only on the connection that was welcomed
last (core.primary.receiving); it is answered by PEER_COMMIT, once confirmed; it holds FORK, REQUEST, RESPONSE and
CANCEL, where a client's holds CALL. A full outbox stops clients' calls alone: what a peer sends may be what empties it,
and behind a request that is refused a response could not come in.

A FORK is never refused where it runs, since nobody would be told. So where too much is suspended
(core.primary.overload) it is held back here, before it is logged: its batch is admitted up to it, the rest is refused,
and the peer sends from there again, for ever. Nothing is lost; what stands behind the FORK in its session waits with
it, other sessions go on.

Conflicts: a full disk (`full`) refuses calls and registrations with 507 and forgets what was pending, told to each
sender; acknowledgements and our own records stay (I8). Acknowledgements without messages are kept one per session, so
a flood of them is no queue (I10). Whether a message is parked is decided when its frame is formed: the last moment at
which a death that another replica reports can still count (I11).

Does not: run or write anything, know clocks or proofs. Imports core, codec and base.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final, NamedTuple

from deathless.base.errors import (
    DeathlessError,
    InvalidArgument,
    NotYourSession,
    OutboxFull,
    OutOfSpace,
    Overloaded,
    SessionExpired,
    TooLarge,
)
from deathless.base.ids import SYSTEM_SESSION
from deathless.base.limits import Limits
from deathless.base.safeguards import Safeguards
from deathless.codec.frames import Run
from deathless.codec.messages import HEADER_BYTES, PARKED_HEADER, Kind, encode_parked, encode_register
from deathless.codec.peer_messages import Crowd
from deathless.codec.refusals import RegistrationRefused
from deathless.codec.wire import (
    Batch,
    BatchRefused,
    Registered,
    Type,
    encode_peer_commit,
    encode_replies,
    struct_packet,
)
from deathless.core.effects import Disconnect, Effect, Send
from deathless.core.events import Conn, RunResult
from deathless.core.primary.overload import HeldBack, nobody
from deathless.core.primary.session_owners import SessionOwners, Standing
from deathless.core.tables.sessions import Session, SessionTable
from deathless.core.tables.stream_table import StreamTable, gap_before, part_of

SPACE_RETRY_S: Final = 0.5  # a full disk is probed again after this
OVERLOADED_RETRY_MS: Final = 20  # told to whom a queue of ours refuses
OUTBOX_RETRY_MS: Final = 200  # told to whom a full outbox refuses
OUTBOX_MEMORY_FACTOR: Final = 4  # so often `outbox_memory_bytes_max` may be in memory, while files take nothing
HELD_RETRY_MS: Final = 1000  # told to a peer whose FORKs are held back; it then sends its window again
WINDOW_RETRY_MS: Final = 50  # told to whom its own window, or a lagging follower, refuses
HELD_REFUSALS_MAX: Final = 1024  # refusals that wait for a frame; one more is dropped, its sender asks again

Runs = list[tuple[Run, Sequence[bytes]]]
_KIND_OF: Final = itemgetter(0)  # a message's first byte
_CALL: Final = int(Kind.CALL)
_OF_PEERS: Final = frozenset(map(int, (Kind.FORK, Kind.REQUEST, Kind.RESPONSE, Kind.CANCEL)))


class Registration(NamedTuple):
    """A REGISTER that is not confirmed."""

    conn: Conn  # who waits
    nonce: bytes  # as it was sent, and as the answer names it
    binds: bool  # the session becomes that connection's: the nonce was new, or it showed the secret


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


class Admission:
    """What a primary has let in and not yet released.

    Args:
        sessions: the shard's table; read here, changed only where frames run.
        deaths: (session, seq) -> deaths in that message; shared with the replica that hears of them.
        lag: messages by which the best live follower lags; 0 without followers.
        outbox_bytes: bytes of all messages that peers have not confirmed.
        outbox_memory: those of them in memory.
        crowd: how much is suspended.
        owners: whose the sessions are; shared with the replica that hears of connections.
    """

    def __init__(  # noqa: PLR0913 named arguments, each of its own type or unit
        self,
        *,
        sessions: SessionTable,
        limits: Limits,
        safeguards: Safeguards,
        counters: Counters,
        deaths: dict[tuple[int, int], int],
        lag: Callable[[], int],
        outbox_bytes: Callable[[], int] = lambda: 0,
        outbox_memory: Callable[[], int] = lambda: 0,
        crowd: Callable[[], Crowd] = nobody,
        owners: SessionOwners | None = None,
    ) -> None:
        self.full = False  # the log has no room: calls are refused with 507
        self._sessions = sessions
        self._limits = limits
        self._safeguards = safeguards
        self._counters = counters
        self._deaths = deaths
        self._lag = lag
        self._outbox_bytes = outbox_bytes
        self._outbox_memory = outbox_memory
        self.held_back = HeldBack(crowd, limits)
        # Oldest first: run, its messages, their bytes. Invariant: runs of one session are in the order of their seqs.
        self._pending: deque[tuple[Run, Sequence[bytes], int]] = deque()
        self._pending_messages = 0  # Invariant: count of messages in `_pending`
        self._pending_bytes = 0  # Invariant: their bytes
        self._acks: dict[int, int] = {}  # session -> acknowledged through, to be logged without a message
        self._next: dict[int, int] = {}  # session -> next seq to admit, while something of it is unconfirmed
        self._unconfirmed: dict[int, int] = {}  # session -> its first unconfirmed seq. Invariant: same keys as `_next`
        self._histories: dict[int, bytes] = {}  # of peers among these: history before the first unconfirmed seq
        self._conn_of: dict[int, Conn] = {}  # session -> its newest connection; of a peer: the one welcomed last
        self._owners = owners or SessionOwners(safeguards)
        self._registering: dict[bytes, Registration] = {}  # by the nonce that is logged
        self._taken = 0  # frames formed since we are primary, those refused for lack of space left out
        self._confirmed = 0  # of these, confirmed. Invariant: <= _taken
        self.count_max = limits.frame_messages_max  # messages in a frame; set by who knows (core.primary.frame_size)
        self.peers_count_max = limits.frame_messages_max  # messages of peers in a frame; likewise
        self._held: deque[tuple[int, Send]] = deque()  # refusals that wait until so many frames are confirmed

    # ---- in --------------------------------------------------------------------------------------------------

    def batch_received(self, conn: Conn, batch: Batch) -> list[Effect]:
        """Admit a client's messages, answer duplicates again, drop what comes too early (I3)."""
        session_id, first_seq, acked, count = batch.run
        session = self._sessions.get(session_id)
        if session is None:
            return self._session_unknown(conn, batch.run)
        effects: list[Effect] = []
        if session.peer:
            if self._conn_of.get(session_id) != conn and self._safeguards.fence_peer_connections:
                self._counters.dropped += 1
                return []
            acked = 0
        elif self._conn_of.get(session_id) != conn:
            standing = self._owners.standing(conn, session)
            if standing is not Standing.OWNER:
                return self._not_the_owner(conn, batch.run, standing)
            effects = self._bind(conn, session_id)
        self._conn_of[session_id] = conn
        if count == 0:
            self._acknowledge(session, acked)
            return effects
        expected = self._next.get(session_id, session.next_seq)
        skip = 0
        if first_seq != expected:
            if first_seq > expected and self._safeguards.next_expected_only:
                self._counters.dropped += 1
                return effects
            if first_seq < expected and self._safeguards.dedup:
                effects += self._answer_again(session, conn, first_seq, min(first_seq + count, expected))
                skip = min(expected - first_seq, count)
                if skip == count:
                    self._acknowledge(session, acked)
                    return effects
        run = Run(session_id, expected, acked, count - skip)
        messages = cut_messages(batch)[skip:]
        held: list[Effect] = []
        if session.peer and (at := self.held_back.first(session_id, messages)) is not None:
            why = Overloaded(self.held_back.why(session_id))
            held = [self._refuse(conn, session_id, expected + at, why, HELD_RETRY_MS, run.count - at)]
            if not at:
                return [*effects, *held]
            messages, run = messages[:at], Run(session_id, expected, acked, at)
        size = sum(map(len, messages))
        error, wait_ms = self._refusal(session, run, size) or self._misformed(messages, peer=session.peer)
        if error is not None:
            return [*effects, self._refuse(conn, session_id, expected, error, wait_ms, run.count)]
        if session_id not in self._next:
            self._unconfirmed[session_id] = expected
            if session.peer:
                self._histories[session_id] = session.history
        self._next[session_id] = expected + run.count
        piece_max = self._piece_max(peer=session.peer)
        if run.count <= piece_max and size <= self._limits.frame_bytes_max // 2:
            self._enqueue(run, messages, size)
        else:
            for part in self._cut(run, messages, piece_max):
                self._enqueue(*part)
        return [*effects, *held]

    def admit_plain(self, batches: Sequence[tuple[Conn, Batch]]) -> Runs | None:
        """Admit batches into a frame of their own, if nothing waits and each is one that `batch_received` takes whole.

        Returns: the runs of the frame, as `take` would give them; None: one of them is to be answered again, refused,
            cut or dropped, or something waits. Then nothing was changed.
        """
        if (
            self.full
            or self._pending
            or self._acks
            or self._next
            or self._registering
            or self._held
            or why_no_room(self._limits, self._outbox_bytes(), self._outbox_memory())
            or self.held_back.why_clients()
            or self._lag() > self._limits.follower_lag_messages_max
        ):
            return None
        limits, client, conn_of = self._limits, self._sessions.client, self._conn_of
        next_, unconfirmed = self._next, self._unconfirmed
        piece_max, piece_bytes_max = self._piece_max(peer=False), limits.frame_bytes_max // 2
        runs: Runs = []
        total = total_size = 0
        for conn, batch in batches:
            run = batch.run
            session_id, first_seq, acked, count = run
            session = client(session_id)
            if session is None or not count or conn_of.get(session_id) != conn:
                break
            expected = next_.get(session_id, session.next_seq)
            messages = (batch.blob,) if count == 1 else cut_messages(batch)
            size = len(batch.blob)
            total += count
            total_size += size
            if (
                first_seq != expected
                or count > piece_max
                or size > piece_bytes_max
                or total > self.count_max
                or total >= limits.frame_messages_max  # a time record stands before them
                or total_size > limits.frame_bytes_max
                or total > limits.pending_messages_max
                or total_size > limits.pending_bytes_max
                or session.reply_bytes > limits.session_reply_bytes_max
                or first_seq + count - 1 - max(session.acked, min(acked, session.next_seq - 1))
                > limits.session_window_max
                or self._misformed(messages, peer=False)[0] is not None
            ):
                break
            unconfirmed.setdefault(session_id, expected)
            next_[session_id] = expected + count
            runs.append((run, messages))
        else:
            self._taken += 1
            return runs
        next_.clear()
        unconfirmed.clear()
        return None

    def why_refused(self, count: int, size: int) -> tuple[DeathlessError, int] | None:
        """Say which maximum so many messages of a stream would pass, with the milliseconds to wait, as for a client."""
        return self._no_room(count, size, client=True)

    def admit_input(self, run: Run, messages: Sequence[bytes]) -> None:
        """Queue messages of a stream that core.primary.inputs has admitted."""
        for part in self._cut(run, messages, self._piece_max(peer=False)):
            self._enqueue(*part)

    def peer_stands(self, session_id: int) -> tuple[int, bytes]:
        """Give the first position of a peer that is not confirmed, and the history before it."""
        session = self._sessions.get(session_id)
        assert session is not None and session.peer
        position = self._unconfirmed.get(session_id, session.next_seq)
        return position, self._histories.get(session_id, session.history)

    def welcome_peer(self, session_id: int, conn: Conn) -> tuple[int, bytes]:
        """Give the same; from now on the peer's batches count on `conn` alone."""
        stands = self.peer_stands(session_id)
        self._conn_of[session_id] = conn
        return stands

    def register_received(self, conn: Conn, nonce: bytes) -> list[Effect]:
        """Log a registration; the session's id is its lsn (I5). The same nonce under way is the same registration."""
        logged = self._owners.logged_nonce(conn, nonce)
        shown = self._owners.shows(conn, logged)
        under_way = self._registering.get(logged)
        if under_way is not None:
            if shown:
                self._registering[logged] = Registration(conn, nonce, True)
            return []
        if self.full:
            return [self._not_registered(conn, nonce, OutOfSpace("no room in the log"), int(SPACE_RETRY_S * 1000))]
        if self._pending_messages >= self._limits.pending_messages_max:
            error = Overloaded(f"pending messages at {self._limits.pending_messages_max}")
            return [self._not_registered(conn, nonce, error, OVERLOADED_RETRY_MS)]
        self._registering[logged] = Registration(conn, nonce, shown or not self._sessions.registered(logged))
        self.record(encode_register(logged))
        return []

    def record(self, message: bytes) -> None:
        """Have one of the shard's own records logged."""
        self._enqueue(Run(SYSTEM_SESSION, 0, 0, 1), (message,), len(message))

    def connection_lost(self, conn: Conn) -> None:
        """Forget a connection; its sessions stay."""
        for session in [s for s, c in self._conn_of.items() if c == conn]:
            del self._conn_of[session]
        for logged, under_way in self._registering.items():
            if under_way.conn == conn and under_way.binds:
                self._registering[logged] = under_way._replace(binds=False)

    # ---- out -------------------------------------------------------------------------------------------------

    @property
    def streams(self) -> StreamTable:
        """Give the shard's streams."""
        return self._sessions.streams

    @property
    def waiting(self) -> bool:
        """Is there anything for a frame?"""
        return bool(self._pending or self._acks)

    def take(self, count: int, size: int = 0, *, half: bool = False) -> Runs:
        """Give what the next frame holds: acknowledgements, then what is pending, oldest first, within its maximums.

        Only while no frame is being run: the acknowledgements carry the table's next expected seqs.

        Args:
            count: messages that the frame holds already. However small the maximums, one pending run fits.
            size: bytes of these where they may leave no room; above 0 nothing fits but what does.
            half: leave half of the frame to others.
        """
        self._taken += 1
        limits = self._limits
        runs = self._take_acks()
        pending = self._pending
        share = 2 if half else 1
        most = max(1, self.count_max // share)
        count_max, size_max = limits.frame_messages_max // share, limits.frame_bytes_max // share
        passed = bool(size)
        taken = taken_size = of_peers = 0
        while pending:
            run, messages, weight = pending[0]
            if self._deaths and self._holds_killer(run):
                pending.popleft()
                self._park(run, messages)
                continue
            if taken >= most:
                break
            if len(messages) > most - taken:
                self._split(most - taken)
                continue
            if (taken or passed) and (count + len(messages) > count_max or size + weight > size_max):
                break
            if self._is_of_peer(run):
                of_peers += len(messages)
                if taken and of_peers > self.peers_count_max:
                    break
            pending.popleft()
            count += len(messages)
            taken += len(messages)
            size += weight
            taken_size += weight
            runs.append((run, messages))
        self._pending_messages -= taken
        self._pending_bytes -= taken_size
        return runs

    def frame_confirmed(
        self, results: Sequence[RunResult], registered: Sequence[tuple[bytes, int]], out: dict[Conn, list[bytes]]
    ) -> list[Effect]:
        """Add what a frame's senders get to `out`; called once per frame, in order. Gives what else is to be done."""
        self._confirmed += 1
        for run, replies, history in results:
            count = run.count
            if not count:
                continue
            session = run.session
            after = run.first_seq + count
            if self._next.get(session) == after:
                del self._next[session], self._unconfirmed[session]
                self._histories.pop(session, None)
            elif session in self._unconfirmed:
                self._unconfirmed[session] = after
                if session in self._histories:
                    self._histories[session] = history
            conn = self._conn_of.get(session)
            if conn is not None:
                seqs = range(run.first_seq, after)
                data = encode_replies(session, seqs, replies) if replies else encode_peer_commit(session, after - 1)
                out.setdefault(conn, []).append(data)
        ended: list[Effect] = []
        for logged, session in registered:
            conn, nonce, binds = self._registering.pop(logged)
            if binds:
                ended += self._bind(conn, session)
            out.setdefault(conn, []).append(struct_packet(Type.REGISTERED, Registered(nonce, session)))
        while self._held and self._held[0][0] <= self._confirmed:
            _, send = self._held.popleft()
            out.setdefault(send.conn, []).append(send.data)
        return ended

    def plain_replies(self, results: Sequence[RunResult]) -> dict[Conn, list[bytes]]:
        """Give what the senders of a frame that `admit_plain` gave are to get once it is confirmed."""
        out: dict[Conn, list[bytes]] = {}
        conn_of = self._conn_of
        for (session, first_seq, _, count), replies, _ in results:
            conn = conn_of.get(session)
            if conn is not None:
                data = encode_replies(session, range(first_seq, first_seq + count), replies)
                out.setdefault(conn, []).append(data)
        return out

    def plain_confirmed(self) -> None:
        """As `frame_confirmed`, of such a frame, behind which nothing was admitted."""
        self._confirmed += 1
        self._next.clear()
        self._unconfirmed.clear()

    # ---- space -----------------------------------------------------------------------------------------------

    def space_refused(self, runs: Sequence[tuple[Run, Sequence[bytes]]]) -> list[Effect]:
        """The frame of `runs` found no room and did not run: tell its senders and those behind it (I8).

        A retry of theirs begins where the table stands, which holds what ran before and is not confirmed yet.
        """
        self._taken -= 1
        refused = [*runs, *((run, messages) for run, messages, _ in self._pending)]
        self.full = True
        self._pending.clear()
        self._pending_messages = self._pending_bytes = 0
        effects: list[Effect] = []
        told: set[int] = set()
        for run, messages in refused:
            kind = messages[0][0] if messages else 0
            session, first_seq, count = run.session, run.first_seq, run.count
            if kind == Kind.PARKED:
                session, first_seq = PARKED_HEADER.unpack_from(messages[0], HEADER_BYTES)
            if kind == Kind.REGISTER:
                lost = self._registering.pop(messages[0][HEADER_BYTES:])
                error = OutOfSpace("no room in the log")
                effects.append(self._not_registered(lost.conn, lost.nonce, error, int(SPACE_RETRY_S * 1000)))
            elif kind == Kind.REBASED:
                self.record(messages[0])
            elif not count:
                self._acks[session] = max(run.acked, self._acks.get(session, 0))
            elif session and session not in told:
                told.add(session)
                known = self._conn_of.get(session)
                if known is not None:
                    effects.append(self._refuse_full(known, session, first_seq, count))
        self._forget_unexecuted()
        return effects

    def _forget_unexecuted(self) -> None:
        for session_id in list(self._next):
            session = self._sessions.get(session_id)
            if session is None or session.next_seq <= self._unconfirmed[session_id]:
                del self._next[session_id], self._unconfirmed[session_id]
                self._histories.pop(session_id, None)
            else:
                self._next[session_id] = session.next_seq

    # ---- admission, in detail --------------------------------------------------------------------------------

    def _bind(self, conn: Conn, session: int) -> list[Effect]:
        self._conn_of[session] = conn
        older = self._owners.bind(conn, session)
        return [Disconnect(older)] if older is not None else []

    def _not_the_owner(self, conn: Conn, run: Run, standing: Standing) -> list[Effect]:
        """Refuse a stranger for good; whom a newer connection replaced is not answered: it ends."""
        if standing is Standing.FORMER:
            self._counters.dropped += 1
            return []
        error = NotYourSession(f"session {run.session} was not registered by this connection, nor its secret shown")
        return [self._refuse(conn, run.session, run.first_seq, error, -1, run.count)]

    def _session_unknown(self, conn: Conn, run: Run) -> list[Effect]:
        """Refuse for good (I5); a frame that is not confirmed may be what ended the session, then only with it (I1)."""
        self._conn_of.pop(run.session, None)
        error = SessionExpired(f"session {run.session} is not known")
        refusal = self._refuse(conn, run.session, run.first_seq, error, -1, run.count)
        if self._confirmed == self._taken:
            return [refusal]
        if len(self._held) < HELD_REFUSALS_MAX:
            self._held.append((self._taken, refusal))
        return []

    def _acknowledge(self, session: Session, acked: int) -> None:
        """Keep an acknowledgement for the next frame; it counts only for what the session was ever sent."""
        acked = min(acked, session.next_seq - 1)
        if acked > session.acked:
            self._acks[session.id] = max(acked, self._acks.get(session.id, 0))

    def _answer_again(self, session: Session, conn: Conn, first_seq: int, before: int) -> list[Effect]:
        """Re-answer seqs [first_seq, before) from the reply table, confirmed ones only; the others come later."""
        self._counters.duplicates += before - first_seq
        if self._safeguards.reack_confirmed_only:
            before = min(before, self._unconfirmed.get(session.id, before))
        if session.peer:
            return [Send(conn, encode_peer_commit(session.id, before - 1))] if before > 1 else []
        seqs, replies = self._sessions.replies_from(session.id, first_seq, before - 1)
        return [Send(conn, encode_replies(session.id, seqs, replies))] if seqs else []

    def _refusal(self, session: Session, run: Run, size: int) -> tuple[DeathlessError, int] | None:
        """The named maximum that this run would pass, with the milliseconds to wait (I10)."""
        limits = self._limits
        acked = max(session.acked, min(run.acked, session.next_seq - 1))
        if (refusal := self._no_room(run.count, size, client=not session.peer)) is not None:
            return refusal
        if run.first_seq + run.count - 1 - acked > limits.session_window_max:
            text = f"more than {limits.session_window_max} messages without acknowledged reply"
            return Overloaded(text), WINDOW_RETRY_MS
        if session.reply_bytes > limits.session_reply_bytes_max:
            self._acknowledge(session, run.acked)  # or the refusal would keep out what ends it
            text = f"more than {limits.session_reply_bytes_max} bytes of replies are not acknowledged"
            return Overloaded(text), WINDOW_RETRY_MS
        return None

    def _no_room(self, count: int, size: int, *, client: bool) -> tuple[DeathlessError, int] | None:
        """The part of `_refusal` that does not depend on whose the messages are; `client`: not a peer's."""
        limits = self._limits
        if self.full:
            return OutOfSpace("no room in the log"), int(SPACE_RETRY_S * 1000)
        if client and (why := why_no_room(limits, self._outbox_bytes(), self._outbox_memory())):
            return OutboxFull(why), OUTBOX_RETRY_MS
        if client and (why := self.held_back.why_clients()):
            return Overloaded(why), OUTBOX_RETRY_MS
        # With nothing pending one batch fits, however large: or it would be refused for ever.
        if self._pending and self._pending_messages + count > limits.pending_messages_max:
            return Overloaded(f"pending messages at {limits.pending_messages_max}"), OVERLOADED_RETRY_MS
        if self._pending and self._pending_bytes + size > limits.pending_bytes_max:
            return Overloaded(f"pending bytes at {limits.pending_bytes_max}"), OVERLOADED_RETRY_MS
        if self._lag() > limits.follower_lag_messages_max:
            return Overloaded(f"every follower lags by more than {limits.follower_lag_messages_max}"), WINDOW_RETRY_MS
        return None

    def _misformed(self, messages: Sequence[bytes], *, peer: bool) -> tuple[DeathlessError | None, int]:
        size_max = self._limits.message_bytes_max
        if peer:
            return self._misformed_of_peer(messages), -1
        if len(messages) == 1 and HEADER_BYTES <= len(messages[0]) <= size_max and messages[0][0] == _CALL:
            return None, 0
        sizes = list(map(len, messages))
        if min(sizes) >= HEADER_BYTES and max(sizes) <= size_max and set(map(_KIND_OF, messages)) == {_CALL}:
            return None, 0
        if max(sizes) > size_max:
            return TooLarge(f"message of {max(sizes)} bytes, at most {size_max}"), -1
        return InvalidArgument("clients send CALL messages only"), -1

    def _misformed_of_peer(self, messages: Sequence[bytes]) -> DeathlessError | None:
        # Not `message_bytes_max`, which is ours: the peer's may be larger, and whatever it logged stands before all
        # that it sends us later. A frame may be made longer at any time, and that maximum may not.
        size_max = self._limits.frame_bytes_max
        longest = max(map(len, messages))
        if longest > size_max:
            text = f"a message of {longest} bytes came from another service, and a frame here has at most {size_max}"
            return TooLarge(text, remedy="raise limits.frameBytesMax of the service that gets it")
        if min(map(len, messages)) < HEADER_BYTES or not set(map(_KIND_OF, messages)) <= _OF_PEERS:
            return InvalidArgument("peers send FORK, REQUEST, RESPONSE and CANCEL messages only")
        return None

    def _refuse(
        self, conn: Conn, session: int, first_seq: int, error: DeathlessError, wait_ms: int, count: int
    ) -> Send:
        self._counters.refused += count
        body = BatchRefused(session, first_seq, error.code, error.message, wait_ms)
        return Send(conn, struct_packet(Type.BATCH_REFUSED, body))

    def _not_registered(self, conn: Conn, nonce: bytes, error: DeathlessError, wait_ms: int) -> Send:
        self._counters.refused += 1
        text = f"no session was registered: {error.message}"
        body = RegistrationRefused(SYSTEM_SESSION, 0, error.code, text, wait_ms, nonce)
        return Send(conn, struct_packet(Type.BATCH_REFUSED, body))

    def _refuse_full(self, conn: Conn, session: int, first_seq: int, count: int) -> Send:
        wait_ms = int(SPACE_RETRY_S * 1000)
        return self._refuse(conn, session, first_seq, OutOfSpace("no room in the log"), wait_ms, count)

    # ---- pieces ----------------------------------------------------------------------------------------------

    def _enqueue(self, run: Run, messages: Sequence[bytes], size: int) -> None:
        self._pending.append((run, messages, size))
        self._pending_messages += len(messages)
        self._pending_bytes += size

    def _is_of_peer(self, run: Run) -> bool:
        session = self._sessions.get(run.session)
        return session is not None and session.peer

    def _piece_max(self, *, peer: bool) -> int:
        """Messages of one sender that go into a frame in one piece: others shall find room beside it."""
        most = max(1, self._limits.frame_messages_max // 2)
        return min(most, self.peers_count_max) if peer else most

    def _cut(self, run: Run, messages: Sequence[bytes], piece_max: int) -> Iterator[tuple[Run, Sequence[bytes], int]]:
        """Cut a run into pieces of which at least two fit a frame, but for a single large message."""
        count = run.count
        size_max = self._limits.frame_bytes_max // 2
        at = 0
        while at < count:
            end, size = at + 1, len(messages[at])
            while end < count and end - at < piece_max and size + len(messages[end]) <= size_max:
                size += len(messages[end])
                end += 1
            yield self._part(run, at, end - at), messages[at:end], size
            at = end

    def _part(self, run: Run, at: int, count: int) -> Run:
        """Give a part of a run."""
        if run.session in self._sessions.streams:
            return part_of(run, at, count)
        return Run(run.session, run.first_seq + at, run.acked, count)

    def _split(self, at: int) -> None:
        """Cut the oldest pending run in two, the first with `at` messages."""
        run, messages, size = self._pending.popleft()
        head = sum(map(len, messages[:at]))
        self._pending.appendleft((self._part(run, at, run.count - at), messages[at:], size - head))
        self._pending.appendleft((self._part(run, 0, at), messages[:at], head))

    def _take_acks(self) -> Runs:
        runs: Runs = []
        for session_id in list(self._acks)[: self._limits.frame_messages_max]:
            acked = self._acks.pop(session_id)
            session = self._sessions.get(session_id)
            if session is not None and acked > session.acked:
                runs.append((Run(session_id, session.next_seq, acked, 0), ()))
        return runs

    def _parks(self, session: int, seq: int) -> bool:
        return self._deaths.get((session, seq), 0) >= self._limits.deaths_before_parking

    def _holds_killer(self, run: Run) -> bool:
        return any(self._parks(run.session, seq) for seq in range(run.first_seq, run.first_seq + run.count))

    def _park(self, run: Run, messages: Sequence[bytes]) -> None:
        """Put a run back at the front, each killer in it as a PARKED record that carries it unrun (I11)."""
        session, first, _, count = run
        parts: list[tuple[Run, Sequence[bytes], int]] = []
        if session in self._sessions.streams and (gap := gap_before(run)) is not None:
            parts.append((gap, (), 0))
        at = 0
        for end in range(count + 1):
            if end < count and not self._parks(session, first + end):
                continue
            if end > at:
                part = messages[at:end]
                parts.append((self._part(run, at, end - at), part, sum(map(len, part))))
            if end < count:
                parked = encode_parked(session, first + end, messages[end])
                parts.append((Run(SYSTEM_SESSION, 0, 0, 1), (parked,), len(parked)))
            at = end + 1
        self._pending_bytes += sum(size for _, _, size in parts) - sum(map(len, messages))
        self._pending.extendleft(reversed(parts))

    def check_invariants(self) -> None:
        """Raise AssertionError when a bookkeeping is not exact."""
        assert self._pending_messages == sum(len(messages) for _, messages, _ in self._pending)
        assert self._pending_bytes == sum(len(m) for _, messages, _ in self._pending for m in messages)
        assert self._next.keys() == self._unconfirmed.keys() >= self._histories.keys()
        assert all(self._unconfirmed[session] < after for session, after in self._next.items())
        assert 0 <= self._confirmed <= self._taken
        assert len(self._held) <= HELD_REFUSALS_MAX


def why_no_room(limits: Limits, kept: int, in_memory: int) -> str:
    """Say why messages to peers have no room; empty: they have.

    Args:
        limits: what they may take.
        kept: bytes of all that peers have not confirmed.
        in_memory: those of them in memory.
    """
    if kept >= limits.outbox_bytes_max:
        return f"peers have not confirmed {limits.outbox_bytes_max} bytes of messages"
    if in_memory >= OUTBOX_MEMORY_FACTOR * limits.outbox_memory_bytes_max:
        return f"{in_memory} bytes of messages to peers are in memory, because no file takes them"
    return ""


def cut_messages(batch: Batch) -> list[bytes]:
    """Give the messages of a batch as a list."""
    blob = batch.blob
    if batch.run.count == 1:
        return [blob]
    ends = struct.unpack(f"<{batch.run.count}I", batch.ends)
    return [blob[a:b] for a, b in zip((0, *ends), ends, strict=False)]
