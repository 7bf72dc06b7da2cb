"""A client's session by itself: registration, refusals, its end (I3, I5)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from deathless.base.limits import REFUSED_PAUSE_MAX_S
from deathless.codec.messages import Kind, encode
from deathless.codec.refusals import RegistrationRefused
from deathless.codec.session_proof import nonce_of
from deathless.codec.wire import (
    BatchRefused,
    PacketReader,
    Registered,
    Type,
    decode_batch,
    decode_queries,
    encode_queries,
    encode_replies,
    struct_packet,
)
from deathless.core.client.events import (
    CallsSubmitted,
    CompleteCalls,
    Effect,
    FailCalls,
    LinkId,
    QueriesSubmitted,
    TellRefusal,
)
from deathless.core.client.link import BATCH_COUNT_MAX, RESEND_S, Link, LinkState
from deathless.core.client.session import ClientSession

LEADING = LinkState.LEADING


class End:
    """A session and the link to its primary."""

    def __init__(self) -> None:
        self.nonces = 0
        self.session: ClientSession[str] = ClientSession(
            jitter=lambda: 0.0, secret=self._nonce, window_max=10_000, window_bytes_max=1 << 20
        )
        self.link = Link(LinkId(1), "p", 0.0)
        self.link.incarnation = 5
        self.out: list[Effect[str]] = []
        self.session.begin_service(self.link, 0.0, self.out)

    def _nonce(self) -> bytes:
        self.nonces += 1
        return bytes([self.nonces]) * 16

    def pump(self, now: float = 0.0, state: LinkState = LEADING) -> list[tuple[int, bytes]]:
        had_word = self.session.has_word(now)
        parts = self.session.pump(state, now)
        assert had_word or not parts
        return list(PacketReader(1 << 30).feed(b"".join(parts)))

    def register(self, number: int = 9) -> End:
        (kind, nonce) = self.pump()[0]
        assert kind == Type.REGISTER
        self.receive(struct_packet(Type.REGISTERED, Registered(nonce, number)))
        return self

    def receive(self, data: bytes, now: float = 0.0) -> bool:
        kind, body = next(PacketReader(1 << 30).feed(data))
        return self.session.packet(self.link, kind, body, now, self.out)

    def refuse(self, session: int, first: int, code: str, ms: int, now: float = 0.0) -> bool:
        return self.receive(struct_packet(Type.BATCH_REFUSED, BatchRefused(session, first, code, "t", ms)), now)

    def submit(self, *waiters: str) -> None:
        messages = [encode(Kind.CALL, args=w.encode()) for w in waiters]
        self.session.calls_submitted(CallsSubmitted(messages=messages, waiters=waiters), self.out)

    def failed(self) -> list[tuple[Sequence[str], str]]:
        return [(effect.waiters, effect.code) for effect in self.out if isinstance(effect, FailCalls)]


def test_registration_is_asked_once_and_answered_once() -> None:
    end = End()
    assert [kind for kind, _ in end.pump()] == [Type.REGISTER]
    assert end.pump() == []
    assert end.session.owed
    end.receive(struct_packet(Type.REGISTERED, Registered(nonce_of(b"\x01" * 16), 9)))
    end.receive(struct_packet(Type.REGISTERED, Registered(nonce_of(b"\x01" * 16), 10)))
    assert end.session.id == 9
    assert not end.session.owed


def test_lost_registration_is_asked_again_under_its_nonce() -> None:
    end = End()
    (_, first) = end.pump()[0]
    end.session.timer_fired(heard_at=RESEND_S, now=RESEND_S)
    assert end.pump() == [(Type.REGISTER, first)]


@pytest.mark.parametrize("first", [0, 1], ids=["as ours", "whatever else it says"])
def test_refused_registration_is_told_to_those_who_wait_and_is_asked_again_in_time(first: int) -> None:
    end = End()
    end.submit("a")
    (_, nonce) = end.pump()[0]
    refused = RegistrationRefused(0, first, "DL1003", "no session was registered: no room", 100, nonce)
    end.receive(struct_packet(Type.BATCH_REFUSED, refused))
    told = [effect for effect in end.out if isinstance(effect, TellRefusal)]
    assert [(list(each.waiters), each.code, each.text) for each in told] == [(["a"], "DL1003", refused.text)]
    assert end.session.unregistered == ("DL1003", refused.text)
    assert end.pump(0.05) == []
    assert end.pump(0.1) == [(Type.REGISTER, nonce)]
    assert end.session.unregistered, "the reason stands until there is a session"
    end.receive(struct_packet(Type.REGISTERED, Registered(nonce, 9)))
    assert end.session.unregistered is None


def test_refusal_of_another_registration_changes_nothing() -> None:
    end = End()
    end.pump()
    end.receive(struct_packet(Type.BATCH_REFUSED, RegistrationRefused(0, 0, "DL1003", "t", 100, bytes(16))))
    assert end.session.registering
    assert end.session.unregistered is None


def test_refused_query_is_no_refused_registration() -> None:
    end = End()
    end.session.queries_submitted(QueriesSubmitted(messages=[b"q"], waiters=["q"], stale=False), end.out)
    end.pump()
    end.refuse(0, 1, "DL1002", 100)
    assert end.session.registering
    assert end.session.unregistered is None
    assert [kind for kind, _ in end.pump(0.1)] == [Type.QUERIES]


def test_reason_of_one_primary_is_not_told_of_the_next() -> None:
    end = End()
    end.pump()
    end.refuse(0, 0, "DL1003", 100)
    assert end.session.unregistered == ("DL1003", "t")
    end.session.begin_service(end.link, 0.0, end.out)
    assert end.session.unregistered is None


def test_large_submission_goes_in_several_batches() -> None:
    end = End().register()
    end.submit(*map(str, range(BATCH_COUNT_MAX + 1)))
    runs = [decode_batch(body).run for _, body in end.pump()]
    assert [(run.first_seq, run.count) for run in runs] == [(1, BATCH_COUNT_MAX), (BATCH_COUNT_MAX + 1, 1)]


def test_refusal_for_now_goes_back_and_waits() -> None:
    end = End().register()
    end.submit("a", "b")
    end.pump()
    assert end.refuse(9, 2, "DL1003", 100)
    end.submit("c")
    assert end.pump(0.05) == []
    assert end.session.deadline(leading=True, owed=False) == 0.1
    runs = [decode_batch(body).run for _, body in end.pump(0.1)]
    assert [(run.first_seq, run.count) for run in runs] == [(2, 1), (3, 1)]


def test_refusal_without_a_time_waits_a_moment() -> None:
    end = End().register()
    end.submit("a")
    end.pump()
    end.refuse(9, 1, "DL1002", 0)
    assert end.session.blocked_until > 0


@pytest.mark.parametrize("first", [0, 1])
def test_no_refusal_silences_a_client_for_good(first: int) -> None:
    end = End() if first == 0 else End().register()
    end.submit("a")
    end.pump()
    end.refuse(9 if first else 0, first, "DL1002", 2**62)
    assert 0 < end.session.blocked_until <= 1.5 * REFUSED_PAUSE_MAX_S


def test_refused_seq_is_never_given_to_another_call_of_the_session() -> None:
    end = End().register()
    end.submit("a", "b", "c")
    end.pump()
    end.refuse(9, 2, "DL3006", -1)
    assert end.failed() == [(["b"], "DL3006")]
    assert end.pump() == []
    end.receive(encode_replies(9, [1], [b"\0"]))
    kinds = end.pump()
    assert [kind for kind, _ in kinds] == [Type.BATCH, Type.REGISTER]
    assert decode_batch(kinds[0][1]).run.acked == 1, "the old session's last reply is acknowledged"
    assert kinds[1][1] == nonce_of(b"\x02" * 16), "another session needs another secret"


def test_refusal_for_good_of_an_answered_call_fails_nobody() -> None:
    end = End().register()
    end.submit("a")
    end.pump()
    end.receive(encode_replies(9, [1], [b"\0"]))
    end.refuse(9, 1, "DL3006", -1)
    assert end.failed() == []


def test_not_primary_is_told_to_the_caller() -> None:
    end = End().register()
    assert not end.refuse(9, 1, "DL1001", 5)
    assert end.receive(encode_replies(8, [1], [b"\0"]))


def test_queries_go_by_lane_and_only_stale_ones_to_a_follower() -> None:
    end = End()
    end.session.queries_submitted(QueriesSubmitted(messages=[b"a"], waiters=["a"], stale=False), end.out)
    end.session.queries_submitted(QueriesSubmitted(messages=[b"b"], waiters=["b"], stale=True), end.out)
    (only,) = end.pump(state=LinkState.FOLLOWING)
    assert decode_queries(only[1])[0]
    assert [kind for kind, _ in end.pump()] == [Type.REGISTER, Type.QUERIES]
    end.receive(encode_queries([1, 2], [b"\0A", b"\0B"], stale=False, answers=True))
    assert end.out == [CompleteCalls(waiters=["a", "b"], replies=[b"\0A", b"\0B"])]


@pytest.mark.parametrize("incarnation", [5, 6])
def test_session_ends_with_the_incarnation_it_was_minted_in(incarnation: int) -> None:
    end = End().register()
    end.submit("a")
    end.pump()
    end.link.incarnation = incarnation
    end.session.begin_service(end.link, 1.0, end.out)
    assert end.session.id == (9 if incarnation == 5 else 0)
    assert end.failed() == ([] if incarnation == 5 else [(["a"], "DL3009")])


def test_expiry_without_calls_under_way_fails_nobody() -> None:
    end = End().register()
    end.submit("a")
    end.session.expire("idle", end.out)
    assert end.failed() == []
    end.register(10)
    assert [kind for kind, _ in end.pump()] == [Type.BATCH]


def test_close_says_unknown_for_what_was_sent_and_closed_for_what_was_not() -> None:
    end = End().register()
    end.submit("a")
    end.pump()
    end.submit("b")
    assert end.session.last_words() == b""
    end.session.close(end.out)
    assert end.failed() == [(["b"], "DL5001"), (["a"], "DL1006")]


def test_patience_doubles_and_a_silent_replica_gets_nothing_again() -> None:
    end = End().register()
    end.submit("a")
    end.pump()
    end.session.be_patient(0.0)
    end.session.timer_fired(heard_at=0.0, now=RESEND_S / 2)
    assert end.pump() == []
    end.session.timer_fired(heard_at=-5.0, now=RESEND_S)
    assert end.pump(RESEND_S) == []
    end.session.timer_fired(heard_at=3 * RESEND_S, now=3 * RESEND_S)
    assert [kind for kind, _ in end.pump(3 * RESEND_S)] == [Type.BATCH]
