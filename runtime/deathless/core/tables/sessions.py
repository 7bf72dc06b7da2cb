"""Sessions of a shard: which seq comes next, which replies are still owed (I3, I5); pure.

One table per shard, a function of the log's prefix: the primary and every follower call the same methods in the
same order and hold equal tables. A session's life:

    register -> accept, record, accept, record, ... -> expire

`accept` takes a run of messages in (I3: only the next expected seq), `record` keeps their replies. A reply stays,
byte for byte, until the sender's cumulative acknowledgement passes it (I5). A session ends by
`expire`: idle beyond `session_idle_max_s` of service (`base.times`: age), or, above `sessions_max`, the longest idle
first.
A session id is the lsn of its registration and is never given twice, so an expired one is told from a new one.

A **peer's session** is another service's, or our own (`SELF_SESSION`): its seqs are positions of an outbox. It never
expires and keeps no replies, because a reply to a peer is a message of its own; so all of it counts as acknowledged.
Our own exists always, and is in a snapshot once it was used.

Sessions stand in the order of their last use; uses at the same age in the order of the log. That order
is part of the table, so it is in the snapshot.

Guarantees: equal calls give equal tables, effects and snapshots; an acknowledgement never goes back and never
passes a message that was not yet in the log before the run that carries it.
Does not: read a clock (the age of the shard comes in), decide what to admit (whoever admits asks `get`), know which
frames are confirmed (the caller must not send a reply of a frame that is not, I1). Imports base and codec only.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable

from deathless.base.ids import SYSTEM_SESSION, SessionId
from deathless.base.limits import Limits
from deathless.codec.frames import Run
from deathless.codec.messages import REGISTER_NONCE_BYTES
from deathless.codec.peer_history import NOTHING, UNKNOWN, extended
from deathless.codec.peer_messages import SELF_SESSION
from deathless.codec.snapshot import SessionRecord
from deathless.core.tables.stream_table import StreamTable


class Session:
    """One sender. Read its attributes freely; only SessionTable writes them.

    Args:
        session_id: lsn of the registration, above 0.
        nonce: the 16 bytes of its registration: a hash of what its owner alone knows (codec.session_proof).
        now_us: age of the shard at the registration, microseconds.
    """

    __slots__ = ("acked", "history", "id", "kept", "last_us", "next_seq", "nonce", "peer", "reply_bytes")

    def __init__(self, session_id: SessionId, nonce: bytes, now_us: int, *, peer: bool = False) -> None:
        self.id = session_id
        self.peer = peer  # of a peer, or ourselves. Invariant: then no reply is kept and all is acknowledged
        self.nonce = nonce
        self.next_seq = 1  # seq that is accepted next. Invariant: never goes back
        self.acked = 0  # replies up to this seq are acknowledged. Invariant: 0 <= acked < next_seq
        self.last_us = now_us  # age of the shard at the last use, microseconds
        # Replies as they came, by run: seq of the first, the replies, their bytes. No work per message that way.
        # Invariant: acked < seq < next_seq for each, ascending.
        self.kept: deque[tuple[int, list[bytes], int]] = deque()
        self.history = UNKNOWN  # of a peer: codec.peer_history of position next_seq - 1, where it is known
        self.reply_bytes = 0  # Invariant: the bytes of these replies (compare with `session_reply_bytes_max`)

    @property
    def replies(self) -> dict[int, bytes]:
        """A copy of the replies that are kept, by seq ascending."""
        return {seq: reply for first, replies, _ in self.kept for seq, reply in enumerate(replies, first)}


class SessionTable:
    """All sessions of one shard, in the order of their last use.

    Args:
        limits: `sessions_max` and `session_idle_max_s` are used.
    """

    __slots__ = ("_by_nonce", "_idle_max_us", "_peers", "_sessions", "_sessions_max", "streams")

    def __init__(self, limits: Limits) -> None:
        self._sessions: OrderedDict[int, Session] = OrderedDict()  # Invariant: last_us never falls along the order
        self._by_nonce: dict[bytes, SessionId] = {}  # Invariant: one entry per session of a client
        self._peers: dict[int, Session] = {}  # sessions of peers and ourselves, apart: they have no last use
        self._sessions_max = limits.sessions_max
        self._idle_max_us = limits.session_idle_max_s * 1_000_000
        self.streams = StreamTable()  # a kind of their own: `get` knows none of them
        self.register_peer(SELF_SESSION)

    def __len__(self) -> int:
        """Count of clients' sessions."""
        return len(self._sessions)

    def client(self, session_id: int) -> Session | None:
        """Give a client's session; None: it is not known, or a peer's."""
        return self._sessions.get(session_id)

    def of_peer(self, session_id: int) -> bool:
        """Is this a session of a peer, or our own?"""
        return session_id in self._peers

    def get(self, session_id: int) -> Session | None:
        """Give a session; None: never registered, ended or expired (the caller answers SessionExpired)."""
        return self._sessions.get(session_id) or self._peers.get(session_id)

    def registered(self, nonce: bytes) -> bool:
        """Does a session stand that was registered under this nonce?"""
        return nonce in self._by_nonce

    def register_peer(self, session_id: int) -> None:
        """Begin the session of a peer, at position 1.

        Args:
            session_id: lsn of the record that introduced or adopted it, above 0.
        """
        assert session_id > SYSTEM_SESSION, "0 is the shard itself"
        assert session_id not in self._peers, "an lsn is given once"
        assert session_id not in self._sessions, "an lsn is given once"
        session = Session(SessionId(session_id), bytes(REGISTER_NONCE_BYTES), 0, peer=True)
        session.history = UNKNOWN if session_id == SELF_SESSION else NOTHING
        self._peers[session_id] = session

    def accept_peer(self, run: Run, messages: Iterable[bytes] = ()) -> Session:
        """Take a logged run of a peer in: move the next expected seq (I3), and the history with it.

        Args:
            run: of a peer's session that `get` knows; with count above 0 its first seq is the session's next.
            messages: of the run.
        """
        session_id, first_seq, _, count = run
        session = self._peers[session_id]
        if count:
            assert first_seq == session.next_seq, f"peer {session_id}: position {first_seq} is not {session.next_seq}"
            session.next_seq = first_seq + count
            session.acked = session.next_seq - 1
            session.history = extended(session.history, messages)
        return session

    def register(self, session_id: SessionId, nonce: bytes, now_us: int) -> SessionId:
        """Take a logged registration in.

        Args:
            session_id: lsn of the REGISTER message, above 0.
            nonce: its 16 bytes.
            now_us: age of the shard, microseconds, never below an earlier call's.

        Returns: the id to answer with. A nonce that is known is the same registration sent again: its first id.
        """
        assert session_id > SYSTEM_SESSION, "0 is the shard itself"
        assert len(nonce) == REGISTER_NONCE_BYTES
        known = self._by_nonce.get(nonce)
        if known is not None:
            self._touch(self._sessions[known], now_us)
            return known
        assert session_id not in self._sessions, "an lsn is given once"
        self._sessions[session_id] = Session(session_id, nonce, now_us)
        self._by_nonce[nonce] = session_id
        return session_id

    def accept(self, run: Run, now_us: int) -> Session:
        """Take a logged run in: move the next expected seq, move the acknowledgement and trim replies (I3, I5).

        Args:
            run: of a session that `get` knows; with count above 0 its first seq is the session's next.
            now_us: age of the shard, microseconds, never below an earlier call's.

        Returns: the session. An assertion that fails here is our bug: the run should not have been logged.
        """
        session_id, first_seq, acked, count = run
        session = self._sessions[session_id]
        self._touch(session, now_us)
        next_seq = session.next_seq
        if acked > session.acked:
            # A sender cannot have seen replies to messages that were not in the log before this run.
            self._trim(session, min(acked, next_seq - 1))
        if count:
            assert first_seq == next_seq, f"session {session_id}: seq {first_seq} is not the next, {next_seq}"
            session.next_seq = next_seq + count
        return session

    def record(self, session_id: int, first_seq: int, replies: list[bytes]) -> None:
        """Keep the replies to an accepted run, reply i for seq `first_seq` + i.

        A reply that is acknowledged already (by a sender that did not wait for it) is not kept.
        """
        self.keep(self._sessions[session_id], first_seq, replies)

    def keep(self, session: Session, first_seq: int, replies: list[bytes]) -> None:
        """As `record`, of a session that `accept` gave."""
        end = first_seq + len(replies)
        assert end <= session.next_seq, f"session {session.id}: reply to seq {end - 1}, which was not accepted"
        if not replies:
            return
        kept = session.kept
        assert not kept or kept[-1][0] + len(kept[-1][1]) <= first_seq, f"session {session.id}: a reply comes again"
        size = sum(map(len, replies)) if len(replies) > 1 else len(replies[0])
        kept.append((first_seq, replies, size))
        session.reply_bytes += size
        if first_seq <= session.acked:
            self._drop(session)

    def replies_from(self, session_id: int, first_seq: int, last_seq: int) -> tuple[list[int], list[bytes]]:
        """Give the kept replies to seqs in [first_seq, last_seq], for a sender that asks again (I5).

        Returns: (seqs ascending, replies), empty for an unknown session; acknowledged ones are gone. The caller
        bounds `last_seq` by what is confirmed (I1).
        """
        session = self._sessions.get(session_id)
        if session is None:
            return [], []
        seqs: list[int] = []
        found: list[bytes] = []
        for first, replies, _ in session.kept:
            start, end = max(first_seq - first, 0), min(last_seq + 1 - first, len(replies))
            if start < end:
                seqs.extend(range(first + start, first + end))
                found.extend(replies[start:end])
        return seqs, found

    def forget(self, session_id: int) -> bool:
        """Forget a session. False: it was not known."""
        if self._peers.pop(session_id, None) is not None:
            assert session_id != SELF_SESSION, "we are always there"
            return True
        session = self._sessions.pop(session_id, None)
        if session is None:
            return False
        del self._by_nonce[session.nonce]
        return True

    def expire(self, now_us: int) -> list[int]:
        """Forget sessions idle for longer than `session_idle_max_s`, then the longest idle beyond `sessions_max`.

        Cheap when there is nothing to forget. Called at places the log alone decides (behind each time record and
        each registration), with the age of the shard.

        Returns: their ids, longest idle first.
        """
        gone: list[int] = []
        sessions = self._sessions
        oldest_us = now_us - self._idle_max_us
        while sessions:
            session = next(iter(sessions.values()))
            if session.last_us >= oldest_us and len(sessions) <= self._sessions_max:
                break
            self.forget(session.id)
            gone.append(session.id)
        return gone

    def snapshot(self) -> list[SessionRecord]:
        """Copy everything, longest idle first, then peers by id; later calls do not change the copy."""
        peers = [s for _, s in sorted(self._peers.items()) if s.id != SELF_SESSION or s.next_seq > 1]
        return [
            SessionRecord(s.id, s.next_seq, s.acked, s.last_us, s.nonce, s.replies, s.peer, s.history)
            for s in (*self._sessions.values(), *peers)
        ]

    def restore(self, records: Iterable[SessionRecord]) -> None:
        """Replace everything by what `snapshot` gave."""
        self._sessions.clear()
        self._by_nonce.clear()
        self._peers.clear()
        self.register_peer(SELF_SESSION)
        for record in records:
            session = Session(SessionId(record.id), record.nonce, record.last_us, peer=record.peer)
            session.next_seq = record.next_seq
            session.acked = record.acked
            session.kept.extend((seq, [reply], len(reply)) for seq, reply in sorted(record.replies.items()))
            session.reply_bytes = sum(size for _, _, size in session.kept)
            if record.peer:
                unknown = session.id == SELF_SESSION or (record.history == UNKNOWN and record.next_seq > 1)
                session.history = UNKNOWN if unknown else record.history or NOTHING
                self._peers[session.id] = session
                continue
            self._sessions[session.id] = session
            self._by_nonce[session.nonce] = session.id
        self.check_invariants()

    def check_invariants(self) -> None:
        """Assert every `Invariant:` above; linear in sessions and kept replies."""
        last_us = 0
        for session_id, session in self._sessions.items():
            assert session.id == session_id > SYSTEM_SESSION
            assert not session.peer
            assert self._by_nonce[session.nonce] == session_id
            assert 0 <= session.acked < session.next_seq
            at = session.acked + 1
            for first, replies, size in session.kept:
                assert first >= at
                assert replies
                assert size == sum(map(len, replies))
                at = first + len(replies)
            assert at <= session.next_seq
            assert session.reply_bytes == sum(size for _, _, size in session.kept)
            assert last_us <= session.last_us, "order of last use is not the order of the table"
            last_us = session.last_us
        assert len(self._by_nonce) == len(self._sessions)
        assert SELF_SESSION in self._peers
        self.streams.check_invariants()
        for session_id, session in self._peers.items():
            assert session.id == session_id > SYSTEM_SESSION
            assert session.peer
            assert session_id not in self._sessions
            assert not session.kept
            assert session.acked == session.next_seq - 1

    def _touch(self, session: Session, now_us: int) -> None:
        """Make a session the last used."""
        assert now_us >= session.last_us, "age goes back"
        session.last_us = now_us
        self._sessions.move_to_end(session.id)

    def _trim(self, session: Session, acked: int) -> None:
        """Move the acknowledgement forward to `acked` and forget the replies up to it."""
        session.acked = acked
        if acked == session.next_seq - 1:  # all there is; the usual case
            session.kept.clear()
            session.reply_bytes = 0
        else:
            self._drop(session)

    @staticmethod
    def _drop(session: Session) -> None:
        """Let acknowledged replies go, run by run; of one that is acknowledged in part the rest is copied."""
        kept, acked = session.kept, session.acked
        while kept and kept[0][0] <= acked:
            first, replies, size = kept.popleft()
            session.reply_bytes -= size
            rest = replies[acked + 1 - first :]
            if rest:
                size = sum(map(len, rest))
                kept.appendleft((acked + 1, rest, size))
                session.reply_bytes += size
