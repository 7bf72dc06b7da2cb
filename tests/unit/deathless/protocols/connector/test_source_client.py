"""The client's end of a source: what it takes when, what it sends, and what it never believes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from tests.unit.deathless.protocols.connector.helpers import check_legality, received, refused, rest, sent

from deathless.base.errors import DeathlessError, InvalidUse, TooLarge
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
)
from deathless.protocols.connector.source_client import LEGAL, SourceClient, State, StreamState
from deathless.protocols.connector.source_events import (
    Acknowledged,
    CreditsGained,
    EndOffered,
    GivenUp,
    MessagesOffered,
    Redirected,
    SessionOpened,
    StreamDenied,
    StreamEnded,
    StreamOpened,
    StreamWanted,
)

S: Final = StreamId(7)
OTHER: Final = StreamId(8)


def message(ident: int, stream: StreamId = S, payload: bytes = b"x") -> Message:
    return Message(stream, MessageId(ident), 0, b"k", payload)


def connected(**settings: Any) -> SourceClient:
    return SourceClient(program="prog", instance="inst", cookie=b"c", **settings)


def greeted() -> SourceClient:
    client = connected()
    client.handle(ConnectionOpened())
    return client


def streaming(given: int = 10, **settings: Any) -> SourceClient:
    client = connected(**settings)
    client.handle(ConnectionOpened())
    assert client.handle(received(Ok(given))) == [SessionOpened()]
    return client


def asked(**options: Any) -> SourceClient:
    client = streaming()
    client.handle(StreamWanted(stream=S, name=b"flights", **options))
    return client


def opened(last: int | None = None, **settings: Any) -> SourceClient:
    client = streaming(**settings)
    client.handle(StreamWanted(stream=S, name=b"flights"))
    client.handle(received(NotifyAck(True, S, NO_POSITION if last is None else MessageId(last))))
    return client


def ending() -> SourceClient:
    client = opened()
    client.handle(EndOffered(stream=S))
    return client


def denied() -> SourceClient:
    client = asked()
    assert client.handle(received(NotifyAck(False, S, NO_POSITION))) == [StreamDenied(stream=S)]
    return client


def offer(*messages: Message) -> MessagesOffered:
    return MessagesOffered(messages=messages)


# ---------------------------------------------------------------- what is legal when

SAMPLES: Final[dict[str, Any]] = {
    "HELLO": Hello("0.0.1", b"", "p", "i"),
    "OK": Ok(1),
    "ERROR": Error("no"),
    "NOTIFY": Notify(S, b"", MessageId(0)),
    "NOTIFY_ACK": NotifyAck(True, S, NO_POSITION),
    "MESSAGE": message(5),
    "ACK": Ack(1, ((S, NO_POSITION),)),
    "RESTART": Restart(),
    "EOS_MESSAGE": EosMessage(S),
    "WORKERS_LEFT": WorkersLeft(1, ()),
    "opened": ConnectionOpened(),
    "gone": ConnectionLost(),
    "wanted": StreamWanted(stream=S, name=b""),
    "offered": offer(message(5)),
    "end": EndOffered(stream=S),
    "given up": GivenUp(text="disk full"),
}
WHERE: Final[dict[str, tuple[Callable[[], SourceClient], set[str]]]] = {
    "connected": (connected, {"opened", "given up"}),
    "handshake": (greeted, {"OK", "given up"}),
    "no stream": (streaming, {"RESTART", "wanted", "given up"}),
    "asked": (asked, {"NOTIFY_ACK", "ACK", "RESTART", "given up"}),
    "open": (opened, {"ACK", "RESTART", "offered", "end", "given up"}),
    "ending": (ending, {"ACK", "RESTART", "given up"}),
    "closed stream": (denied, {"ACK", "RESTART", "wanted", "given up"}),
}


@pytest.mark.parametrize("kind", SAMPLES)
@pytest.mark.parametrize("where", WHERE)
def test_what_is_not_in_the_table_is_refused_and_ends_this_connection_alone(where: str, kind: str) -> None:
    make, legal = WHERE[where]
    check_legality(make(), kind, SAMPLES, {"ERROR", "gone"} | legal)


@pytest.mark.parametrize("kind", SAMPLES)
def test_after_its_end_a_connection_does_nothing(kind: str) -> None:
    client = opened()
    client.handle(ConnectionLost())
    assert (client.state, client.credits) == (State.CLOSED, 0)
    sample = SAMPLES[kind]
    assert client.handle(received(sample) if kind.isupper() else sample) == []


def test_the_table_has_a_row_for_each_state() -> None:
    assert set(LEGAL.rows) == set(State)


# ---------------------------------------------------------------- handshake and streams


def test_the_client_speaks_first_and_says_who_it_is() -> None:
    assert sent(connected().handle(ConnectionOpened())) == [Hello("0.0.1", b"c", "prog", "inst")]
    assert sent(connected(version="v0.0.1").handle(ConnectionOpened())) == [Hello("v0.0.1", b"c", "prog", "inst")]


def test_an_error_of_the_worker_is_not_answered() -> None:
    assert greeted().handle(received(Error("no"))) == [Close(code="", text="the worker says: no")]


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", bytes(4), b"\0\0\0\x01\x63"])
def test_bytes_that_are_no_frame_end_the_connection(data: bytes) -> None:
    refused(opened().handle(BytesReceived(data=data)))


@pytest.mark.parametrize(("last", "said"), [(None, 0), (MessageId(9), 9)])
def test_a_stream_is_asked_for_with_what_the_program_knows(last: MessageId | None, said: int) -> None:
    client = streaming()
    effects = client.handle(StreamWanted(stream=S, name=b"flights", last=last))
    assert sent(effects) == [Notify(S, b"flights", MessageId(said))]
    assert client.credits == 9


@pytest.mark.parametrize(("position", "last"), [(9, 9), (0, 0), (2**64 - 1, None)])
def test_the_answer_alone_says_where_to_go_on(position: int, last: int | None) -> None:
    effects = asked(last=MessageId(4)).handle(received(NotifyAck(True, S, MessageId(position))))
    assert effects == [StreamOpened(stream=S, last=None if last is None else MessageId(last))]


@pytest.mark.parametrize(("position", "goes_on"), [(5, True), (6, True), (4, False), (2**64 - 1, False)])
def test_a_worker_that_wants_what_can_not_be_sent_again_gets_an_error(position: int, goes_on: bool) -> None:
    client = asked(forgotten=MessageId(5))
    effects = client.handle(received(NotifyAck(True, S, MessageId(position))))
    if goes_on:
        assert isinstance(effects[0], StreamOpened)
    else:
        assert "I can't send 5 and before any more" in refused(effects, "DL3003")


# ---------------------------------------------------------------- messages


def test_messages_are_sent_as_one_and_cost_a_credit_each() -> None:
    client = opened(last=3)
    [effect] = client.handle(offer(message(4), message(9)))
    assert sent([effect]) == [message(4), message(9)]
    assert client.credits == 7
    assert client.handle(offer()) == []


@pytest.mark.parametrize(
    ("ids", "error"),
    [([3], InvalidUse), ([0], InvalidUse), ([4, 4], InvalidUse), ([5, 4], InvalidUse), ([2**64 - 1], InvalidUse)],
)
def test_ids_grow_from_the_one_that_the_worker_named(ids: list[int], error: type[DeathlessError]) -> None:
    client = opened(last=3)
    with pytest.raises(error, match="ids grow"):
        client.handle(
            offer(message(4, payload=b"first"), *map(message, ids)) if ids == [4, 4] else offer(*map(message, ids))
        )
    assert sent(client.handle(offer(message(4)))) == [message(4)], "nothing was sent, and nothing is remembered"


def test_nothing_is_sent_without_a_credit_for_it() -> None:
    client = opened(given=2)
    with pytest.raises(InvalidUse, match="2 credits are needed, 1 are left"):
        client.handle(offer(message(1), message(2)))
    client.handle(offer(message(1)))
    with pytest.raises(InvalidUse, match="1 credits are needed, 0 are left"):
        client.handle(StreamWanted(stream=OTHER, name=b""))
    assert client.handle(received(Ack(1))) == [CreditsGained()]
    assert sent(client.handle(offer(message(2)))) == [message(2)]


def test_a_message_that_the_worker_would_close_at_is_not_sent_and_nothing_before_it() -> None:
    client = opened(frame_bytes_max=16_384)
    with pytest.raises(TooLarge, match="at most 16384"):
        client.handle(offer(message(1), message(2, payload=bytes(16_384))))
    fits = bytes(16_384 - 27 - 1)
    assert sent(client.handle(offer(message(1, payload=fits)))) == [message(1, payload=fits)]


# ---------------------------------------------------------------- acknowledgements


def test_only_what_an_acknowledgement_names_is_acknowledged() -> None:
    client = opened()
    client.handle(offer(message(1), message(5), message(9)))
    assert client.handle(received(Ack(0, ((S, MessageId(5)),)))) == [Acknowledged(stream=S, last=MessageId(5))]
    assert client.handle(received(Ack(0, ((S, MessageId(5)),)))) == []
    assert client.handle(received(Ack(0, ((S, MessageId(1)),)))) == []


def test_no_position_acknowledges_nothing() -> None:
    client = opened()
    client.handle(offer(message(1)))
    assert client.handle(received(Ack(2, ((S, NO_POSITION),)))) == [CreditsGained()]
    client.handle(EndOffered(stream=S))
    assert client.stream_state(S) is StreamState.ENDING


@pytest.mark.parametrize("position", [2, 2**64 - 2])
def test_a_worker_that_acknowledges_what_was_never_sent_gets_an_error(position: int) -> None:
    client = opened()
    client.handle(offer(message(1)))
    assert "was never sent" in refused(client.handle(received(Ack(0, ((S, MessageId(position)),)))), "DL3003")


def test_an_acknowledgement_of_an_unknown_stream_is_refused() -> None:
    refused(opened().handle(received(Ack(0, ((OTHER, MessageId(1)),)))), "DL3003")


def test_credits_beyond_their_field_are_refused() -> None:
    refused(opened().handle(received(Ack(2**32 - 1))), "DL3003")
    refused(greeted().handle(received(Ack(1))), "DL3003")


# ---------------------------------------------------------------- the end


def test_the_end_waits_for_the_acknowledgement_of_all_messages_and_for_a_credit() -> None:
    client = opened(given=2)
    client.handle(offer(message(1)))
    assert client.handle(EndOffered(stream=S)) == []
    assert client.handle(received(Ack(0, ((S, MessageId(1)),)))) == [Acknowledged(stream=S, last=MessageId(1))]
    effects = client.handle(received(Ack(1)))
    assert sent(effects) == [EosMessage(S)]
    assert client.credits == 0
    assert client.handle(received(Ack(1, ((S, MessageId(1)),)))) == [StreamEnded(stream=S), CreditsGained()]
    assert client.stream_state(S) is StreamState.CLOSED


@pytest.mark.parametrize(("last", "position"), [(None, NO_POSITION), (4, MessageId(4))])
def test_a_stream_without_new_messages_ends_at_once(last: int | None, position: MessageId) -> None:
    client = opened(last=last)
    assert sent(client.handle(EndOffered(stream=S))) == [EosMessage(S)]
    assert client.handle(received(Ack(0, ((S, position),)))) == [StreamEnded(stream=S)]


def test_a_program_that_gives_up_tells_the_worker_why() -> None:
    assert "disk full" in refused(opened().handle(GivenUp(text="disk full")), "DL3003")


def test_a_worker_that_goes_away_says_where_to() -> None:
    effects = opened().handle(received(Restart("h:1")))
    assert effects == [Redirected(address="h:1"), Close(code="", text="the worker asked to connect anew")]
    assert rest(effects) == effects
