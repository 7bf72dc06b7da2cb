"""The wire: the bytes of each packet, both ways, streams cut anywhere, and peers that send rubbish."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.base.errors import CorruptFrame, TooLarge
from deathless.codec import wire
from deathless.codec.frames import Run
from deathless.codec.peer_messages import PeerHello
from deathless.codec.wire import PREFIX_BYTES, PacketReader, Type

U64 = st.integers(0, 2**64 - 1)
PACKET_MAX = 1 << 20
GOLDEN = Path(__file__).parents[3] / "golden"


def batch_of(messages: Sequence[bytes], session: int = 3, first_seq: int = 8, acked: int = 7) -> bytes:
    ends = struct.pack(f"<{len(messages)}I", *accumulate(map(len, messages)))
    return wire.encode_batch(Run(session, first_seq, acked, len(messages)), ends, b"".join(messages))


def body_of(packet: bytes) -> bytes:
    [(_, body)] = PacketReader(PACKET_MAX).feed(packet)
    return body


STRUCTS: dict[Type, msgspec.Struct] = {
    Type.HELLO: wire.Hello(
        1,
        "follower",
        "bank",
        "r1",
        "secret",
        12,
        77,
        bytes(range(16)),
        service_id=bytes(range(16, 32)),
        secret=bytes(range(32, 48)),
        proof="000102030405060708090a0b0c0d0e0f",
        newest=3,
    ),
    Type.CHALLENGE: wire.Challenge(".proof.000102030405060708090a0b0c0d0e0f", bytes(range(16)), bytes(range(32))),
    Type.WELCOME: wire.Welcome(
        1,
        "bank",
        "r1",
        "PRIMARY",
        2,
        77,
        "127.0.0.1:7001",
        5,
        1 << 20,
        65536,
        ".proof.0f0e0d0c0b0a09080706050403020100",
        1_700_000_000_000_000,
    ),
    Type.REFUSED: wire.Refused("DL3010", "token is wrong"),
    Type.ROLE: wire.RoleAt("STANDBY", 2, "127.0.0.1:7001", 1_700_000_000_000_000),
    Type.REGISTERED: wire.Registered(bytes(range(16)), 12),
    Type.BATCH_REFUSED: wire.BatchRefused(12, 5, "DL1002", "full", 20),
    Type.ADMIN: wire.Admin(1, "status", b"{}"),
    Type.ADMIN_REPLY: wire.AdminReply(1, "", b'{"role":"PRIMARY"}'),
    Type.FOLLOW: wire.Follow("r2", 41, bytes(16), True),
    Type.FOLLOWING: wire.Following(True, 2, 41, "r2"),
    Type.HANDOVER: wire.Handover(2, 41),
    Type.PEER_HELLO: wire.PeerIntroduction(PeerHello("shop", 0, bytes(range(16)), 77), 2, 5, bytes(range(16)), "no"),
    Type.PEER_WELCOME: wire.PeerWelcome(12, 5, bytes(range(16))),
    Type.PEER_REFUSED: wire.Refused("DL3016", "created anew"),
}
PACKETS: dict[str, bytes] = {
    **{kind.name.lower(): wire.struct_packet(kind, body) for kind, body in STRUCTS.items()},
    "checkpoint": wire.struct_packet(Type.CHECKPOINT, wire.CheckpointMade("000000000041.r2.ckpt", 41, "r2")),
    "frame": wire.packet(Type.FRAME, wire.FRAME_HEAD.pack(7, 4096, 0, 0), (GOLDEN / "frame_data.bin").read_bytes()),
    "ping": wire.packet(Type.PING),
    "register": wire.packet(Type.REGISTER, bytes(range(16))),
    "batch": batch_of([b"one", b"", b"three"]),
    "replies": wire.encode_replies(
        3, [8, 10], [wire.ok_reply(b"\x05"), wire.error_reply("DL3014", "ValueError", "no")]
    ),
    "queries": wire.encode_queries([1, 2], [b"q1", b"q22"], stale=True),
    "answers": wire.encode_queries([1, 2], [wire.ok_reply(b"\x05"), b"\x00\xc0"], stale=False, answers=True),
    "attach": wire.encode_attach([1, 2], [41, 43]),
    "results": wire.encode_results(
        [1, 2], [wire.ok_reply(b"\x05"), wire.error_reply("DL3017", "InvocationUnknown", "no")]
    ),
    "peer_commit": wire.encode_peer_commit(12, 8),
    "applied": wire.packet(Type.APPLIED, wire.U64.pack(41)),
}


@pytest.mark.parametrize("name", PACKETS)
def test_the_bytes_of_each_packet_are_version_1(name: str, golden: Callable[[str, bytes], None]) -> None:
    golden(f"wire_{name}", PACKETS[name])


@pytest.mark.parametrize("kind", STRUCTS)
def test_records_read_back_as_they_were_written(kind: Type) -> None:
    body = body_of(wire.struct_packet(kind, STRUCTS[kind]))
    assert wire.decode_struct(type(STRUCTS[kind]), body) == STRUCTS[kind]


def test_a_hello_may_leave_out_what_it_does_not_know() -> None:
    body = msgspec.msgpack.encode([1, "tool", "bank", "cli"])
    assert wire.decode_struct(wire.Hello, body) == wire.Hello(1, "tool", "bank", "cli", "", 0, 0)


@pytest.mark.parametrize("kind", [Type.HELLO, Type.WELCOME])
def test_a_handshake_of_a_build_before_the_proof_of_the_directory_is_read(kind: Type) -> None:
    packet = (GOLDEN / f"wire_{kind.name.lower()}_unproved.bin").read_bytes()
    said = wire.decode_struct(type(STRUCTS[kind]), body_of(packet))
    rest = (
        {"service_id": b"", "secret": b"", "proof": "", "newest": 0}
        if kind == Type.HELLO
        else {"proof": "", "time_us": 0}
    )
    assert said == msgspec.structs.replace(STRUCTS[kind], **rest)


def test_a_hello_of_a_build_before_ranges_of_versions_is_read() -> None:
    said = wire.decode_struct(wire.Hello, body_of((GOLDEN / "wire_hello_one_version.bin").read_bytes()))
    assert said == msgspec.structs.replace(STRUCTS[Type.HELLO], newest=0)


@pytest.mark.parametrize("kind", [Type.PEER_HELLO, Type.PEER_WELCOME])
def test_what_peers_of_a_build_before_histories_say_is_read(kind: Type) -> None:
    packet = (GOLDEN / f"wire_{kind.name.lower()}_bare.bin").read_bytes()
    rest = {"history": b"", "complaint": ""} if kind == Type.PEER_HELLO else {"history": b""}
    assert wire.decode_struct(type(STRUCTS[kind]), body_of(packet)) == msgspec.structs.replace(STRUCTS[kind], **rest)


@pytest.mark.parametrize("name", ["follow_no_upgrader", "handover_no_upgrade"])
def test_what_followers_of_a_build_before_upgrades_say_is_read(name: str) -> None:
    kind = Type.FOLLOW if "follow" in name else Type.HANDOVER
    packet = (GOLDEN / f"wire_{name}.bin").read_bytes()
    assert wire.decode_struct(type(STRUCTS[kind]), body_of(packet)) == STRUCTS[kind]


def test_a_record_of_a_newer_peer_may_have_more_fields() -> None:
    body = msgspec.msgpack.encode(["DL3010", "text", "what is this", [1]])
    assert wire.decode_struct(wire.Refused, body) == wire.Refused("DL3010", "text")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x91\x01",
        b"\x94\x01\x01\x01\x01",
        b"\x94\x01\xa1a\xa1\xff\xa1b",  # text that is no UTF-8
        b"\x98\x01\xa1a\xa1a\xa1a\xa0\x00\x00" + b"\x91" * 100_000 + b"\x00",  # nested until the stack ends
        b"\x94\x01\xa1a\xa1a\xa1b\x00",
    ],
)
def test_a_body_that_is_no_record_is_refused(body: bytes) -> None:
    with pytest.raises(CorruptFrame, match="Hello"):
        wire.decode_struct(wire.Hello, body)


# ---------------------------------------------------------------- streams


@given(bodies=st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=30)), max_size=6), data=st.data())
def test_a_stream_cut_anywhere_gives_the_same_packets(bodies: list[tuple[int, bytes]], data: st.DataObject) -> None:
    stream = b"".join(wire.packet(kind, body[:3], body[3:]) for kind, body in bodies)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    reader = PacketReader(PACKET_MAX)
    seen = [
        packet for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True) for packet in reader.feed(stream[a:b])
    ]
    assert seen == bodies


@given(bodies=st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=30)), max_size=6), data=st.data())
def test_all_packets_at_once_are_the_packets_one_by_one(bodies: list[tuple[int, bytes]], data: st.DataObject) -> None:
    packets = [wire.packet(kind, body) for kind, body in bodies]
    stream = b"".join(packets)
    edges = list(accumulate(map(len, packets)))
    places = st.one_of(st.integers(0, len(stream)), st.sampled_from([0, *edges]))
    cuts = sorted(data.draw(st.lists(places, max_size=8)))
    one, other = PacketReader(PACKET_MAX), PacketReader(PACKET_MAX)
    for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        assert one.take(stream[a:b]) == list(other.feed(stream[a:b]))


def test_a_long_packet_that_comes_whole_is_refused_too() -> None:
    whole = wire.packet(Type.PING, bytes(99))
    assert PacketReader(100).take(whole) == [(Type.PING, bytes(99))]
    with pytest.raises(TooLarge):
        PacketReader(99).take(whole)


def test_a_stream_of_single_bytes_gives_the_same_packets() -> None:
    stream = PACKETS["batch"] + PACKETS["ping"] + PACKETS["replies"]
    reader = PacketReader(PACKET_MAX)
    kinds = [kind for at in range(len(stream)) for kind, _ in reader.feed(stream[at : at + 1])]
    assert kinds == [Type.BATCH, Type.PING, Type.REPLIES]


def test_a_long_packet_is_refused_by_its_length_alone() -> None:
    whole = wire.packet(Type.BATCH, bytes(99))
    assert [len(body) for _, body in PacketReader(100).feed(whole)] == [99]
    with pytest.raises(TooLarge, match="packet of 100 bytes, at most 99"):
        list(PacketReader(99).feed(whole[:PREFIX_BYTES]))


def test_packets_before_a_bad_one_are_given() -> None:
    stream = PacketReader(PACKET_MAX).feed(PACKETS["ping"] + bytes(5))
    assert next(stream) == (Type.PING, b"")
    with pytest.raises(CorruptFrame, match="length 0"):
        next(stream)


@given(st.binary(max_size=200))
def test_a_stream_of_random_bytes_gives_packets_or_a_typed_error(data: bytes) -> None:
    try:
        packets = list(PacketReader(64).feed(data))
    except (TooLarge, CorruptFrame):
        return
    assert all(len(body) < 64 for _, body in packets)


# ---------------------------------------------------------------- columns


@given(run=st.tuples(U64, U64, U64), messages=st.lists(st.binary(max_size=20), max_size=6))
def test_a_batch_reads_back_as_it_was_written(run: tuple[int, int, int], messages: list[bytes]) -> None:
    batch = wire.decode_batch(body_of(batch_of(messages, *run)))
    assert batch.run == Run(*run, len(messages))
    ends = struct.unpack(f"<{len(messages)}I", batch.ends)
    assert [batch.blob[a:b] for a, b in zip((0, *ends), ends, strict=False)] == messages


COLUMNS = st.lists(st.tuples(U64, st.binary(max_size=20)), max_size=6)


@given(session=U64, rows=COLUMNS)
def test_replies_read_back_as_they_were_written(session: int, rows: list[tuple[int, bytes]]) -> None:
    seqs, replies = [seq for seq, _ in rows], [reply for _, reply in rows]
    body = body_of(wire.encode_replies(session, seqs, replies))
    assert wire.decode_replies(body) == (session, tuple(seqs), replies)


@given(stale=st.booleans(), answers=st.booleans(), rows=COLUMNS)
def test_queries_and_answers_read_back_as_they_were_written(
    stale: bool, answers: bool, rows: list[tuple[int, bytes]]
) -> None:
    ids, items = [number for number, _ in rows], [item for _, item in rows]
    [(kind, body)] = PacketReader(PACKET_MAX).feed(wire.encode_queries(ids, items, stale=stale, answers=answers))
    assert kind == (Type.ANSWERS if answers else Type.QUERIES)
    assert wire.decode_queries(body) == (stale, tuple(ids), items)


@given(rows=st.lists(st.tuples(U64, U64), max_size=6))
def test_who_asks_for_results_is_read_as_it_was_written(rows: list[tuple[int, int]]) -> None:
    ids, invocations = tuple(a for a, _ in rows), tuple(b for _, b in rows)
    [(kind, body)] = PacketReader(PACKET_MAX).feed(wire.encode_attach(ids, invocations))
    assert kind == Type.ATTACH
    assert wire.decode_attach(body) == (ids, invocations)


@given(rows=COLUMNS)
def test_results_read_back_as_they_were_written(rows: list[tuple[int, bytes]]) -> None:
    ids, replies = [number for number, _ in rows], [reply for _, reply in rows]
    [(kind, body)] = PacketReader(PACKET_MAX).feed(wire.encode_results(ids, replies))
    assert kind == Type.RESULTS
    assert wire.decode_results(body) == (tuple(ids), replies)


LONG = st.lists(st.integers(0, 100), min_size=1, max_size=30)


@given(lengths=LONG, limit=st.integers(1, 120))
def test_long_answers_go_in_several_packets_each_short_or_of_one_answer(lengths: list[int], limit: int) -> None:
    ids, items = list(range(5, 5 + len(lengths))), [b"%d" % (n % 10) * n for n in lengths]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "ANSWER_BYTES_MAX", limit)
        several = {
            Type.REPLIES: wire.encode_replies(9, ids, items),
            Type.ANSWERS: wire.encode_queries(ids, items, stale=False, answers=True),
            Type.RESULTS: wire.encode_results(ids, items),
        }
        [(kind, whole)] = PacketReader(PACKET_MAX).feed(wire.encode_queries(ids, items, stale=True))
    assert kind == Type.QUERIES  # the asker cuts these itself
    assert wire.decode_queries(whole) == (True, tuple(ids), items)
    for expected, data in several.items():
        found: list[tuple[int, bytes]] = []
        for kind, body in PacketReader(PACKET_MAX).feed(data):
            assert kind == expected
            told = wire.decode_replies(body) if kind == Type.REPLIES else (9, *wire.decode_results(body))
            assert told[0] == 9
            assert len(told[1]) == 1 or sum(map(len, told[2])) <= limit
            found += zip(told[1], told[2], strict=True)
        assert found == list(zip(ids, items, strict=True))


@given(session=U64, through=U64)
def test_what_a_peer_confirms_is_read_as_it_was_written(session: int, through: int) -> None:
    [(kind, body)] = PacketReader(PACKET_MAX).feed(wire.encode_peer_commit(session, through))
    assert kind == Type.PEER_COMMIT
    assert wire.decode_peer_commit(body) == (session, through)


DECODERS: dict[str, Callable[[bytes], object]] = {
    "attach": wire.decode_attach,
    "results": wire.decode_results,
    "peer_commit": wire.decode_peer_commit,
    "batch": wire.decode_batch,
    "replies": wire.decode_replies,
    "queries": wire.decode_queries,
}


@pytest.mark.parametrize("name", DECODERS)
def test_every_shortened_packet_is_refused(name: str) -> None:
    body = body_of(PACKETS[name])
    for length in range(len(body)):
        with pytest.raises(CorruptFrame):
            DECODERS[name](body[:length])
    with pytest.raises(CorruptFrame):
        DECODERS[name](body + b"x")


@pytest.mark.parametrize("name", DECODERS)
def test_a_packet_with_any_bit_flipped_is_read_or_refused_cleanly(name: str) -> None:
    body = body_of(PACKETS[name])
    for at in range(len(body)):
        for bit in range(8):
            bad = bytearray(body)
            bad[at] ^= 1 << bit
            try:
                DECODERS[name](bytes(bad))
            except CorruptFrame:
                continue


@given(body=st.binary(max_size=120), name=st.sampled_from(sorted(DECODERS)))
def test_a_packet_of_random_bytes_is_read_or_refused_cleanly(body: bytes, name: str) -> None:
    try:
        DECODERS[name](body)
    except CorruptFrame:
        return


@pytest.mark.parametrize("ends", [(3, 1, 6), (7, 3, 6), (6, 6, 5), (1, 2, 7)])
def test_end_offsets_that_overlap_or_leave_gaps_are_refused(ends: tuple[int, int, int]) -> None:
    column = struct.pack("<3I", *ends)
    with pytest.raises(CorruptFrame, match="disagree"):
        wire.decode_batch(body_of(wire.encode_batch(Run(1, 1, 0, 3), column, b"sixsix")))
    with pytest.raises(CorruptFrame, match="disagree"):
        wire.decode_replies(wire.REPLIES_HEAD.pack(1, 3, 0) + bytes(24) + column + b"sixsix")


def test_a_reply_tells_success_from_error() -> None:
    assert wire.ok_reply(b"\x05")[0] == wire.Status.OK
    reply = wire.error_reply("DL3014", "ValueError", "no")
    assert reply[0] == wire.Status.ERROR
    assert wire.decode_struct(wire.ReplyError, reply[1:]) == wire.ReplyError("DL3014", "ValueError", "no")


@given(U64)
def test_an_accepted_reply_names_its_invocation(invocation: int) -> None:
    reply = wire.accepted_reply(invocation)
    assert reply[0] == wire.Status.ACCEPTED
    assert wire.accepted_invocation(reply) == invocation


@pytest.mark.parametrize("reply", [b"", b"\x02", b"\x02" + bytes(7), b"\x02" + bytes(9), wire.ok_reply(bytes(8))])
def test_any_other_reply_is_not_an_accepted_one(reply: bytes) -> None:
    assert wire.accepted_invocation(reply) is None


@given(st.integers(1, 2**64 - 1), st.integers(1, 2**64 - 1), st.integers(0, 2**64 - 1), st.binary(max_size=40))
def test_batch_of_one_call_is_the_same_bytes_in_one_step(session: int, seq: int, acked: int, message: bytes) -> None:
    long_way = wire.encode_batch(Run(session, seq, acked, 1), struct.pack("<I", len(message)), message)
    assert wire.encode_call(session, seq, acked, message) == long_way


@given(st.integers(0, 9), st.integers(0, 9), st.binary(max_size=40), st.binary(max_size=3), st.integers(0, 60))
def test_lone_reply_is_read_where_it_is_all_there_is_and_the_one_asked_for(
    session: int, seq: int, reply: bytes, behind: bytes, cut: int
) -> None:
    data = wire.encode_replies(session, [seq], [reply])
    assert wire.decode_one_reply(data, session, seq) == reply
    assert wire.decode_one_reply(data + behind, session, seq) == (None if behind else reply)
    assert wire.decode_one_reply(data[:cut], session, seq) == (reply if cut >= len(data) else None)
    assert wire.decode_one_reply(data, session + 1, seq) is None
    assert wire.decode_one_reply(data, session, seq + 1) is None
    assert wire.decode_one_reply(wire.encode_replies(session, [seq, seq + 1], [reply, b""]), session, seq) is None
