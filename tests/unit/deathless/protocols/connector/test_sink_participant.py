"""The participant's end of a sink: what it takes when, how it votes, and that it commits nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from tests.unit.deathless.protocols.connector.helpers import check_legality, received, refused, rest, sent

from deathless.base.errors import InvalidUse
from deathless.protocols.connector.events import BytesReceived, Close, ConnectionLost
from deathless.protocols.connector.frames import (
    NO_POSITION,
    Ack,
    EosMessage,
    Error,
    Hello,
    Message,
    MessageId,
    Notify,
    NotifyAck,
    Ok,
    Restart,
    StreamId,
    WorkersLeft,
)
from deathless.protocols.connector.sink_events import (
    AbortVoted,
    AdmitInstance,
    ForgetWorkers,
    InstanceAdmitted,
    InstanceRefused,
    Prepare,
    Prepared,
    ResolutionRefused,
    Resolve,
    Resolved,
    WriteData,
)
from deathless.protocols.connector.sink_participant import LEGAL, SinkParticipant, State
from deathless.protocols.connector.transactions import (
    ListUncommitted,
    Phase1,
    Phase2,
    Range,
    Reply,
    ReplyUncommitted,
)

S: Final = StreamId(1)
OTHER: Final = StreamId(2)
TXN: Final = b"t1"
OLD: Final = b"t0"
HELLO: Final = Hello("v0.0.1", b"", "deathless", "shop-0")
NOTIFY: Final = Notify(S, b"out", MessageId(0))


def data(offset: int, payload: bytes, stream: StreamId = S) -> Message:
    return Message(stream, MessageId(offset), 0, b"", payload)


def ask(start: int, end: int, name: bytes = TXN, stream: StreamId = S) -> Phase1:
    return Phase1(name, (Range(stream, MessageId(start), MessageId(end)),))


def connected(**settings: Any) -> SinkParticipant:
    return SinkParticipant(**settings)


def admitting(**settings: Any) -> SinkParticipant:
    sink = connected(**settings)
    assert sink.handle(received(HELLO)) == [AdmitInstance(instance="shop-0", program="deathless")]
    return sink


def admitted(committed: int = 10, *in_doubt: bytes, **settings: Any) -> SinkParticipant:
    sink = admitting(**settings)
    sink.handle(InstanceAdmitted(committed={S: committed}, in_doubt=frozenset(in_doubt)))
    return sink


def ready(**settings: Any) -> SinkParticipant:
    sink = admitted(**settings)
    sink.handle(received(NOTIFY))
    return sink


def in_doubt() -> SinkParticipant:
    sink = admitted(10, OLD)
    sink.handle(received(NOTIFY))
    return sink


def preparing() -> SinkParticipant:
    sink = ready()
    effects = sink.handle(received(data(10, b"ab"), data(12, b"c"), ask(10, 13)))
    assert effects == [
        WriteData(stream=S, offset=10, payloads=[b"ab", b"c"]),
        Prepare(transaction=TXN, ranges=ask(10, 13).ranges),
    ]
    return sink


def voted(commit: bool = True) -> SinkParticipant:
    sink = preparing()
    assert sent(sink.handle(Prepared(transaction=TXN, commit=commit))) == [Reply(TXN, commit)]
    return sink


def resolving() -> SinkParticipant:
    sink = voted()
    assert sink.handle(received(Phase2(TXN, True))) == [Resolve(transaction=TXN, commit=True)]
    return sink


SAMPLES: Final[dict[str, Any]] = {
    "HELLO": HELLO,
    "OK": Ok(1),
    "ERROR": Error("no"),
    "NOTIFY": Notify(OTHER, b"", MessageId(0)),
    "NOTIFY_ACK": NotifyAck(True, S, NO_POSITION),
    "MESSAGE": data(10, b"x"),
    "ACK": Ack(1),
    "RESTART": Restart(),
    "EOS_MESSAGE": EosMessage(S),
    "WORKERS_LEFT": WorkersLeft(1, (b"w",)),
    "LIST_UNCOMMITTED": ListUncommitted(1),
    "REPLY_UNCOMMITTED": ReplyUncommitted(1, ()),
    "PHASE1": ask(10, 13),
    "REPLY": Reply(TXN, True),
    "PHASE2": Phase2(TXN, True),
    "gone": ConnectionLost(),
    "admitted": InstanceAdmitted(),
    "refused": InstanceRefused(text="no"),
    "prepared": Prepared(transaction=TXN, commit=True),
    "resolved": Resolved(transaction=TXN),
    "not resolved": ResolutionRefused(transaction=TXN, text="aborted"),
}
FRAMES: Final = {"ERROR", "NOTIFY", "LIST_UNCOMMITTED", "PHASE2", "WORKERS_LEFT"}
WHERE: Final[dict[str, tuple[Callable[[], SinkParticipant], set[str]]]] = {
    "connected": (connected, {"HELLO", "ERROR"}),
    "no stream": (admitted, FRAMES | {"PHASE1"}),
    "in doubt": (in_doubt, FRAMES),
    "ready": (ready, FRAMES | {"MESSAGE", "EOS_MESSAGE", "PHASE1"}),
    "voted": (voted, FRAMES | {"PHASE1"}),
}
HELD: Final[dict[str, tuple[Callable[[], SinkParticipant], set[str]]]] = {
    "admitting": (admitting, {"admitted", "refused"}),
    "preparing": (preparing, {"prepared"}),
    "resolving": (resolving, {"resolved", "not resolved"}),
}


@pytest.mark.parametrize("kind", SAMPLES)
@pytest.mark.parametrize("where", WHERE)
def test_what_is_not_in_the_table_is_refused_and_ends_this_connection_alone(where: str, kind: str) -> None:
    make, legal = WHERE[where]
    check_legality(make(), kind, SAMPLES, {"gone"} | legal)


@pytest.mark.parametrize("kind", SAMPLES)
@pytest.mark.parametrize("where", HELD)
def test_while_the_storage_is_asked_frames_wait_and_its_answer_alone_is_taken(where: str, kind: str) -> None:
    make, legal = HELD[where]
    sink = make()
    if kind.isupper():
        assert (sink.wants_bytes, sink.handle(received(SAMPLES[kind]))) == (False, [])
    else:
        check_legality(sink, kind, SAMPLES, {"gone"} | legal)


def test_after_its_end_a_connection_does_nothing() -> None:
    for kind, sample in SAMPLES.items():
        sink = voted()
        sink.handle(ConnectionLost())
        assert (sink.state, sink.wants_bytes) == (State.CLOSED, False)
        assert sink.handle(received(sample) if kind.isupper() else sample) == []


def test_the_table_has_a_row_for_each_state() -> None:
    assert set(LEGAL.rows) == set(State)


# ---------------------------------------------------------------- beginning


def test_older_connections_are_closed_before_the_coordinator_is_let_in() -> None:
    sink = connected(cookie=b"c", credits=7)
    assert sink.handle(received(Hello("0.0.1", b"c", "p", "i"))) == [AdmitInstance(instance="i", program="p")]
    assert sent(sink.handle(InstanceAdmitted())) == [Ok(7)]


def test_what_was_sent_without_waiting_is_answered_in_order() -> None:
    sink = connected()
    assert rest(sink.handle(received(HELLO, NOTIFY, ListUncommitted(77778))))
    answers = sent(sink.handle(InstanceAdmitted(committed={S: 10}, in_doubt=frozenset({b"b", b"a"}))))
    assert answers == [Ok(500), NotifyAck(True, S, MessageId(10)), ReplyUncommitted(77778, (b"a", b"b"))]


@pytest.mark.parametrize(
    ("hello", "code"),
    [(Hello("1", b"c", "p", "i"), "DL3051"), (Hello("0.0.1", b"d", "p", "i"), "DL3010"), (HELLO, "DL3010")],
)
def test_who_may_not_speak_is_told_why_and_closed(hello: Hello, code: str) -> None:
    refused(connected(cookie=b"c").handle(received(hello)), code)


def test_a_coordinator_that_the_storage_does_not_want_is_refused() -> None:
    assert "of another cluster" in refused(admitting().handle(InstanceRefused(text="of another cluster")), "DL3035")


@pytest.mark.parametrize("given", [0, 1, 2**32])
def test_credits_out_of_range_are_refused(given: int) -> None:
    with pytest.raises(InvalidUse, match="credits"):
        SinkParticipant(credits=given)


def test_streams_are_opened_at_what_is_committed_of_them() -> None:
    sink = admitted()
    assert sent(sink.handle(received(NOTIFY))) == [NotifyAck(True, S, MessageId(10))]
    assert sent(sink.handle(received(Notify(OTHER, b"", MessageId(3))))) == [NotifyAck(True, OTHER, MessageId(0))]
    assert sent(sink.handle(received(NOTIFY))) == [NotifyAck(False, S, MessageId(10))]
    assert sent(sink.handle(received(EosMessage(S), NOTIFY))) == [NotifyAck(True, S, MessageId(10))]


def test_stream_zero_and_more_streams_than_the_maximum_are_not_opened() -> None:
    refused(ready().handle(received(Notify(StreamId(0), b"", MessageId(0)))), "DL3003")
    refused(ready(streams_max=1).handle(received(Notify(OTHER, b"", MessageId(0)))), "DL3006")


# ---------------------------------------------------------------- votes


def test_one_whole_round_is_answered_in_this_order() -> None:
    sink = resolving()
    assert sink.handle(received(ListUncommitted(2), data(13, b"d"))) == []
    effects = sink.handle(Resolved(transaction=TXN, committed={S: 13}))
    assert sent(effects) == [ReplyUncommitted(2, ())]
    assert rest(effects) == [WriteData(stream=S, offset=13, payloads=[b"d"])]


def test_what_was_voted_for_is_listed_until_it_is_decided() -> None:
    assert sent(voted().handle(received(ListUncommitted(2)))) == [ReplyUncommitted(2, (TXN,))]
    assert sent(voted(commit=False).handle(received(ListUncommitted(2)))) == [ReplyUncommitted(2, ())]


@pytest.mark.parametrize("offset", [9, 11])
def test_a_message_that_does_not_begin_where_the_last_ended_leads_to_an_abort(offset: int) -> None:
    sink = ready()
    assert sink.handle(received(data(offset, b"ab"), data(offset + 2, b"c"))) == [], "nothing of it is kept"
    effects = sink.handle(received(ask(10, 13)))
    assert sent(effects) == [Reply(TXN, False)]
    assert isinstance(effects[0], AbortVoted)
    assert f"a message at offset {offset}, the one before ended at 10" in effects[0].text


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (ask(10, 12), "(10, 12) is asked for, (10, 13) came"),
        (ask(10, 14), "(10, 14) is asked for"),
        (ask(9, 13), "(9, 13) is asked for"),
        (ask(10, 13, stream=OTHER), "stream 2: (10, 13) is asked for, nothing came"),
        (Phase1(TXN, ()), "stream 1 is not named"),
        (Phase1(TXN, ask(10, 13).ranges * 2), "named twice"),
    ],
)
def test_a_question_about_other_bytes_than_came_leads_to_an_abort(asked: Phase1, told: str) -> None:
    sink = ready()
    effects = sink.handle(received(data(10, b"abc"), asked))
    assert sent(effects) == [Reply(TXN, False)]
    assert [each.text for each in effects if isinstance(each, AbortVoted) and told in each.text]


def test_behind_an_abort_the_same_offsets_are_taken_again() -> None:
    sink = ready()
    sink.handle(received(data(11, b"a"), ask(10, 12), Phase2(TXN, False)))
    sink.handle(Resolved(transaction=TXN, committed={S: 10}))
    effects = sink.handle(received(data(10, b"ab"), ask(10, 12, b"t2")))
    assert effects[-1] == Prepare(transaction=b"t2", ranges=ask(10, 12).ranges)


def test_a_vote_to_commit_is_the_storages_word() -> None:
    assert voted(commit=False).state is State.VOTED
    with pytest.raises(InvalidUse, match="was not to be prepared"):
        preparing().handle(Prepared(transaction=OLD, commit=True))


def test_the_same_question_gets_the_same_vote_and_another_an_error() -> None:
    assert sent(voted().handle(received(ask(10, 13)))) == [Reply(TXN, True)]
    assert sent(voted(commit=False).handle(received(ask(10, 13)))) == [Reply(TXN, False)]
    assert "while b't1' is open" in refused(voted().handle(received(ask(10, 13, b"t2"))), "DL3003")
    refused(voted().handle(received(ask(10, 12))), "DL3003")


def test_several_streams_are_prepared_as_one() -> None:
    sink = ready()
    sink.handle(received(Notify(OTHER, b"", MessageId(0)), data(10, b"a"), data(0, b"bc", OTHER), data(11, b"d")))
    ranges = (Range(S, MessageId(10), MessageId(12)), Range(OTHER, MessageId(0), MessageId(2)))
    assert sink.handle(received(Phase1(TXN, ranges))) == [Prepare(transaction=TXN, ranges=ranges)]


# ---------------------------------------------------------------- decisions


def test_a_vote_to_abort_is_never_committed() -> None:
    assert "the vote was to abort" in refused(voted(commit=False).handle(received(Phase2(TXN, True))), "DL3003")


def test_there_is_no_answer_to_phase_two() -> None:
    assert sent(resolving().handle(Resolved(transaction=TXN, committed={S: 13}))) == []


def test_what_is_in_doubt_is_resolved_before_new_data_is_taken() -> None:
    sink = in_doubt()
    assert sink.handle(received(Phase2(OLD, True))) == [Resolve(transaction=OLD, commit=True)]
    effects = sink.handle(received(data(20, b"x")))
    effects += sink.handle(Resolved(transaction=OLD, committed={S: 20}))
    assert effects == [WriteData(stream=S, offset=20, payloads=[b"x"])]


def test_each_transaction_in_doubt_is_resolved_by_itself() -> None:
    sink = admitted(10, OLD, TXN)
    sink.handle(received(Phase2(OLD, False)))
    sink.handle(Resolved(transaction=OLD, committed={S: 10}))
    assert sink.state is State.IN_DOUBT
    assert sent(sink.handle(received(ListUncommitted(2)))) == [ReplyUncommitted(2, (TXN,))]


@pytest.mark.parametrize("commit", [True, False])
def test_a_decision_that_comes_again_goes_to_the_storage_and_changes_nothing_else(commit: bool) -> None:
    sink = ready()
    effects = sink.handle(received(data(10, b"a"), Phase2(OLD, commit)))
    assert effects[-1] == Resolve(transaction=OLD, commit=commit)
    sink.handle(Resolved(transaction=OLD, committed={S: 10}))
    assert sink.handle(received(data(11, b"b")))[0] == WriteData(stream=S, offset=11, payloads=[b"b"])


def test_a_decision_about_another_one_leaves_the_open_one_open() -> None:
    sink = voted()
    sink.handle(received(Phase2(OLD, False)))
    sink.handle(Resolved(transaction=OLD, committed={S: 10}))
    assert sink.state is State.VOTED
    assert sink.handle(received(Phase2(TXN, True))) == [Resolve(transaction=TXN, commit=True)]


def test_a_commit_of_what_was_never_prepared_ends_the_connection() -> None:
    sink = ready()
    sink.handle(received(Phase2(OLD, True)))
    effects = sink.handle(ResolutionRefused(transaction=OLD, text="it was aborted"))
    assert "can't be committed: it was aborted" in refused(effects, "DL3003")


def test_an_answer_about_another_transaction_is_a_bug_of_the_storage() -> None:
    with pytest.raises(InvalidUse, match="was not to be resolved"):
        resolving().handle(Resolved(transaction=OLD))


# ---------------------------------------------------------------- other words


def test_workers_that_left_are_forgotten_in_both_forms() -> None:
    by_frame = BytesReceived(data=bytes.fromhex("00000010 09 0000000000000001 00000001 0001 77"))
    assert ready().handle(by_frame) == [ForgetWorkers(workers=(b"w",))]
    assert ready().handle(received(WorkersLeft(1, (b"w",)))) == [ForgetWorkers(workers=(b"w",))]


@pytest.mark.parametrize("sent_bytes", [b"\xff\xff\xff\xff", bytes(4), b"\0\0\0\x01\x63"])
def test_bytes_that_are_no_frame_end_the_connection(sent_bytes: bytes) -> None:
    refused(ready().handle(BytesReceived(data=sent_bytes)))


def test_an_error_of_the_coordinator_is_not_answered() -> None:
    assert voted().handle(received(Error("no"))) == [Close(code="", text="the coordinator says: no")]
