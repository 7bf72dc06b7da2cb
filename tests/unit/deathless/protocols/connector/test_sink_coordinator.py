"""The coordinator's end of a sink: what it takes when, and that it decides nothing by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from tests.unit.deathless.protocols.connector.helpers import check_legality, plain, received, refused, rest, sent

from deathless.base.errors import InvalidUse, TooLarge
from deathless.protocols.connector.events import BytesReceived, Close, ConnectionLost, ConnectionOpened
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
    encode,
)
from deathless.protocols.connector.sink_coordinator import LEGAL, SinkCoordinator, State
from deathless.protocols.connector.sink_events import (
    BlockPlanned,
    DataOffered,
    DecisionConfirmed,
    ListWanted,
    ResolveDoubt,
    SinkMoved,
    SinkReady,
    StillUncommitted,
    TransactionsDone,
    Voted,
    VoteOverdue,
    WorkersGone,
)
from deathless.protocols.connector.transactions import (
    FIRST_RTAG,
    ListUncommitted,
    Phase1,
    Phase2,
    Range,
    Reply,
    ReplyUncommitted,
)

S: Final = StreamId(1)
TXN: Final = b"t1"
OLD: Final = b"t0"
PLAN: Final = BlockPlanned(transaction=TXN, start=10, end=14)
YES: Final = DecisionConfirmed(transaction=TXN, commit=True)
NO: Final = DecisionConfirmed(transaction=TXN, commit=False)


def connected(**settings: Any) -> SinkCoordinator:
    return SinkCoordinator(program="deathless", instance="shop-0", cookie=b"c", name=b"out", **settings)


def greeted() -> SinkCoordinator:
    sink = connected()
    sink.handle(ConnectionOpened())
    return sink


def introducing() -> SinkCoordinator:
    sink = greeted()
    sink.handle(received(Ok(0)))
    return sink


def listing() -> SinkCoordinator:
    sink = introducing()
    sink.handle(received(NotifyAck(True, S, MessageId(10))))
    return sink


def listed(sink: SinkCoordinator, *transactions: bytes, asked: int = 1) -> list[Any]:
    return [*sink.handle(received(ReplyUncommitted(FIRST_RTAG + asked - 1, transactions)))]


def ready() -> SinkCoordinator:
    sink = listing()
    listed(sink)
    return sink


def resolving() -> SinkCoordinator:
    sink = listing()
    assert listed(sink, OLD, TXN) == [ResolveDoubt(transactions=(OLD, TXN))]
    return sink


def writing() -> SinkCoordinator:
    sink = ready()
    sink.handle(PLAN)
    return sink


def voting() -> SinkCoordinator:
    sink = writing()
    sink.handle(DataOffered(payloads=[b"abcd"]))
    return sink


def voted(commit: bool = True) -> SinkCoordinator:
    sink = voting()
    sink.handle(received(Reply(TXN, commit)))
    return sink


def settling() -> SinkCoordinator:
    sink = voted()
    sink.handle(YES)
    return sink


SAMPLES: Final[dict[str, Any]] = {
    "HELLO": Hello("0.0.1", b"", "p", "i"),
    "OK": Ok(1),
    "ERROR": Error("no"),
    "NOTIFY": Notify(S, b"", MessageId(0)),
    "NOTIFY_ACK": NotifyAck(True, S, NO_POSITION),
    "MESSAGE": Message(S, MessageId(0), 0, b"", b"x"),
    "ACK": Ack(1),
    "RESTART": Restart(),
    "EOS_MESSAGE": EosMessage(S),
    "WORKERS_LEFT": WorkersLeft(1, ()),
    "LIST_UNCOMMITTED": ListUncommitted(1),
    "PHASE1": Phase1(TXN, ()),
    "PHASE2": Phase2(TXN, True),
    "REPLY": Reply(TXN, True),
    "opened": ConnectionOpened(),
    "gone": ConnectionLost(),
    "planned": BlockPlanned(transaction=b"t2", start=14, end=20),
    "data": DataOffered(payloads=[b"ab"]),
    "decided": YES,
    "list": ListWanted(),
    "overdue": VoteOverdue(),
    "workers": WorkersGone(workers=(b"w",)),
}
SESSION: Final = {"ACK", "RESTART"}
WHERE: Final[dict[str, tuple[Callable[[], SinkCoordinator], set[str]]]] = {
    "connected": (connected, {"opened"}),
    "handshake": (greeted, {"OK"}),
    "introducing": (introducing, {"NOTIFY_ACK"} | SESSION),
    "listing": (listing, SESSION),
    "resolving": (resolving, {"decided", "workers"} | SESSION),
    "ready": (ready, {"planned", "workers"} | SESSION),
    "writing": (writing, {"data", "workers"} | SESSION),
    "voting": (voting, {"REPLY", "overdue", "workers"} | SESSION),
    "voted": (voted, {"REPLY", "decided", "workers"} | SESSION),
    "settling": (settling, {"REPLY", "list", "workers"} | SESSION),
}


@pytest.mark.parametrize("kind", SAMPLES)
@pytest.mark.parametrize("where", WHERE)
def test_what_is_not_in_the_table_is_refused_and_ends_this_connection_alone(where: str, kind: str) -> None:
    make, legal = WHERE[where]
    check_legality(make(), kind, SAMPLES, {"ERROR", "gone"} | legal)


@pytest.mark.parametrize("make", [greeted, introducing, resolving, ready, writing, voting, voted])
def test_a_list_that_nobody_asked_for_is_refused(make: Callable[[], SinkCoordinator]) -> None:
    refused(make().handle(received(ReplyUncommitted(FIRST_RTAG, ()))), "DL3003")


@pytest.mark.parametrize("make", [listing, settling])
def test_a_list_that_answers_another_question_is_refused(make: Callable[[], SinkCoordinator]) -> None:
    assert "asked was" in refused(make().handle(received(ReplyUncommitted(FIRST_RTAG + 7, ()))), "DL3003")


def test_after_its_end_a_connection_does_nothing() -> None:
    for sample in SAMPLES.values():
        sink = voted()
        sink.handle(ConnectionLost())
        event = received(sample) if not hasattr(type(sample), "__dataclass_fields__") else sample
        assert (sink.state, sink.handle(event)) == (State.CLOSED, [])


def test_the_table_has_a_row_for_each_state() -> None:
    assert set(LEGAL.rows) == set(State)


def test_one_whole_round_is_said_in_this_order() -> None:
    sink = connected()
    said = sent(sink.handle(ConnectionOpened()))
    said += sent(sink.handle(received(Ok(500))))
    said += sent(sink.handle(received(NotifyAck(True, S, MessageId(10)))))
    assert listed(sink) == [SinkReady(position=MessageId(10))]
    said += sent(sink.handle(PLAN))
    said += sent(sink.handle(DataOffered(payloads=[b"ab", b"c"])))
    said += sent(sink.handle(DataOffered(payloads=[])))
    said += sent(sink.handle(DataOffered(payloads=[b"d"])))
    assert sink.handle(received(Reply(TXN, True))) == [Voted(transaction=TXN, commit=True)]
    said += sent(sink.handle(YES))
    assert listed(sink, asked=2) == [TransactionsDone(outcomes={TXN: True}), SinkReady(position=MessageId(10))]
    assert said == [
        Hello("v0.0.1", b"c", "deathless", "shop-0"),
        Notify(S, b"out", MessageId(0)),
        ListUncommitted(FIRST_RTAG),
        Message(S, MessageId(10), 0, b"", b"ab"),
        Message(S, MessageId(12), 0, b"", b"c"),
        Message(S, MessageId(13), 0, b"", b"d"),
        Phase1(TXN, (Range(S, MessageId(10), MessageId(14)),)),
        Phase2(TXN, True),
        ListUncommitted(FIRST_RTAG + 1),
    ]


def test_a_block_without_bytes_is_voted_on_at_once() -> None:
    effects = ready().handle(BlockPlanned(transaction=TXN, start=10, end=10))
    assert sent(effects) == [Phase1(TXN, (Range(S, MessageId(10), MessageId(10)),))]


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (4, 3), (0, 2**64)])
def test_offsets_that_are_no_range_are_refused(start: int, end: int) -> None:
    with pytest.raises(InvalidUse, match="are no range"):
        ready().handle(BlockPlanned(transaction=TXN, start=start, end=end))


def test_a_name_that_no_frame_can_hold_is_refused_before_anything_is_sent() -> None:
    sink = ready()
    with pytest.raises(InvalidUse, match="65536 bytes"):
        sink.handle(BlockPlanned(transaction=bytes(65_536), start=0, end=0))
    assert sink.state is State.READY


def test_more_bytes_than_planned_are_not_sent() -> None:
    sink = writing()
    with pytest.raises(InvalidUse, match="the block ends at 14"):
        sink.handle(DataOffered(payloads=[b"abcd", b"e"]))
    assert sent(sink.handle(DataOffered(payloads=[b"abcd"])))[0] == Message(S, MessageId(10), 0, b"", b"abcd")


def test_a_payload_longer_than_a_frame_is_not_sent_and_one_that_just_fits_is() -> None:
    sink = connected(frame_bytes_max=64)
    for frame in (Ok(0), NotifyAck(True, S, NO_POSITION), ReplyUncommitted(FIRST_RTAG, ())):
        if sink.state is State.CONNECTED:
            sink.handle(ConnectionOpened())
        sink.handle(received(frame))
    sink.handle(BlockPlanned(transaction=TXN, start=0, end=37))
    with pytest.raises(TooLarge, match="passes the frame's 64"):
        sink.handle(DataOffered(payloads=[bytes(38)]))
    longest = sent(sink.handle(DataOffered(payloads=[bytes(37)])))[0]
    assert len(encode(plain(longest))) == 4 + 64


# ---------------------------------------------------------------- decisions


def test_a_vote_to_abort_is_never_turned_into_a_commit() -> None:
    sink = voted(commit=False)
    with pytest.raises(InvalidUse, match="the vote is to abort"):
        sink.handle(YES)
    assert sent(sink.handle(NO)) == [Phase2(TXN, False), ListUncommitted(FIRST_RTAG + 1)]


def test_a_vote_to_commit_may_be_decided_as_an_abort() -> None:
    assert sent(voted().handle(NO))[0] == Phase2(TXN, False)


@pytest.mark.parametrize("make", [voted, resolving])
def test_only_what_was_voted_on_is_decided(make: Callable[[], SinkCoordinator]) -> None:
    with pytest.raises(InvalidUse):
        make().handle(DecisionConfirmed(transaction=b"other", commit=True))


def test_all_that_is_in_doubt_is_decided_before_anything_new_is_planned() -> None:
    sink = resolving()
    assert sent(sink.handle(DecisionConfirmed(transaction=OLD, commit=False))) == [Phase2(OLD, False)]
    with pytest.raises(InvalidUse):
        sink.handle(PLAN)
    assert sent(sink.handle(YES)) == [Phase2(TXN, True), ListUncommitted(FIRST_RTAG + 1)]
    done = TransactionsDone(outcomes={OLD: False, TXN: True})
    assert listed(sink, asked=2) == [done, SinkReady(position=MessageId(10))]


def test_what_is_still_listed_is_said_again_when_that_is_wanted() -> None:
    sink = settling()
    assert listed(sink, TXN, asked=2) == [StillUncommitted(transactions=(TXN,))]
    assert sent(sink.handle(ListWanted())) == [Phase2(TXN, True), ListUncommitted(FIRST_RTAG + 2)]
    assert listed(sink, asked=3)[0] == TransactionsDone(outcomes={TXN: True})


def test_what_is_listed_and_was_never_asked_about_is_in_doubt() -> None:
    sink = settling()
    assert listed(sink, TXN, OLD, asked=2) == [ResolveDoubt(transactions=(OLD,))]
    assert sent(sink.handle(DecisionConfirmed(transaction=OLD, commit=False)))[-1] == ListUncommitted(FIRST_RTAG + 2)


def test_an_attempt_that_was_decided_has_another_name_next_time() -> None:
    sink = settling()
    listed(sink, asked=2)
    with pytest.raises(InvalidUse, match="another attempt has another name"):
        sink.handle(PLAN)


def test_answers_to_phase_two_are_passed_over() -> None:
    sink = settling()
    assert sink.handle(received(Reply(TXN, True))) == []
    listed(sink, asked=2)
    assert sink.handle(received(Reply(TXN, True))) == []
    sink.handle(BlockPlanned(transaction=b"t2", start=14, end=14))
    assert sink.handle(received(Reply(TXN, True))) == [], "a late one is no vote on the next"
    assert sink.handle(received(Reply(b"t2", False))) == [Voted(transaction=b"t2", commit=False)]


def test_a_vote_that_changes_is_refused() -> None:
    sink = voted()
    assert sink.handle(received(Reply(TXN, True))) == []
    assert "was not asked about" in refused(sink.handle(received(Reply(TXN, False))), "DL3003")


@pytest.mark.parametrize("make", [writing, voting, voted])
def test_a_vote_on_something_else_is_refused(make: Callable[[], SinkCoordinator]) -> None:
    refused(make().handle(received(Reply(b"other", True))), "DL3003")


# ---------------------------------------------------------------- other words


def test_an_acknowledgement_and_a_zero_of_credits_change_nothing() -> None:
    sink = introducing()
    assert sink.handle(received(Ack(9, ((S, MessageId(1)),)))) == []
    assert sink.state is State.INTRODUCING


def test_a_participant_that_does_not_take_the_stream_is_left() -> None:
    effects = introducing().handle(received(NotifyAck(False, S, NO_POSITION)))
    assert effects == [Close(code="", text="the participant does not take the stream")]
    refused(introducing().handle(received(NotifyAck(True, StreamId(2), NO_POSITION))), "DL3003")


def test_a_participant_that_moves_says_where_to() -> None:
    effects = voted().handle(received(Restart("h:1")))
    assert effects == [SinkMoved(address="h:1"), Close(code="", text="the participant asked to connect anew")]


def test_a_participant_that_does_not_vote_is_left_and_asked_anew() -> None:
    effects = voting().handle(VoteOverdue())
    assert rest(effects) == effects == [Close(code="", text="the participant did not vote in time")]


def test_workers_that_left_are_named_with_a_number_of_their_own() -> None:
    sink = ready()
    assert sent(sink.handle(WorkersGone(workers=(b"w1",)))) == [WorkersLeft(FIRST_RTAG + 1, (b"w1",))]


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", bytes(4), b"\0\0\0\x01\x63"])
def test_bytes_that_are_no_frame_end_the_connection(data: bytes) -> None:
    refused(ready().handle(BytesReceived(data=data)))


def test_a_payload_that_is_no_transaction_message_ends_the_connection() -> None:
    refused(ready().handle(received(Message(StreamId(0), MessageId(0), 0, b"", b"\x01"))), "DL4001")
