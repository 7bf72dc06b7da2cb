"""The worker's end of a source: what it takes when, what it tells the client, and what it never does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from tests.unit.deathless.protocols.connector.helpers import check_legality, received, refused, rest, sent

from deathless.base.errors import InvalidUse, Overloaded
from deathless.base.limits import CONNECTOR_FRAME_BYTES_MAX, Limits
from deathless.protocols.connector.events import BytesReceived, Close, ConnectionLost
from deathless.protocols.connector.fields import SHORT_BYTES_MAX
from deathless.protocols.connector.frames import (
    MESSAGE_OVERHEAD_BYTES,
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
from deathless.protocols.connector.source_events import (
    AcknowledgementDue,
    AskStream,
    ConnectionRefused,
    CreditsHeld,
    DrainRequested,
    EndConfirmed,
    ForwardEnd,
    ForwardMessages,
    MessagesConfirmed,
    MessagesSettled,
    ReleaseStreams,
    StreamAdmitted,
    StreamFenced,
    StreamLost,
    StreamRefused,
    StreamResumed,
)
from deathless.protocols.connector.source_worker import LEGAL, SourceWorker, State, StreamState

S: Final = StreamId(7)
OTHER: Final = StreamId(8)
HELLO: Final = Hello("0.0.1", b"", "prog", "inst")
NOTIFY: Final = Notify(S, b"flights", MessageId(0))


def message(ident: int, stream: StreamId = S, payload: bytes = b"x") -> Message:
    return Message(stream, MessageId(ident), 0, b"k", payload)


def streaming(given: int = 100, **settings: Any) -> SourceWorker:
    worker = SourceWorker(credits=given, **settings)
    assert sent(worker.handle(received(HELLO))) == [Ok(given)]
    return worker


def opened(last: int | None = None, *, ended: bool = False, **settings: Any) -> SourceWorker:
    worker = streaming(**settings)
    worker.handle(received(NOTIFY))
    worker.handle(StreamAdmitted(stream=S, last=None if last is None else MessageId(last), ended=ended))
    return worker


def ending() -> SourceWorker:
    worker = opened()
    worker.handle(received(message(1), EosMessage(S)))
    worker.handle(confirmed(1))
    return worker


def closed_stream() -> SourceWorker:
    worker = ending()
    worker.handle(EndConfirmed(stream=S))
    return worker


def asked() -> SourceWorker:
    worker = streaming()
    worker.handle(received(NOTIFY))
    return worker


def confirmed(through: int, stream: StreamId = S) -> MessagesConfirmed:
    return MessagesConfirmed(stream=stream, through=MessageId(through))


def acks(worker: SourceWorker, **options: bool) -> list[object]:
    return [*sent(worker.handle(AcknowledgementDue(**options)))]


# ---------------------------------------------------------------- what is legal when

SAMPLES: Final[dict[str, Any]] = {
    "HELLO": HELLO,
    "OK": Ok(1),
    "ERROR": Error("no"),
    "NOTIFY": NOTIFY,
    "NOTIFY_ACK": NotifyAck(True, S, MessageId(1)),
    "MESSAGE": message(5),
    "ACK": Ack(1),
    "RESTART": Restart(),
    "EOS_MESSAGE": EosMessage(S),
    "WORKERS_LEFT": WorkersLeft(1, ()),
    "admitted": StreamAdmitted(stream=S, last=None),
    "refused": StreamRefused(stream=S),
    "lost": StreamLost(stream=S),
    "fenced": StreamFenced(stream=S),
    "confirmed": confirmed(1),
    "settled": MessagesSettled(stream=S, through=MessageId(1)),
    "end confirmed": EndConfirmed(stream=S),
    "held": CreditsHeld(held=True),
    "due": AcknowledgementDue(),
    "drain": DrainRequested(address=""),
    "refused connection": ConnectionRefused(error=Overloaded("no room")),
    "gone": ConnectionLost(),
}
ALWAYS: Final = {"ERROR", "held", "due", "drain", "refused connection", "gone"}
WHERE: Final[dict[str, tuple[Callable[[], SourceWorker], set[str]]]] = {
    "connected": (lambda: SourceWorker(credits=5), {"HELLO"}),
    "no stream": (streaming, {"NOTIFY", "fenced", "lost"}),
    "asked": (asked, {"NOTIFY", "admitted", "refused", "fenced"}),
    "open": (opened, {"NOTIFY", "MESSAGE", "EOS_MESSAGE", "lost", "fenced"}),
    "ending": (ending, {"NOTIFY", "lost", "fenced", "confirmed", "settled", "end confirmed"}),
    "closed stream": (closed_stream, {"NOTIFY", "fenced", "lost"}),
}


@pytest.mark.parametrize("kind", SAMPLES)
@pytest.mark.parametrize("where", WHERE)
def test_what_is_not_in_the_table_is_refused_and_ends_this_connection_alone(where: str, kind: str) -> None:
    make, legal = WHERE[where]
    if where == "open" and kind in {"confirmed", "settled"}:
        return  # legal, with an id that came: see below
    check_legality(make(), kind, SAMPLES, ALWAYS | legal)


@pytest.mark.parametrize("kind", SAMPLES)
def test_after_its_end_a_connection_does_nothing(kind: str) -> None:
    worker = opened()
    worker.handle(ConnectionLost())
    assert (worker.state, worker.wants_bytes) == (State.CLOSED, False)
    sample = SAMPLES[kind]
    event = received(sample) if kind.isupper() else sample
    assert worker.handle(event) == []


def test_the_table_has_a_row_for_each_state() -> None:
    assert set(LEGAL.rows) == set(State)
    assert {state for row in LEGAL.rows.values() for streams in row.values() for state in streams or ()} <= set(
        StreamState
    )


# ---------------------------------------------------------------- handshake


@pytest.mark.parametrize("version", ["0.0.1", "v0.0.1"])
def test_hello_is_answered_with_the_credits(version: str) -> None:
    worker = SourceWorker(credits=500, cookie=b"c")
    assert sent(worker.handle(received(Hello(version, b"c", "p", "i")))) == [Ok(500)]
    assert (worker.instance, worker.program, worker.state) == ("i", "p", State.STREAMING)


@pytest.mark.parametrize(
    ("hello", "code"),
    [(Hello("0.0.2", b"c", "p", "i"), "DL3051"), (Hello("0.0.1", b"d", "p", "i"), "DL3010"), (HELLO, "DL3010")],
)
def test_who_may_not_speak_is_told_why_and_closed(hello: Hello, code: str) -> None:
    worker = SourceWorker(credits=500, cookie=b"c")
    refused(worker.handle(received(hello, NOTIFY)), code)
    assert worker.state is State.CLOSED


@pytest.mark.parametrize(
    ("data", "code"),
    [(b"\xff\xff\xff\xff", "DL3006"), (bytes(4), "DL4001"), (b"\0\0\0\x01\x63", "DL4001")],
)
def test_bytes_that_are_no_frame_end_the_connection(data: bytes, code: str) -> None:
    worker = opened()
    effects = worker.handle(BytesReceived(data=data))
    refused(effects, code)
    assert rest(effects)[0] == ReleaseStreams(streams=(S,))


def test_an_error_of_the_client_is_not_answered() -> None:
    effects = opened().handle(received(Error("disk full")))
    assert effects == [ReleaseStreams(streams=(S,)), Close(code="", text="the client says: disk full")]


@pytest.mark.parametrize("given", [0, 1, 2**31])
def test_credits_out_of_range_are_refused(given: int) -> None:
    with pytest.raises(InvalidUse, match="credits"):
        SourceWorker(credits=given)


# ---------------------------------------------------------------- streams


def test_a_stream_is_asked_for_and_opened_at_the_last_id_that_is_confirmed() -> None:
    worker = streaming()
    [ask] = worker.handle(received(Notify(S, b"flights", MessageId(3))))
    assert ask == AskStream(stream=S, name=b"flights", instance="inst", position=MessageId(3))
    assert sent(worker.handle(StreamAdmitted(stream=S, last=MessageId(9)))) == [NotifyAck(True, S, MessageId(9))]
    assert worker.stream_state(S) is StreamState.OPEN


def test_a_stream_of_which_nothing_was_processed_is_told_so_by_no_position() -> None:
    assert sent(asked().handle(StreamAdmitted(stream=S, last=None))) == [NotifyAck(True, S, NO_POSITION)]
    assert sent(asked().handle(StreamAdmitted(stream=S, last=MessageId(0)))) == [NotifyAck(True, S, MessageId(0))]


def test_a_stream_of_another_owner_is_refused_and_can_be_asked_for_again() -> None:
    worker = asked()
    assert sent(worker.handle(StreamRefused(stream=S, last=MessageId(4)))) == [NotifyAck(False, S, MessageId(4))]
    assert isinstance(worker.handle(received(NOTIFY))[0], AskStream)


@pytest.mark.parametrize("make", [asked, opened])
def test_a_stream_that_the_connection_has_is_refused_to_it(make: Any) -> None:
    worker = make()
    before = worker.stream_state(S)
    [answer] = sent(worker.handle(received(NOTIFY)))
    assert (answer.success, worker.stream_state(S)) == (False, before)  # type: ignore[union-attr]


def test_messages_are_forwarded_in_order_one_effect_for_a_stretch_of_one_stream() -> None:
    worker = opened()
    worker.handle(received(Notify(OTHER, b"", MessageId(0))))
    worker.handle(StreamAdmitted(stream=OTHER, last=None))
    effects = worker.handle(received(message(1), message(5), message(2, OTHER), message(6)))
    assert effects == [
        ForwardMessages(stream=S, messages=[message(1), message(5)]),
        ForwardMessages(stream=OTHER, messages=[message(2, OTHER)]),
        ForwardMessages(stream=S, messages=[message(6)]),
    ]


def test_only_what_is_confirmed_is_dropped_here_and_all_else_is_the_primarys_to_judge() -> None:
    worker = opened(last=3)
    assert worker.handle(received(message(2), message(3))) == []
    assert worker.repeated == 2
    [effect] = worker.handle(received(message(5), message(7), message(6), message(5)))
    assert [each.id for each in effect.messages] == [5, 7, 6, 5]  # type: ignore[union-attr]
    worker.handle(confirmed(7))
    assert worker.handle(received(message(6))) == []
    assert worker.repeated == 3


def test_the_first_id_of_a_new_stream_may_be_zero() -> None:
    [effect] = opened().handle(received(message(0)))
    assert effect == ForwardMessages(stream=S, messages=[message(0)])


def test_the_id_that_stands_for_no_position_is_no_id() -> None:
    assert "begin at 0" in refused(opened().handle(received(message(2**64 - 1))), "DL3003")


@pytest.mark.parametrize("event", [StreamAdmitted, StreamResumed])
def test_what_stands_for_no_position_on_the_wire_is_no_last_id(event: Any) -> None:
    worker = asked()
    if event is StreamResumed:
        worker = opened()
        worker.handle(StreamLost(stream=S))
    with pytest.raises(InvalidUse, match="None stands for"):
        worker.handle(event(stream=S, last=NO_POSITION))
    assert len(worker.handle(event(stream=S, last=None))) == (1 if event is StreamAdmitted else 0)


def test_streams_that_ended_make_room_for_others() -> None:
    worker = streaming(streams_max=1)
    for number in range(1, 9):
        stream = StreamId(number)
        worker.handle(received(Notify(stream, b"", MessageId(0))))
        worker.handle(StreamAdmitted(stream=stream, last=None))
        worker.handle(received(EosMessage(stream)))
        worker.handle(EndConfirmed(stream=stream))
        assert (worker.state, worker._streams) == (State.STREAMING, {})


def test_a_frame_has_room_for_the_longest_message_and_key() -> None:
    assert Limits().message_bytes_max + SHORT_BYTES_MAX + MESSAGE_OVERHEAD_BYTES <= CONNECTOR_FRAME_BYTES_MAX


def test_no_more_streams_than_the_maximum_are_opened() -> None:
    worker = opened(streams_max=1)
    assert "at most 1 streams" in refused(worker.handle(received(Notify(OTHER, b"", MessageId(0)))), "DL3006")


# ---------------------------------------------------------------- acknowledgements


def test_nothing_is_acknowledged_before_it_is_confirmed() -> None:
    worker = opened(last=3)
    assert acks(worker) == [Ack(1)]  # the credit of NOTIFY
    worker.handle(received(message(4), message(6)))
    assert acks(worker) == []
    worker.handle(confirmed(4))
    assert acks(worker) == [Ack(1, ((S, MessageId(4)),))]
    assert acks(worker) == []
    worker.handle(confirmed(6))
    assert acks(worker) == [Ack(1, ((S, MessageId(6)),))]


@pytest.mark.parametrize("through", [2, 7, 2**64 - 1])
def test_what_never_came_and_what_goes_back_can_not_be_confirmed(through: int) -> None:
    worker = opened(last=3)
    worker.handle(received(message(4), message(6)))
    with pytest.raises(InvalidUse, match="can't be confirmed"):
        worker.handle(confirmed(through))
    worker.handle(confirmed(6))


def test_what_is_settled_gives_its_credits_back_and_is_acknowledged_once_it_is_confirmed() -> None:
    worker = opened(kept_bytes_max=50)
    worker.handle(received(message(1), message(2), EosMessage(S)))
    wants = [worker.wants_bytes]
    worker.handle(MessagesSettled(stream=S, through=MessageId(2)))
    assert acks(worker) == [Ack(3)]
    assert [*wants, worker.wants_bytes] == [False, True]
    with pytest.raises(InvalidUse, match="before message 2"):
        worker.handle(EndConfirmed(stream=S))
    worker.handle(confirmed(2))
    assert acks(worker) == [Ack(0, ((S, MessageId(2)),))]
    worker.handle(EndConfirmed(stream=S))
    assert acks(worker) == [Ack(1, ((S, MessageId(2)),))]


def test_what_is_settled_is_not_sent_again_after_a_loss() -> None:
    worker = opened()
    worker.handle(received(message(1), message(2), message(3)))
    worker.handle(MessagesSettled(stream=S, through=MessageId(2)))
    worker.handle(StreamLost(stream=S))
    effects = worker.handle(StreamResumed(stream=S, last=MessageId(1)))
    assert effects == [ForwardMessages(stream=S, messages=[message(3)])]
    with pytest.raises(InvalidUse, match="can't be confirmed"):
        worker.handle(MessagesSettled(stream=S, through=MessageId(4)))


def test_one_acknowledgement_names_all_streams_that_went_on() -> None:
    worker = opened()
    worker.handle(received(Notify(OTHER, b"", MessageId(0))))
    worker.handle(StreamAdmitted(stream=OTHER, last=None))
    worker.handle(received(message(1, OTHER), message(1)))
    worker.handle(confirmed(1, OTHER))
    worker.handle(confirmed(1))
    assert acks(worker) == [Ack(4, ((S, MessageId(1)), (OTHER, MessageId(1))))]


def test_an_empty_acknowledgement_is_sent_only_when_it_is_wanted() -> None:
    worker = opened()
    acks(worker)
    assert acks(worker) == []
    assert acks(worker, even_empty=True) == [Ack(0)]


def test_before_hello_nothing_is_acknowledged() -> None:
    assert acks(SourceWorker(credits=5), even_empty=True) == []


# ---------------------------------------------------------------- credits


def test_credits_come_back_once_nothing_is_kept_and_at_half_by_themselves() -> None:
    worker = opened(given=10)
    worker.handle(received(*(message(ident) for ident in range(1, 10))))
    assert sent(worker.handle(confirmed(3))) == []
    assert sent(worker.handle(confirmed(4))) == [Ack(5, ((S, MessageId(4)),))], "NOTIFY and four messages"
    assert acks(worker) == []


def test_each_frame_gives_its_credit_back_the_end_of_a_stream_included() -> None:
    worker = opened()
    worker.handle(received(message(1), EosMessage(S)))
    worker.handle(confirmed(1))
    worker.handle(EndConfirmed(stream=S))
    assert acks(worker) == [Ack(3, ((S, MessageId(1)),))]


def test_a_message_that_is_dropped_gives_its_credit_back() -> None:
    worker = opened(last=3)
    worker.handle(received(message(3), message(3)))
    assert acks(worker) == [Ack(3)]


def test_credits_that_are_held_back_are_given_later_and_positions_at_once() -> None:
    worker = opened(given=2)
    worker.handle(CreditsHeld(held=True))
    worker.handle(received(message(1)))
    assert worker.handle(confirmed(1)) == []
    assert acks(worker) == [Ack(0, ((S, MessageId(1)),))]
    assert sent(worker.handle(CreditsHeld(held=False))) == [Ack(1)]


def test_a_client_that_sends_more_than_its_credits_is_read_no_further_and_not_refused() -> None:
    worker = opened(given=2, kept_bytes_max=3_000)
    worker.handle(received(*(message(ident, payload=bytes(970)) for ident in range(2))))
    wants = [worker.wants_bytes]
    effects = worker.handle(received(*(message(ident, payload=bytes(970)) for ident in range(2, 9))))
    assert sent(effects) == []
    wants.append(worker.wants_bytes)
    worker.handle(confirmed(8))
    assert [*wants, worker.wants_bytes] == [True, False, True]


# ---------------------------------------------------------------- the end of a stream


def test_the_end_is_forwarded_behind_the_messages_and_acknowledged_by_the_last_id() -> None:
    worker = opened()
    effects = worker.handle(received(message(1), EosMessage(S)))
    assert effects == [ForwardMessages(stream=S, messages=[message(1)]), ForwardEnd(stream=S)]
    with pytest.raises(InvalidUse, match="before message 1"):
        worker.handle(EndConfirmed(stream=S))
    worker.handle(confirmed(1))
    acks(worker)
    worker.handle(EndConfirmed(stream=S))
    assert worker.stream_state(S) is StreamState.CLOSED
    assert acks(worker) == [Ack(1, ((S, MessageId(1)),))]


def test_the_end_of_a_stream_without_messages_is_acknowledged_by_no_position() -> None:
    worker = opened()
    worker.handle(received(EosMessage(S)))
    worker.handle(EndConfirmed(stream=S))
    assert acks(worker) == [Ack(2, ((S, NO_POSITION),))]


def test_an_end_that_was_confirmed_before_is_acknowledged_and_not_forwarded_again() -> None:
    worker = opened(last=9, ended=True)
    assert worker.handle(received(message(9), EosMessage(S))) == []
    assert acks(worker) == [Ack(3, ((S, MessageId(9)),))]
    assert worker.stream_state(S) is StreamState.CLOSED


def test_an_end_behind_new_messages_is_another_end() -> None:
    worker = opened(last=9, ended=True)
    effects = worker.handle(received(message(10), EosMessage(S)))
    assert effects[-1] == ForwardEnd(stream=S)


def test_a_stream_that_is_opened_again_is_asked_for_once_its_end_is_confirmed() -> None:
    worker = ending()
    assert worker.handle(received(Notify(S, b"again", MessageId(1)))) == []
    assert not sent(worker.handle(received(NOTIFY)))[0].success  # type: ignore[union-attr]
    effects = worker.handle(EndConfirmed(stream=S))
    assert sent(effects)[0].positions == ((S, MessageId(1)),)  # type: ignore[union-attr]
    assert isinstance(effects[-1], AskStream)
    assert effects[-1].name == b"again"
    assert worker.stream_state(S) is StreamState.ASKED


# ---------------------------------------------------------------- fenced, lost, drained


def test_a_stream_that_is_fenced_ends_its_client_with_the_reason() -> None:
    worker = opened()
    text = refused(worker.handle(StreamFenced(stream=S)), "DL2001")
    assert "stream 7 has a newer owner" in text
    assert worker.state is State.CLOSED


@pytest.mark.parametrize(
    "late", [StreamFenced(stream=S), StreamLost(stream=S), StreamResumed(stream=S, last=MessageId(3))]
)
def test_what_is_told_of_a_stream_that_was_given_up_concerns_nobody(late: Any) -> None:
    worker = closed_stream()
    assert worker.handle(late) == []
    assert (worker.state, worker.stream_state(S)) == (State.STREAMING, StreamState.CLOSED)


def test_an_end_that_is_known_is_acknowledged_even_while_the_stream_is_lost() -> None:
    worker = opened(last=9, ended=True)
    worker.handle(StreamLost(stream=S))
    assert worker.handle(received(EosMessage(S))) == []
    assert worker.handle(StreamResumed(stream=S, last=MessageId(9), ended=True)) == []
    assert acks(worker) == [Ack(2, ((S, MessageId(9)),))]


def test_a_stream_that_is_lost_keeps_its_client_and_is_sent_again_from_what_is_confirmed() -> None:
    worker = opened()
    worker.handle(received(message(1), message(2), message(3)))
    worker.handle(confirmed(1))
    acks(worker)
    assert worker.handle(StreamLost(stream=S)) == []
    assert worker.handle(received(message(4))) == [], "nobody is there to take it"
    effects = worker.handle(StreamResumed(stream=S, last=MessageId(2)))
    assert effects == [ForwardMessages(stream=S, messages=[message(3), message(4)])]
    assert acks(worker) == [Ack(1, ((S, MessageId(2)),))]
    assert worker.state is State.STREAMING


def test_an_end_that_came_while_the_stream_was_lost_is_forwarded_when_it_is_found() -> None:
    worker = opened()
    worker.handle(StreamLost(stream=S))
    assert worker.handle(received(message(1), EosMessage(S))) == []
    effects = worker.handle(StreamResumed(stream=S, last=None))
    assert effects == [ForwardMessages(stream=S, messages=[message(1)]), ForwardEnd(stream=S)]


def test_an_end_that_was_confirmed_behind_a_loss_is_acknowledged() -> None:
    worker = opened()
    worker.handle(received(message(1), EosMessage(S)))
    worker.handle(StreamLost(stream=S))
    assert worker.handle(StreamResumed(stream=S, last=MessageId(1), ended=True)) == []
    assert acks(worker) == [Ack(3, ((S, MessageId(1)),))]


def test_a_service_that_has_lost_what_was_confirmed_ends_the_client() -> None:
    worker = opened(last=5)
    worker.handle(StreamLost(stream=S))
    assert "message 5 was confirmed" in refused(worker.handle(StreamResumed(stream=S, last=MessageId(4))), "DL4016")


def test_a_service_that_has_more_than_came_was_given_it_by_another_sender() -> None:
    worker = opened(last=5)
    worker.handle(StreamLost(stream=S))
    refused(worker.handle(StreamResumed(stream=S, last=MessageId(6))), "DL2001")


def test_a_stream_that_was_not_lost_is_not_resumed() -> None:
    with pytest.raises(InvalidUse, match="was not lost"):
        opened().handle(StreamResumed(stream=S, last=None))


@pytest.mark.parametrize("make", [asked, opened, ending])
def test_a_connection_that_goes_gives_up_each_stream_it_has_or_asks_for(make: Any) -> None:
    worker = make()
    assert worker.handle(ConnectionLost()) == [
        ReleaseStreams(streams=(S,)),
        Close(code="", text="the connection was lost"),
    ]
    assert worker.handle(StreamAdmitted(stream=S, last=None)) == [], "the answer came too late"


@pytest.mark.parametrize(("program", "told"), [("deathless-kafka", [Restart("h:1")]), ("prog", [])])
def test_a_drain_tells_only_those_who_understand_it_where_to_go(program: str, told: list[Restart]) -> None:
    worker = SourceWorker(credits=5)
    worker.handle(received(Hello("0.0.1", b"", program, "i")))
    effects = worker.handle(DrainRequested(address="h:1"))
    assert sent(effects) == told
    assert rest(effects) == [Close(code="", text="this end drains")]


def test_a_client_that_the_runtime_refuses_is_told_why() -> None:
    worker = opened()
    effects = worker.handle(ConnectionRefused(error=Overloaded("no room")))
    assert worker.state is State.CLOSED
    refused(effects, "DL1002")
    assert ReleaseStreams(streams=(S,)) in effects


def test_what_is_kept_is_counted_with_the_beginning_of_a_frame() -> None:
    worker = opened()
    worker.handle(received(message(1), message(2)))
    size = MESSAGE_OVERHEAD_BYTES + 2
    assert (worker.kept, worker.progress[1]) == ((2, 2 * size), False)
    worker.handle(BytesReceived(data=b"\0\0"))
    assert (worker.kept, worker.progress[1]) == ((2, 2 * size + 2), True)
    worker.handle(confirmed(1))
    assert worker.kept == (1, size + 2)


def test_what_is_confirmed_is_news_until_it_is_told() -> None:
    worker = opened()
    seen = []
    for event in (received(message(1)), confirmed(1), AcknowledgementDue()):
        worker.handle(event)
        seen.append(worker.has_news)
    assert seen == [False, True, False]
    ended = opened(last=1, ended=True)
    ended.handle(received(EosMessage(S)))
    assert ended.has_news, "an end that is said again is acknowledged"
