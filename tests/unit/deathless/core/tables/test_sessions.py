"""Sessions: only the next seq, replies kept until acknowledged, and ends that the log alone decides (I3, I5)."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from deathless.base.ids import SessionId
from deathless.base.limits import Limits
from deathless.codec.frames import Run
from deathless.codec.peer_history import NOTHING, UNKNOWN, extended
from deathless.codec.peer_messages import SELF_SESSION
from deathless.codec.snapshot import SessionRecord
from deathless.core.tables.sessions import Session, SessionTable

SECOND = 1_000_000
LIMITS = Limits(sessions_max=3, session_idle_max_s=10)
S1, S2, S3 = SessionId(1), SessionId(2), SessionId(3)


def nonce(n: int) -> bytes:
    return n.to_bytes(16, "big")


def table_of(*ids: int) -> SessionTable:
    table = SessionTable(LIMITS)
    for session_id in ids:
        table.register(SessionId(session_id), nonce(session_id), 0)
    return table


def known(table: SessionTable, session_id: int = 1) -> Session:
    session = table.get(session_id)
    assert session is not None
    return session


def run_of(table: SessionTable, count: int, *, acked: int = 0, now_us: int = 0) -> None:
    """Accept `count` messages of session 1 and record a reply to each."""
    first = known(table).next_seq
    table.accept(Run(1, first, acked, count), now_us)
    table.record(1, first, [b"reply %d" % seq for seq in range(first, first + count)])
    table.check_invariants()


def test_a_new_session_waits_for_its_first_message() -> None:
    session = known(table_of(1))
    assert (session.id, session.next_seq, session.acked, session.last_us) == (1, 1, 0, 0)
    assert session.nonce == nonce(1)


def test_an_unknown_session_is_not_there() -> None:
    assert table_of(1).get(2) is None
    assert table_of(1).replies_from(2, 1, 9) == ([], [])


def test_a_registration_sent_again_is_the_same_session() -> None:
    table = table_of(1)
    run_of(table, 2)
    assert table.register(SessionId(9), nonce(1), 5) == 1
    assert (len(table), known(table).next_seq, known(table).last_us) == (1, 3, 5)
    assert table.get(9) is None


@pytest.mark.parametrize(("session_id", "nonce_bytes"), [(0, 16), (-1, 16), (5, 15), (5, 17)])
def test_a_registration_has_an_lsn_and_16_bytes(session_id: int, nonce_bytes: int) -> None:
    with pytest.raises(AssertionError):
        SessionTable(LIMITS).register(SessionId(session_id), bytes(nonce_bytes), 0)


def test_an_lsn_is_given_to_one_session_only() -> None:
    with pytest.raises(AssertionError, match="given once"):
        table_of(1).register(S1, nonce(2), 0)


@pytest.mark.parametrize("first_seq", [0, 1, 2, 4, 5])
def test_only_the_next_expected_seq_is_accepted(first_seq: int) -> None:
    table = table_of(1)
    run_of(table, 2)
    with pytest.raises(AssertionError, match="is not the next, 3"):
        table.accept(Run(1, first_seq, 0, 1), 0)


def test_a_run_without_messages_only_acknowledges() -> None:
    table = table_of(1)
    run_of(table, 3)
    session = table.accept(Run(1, 99, 2, 0), 7)
    assert session is known(table)
    assert (session.next_seq, session.acked, session.last_us) == (4, 2, 7)
    assert session.replies == {3: b"reply 3"}


def test_a_reply_is_kept_until_it_is_acknowledged() -> None:
    table = table_of(1)
    run_of(table, 3)
    for _ in range(2):
        assert table.replies_from(1, 1, 3) == ([1, 2, 3], [b"reply 1", b"reply 2", b"reply 3"])
    run_of(table, 1, acked=2)
    assert table.replies_from(1, 1, 4) == ([3, 4], [b"reply 3", b"reply 4"])
    run_of(table, 1, acked=4)
    assert table.replies_from(1, 1, 9) == ([5], [b"reply 5"])


@pytest.mark.parametrize(
    ("first", "last", "seqs"), [(2, 3, [2, 3]), (3, 99, [3, 4]), (-5, 1, [1]), (4, 3, []), (5, 9, []), (0, 0, [])]
)
def test_a_retry_gets_the_part_it_asks_for(first: int, last: int, seqs: list[int]) -> None:
    table = table_of(1)
    run_of(table, 4)
    assert table.replies_from(1, first, last) == (seqs, [b"reply %d" % seq for seq in seqs])


def test_an_accepted_message_has_no_reply_before_it_ran() -> None:
    table = table_of(1)
    table.accept(Run(1, 1, 0, 2), 0)
    assert table.replies_from(1, 1, 2) == ([], [])


def test_an_acknowledgement_never_goes_back() -> None:
    table = table_of(1)
    run_of(table, 3)
    run_of(table, 1, acked=2)
    run_of(table, 1, acked=1)
    assert known(table).acked == 2


def test_an_acknowledgement_of_what_was_never_sent_stops_at_what_was() -> None:
    table = table_of(1)
    run_of(table, 2)
    run_of(table, 2, acked=10**9)
    assert known(table).acked == 2
    assert table.replies_from(1, 1, 9) == ([3, 4], [b"reply 3", b"reply 4"])


def test_a_reply_acknowledged_before_it_was_recorded_is_not_kept() -> None:
    table = table_of(1)
    table.accept(Run(1, 1, 0, 3), 0)
    table.accept(Run(1, 4, 2, 1), 0)
    table.record(1, 1, [b"a", b"b", b"c"])
    table.record(1, 4, [b"d"])
    assert known(table).replies == {3: b"c", 4: b"d"}
    table.check_invariants()


def test_a_reply_to_a_message_that_was_not_accepted_is_our_bug() -> None:
    table = table_of(1)
    table.accept(Run(1, 1, 0, 1), 0)
    with pytest.raises(AssertionError, match="not accepted"):
        table.record(1, 1, [b"a", b"b"])


def test_age_that_goes_back_is_our_bug() -> None:
    table = table_of(1)
    table.accept(Run(1, 1, 0, 0), 5)
    with pytest.raises(AssertionError, match="age goes back"):
        table.accept(Run(1, 1, 0, 0), 4)


def test_forgotten_session_goes_with_its_nonce() -> None:
    table = table_of(1, 2)
    assert table.forget(1)
    assert not table.forget(1)
    assert table.get(1) is None
    assert table.register(SessionId(9), nonce(1), 0) == 9
    table.check_invariants()


def test_a_session_idle_beyond_the_limit_expires_and_not_before() -> None:
    table = table_of(1, 2, 3)
    table.accept(Run(2, 1, 0, 1), 1)
    assert table.expire(10 * SECOND) == []
    assert table.expire(10 * SECOND + 1) == [1, 3]
    assert table.expire(10 * SECOND + 2) == [2]
    assert table.expire(10 * SECOND + 2) == []
    assert len(table) == 0


def test_beyond_the_maximum_the_longest_idle_goes_first() -> None:
    table = table_of(1, 2, 3)
    table.accept(Run(1, 1, 0, 0), 5)
    table.register(SessionId(4), nonce(4), 5)
    table.register(SessionId(5), nonce(5), 5)
    assert table.expire(5) == [2, 3]
    assert [record.id for record in table.snapshot()] == [1, 4, 5]


def test_a_table_restored_from_a_snapshot_goes_on_as_the_first_one_does() -> None:
    first, second = table_of(1, 2, 3), SessionTable(LIMITS)
    run_of(first, 3, now_us=4)
    records = first.snapshot()
    second.register(SessionId(8), nonce(8), 0)
    second.restore(records)
    for table in (first, second):
        run_of(table, 1, acked=2, now_us=6)
        table.register(SessionId(9), nonce(9), 7)
        assert table.expire(7) == [2]
        assert table.register(SessionId(10), nonce(3), 8) == 3
        assert table.get(8) is None
    assert first.snapshot() == second.snapshot() != records
    assert records[-1].replies == {1: b"reply 1", 2: b"reply 2", 3: b"reply 3"}, "the snapshot is a copy"


@pytest.mark.parametrize(
    "records",
    [
        [SessionRecord(0, 1, 0, 0, nonce(1), {})],
        [SessionRecord(1, 1, 1, 0, nonce(1), {})],
        [SessionRecord(1, 3, 1, 0, nonce(1), {1: b""})],
        [SessionRecord(1, 3, 1, 0, nonce(1), {3: b""})],
        [SessionRecord(1, 1, 0, 5, nonce(1), {}), SessionRecord(2, 1, 0, 4, nonce(2), {})],
        [SessionRecord(1, 1, 0, 0, nonce(1), {}), SessionRecord(2, 1, 0, 0, nonce(1), {})],
        [SessionRecord(1, 1, 0, -1, nonce(1), {})],
    ],
)
def test_a_snapshot_that_breaks_an_invariant_is_not_restored(records: list[SessionRecord]) -> None:
    with pytest.raises(AssertionError):
        SessionTable(LIMITS).restore(records)


# ---- peers ---------------------------------------------------------------------------------------------------------


def peer(session_id: int, next_seq: int = 1) -> SessionRecord:
    """Of a peer whose messages were all empty, or of ourselves."""
    history = UNKNOWN if session_id == SELF_SESSION else extended(NOTHING, [b""] * (next_seq - 1))
    return SessionRecord(session_id, next_seq, next_seq - 1, 0, bytes(16), {}, True, history)


def test_i3_a_peers_session_moves_on_and_keeps_no_replies() -> None:
    table = SessionTable(LIMITS)
    table.register_peer(7)
    assert known(table, 7).peer
    table.accept_peer(Run(7, 1, 0, 3))
    table.accept_peer(Run(7, 4, 0, 0))
    session = known(table, 7)
    assert (session.next_seq, session.acked, session.replies) == (4, 3, {})
    assert table.replies_from(7, 1, 9) == ([], [])


def test_i3_a_peers_run_that_is_not_the_next_is_our_bug() -> None:
    table = SessionTable(LIMITS)
    table.register_peer(7)
    with pytest.raises(AssertionError, match="position 2 is not 1"):
        table.accept_peer(Run(7, 2, 0, 1))


def test_sessions_of_peers_never_expire_and_take_no_clients_place() -> None:
    table = table_of(1, 2, 3)
    table.register_peer(7)
    assert (len(table), table.expire(0)) == (3, [])
    assert table.expire(11 * SECOND) == [1, 2, 3]
    assert known(table, 7).peer


def test_the_history_of_a_peer_goes_on_behind_a_restart_and_stays_unknown_where_none_was_kept() -> None:
    table = SessionTable(LIMITS)
    table.register_peer(7)
    table.accept_peer(Run(7, 1, 0, 2), [b"a", b"b"])
    other = SessionTable(LIMITS)
    other.restore(table.snapshot())
    other.accept_peer(Run(7, 3, 0, 1), [b"c"])
    assert known(other, 7).history == extended(NOTHING, [b"a", b"b", b"c"])
    of_before = SessionRecord(7, 3, 2, 0, bytes(16), {}, True)
    other.restore([of_before, SessionRecord(8, 1, 0, 0, bytes(16), {}, True)])
    other.accept_peer(Run(7, 3, 0, 1), [b"c"])
    assert (known(other, 7).history, known(other, 8).history) == (UNKNOWN, NOTHING), "nothing was sent on 8 yet"


def test_our_own_session_exists_always_and_is_copied_once_it_was_used() -> None:
    table = SessionTable(LIMITS)
    assert known(table, SELF_SESSION).peer
    assert table.snapshot() == []
    table.accept_peer(Run(SELF_SESSION, 1, 0, 2))
    assert table.snapshot() == [peer(SELF_SESSION, 3)]
    other = SessionTable(LIMITS)
    other.restore(table.snapshot())
    assert known(other, SELF_SESSION).next_seq == 3
    other.restore([])
    assert known(other, SELF_SESSION).next_seq == 1
    with pytest.raises(AssertionError, match="always there"):
        other.forget(SELF_SESSION)


def test_the_session_of_a_replaced_peer_is_forgotten_once() -> None:
    table = SessionTable(LIMITS)
    table.register_peer(7)
    assert (table.forget(7), table.forget(7), table.get(7)) == (True, False, None)


@pytest.mark.parametrize("session_id", [0, 1, 7])
def test_a_peers_session_has_an_id_of_its_own(session_id: int) -> None:
    table = table_of(1)
    table.register_peer(7)
    with pytest.raises(AssertionError):
        table.register_peer(session_id)


@pytest.mark.parametrize(
    "records",
    [
        [peer(0)],
        [SessionRecord(7, 3, 1, 0, bytes(16), {}, True)],
        [SessionRecord(7, 3, 1, 0, bytes(16), {2: b"r"}, True)],
        [peer(1), SessionRecord(1, 1, 0, 0, nonce(1), {})],
    ],
)
def test_a_snapshot_of_peers_that_breaks_an_invariant_is_not_restored(records: list[SessionRecord]) -> None:
    with pytest.raises(AssertionError):
        SessionTable(LIMITS).restore(records)


def test_a_nonce_left_behind_is_found() -> None:
    table = table_of(1, 2)
    table._by_nonce[nonce(3)] = S3
    with pytest.raises(AssertionError):
        table.check_invariants()


class NaiveSession:
    """What a session is, without thought of speed."""

    def __init__(self, session_id: int, number: int, now: int) -> None:
        self.id = session_id
        self.number = number
        self.used = now
        self.next_seq = 1
        self.acked = 0
        self.replies: dict[int, bytes] = {}


class Sessions(RuleBasedStateMachine):
    """The table against a list of sessions in the order of their use."""

    def __init__(self) -> None:
        super().__init__()
        self.table = SessionTable(LIMITS)
        self.naive: list[NaiveSession] = []
        self.peers: dict[int, int] = {}
        self.lsn = 0
        self.now = 0

    @rule()
    def introduced(self) -> None:
        self.lsn += 1
        self.table.register_peer(self.lsn)
        self.peers[self.lsn] = 1

    @rule(which=st.integers(0, 5), count=st.integers(0, 3))
    def peer_sent(self, which: int, count: int) -> None:
        number = [SELF_SESSION, *self.peers][which % (1 + len(self.peers))]
        first = self.peers.setdefault(number, 1)
        self.table.accept_peer(Run(number, first, 0, count), [b""] * count)
        self.peers[number] = first + count

    @rule(which=st.integers(0, 5))
    def replaced(self, which: int) -> None:
        for number in sorted(self.peers.keys() - {SELF_SESSION})[which : which + 1]:
            del self.peers[number]
            assert self.table.forget(number)

    def use(self, session: NaiveSession) -> None:
        session.used = self.now
        self.naive.remove(session)
        self.naive.append(session)

    @rule(seconds=st.integers(0, 6))
    def time_passed(self, seconds: int) -> None:
        self.now += seconds * SECOND

    @rule(number=st.integers(0, 5))
    def registered(self, number: int) -> None:
        self.lsn += 1
        found = [s for s in self.naive if s.number == number]
        if found:
            self.use(found[0])
        else:
            found = [NaiveSession(self.lsn, number, self.now)]
            self.naive += found
        assert self.table.register(SessionId(self.lsn), nonce(number), self.now) == found[0].id

    @precondition(lambda self: self.naive)
    @rule(which=st.integers(0, 9), count=st.integers(0, 4), acked=st.integers(0, 12))
    def accepted(self, which: int, count: int, acked: int) -> None:
        session = self.naive[which % len(self.naive)]
        first = session.next_seq
        self.use(session)
        session.acked = max(session.acked, min(acked, first - 1))
        replies = [b"%d/%d" % (session.id, seq) for seq in range(first, first + count)]
        session.replies |= dict(enumerate(replies, first))
        session.replies = {seq: reply for seq, reply in session.replies.items() if seq > session.acked}
        session.next_seq += count
        self.lsn += count
        self.table.accept(Run(session.id, first, acked, count), self.now)
        self.table.record(session.id, first, replies)

    @rule(which=st.integers(0, 9))
    def left(self, which: int) -> None:
        for session in self.naive[which : which + 1]:
            self.naive.remove(session)
            assert self.table.forget(session.id)
            assert not self.table.forget(session.id)

    @rule()
    def expired(self) -> None:
        gone = []
        while self.naive and (len(self.naive) > 3 or self.now - self.naive[0].used > 10 * SECOND):
            gone.append(self.naive.pop(0).id)
        assert self.table.expire(self.now) == gone

    @rule()
    def restored(self) -> None:
        records = self.table.snapshot()
        self.table = SessionTable(LIMITS)
        self.table.restore(records)

    @rule(which=st.integers(0, 9), first=st.integers(0, 12), last=st.integers(0, 12))
    def asked_again(self, which: int, first: int, last: int) -> None:
        for session in self.naive[which : which + 1]:
            seqs = [seq for seq in sorted(session.replies) if first <= seq <= last]
            assert self.table.replies_from(session.id, first, last) == (seqs, [session.replies[seq] for seq in seqs])

    @invariant()
    def tables_are_equal(self) -> None:
        self.table.check_invariants()
        assert self.table.snapshot() == [
            SessionRecord(s.id, s.next_seq, s.acked, s.used, nonce(s.number), s.replies) for s in self.naive
        ] + [peer(n, seq) for n, seq in sorted(self.peers.items()) if n != SELF_SESSION or seq > 1]


TestSessions = Sessions.TestCase
