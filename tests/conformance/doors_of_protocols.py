"""The doors of other people's protocols: frames and both ends of the connector protocol, and the note of a source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conformance.door import Door, Feed, golden, of
from tests.conformance.hostile import packed_bytes
from tests.unit.deathless.sources.gate.gate_world import World

from deathless.base.errors import InvalidArgument
from deathless.protocols.connector import frames, transactions
from deathless.protocols.connector.events import BytesReceived, Close, ConnectionOpened
from deathless.protocols.connector.frame_reader import FrameReader
from deathless.protocols.connector.frames import Hello, Message, MessageId, Notify, NotifyAck, Ok, StreamId, encode
from deathless.protocols.connector.sink_coordinator import SinkCoordinator
from deathless.protocols.connector.sink_events import InstanceAdmitted
from deathless.protocols.connector.sink_participant import SinkParticipant
from deathless.protocols.connector.source_client import SourceClient
from deathless.protocols.connector.source_events import StreamAdmitted, StreamWanted
from deathless.protocols.connector.source_worker import SourceWorker
from deathless.sources.gate.machine import HangUp
from deathless.sources.kafka_place import decode_note

ONE = StreamId(1)
FRAMES = ("hello", "ok", "error", "notify", "notify_ack", "message", "ack", "restart_address", "eos_message")
TRANSACTIONS = ("list_uncommitted", "reply_uncommitted", "phase1", "reply", "phase2", "workers_left_2pc")


def frame_of(name: str) -> bytes:
    """A recorded frame, without its length."""
    return golden(f"connector_{name}")[frames.PREFIX_BYTES :]


def payload_of(name: str) -> bytes:
    """A recorded transaction message."""
    message = frames.decode(frame_of(name))
    assert isinstance(message, Message)
    return message.payload


def transaction(data: bytes) -> object:
    """A transaction message in its frame."""
    return transactions.decode(Message(StreamId(0), MessageId(0), 0, b"", data))


def stream(data: bytes) -> object:
    """Bytes of a connection, in pieces."""
    reader = FrameReader(1 << 20)
    reader.feed(data[:3])
    found = [reader.next()]
    reader.feed(data[3:])
    while (frame := reader.next()) is not None:
        found.append(frame)
    return found


def machine(make: Callable[[], Any]) -> Feed:
    """Bytes at one end of a connection that stands; what ends it is its refusal."""

    def feed(data: bytes, _: Path) -> object:
        effects = make().handle(BytesReceived(data=data))
        ended = [each for each in effects if isinstance(each, Close) and each.code]
        if ended:
            raise InvalidArgument(ended[0].text)
        return effects

    return feed


def worker() -> SourceWorker:
    """With an open stream."""
    end = SourceWorker(credits=9)
    end.handle(BytesReceived(data=encode(Hello("0.0.1", b"", "p", "i")) + encode(Notify(ONE, b"", MessageId(0)))))
    end.handle(StreamAdmitted(stream=ONE, last=None))
    return end


def client() -> SourceClient:
    """With an open stream, of which 7 messages were sent before."""
    end = SourceClient(program="p", instance="i")
    end.handle(ConnectionOpened())
    end.handle(BytesReceived(data=encode(Ok(9))))
    end.handle(StreamWanted(stream=ONE, name=b""))
    end.handle(BytesReceived(data=encode(NotifyAck(True, ONE, MessageId(7)))))
    return end


def coordinator() -> SinkCoordinator:
    """That asked what is in doubt."""
    end = SinkCoordinator(program="p", instance="i")
    end.handle(ConnectionOpened())
    end.handle(BytesReceived(data=encode(Ok(9)) + encode(NotifyAck(True, ONE, MessageId(0)))))
    return end


def participant() -> SinkParticipant:
    """With an open stream."""
    end = SinkParticipant()
    end.handle(BytesReceived(data=encode(Hello("v0.0.1", b"", "p", "i")) + encode(Notify(ONE, b"", MessageId(0)))))
    end.handle(InstanceAdmitted())
    return end


def gate(data: bytes, _: Path) -> object:
    """A client with an open stream, at the gate of a service."""
    world = World()
    peer = world.connect()
    peer.open(ONE)
    effects = world.gate.received(peer.number, data, world.now)
    world.gate.check_invariants()
    ended = [each for each in effects if isinstance(each, HangUp) and each.code]
    if ended:
        raise InvalidArgument(ended[0].text)
    return effects


PROTOCOLS = [
    *(
        Door(
            f"{name} of the connector protocol",
            ("protocols/connector/fields.py::Fields._number", "protocols/connector/frames.py::_message"),
            of(frames.decode),
            frame_of(name),
            packed_bytes,
        )
        for name in FRAMES
    ),
    *(
        Door(
            f"{name} of the connector protocol",
            ("protocols/connector/fields.py::Fields._number",),
            of(transaction),
            payload_of(name),
            packed_bytes,
        )
        for name in TRANSACTIONS
    ),
    Door(
        "note of a partition of Kafka",
        ("sources/kafka_place.py::decode_note",),
        of(decode_note),
        golden("kafka_note_seen"),
        packed_bytes,
    ),
    Door(
        "a stream of frames",
        ("protocols/connector/frame_reader.py::FrameReader.next",),
        of(stream),
        golden("connector_message") + golden("connector_ack"),
        packed_bytes,
    ),
    *(
        Door(
            f"a connection at a {name}",
            ("protocols/connector/frame_reader.py::FrameReader.next",),
            machine(make),
            good,
            packed_bytes,
        )
        for name, make, good in (
            ("worker of a source", worker, golden("connector_message") + golden("connector_eos_message")),
            ("client of a source", client, golden("connector_ack")),
            ("coordinator of a sink", coordinator, golden("connector_reply_uncommitted")),
            ("participant of a sink", participant, golden("connector_message") + golden("connector_phase1")),
        )
    ),
    Door(
        "a connection at the gate of a source",
        ("protocols/connector/frame_reader.py::FrameReader.next",),
        gate,
        golden("connector_message") + golden("connector_eos_message"),
        packed_bytes,
    ),
]
