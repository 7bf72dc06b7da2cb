"""The doors of ports: packets at workers, supervisors, clients and peers, and requests over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, cast

import msgspec
from bank_fake import bank
from tests.conformance.door import Door, Feed, body, golden, of
from tests.conformance.hostile import json_bytes, msgpack_bytes, packed_bytes
from tests.unit.deathless.engine.replica_world import CLIENT, World
from tests.unit.deathless.shell.supervisor.test_control_port import Sent, port

from deathless.base.errors import DeathlessError
from deathless.base.ids import ChainHash, Epoch, Incarnation, Lsn
from deathless.codec import peer_messages, wire
from deathless.codec.frames import Frame
from deathless.codec.peer_messages import PeerHello, Reference, decode_body, encode_body
from deathless.codec.streams.packets import StreamCommit, StreamRefused, StreamWelcome
from deathless.codec.wire import Admin, CheckpointMade, Follow, Hello, PacketReader, PeerIntroduction, Type
from deathless.core.supervisor.detection import Report
from deathless.shell.ingress import operators as ingress_operators
from deathless.shell.ingress.routes import Route, parse_query
from deathless.shell.net.connections import ServerConnection
from deathless.shell.upgrade import packets


def worker_port(kind: Type) -> Feed:
    """A packet at the worker of a primary, on a connection that was let in; afterwards it must serve on."""
    world = World()
    node = world.primary()
    session = node.register()
    seq = 0

    def feed(data: bytes, _: Path) -> object:
        nonlocal seq
        refused: Exception | None = None
        try:
            node.intake.packets(CLIENT, [(kind, data)])
            node.intake.drained()
        except DeathlessError as error:
            refused = error
        assert not node.stopped, node.stopped
        seq += 1
        with suppress(DeathlessError):
            node.call(session, seq, b"x")
        assert not node.stopped, node.stopped
        if refused is not None:
            raise refused
        return None

    return feed


def control_port(kind: Type) -> Callable[[bytes], object]:
    """A packet at a supervisor's port."""
    served = port()[0]
    return lambda data: served.packets(cast("ServerConnection", Sent()), [(kind, data)])


def stream(data: bytes) -> object:
    """Bytes of a connection, in pieces."""
    reader = PacketReader(1 << 20)
    found = reader.take(data[:3])
    return found + reader.take(data[3:])


def http_body(data: bytes) -> object:
    """The body of a call."""
    return Route(bank.specs["transfer"]).from_json(data, "alice")


def http_query(data: bytes) -> object:
    """What stands behind the path of a query."""
    return Route(bank.specs["history"]).from_query(parse_query(data), "alice")


FRAME: Final = Frame(
    1, Epoch(2), Lsn(3), Lsn(4), 5, Incarnation(6), ChainHash(bytes(16)), ChainHash(bytes(16)), 7, b"payload"
)
PACKETS: dict[Type, bytes] = {
    Type.BATCH: body("batch"),
    Type.QUERIES: body("queries"),
    Type.ATTACH: body("attach"),
    Type.APPLIED: body("applied"),
    Type.REGISTER: body("register"),
    Type.STREAM_BATCH: body("stream_batch"),
}
STRUCTS: dict[Type, bytes] = {
    Type.FOLLOW: body("follow"),
    Type.ADMIN: body("admin"),
    Type.CHECKPOINT: body("checkpoint"),
    Type.STREAM_HELLO: body("stream_hello"),
}
PORTS = [
    *(
        Door(f"{kind.name} at a worker", ("codec/wire.py::decode_struct",), worker_port(kind), good, msgpack_bytes)
        for kind, good in STRUCTS.items()
    ),
    *(
        Door(
            f"{kind.name} at a worker",
            (
                "codec/wire.py::decode_batch",
                "codec/wire.py::decode_queries",
                "codec/wire.py::_items",
                "codec/wire.py::decode_attach",
                "engine/replica/intake.py::Intake.packets",
                "core/primary/admission.py::cut_messages",
            ),
            worker_port(kind),
            good,
            packed_bytes,
        )
        for kind, good in PACKETS.items()
    ),
    Door(
        "REPORT at a supervisor",
        ("codec/wire.py::decode_struct",),
        of(control_port(Type.REPORT)),
        msgspec.msgpack.encode(Report("r1", "running", "standby", 1, 1)),
        msgpack_bytes,
    ),
    Door(
        "ADMIN at a supervisor",
        ("codec/wire.py::decode_struct",),
        of(control_port(Type.ADMIN)),
        msgspec.msgpack.encode(Admin(1, "status", b"{}")),
        msgpack_bytes,
    ),
    *(
        Door(
            f"{kind.__name__} of anybody",
            ("codec/wire.py::decode_struct",),
            of(partial(wire.decode_struct, kind)),
            good,
            msgpack_bytes,
        )
        for kind, good in (
            (Hello, body("hello")),
            (wire.Welcome, body("welcome")),
            (wire.Refused, body("refused")),
            (Follow, body("follow")),
            (wire.Handover, body("handover")),
            (PeerIntroduction, body("peer_hello")),
            (wire.PeerWelcome, body("peer_welcome")),
            (wire.Challenge, body("challenge")),
            (StreamWelcome, body("stream_welcome")),
            (StreamRefused, body("stream_refused")),
            (StreamCommit, body("stream_commit")),
            (CheckpointMade, body("checkpoint")),
        )
    ),
    *(
        Door(
            f"{kind.__name__} of a peer",
            ("codec/peer_messages.py::decode_body",),
            of(partial(decode_body, kind)),
            encode_body(good),
            msgpack_bytes,
        )
        for kind, good in (
            (PeerHello, PeerHello("s", 0, bytes(16), 1)),
            (Reference, Reference(1, 2)),
            (peer_messages.RedeliveredFork, peer_messages.RedeliveredFork()),
        )
    ),
    Door(
        "REPLIES at a client",
        ("codec/wire.py::decode_replies", "codec/wire.py::_items"),
        of(wire.decode_replies),
        body("replies"),
        packed_bytes,
    ),
    Door(
        "a lone reply at a client",
        ("codec/wire.py::decode_one_reply",),
        of(lambda data: wire.decode_one_reply(data, 7, 3)),
        wire.encode_replies(7, [3], [wire.ok_reply(b"x")]),
        packed_bytes,
    ),
    Door(
        "PEER_COMMIT",
        ("codec/wire.py::decode_peer_commit",),
        of(wire.decode_peer_commit),
        body("peer_commit"),
        packed_bytes,
    ),
    Door(
        "a stream of packets",
        ("codec/wire.py::PacketReader.take", "codec/wire.py::PacketReader.feed"),
        of(stream),
        golden("wire_hello"),
        packed_bytes,
    ),
    Door(
        "a frame at the former code",
        ("shell/upgrade/packets.py::frame_of",),
        of(packets.frame_of),
        packets.frame_body(FRAME),
        msgpack_bytes,
    ),
    Door(
        "packets of an upgrader and the former code",
        ("shell/upgrade/packets.py::Reader.feed",),
        of(lambda data: list(packets.Reader().feed(data))),
        packets.packet(packets.Kind.STANDS, bytes(8)),
        packed_bytes,
    ),
    Door(
        "the body of a call over HTTP",
        (
            "shell/web/json_bodies.py::_scan",
            "shell/ingress/routes.py::Route.__init__",
            "shell/ingress/routes.py::_Form.__init__",
            "shell/ingress/routes.py::_Form._put_key",
            "shell/ingress/routes.py::_Form.from_json",
        ),
        of(http_body),
        b'{"target":"bob","amount":1}',
        json_bytes,
    ),
    Door(
        "the query string of HTTP",
        ("shell/ingress/routes.py::_Form.from_query",),
        of(http_query),
        b"first=7&exact=1",
        packed_bytes,
    ),
    Door(
        "the body of an operator's order",
        ("shell/ingress/operators.py::_told",),
        of(
            lambda data: ingress_operators._told(
                ingress_operators.Page("order", {}, "resumed", ingress_operators._Resume), data
            )
        ),
        b'{"operation":1,"value":2}',
        json_bytes,
    ),
]
