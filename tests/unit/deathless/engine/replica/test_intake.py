"""Packets to events: nothing is believed before HELLO, and nothing malformed reaches the core."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from tests.unit.deathless.core.primary_world import WALL_US, batch, call
from tests.unit.deathless.engine.replica_world import CLIENT, SECRET, Node, World

from deathless.base.errors import (
    CorruptFrame,
    Forbidden,
    NoCommonVersion,
    Overloaded,
    Unauthorized,
    UnknownService,
    UpgradeRequired,
)
from deathless.base.safeguards import Safeguards
from deathless.codec.peer_messages import PeerHello
from deathless.codec.versions import say_hello, spoken
from deathless.codec.wire import (
    U64,
    Admin,
    Follow,
    Following,
    Handover,
    Hello,
    PacketReader,
    PeerIntroduction,
    Refused,
    Role,
    Type,
    Welcome,
    decode_struct,
    encode_attach,
    encode_batch,
    encode_queries,
    packet,
    struct_packet,
)
from deathless.core import events as ev
from deathless.core.access.authorisation import authorise
from deathless.core.replica.replica import State
from deathless.engine.replica.intake import KEPT_BYTES_MAX, UNDECIDED, Intake

OTHER = ev.Conn(CLIENT + 1)
HELLO = say_hello("client", "bank", "c1", "secret")


def body_of(hello: Hello) -> bytes:
    return msgspec.msgpack.encode(hello)


def introduce(node: Node) -> None:
    """Say HELLO as another service does."""
    node.intake.opened(CLIENT, msgspec.structs.replace(HELLO, kind="peer"), "h:1")


def posted(node: Node, kind: int, body: bytes) -> list[ev.Event]:
    """Events that a packet becomes."""
    events: list[ev.Event] = []
    node.engine.post = events.append  # type: ignore[method-assign, assignment]  # planted
    node.intake.packets(CLIENT, [(kind, body)])
    return events


def packet_body(data: bytes) -> bytes:
    ((_, body),) = PacketReader(1 << 22).feed(data)
    return body


# ---- HELLO ---------------------------------------------------------------------------------------------------------


def test_hello_of_this_service_with_the_token_is_taken() -> None:
    assert authorise(Type.HELLO, body_of(HELLO), service="bank", token="secret") == HELLO


def test_without_a_token_configured_and_without_a_service_named_everybody_is_taken() -> None:
    hello = say_hello("tool", "", "t")
    assert authorise(Type.HELLO, body_of(hello), service="bank", token="") == hello


@pytest.mark.parametrize(
    ("kind", "hello", "error"),
    [
        (Type.BATCH, HELLO, Unauthorized),
        (Type.HELLO, msgspec.structs.replace(HELLO, version=spoken().newest + 1), NoCommonVersion),
        (Type.HELLO, msgspec.structs.replace(HELLO, token=""), Unauthorized),
        (Type.HELLO, msgspec.structs.replace(HELLO, token="secreT"), Unauthorized),
        (Type.HELLO, msgspec.structs.replace(HELLO, service="shop"), UnknownService),
    ],
)
def test_anybody_else_is_refused(kind: int, hello: Hello, error: type[Exception]) -> None:
    with pytest.raises(error):
        authorise(kind, body_of(hello), service="bank", token="secret")


def test_hello_that_is_none_is_refused() -> None:
    with pytest.raises(CorruptFrame):
        authorise(Type.HELLO, b"\xff", service="bank", token="")


def test_i6_follower_with_another_fingerprint_is_refused_and_stops() -> None:
    world = World()
    node = world.primary()
    hello = msgspec.structs.replace(HELLO, kind="follower", name="r1", fingerprint=bytes(16))
    assert node.intake.refusal(hello) is None
    assert node.intake.refusal(HELLO) is None
    refusal = node.intake.refusal(msgspec.structs.replace(hello, fingerprint=b"another"))
    assert isinstance(refusal, UpgradeRequired)
    follower = World().node("r1", fingerprint=b"another").begin()  # began before there was a log to tell it
    follower.intake.upstream([(Type.REFUSED, msgspec.msgpack.encode(Refused(refusal.code, refusal.message)))])
    assert isinstance(follower.error(), UpgradeRequired)
    assert follower.error().message == refusal.message


def test_without_check_fingerprint_a_follower_with_another_is_let_in() -> None:
    node = World().primary(safeguards=Safeguards(check_fingerprint=False))
    assert node.intake.refusal(msgspec.structs.replace(HELLO, kind="follower", fingerprint=b"another")) is None


def test_follower_that_is_refused_for_what_may_pass_goes_on() -> None:
    follower = World().node("r1").begin()
    follower.intake.upstream([(Type.REFUSED, msgspec.msgpack.encode(Refused(Overloaded.code, "many")))])
    assert follower.stopped == []


# ---- WELCOME -------------------------------------------------------------------------------------------------------


def welcome(node: Node, session: int = 0, secret: bytes = SECRET) -> Welcome:
    hello = msgspec.structs.replace(HELLO, session=session, secret=secret)
    return decode_struct(Welcome, packet_body(node.intake.opened(CLIENT, hello, "h:1")))


def test_welcome_names_role_epoch_and_what_the_session_sends_next() -> None:
    world = World()
    node = world.primary()
    session = node.register()
    node.call(session, 1, b"a")
    told = welcome(node, session)
    assert (told.role, told.epoch, told.primary, told.next_seq) == ("primary", 1, "h:1", 2)
    assert (told.service, told.replica, told.incarnation) == ("bank", "r0", 7)
    assert welcome(node, 99).next_seq == 0
    assert welcome(node).next_seq == 0
    assert welcome(node, session, secret=b"another").next_seq == 0, "nobody else hears how far a session has come"
    assert welcome(node, session, secret=b"").next_seq == 0


def test_welcome_of_a_primary_alone_tells_the_time_and_none_that_a_forgotten_key_has_passed() -> None:
    world = World()
    node = world.primary()
    assert welcome(node).time_us == WALL_US
    node.engine.shard.keys.restore([], WALL_US + 5_000)
    assert welcome(node).time_us == WALL_US + 6_000
    assert welcome(world.node("r1").begin()).time_us == 0


def test_i1_session_that_an_unconfirmed_frame_may_have_ended_is_not_called_unknown() -> None:
    world = World(fence="etcd")
    node = world.primary(fence="etcd")
    session = node.register()
    node.held = []
    node.call(session, 1, b"a")
    assert welcome(node, 99).next_seq == UNDECIDED
    for answer in node.held:
        answer()
    assert welcome(node, 99).next_seq == 0


# ---- accepted connections ------------------------------------------------------------------------------------------


def test_each_packet_becomes_its_event() -> None:
    node = World().node("r0")
    queries = packet_body(encode_queries([7], [b"q"], stale=True))
    assert posted(node, Type.QUERIES, queries) == [ev.QueriesReceived(CLIENT, True, (7,), [b"q"])]
    assert posted(node, Type.APPLIED, U64.pack(9)) == [ev.AppliedReceived(CLIENT, 9)]
    assert posted(node, Type.REGISTER, bytes(16)) == [ev.RegisterReceived(CLIENT, bytes(16))]
    follow = Follow("r1", 3, bytes(16), False)
    assert posted(node, Type.FOLLOW, msgspec.msgpack.encode(follow)) == [ev.FollowReceived(CLIENT, follow)]
    told = msgspec.msgpack.encode(Role("c9", 9, "r1"))
    assert posted(node, Type.CHECKPOINT, told) == [ev.CheckpointAnnounced(CLIENT, 9, "c9")]


def test_batches_of_a_turn_reach_the_core_together_and_before_what_comes_behind_them() -> None:
    node = World().node("r0")
    first, second = batch(1, 1, [call(b"a")]), batch(2, 1, [call(b"b")])
    events: list[ev.Event] = []
    node.engine.post = events.append  # type: ignore[method-assign, assignment]  # planted
    node.intake.packets(CLIENT, [(Type.BATCH, packet_body(encode_batch(*first)))])
    node.intake.packets(OTHER, [(Type.BATCH, packet_body(encode_batch(*second)))])
    assert events == []
    node.intake.drained()
    node.intake.drained()
    together = ev.BatchesReceived([(CLIENT, first), (OTHER, second)])
    assert events == [together, ev.BuffersDrained(), ev.BuffersDrained()]
    events.clear()
    node.intake.packets(CLIENT, [(Type.BATCH, packet_body(encode_batch(*first))), (Type.APPLIED, U64.pack(9))])
    assert events == [ev.BatchesReceived([(CLIENT, first)]), ev.AppliedReceived(CLIENT, 9)]


def test_batches_do_not_wait_beyond_the_maximum() -> None:
    node = World().node("r0")
    large = batch(1, 1, [call(bytes(KEPT_BYTES_MAX))])
    assert posted(node, Type.BATCH, packet_body(encode_batch(*large))) == [ev.BatchesReceived([(CLIENT, large)])]


def test_ping_is_answered_and_a_command_is_given_to_who_knows_it() -> None:
    node = World().node("r0")
    node.intake.packets(CLIENT, [(Type.PING, b"x")])
    assert node.sent == [(CLIENT, Type.PONG, b"x")]
    request = Admin(4, "status", b"{}")
    node.intake.packets(CLIENT, [(Type.ADMIN, msgspec.msgpack.encode(request))])
    assert node.admin == [request]


@pytest.mark.parametrize(("kind", "body"), [(Type.WELCOME, b""), (200, b"")])
def test_packet_that_means_nothing_here_is_left_out(kind: int, body: bytes) -> None:
    assert posted(World().node("r0"), kind, body) == []


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (Type.APPLIED, b"short"),
        (Type.BATCH, b"short"),
        (Type.QUERIES, b"short"),
        (Type.FOLLOW, b"\xff"),
        (Type.REGISTER, b"short"),
        (Type.REGISTER, bytes(17)),
    ],
)
def test_malformed_packet_is_refused_before_the_core_sees_it(kind: int, body: bytes) -> None:
    node = World().node("r0")
    with pytest.raises(CorruptFrame):
        posted(node, kind, body)


# ---- from the primary ----------------------------------------------------------------------------------------------


def test_frames_in_a_row_are_applied_together_and_before_what_follows_them() -> None:
    world = World()
    node = world.primary()
    session = node.register()
    follower = world.follower("r1", node)
    node.call(session, 1, b"a")
    node.call(session, 2, b"b")
    frames = [(kind, body) for conn, kind, body in node.sent if conn == follower.conn]
    calls: list[int] = []
    inner = follower.engine.frames_received

    def received(packets: Sequence[bytes]) -> None:
        calls.append(len(packets))
        inner(packets)

    follower.engine.frames_received = received  # type: ignore[method-assign]  # planted
    told = packet_body(struct_packet(Type.FOLLOWING, Following(True, 1, 3, "r1")))
    follower.intake.upstream([*frames, (Type.FOLLOWING, told), (Type.PING, b""), (Type.PONG, b"")])
    assert calls == [2]
    assert follower.engine.place == node.engine.place
    follower.intake.upstream([(Type.FRAME, frames[0][1])])
    assert calls == [2, 1]


def test_handover_makes_the_follower_take_over() -> None:
    world = World()
    node = world.primary()
    follower = world.follower("r1", node)
    follower.intake.upstream([(Type.HANDOVER, packet_body(struct_packet(Type.HANDOVER, Handover(1, 0))))])
    assert follower.state is State.PRIMARY


def test_packets_are_made_by_the_codec() -> None:
    assert packet(Type.PING) == b"\x01\x00\x00\x00\x05"
    assert isinstance(World().node("r0").intake, Intake)


# ---- messaging -----------------------------------------------------------------------------------------------------


def test_attach_and_peer_hello_become_events() -> None:
    node = World().primary()
    body = packet_body(encode_attach([1, 2], [70, 80]))
    assert posted(node, Type.ATTACH, body) == [ev.AttachReceived(CLIENT, (1, 2), (70, 80))]
    hello = PeerHello("shop", 0, bytes(16), 3)
    said = msgspec.msgpack.encode(PeerIntroduction(hello, 5))
    introduce(node)
    assert posted(node, Type.PEER_HELLO, said) == [ev.PeerHelloReceived(CLIENT, PeerIntroduction(hello, 5))]


@pytest.mark.parametrize("kind", ["client", "tool", "follower"])
def test_only_another_service_introduces_itself_as_one(kind: str) -> None:
    node = World().primary()
    said = msgspec.msgpack.encode(PeerIntroduction(PeerHello("shop", 0, bytes(16), 3), 5))
    with pytest.raises(Unauthorized, match="only another service says PEER_HELLO, behind a HELLO of kind 'peer'"):
        posted(node, Type.PEER_HELLO, said)
    node.intake.opened(CLIENT, msgspec.structs.replace(HELLO, kind=kind), "h:1")
    with pytest.raises(Unauthorized):
        posted(node, Type.PEER_HELLO, said)
    introduce(node)
    node.intake.lost(CLIENT)  # its number says nothing any more
    with pytest.raises(Unauthorized):
        posted(node, Type.PEER_HELLO, said)


def test_service_introduces_itself_only_as_the_one_that_its_certificate_names() -> None:
    node = World().primary()
    hello = PeerHello("shop", 0, bytes(16), 3)
    said = msgspec.msgpack.encode(PeerIntroduction(hello, 5))
    node.intake.opened(CLIENT, msgspec.structs.replace(HELLO, kind="peer"), "h:1", "orders")
    with pytest.raises(Forbidden, match="'shop' introduced itself with a certificate of 'orders'"):
        posted(node, Type.PEER_HELLO, said)
    node.intake.opened(CLIENT, msgspec.structs.replace(HELLO, kind="peer"), "h:1", "shop")
    assert posted(node, Type.PEER_HELLO, said) == [ev.PeerHelloReceived(CLIENT, PeerIntroduction(hello, 5))]


def test_only_another_service_sends_what_is_of_a_peer_s_session() -> None:
    node = World().primary()
    node.engine.shard.sessions.register_peer(40)
    of_peer = batch(40, 1, [call(b"a")])
    body = packet_body(encode_batch(*of_peer))
    with pytest.raises(Unauthorized, match="session 40 is another service's; say HELLO as kind 'peer'"):
        posted(node, Type.BATCH, body)
    introduce(node)
    events: list[ev.Event] = []
    node.engine.post = events.append  # type: ignore[method-assign, assignment]  # planted
    node.intake.packets(CLIENT, [(Type.BATCH, body)])
    node.intake.lost(CLIENT)  # what it sent before counts
    assert events == [ev.BatchesReceived([(CLIENT, of_peer)])]


def test_a_malformed_introduction_ends_the_connection() -> None:
    node = World().primary()
    introduce(node)
    with pytest.raises(CorruptFrame):
        posted(node, Type.PEER_HELLO, b"\x91\x01")
