"""All machines with all inputs in any order: frames, bytes that are none, and words of the program around them.

Whatever comes, a machine answers or says InvalidUse (TooLarge for what no frame can hold); it ends at most once, says
ERROR at most once, and does nothing afterwards. A worker's end gives no more credits than it was sent frames and
acknowledges nothing that it was not told to be confirmed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.deathless.protocols.connector.helpers import received, sent
from tests.unit.deathless.protocols.connector.strategies import FRAMES, TRANSACTIONS

from deathless.base.errors import CorruptFrame, InvalidUse, TooLarge
from deathless.protocols.connector import sink_events as sink
from deathless.protocols.connector import source_events as source
from deathless.protocols.connector.events import BytesReceived, Close, ConnectionLost, ConnectionOpened
from deathless.protocols.connector.frame_reader import FrameReader
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
)
from deathless.protocols.connector.sink_coordinator import SinkCoordinator
from deathless.protocols.connector.sink_participant import SinkParticipant
from deathless.protocols.connector.source_client import SourceClient
from deathless.protocols.connector.source_worker import SourceWorker
from deathless.protocols.connector.transactions import (
    FIRST_RTAG,
    ListUncommitted,
    Phase1,
    Phase2,
    Range,
    Reply,
    ReplyUncommitted,
)

STREAM: Final = st.sampled_from([StreamId(0), StreamId(1), StreamId(2)])
ID: Final = st.sampled_from([MessageId(each) for each in (0, 1, 2, 3, 4)] + [NO_POSITION])
LAST: Final = st.none() | ID
NAME: Final = st.sampled_from([b"a", b"b"])
COMMIT: Final = st.booleans()
SIZE: Final = st.integers(0, 4)
MESSAGE: Final = st.builds(Message, stream=STREAM, id=ID, event_time=st.just(0), key=st.just(b""), payload=NAME)
SAID: Final = st.one_of(
    st.builds(
        Hello,
        version=st.sampled_from(["0.0.1", "2"]),
        cookie=st.just(b""),
        program=NAME.map(str),
        instance=st.just("i"),
    ),
    st.builds(Ok, credits=st.integers(0, 9)),
    st.builds(Notify, stream=STREAM, name=NAME, position=ID),
    st.builds(NotifyAck, success=COMMIT, stream=STREAM, position=ID),
    MESSAGE,
    MESSAGE,
    st.builds(Ack, credits=SIZE, positions=st.lists(st.tuples(STREAM, ID), max_size=2).map(tuple)),
    st.builds(EosMessage, stream=STREAM),
    st.just(Restart()),
    st.builds(ListUncommitted, rtag=st.just(1)),
    st.builds(
        ReplyUncommitted,
        rtag=st.integers(FIRST_RTAG, FIRST_RTAG + 2),
        transactions=st.lists(NAME, max_size=2).map(tuple),
    ),
    st.builds(Phase1, transaction=NAME, ranges=st.lists(st.builds(Range, STREAM, ID, ID), max_size=2).map(tuple)),
    st.builds(Phase2, transaction=NAME, commit=COMMIT),
    st.builds(Reply, transaction=NAME, commit=COMMIT),
)
HEARD: Final = st.one_of(
    st.lists(SAID, min_size=1, max_size=3).map(lambda frames: received(*frames)),
    st.lists(SAID, min_size=1, max_size=3).map(lambda frames: received(*frames)),
    (FRAMES | TRANSACTIONS).map(received),
    st.binary(max_size=12).map(lambda data: BytesReceived(data=data)),
)
ENDED: Final = st.just(ConnectionLost())
WORKER: Final = st.one_of(
    st.builds(source.StreamAdmitted, stream=STREAM, last=LAST, ended=COMMIT),
    st.builds(source.StreamRefused, stream=STREAM, last=LAST),
    st.builds(source.StreamLost, stream=STREAM),
    st.builds(source.StreamResumed, stream=STREAM, last=LAST, ended=COMMIT),
    st.builds(source.StreamFenced, stream=STREAM),
    st.builds(source.MessagesConfirmed, stream=STREAM, through=ID),
    st.builds(source.MessagesSettled, stream=STREAM, through=ID),
    st.builds(source.EndConfirmed, stream=STREAM),
    st.builds(source.CreditsHeld, held=COMMIT),
    st.builds(source.AcknowledgementDue, even_empty=COMMIT),
    st.builds(source.DrainRequested, address=st.just("")),
)
CLIENT: Final = st.one_of(
    st.just(ConnectionOpened()),
    st.builds(source.StreamWanted, stream=STREAM, name=NAME, last=LAST, forgotten=LAST),
    st.builds(source.MessagesOffered, messages=st.lists(MESSAGE, max_size=3)),
    st.builds(source.EndOffered, stream=STREAM),
    st.builds(source.GivenUp, text=st.just("x")),
)
COORDINATOR: Final = st.one_of(
    st.just(ConnectionOpened()),
    st.builds(sink.BlockPlanned, transaction=NAME, start=SIZE, end=SIZE),
    st.builds(sink.DataOffered, payloads=st.lists(NAME, max_size=3)),
    st.builds(sink.DecisionConfirmed, transaction=NAME, commit=COMMIT),
    st.just(sink.ListWanted()),
    st.just(sink.VoteOverdue()),
    st.builds(sink.WorkersGone, workers=st.just((b"w",))),
)
OFFSETS: Final = st.dictionaries(STREAM, SIZE, max_size=2)
PARTICIPANT: Final = st.one_of(
    st.builds(sink.InstanceAdmitted, committed=OFFSETS, in_doubt=st.frozensets(NAME)),
    st.builds(sink.InstanceRefused, text=st.just("x")),
    st.builds(sink.Prepared, transaction=NAME, commit=COMMIT),
    st.builds(sink.Resolved, transaction=NAME, committed=OFFSETS),
    st.builds(sink.ResolutionRefused, transaction=NAME, text=st.just("x")),
)


def worker() -> SourceWorker:
    """A worker's end with an open stream."""
    end = SourceWorker(credits=4, streams_max=2, kept_bytes_max=200)
    end.handle(received(Hello("0.0.1", b"", "p", "i"), Notify(StreamId(1), b"", MessageId(0))))
    end.handle(source.StreamAdmitted(stream=StreamId(1), last=None))
    return end


def client() -> SourceClient:
    """A client's end with an open stream."""
    end = SourceClient(program="p", instance="i")
    end.handle(ConnectionOpened())
    end.handle(received(Ok(9)))
    end.handle(source.StreamWanted(stream=StreamId(1), name=b""))
    end.handle(received(NotifyAck(True, StreamId(1), NO_POSITION)))
    return end


def coordinator() -> SinkCoordinator:
    """A coordinator's end that may plan a block."""
    end = SinkCoordinator(program="p", instance="i")
    end.handle(ConnectionOpened())
    end.handle(received(Ok(9), NotifyAck(True, StreamId(1), MessageId(0)), ReplyUncommitted(FIRST_RTAG, ())))
    return end


def participant() -> SinkParticipant:
    """A participant's end with an open stream."""
    end = SinkParticipant(streams_max=2)
    end.handle(received(Hello("v0.0.1", b"", "p", "i"), Notify(StreamId(1), b"", MessageId(0))))
    end.handle(sink.InstanceAdmitted())
    return end


MACHINES: Final[dict[str, tuple[Callable[[], Any], st.SearchStrategy[Any]]]] = {
    "new worker": (lambda: SourceWorker(credits=4), WORKER),
    "worker": (worker, WORKER),
    "new client": (lambda: SourceClient(program="p", instance="i"), CLIENT),
    "client": (client, CLIENT),
    "new coordinator": (lambda: SinkCoordinator(program="p", instance="i"), COORDINATOR),
    "coordinator": (coordinator, COORDINATOR),
    "new participant": (SinkParticipant, PARTICIPANT),
    "participant": (participant, PARTICIPANT),
}


def run(machine: Any, events: list[Any]) -> list[object]:
    """Say all of it to a machine; give its effects."""
    found: list[object] = []
    for event in events:
        before = machine.state
        try:
            effects = machine.handle(event)
        except (InvalidUse, TooLarge):
            assert not isinstance(event, BytesReceived), "what the other end sends is never raised"
            assert machine.state is before
            continue
        assert not any(isinstance(each, Close) for each in found) or effects == []
        found += effects
    return found


@pytest.mark.parametrize("name", MACHINES)
@settings(max_examples=60)
@given(data=st.data())
def test_whatever_comes_a_machine_answers_or_ends_once(name: str, data: st.DataObject) -> None:
    make, words = MACHINES[name]
    events = data.draw(st.lists(st.one_of(HEARD, words, words), max_size=12))
    found = run(make(), [*events, ConnectionLost(), *events])
    ends = [each for each in found if isinstance(each, Close)]
    assert ends == found[-1:], "the end comes once, and last"
    errors = [frame for frame in sent(found) if isinstance(frame, Error)]
    assert len(errors) == bool(ends[0].code)


def frames_in(data: bytes) -> int:
    """How many frames can be read, up to the first that can't."""
    reader, count = FrameReader(1 << 20), 0
    reader.feed(data)
    with contextlib.suppress(CorruptFrame, TooLarge):
        while reader.next() is not None:
            count += 1
    return count


@settings(max_examples=150)
@given(events=st.lists(st.one_of(HEARD, WORKER, WORKER), max_size=25))
def test_a_worker_acknowledges_what_is_confirmed_and_gives_the_credits_that_it_got(events: list[Any]) -> None:
    machine, told, given_back = worker(), {(1, NO_POSITION)}, 0
    data = b""
    for event in events:
        found = run(machine, [event])
        data += event.data if isinstance(event, BytesReceived) else b""
        told |= {(each.stream, each.last) for each in [event] if hasattr(each, "last")}
        told |= {(each.stream, NO_POSITION) for each in [event] if getattr(each, "last", 0) is None}
        told |= {(each.stream, each.through) for each in [event] if isinstance(each, source.MessagesConfirmed)}
        for frame in sent(found):
            if isinstance(frame, Ack):
                given_back += frame.credits
                assert {(stream, position) for stream, position in frame.positions} <= told
    assert given_back <= 1 + frames_in(data), "the first is the NOTIFY before"
