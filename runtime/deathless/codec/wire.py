"""Packets between clients, replicas, supervisors and tools (for versions see codec.versions).

Every packet: u32 length of what follows, u8 type, body; little-endian. Bodies of the hot packets are columns:

    BATCH    c>s  u64 session, u64 first seq, u64 acked through, u32 count, u32 0, count x u32 end offset, blob
    REPLIES  s>c  u64 session, u32 count, u32 0, count x u64 seq, count x u32 end offset, blob
    QUERIES  c>s  u32 count, u32 flags (1: stale allowed), count x u64 id, count x u32 end offset, blob
    ANSWERS  s>c  u32 count, u32 0, count x u64 id, count x u32 end offset, blob
    FRAME    p>f  u64 confirmed lsn, u64 offset of the frame in its file, u32 roll of the file, u32 0,
                  frame without padding
    APPLIED  f>p  u64 applied lsn
    ATTACH   c>s  u32 count, u32 0, count x u64 id, count x u64 invocation
    RESULTS  s>c  as ANSWERS, flags 0
    PEER_COMMIT r>p  u64 session, u64 through
    PROOF    x>r  32 byte hash, see core.access.directory_proof
    REGISTER c>s  16 byte nonce: the hash of a secret that HELLO shows (session_proof)

A message in a blob has the bytes it will have in the log (see messages). A reply or answer is u8 status, body: OK
carries the msgpack result, ERROR a msgpack array [code, type, text], ACCEPTED the u64 id of the invocation whose result
ATTACH asks for. All other bodies are msgpack arrays of the
Structs below. Handshake: HELLO, then WELCOME or REFUSED and the connection's end.

Guarantees: a packet longer than the limit the reader sets is refused before it is buffered. Does not: do IO.
Imports base only.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from operator import le
from typing import Final, NamedTuple, TypeVar

import msgspec

from deathless.base.errors import CorruptFrame, TooLarge
from deathless.codec.frames import RUN, Run
from deathless.codec.peer_messages import PeerHello, UInt64
from deathless.codec.untrusted import read_msgpack

PREFIX: Final = struct.Struct("<IB")
PREFIX_BYTES: Final = PREFIX.size
REPLIES_HEAD: Final = struct.Struct("<QII")
QUERIES_HEAD: Final = struct.Struct("<II")
U32: Final = struct.Struct("<I")
U64: Final = struct.Struct("<Q")
ONE_CALL: Final = struct.Struct("<IBQQQIII")  # BATCH with one message, up to the blob
ONE_REPLY: Final = struct.Struct("<IBQIIQI")  # REPLIES with one reply, up to the blob
FRAME_HEAD: Final = struct.Struct("<QQII")
PEER_COMMIT: Final = struct.Struct("<QQ")
STALE: Final = 1
ANSWER_BYTES_MAX: Final = 256 << 10  # of answers in one packet, which a slow line brings soon; a longer one goes alone


class Type(enum.IntEnum):
    """Type of a packet; the table in the module's docstring says which way and what."""

    HELLO = 1
    WELCOME = 2
    REFUSED = 3
    ROLE = 4
    PING = 5
    PONG = 6
    CHALLENGE = 7
    PROOF = 8
    REGISTER = 16
    REGISTERED = 17
    BATCH = 18
    REPLIES = 19
    BATCH_REFUSED = 20
    QUERIES = 21
    ANSWERS = 22
    ATTACH = 23
    RESULTS = 24
    ADMIN = 32
    ADMIN_REPLY = 33
    FOLLOW = 48
    FOLLOWING = 49
    FRAME = 50
    APPLIED = 51
    HANDOVER = 52
    CHECKPOINT = 53
    REPORT = 64
    PEER_HELLO = 80
    PEER_WELCOME = 81
    PEER_REFUSED = 82
    PEER_COMMIT = 83
    STREAM_HELLO = 84  # these five: codec.streams.packets
    STREAM_WELCOME = 85
    STREAM_REFUSED = 86
    STREAM_BATCH = 87
    STREAM_COMMIT = 88


class Status(enum.IntEnum):
    """First byte of a reply."""

    OK = 0
    ERROR = 1
    ACCEPTED = 2  # the handler waits; the result comes when it is asked for by ATTACH


class Hello(msgspec.Struct, array_like=True, frozen=True):
    """First packet of whoever connects. `kind`: client, peer, follower, supervisor or tool; session 0: none yet.

    A follower says its `fingerprint`: it must run what the primary runs (I6). What a build does not know is left out.
    """

    version: int  # the oldest that the sender speaks
    kind: str
    service: str
    name: str
    token: str = ""
    session: int = 0
    incarnation: int = 0
    fingerprint: bytes = b""
    service_id: bytes = b""  # 16 bytes: of the service that the sender belongs to, or means; empty: it knows none
    secret: bytes = b""  # of the session named; whoever shows it speaks in it
    proof: str = ""  # a word, see core.access.directory_proof; empty: the sender can't show where it stands
    newest: int = 0  # the newest version that the sender speaks; 0: `version` alone


class Welcome(msgspec.Struct, array_like=True, frozen=True):
    """Answer to HELLO. `next_seq` is the next expected of the session named (0: unknown session)."""

    version: int  # of this connection: the highest that both ends speak
    service: str
    replica: str
    role: str
    epoch: int
    incarnation: int
    primary: str
    next_seq: int
    message_bytes_max: int
    window_max: int
    proof: str = ""  # unused: CHALLENGE shows it
    time_us: int = 0  # of a primary: logical time now, or what UUIDv7 keys must lie behind where that is later


class Challenge(msgspec.Struct, array_like=True, frozen=True):
    """Whoever connected is to show that it stands in the directory of who answers (core.access.directory_proof)."""

    file: str  # in members/
    nonce: bytes
    shown: bytes


class Refused(msgspec.Struct, array_like=True, frozen=True):
    """The connection is refused; `code` is one of `docs/errors/`."""

    code: str
    text: str


class Role(msgspec.Struct, array_like=True, frozen=True):
    """Pushed whenever it changes: the replica's role, and who the primary is (client address, empty: unknown)."""

    role: str
    epoch: int
    primary: str


class CheckpointMade(msgspec.Struct, array_like=True, frozen=True):
    """Body of CHECKPOINT: a follower has written one."""

    name: str  # of the file
    lsn: int
    replica: str  # that wrote it


class RoleAt(Role, array_like=True, frozen=True):
    """What a ROLE packet carries: the role, and of a primary the time, as in WELCOME."""

    time_us: int = 0


class Registered(msgspec.Struct, array_like=True, frozen=True):
    """The registration is confirmed: the session id for this nonce."""

    nonce: bytes
    session: int


class BatchRefused(msgspec.Struct, array_like=True, frozen=True):
    """Messages from `first_seq` on were not admitted; with `retry_after_ms` >= 0 the same may be sent again then."""

    session: int
    first_seq: int
    code: str
    text: str
    retry_after_ms: int


class Admin(msgspec.Struct, array_like=True, frozen=True):
    """A tool's command; `arguments` is a JSON object."""

    id: int
    command: str
    arguments: bytes


class AdminReply(msgspec.Struct, array_like=True, frozen=True):
    """Answer to ADMIN: `result` is JSON; `code` empty on success."""

    id: int
    code: str
    result: bytes


class Follow(msgspec.Struct, array_like=True, frozen=True):
    """A follower asks for frames after `lsn`, whose chain hash it gives."""

    replica: str
    lsn: int
    chain: bytes
    checkpointer: bool
    upgrader: bool = False  # it holds the state for other code, and leads only by an upgrade


class Following(msgspec.Struct, array_like=True, frozen=True):
    """Answer to FOLLOW: streaming (True), or read the log up to `lsn` first and ask again."""

    streaming: bool
    epoch: int
    lsn: int
    checkpointer: str


class Handover(msgspec.Struct, array_like=True, frozen=True):
    """The primary hands its lock to this follower: everything up to `lsn` is confirmed."""

    epoch: int
    lsn: int
    upgrade: bytes = b""  # the upgrade that was ordered; empty: it is a switchover


class ReplyError(msgspec.Struct, array_like=True, frozen=True):
    """Body of an ERROR reply."""

    code: str
    type: str
    text: str


class PeerIntroduction(msgspec.Struct, array_like=True, frozen=True):
    """Body of PEER_HELLO: who will send on this connection, and the epoch of its primary, which never goes back.

    `first` is the first position that the sender still keeps: where a receiver goes on that remembers nothing.
    """

    hello: PeerHello
    epoch: int
    first: UInt64 = 1
    history: bytes = b""  # before that position, see peer_history; empty: not known
    complaint: str = ""  # why the sender sends nothing, for the receiver's operators; empty: it does


class PeerWelcome(msgspec.Struct, array_like=True, frozen=True):
    """Body of PEER_WELCOME: the sender's session, and the position from which it streams (I3)."""

    session: UInt64
    next_position: UInt64
    history: bytes = b""  # before that position, see peer_history; empty: not known


class Batch(NamedTuple):
    """A BATCH as received; `ends` and `blob` are views of the packet."""

    run: Run
    ends: bytes
    blob: bytes


S = TypeVar("S")


def packet(kind: int, *parts: bytes) -> bytes:
    """Give a packet of type `kind` whose body is `parts` joined."""
    return b"".join((PREFIX.pack(sum(map(len, parts)) + 1, kind), *parts))


_encode: Final = msgspec.msgpack.Encoder().encode


def struct_packet(kind: int, body: msgspec.Struct) -> bytes:
    """Give a packet whose body is a msgpack array."""
    return packet(kind, _encode(body))


def decode_struct(kind: type[S], body: bytes) -> S:
    """Decode a msgpack body.

    Raises: CorruptFrame when it does not fit; the caller closes the connection.
    """
    try:
        return read_msgpack(body, kind)
    except msgspec.MsgspecError as error:
        raise CorruptFrame(f"{kind.__name__}: {error}") from None


class PacketReader:
    """Cuts a byte stream into packets.

    Args:
        packet_bytes_max: a longer packet raises TooLarge as soon as its length is seen.
    """

    __slots__ = ("_max", "_missing", "_parts")

    def __init__(self, packet_bytes_max: int) -> None:
        self._parts: list[bytes] = []  # bytes of an unfinished packet, joined once when it is whole
        self._missing = PREFIX_BYTES  # bytes without which no packet can be given
        self._max = packet_bytes_max

    def take(self, data: bytes) -> list[tuple[int, bytes]]:
        """Give all packets that are complete with these bytes; `feed` for one who wants them at once.

        Raises: as `feed`.
        """
        size = len(data)
        if size >= PREFIX_BYTES and not self._parts:
            length, kind = PREFIX.unpack_from(data)
            if length == size - 4 and length <= self._max:  # just one, and whole: a client that waits for each call
                return [(kind, data[PREFIX_BYTES:])]
        return list(self.feed(data))

    @property
    def empty(self) -> bool:
        """Is no packet unfinished?"""
        return not self._parts

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Take bytes in, give each packet that is complete as (type, body). Nothing is taken in before iterating.

        Raises: TooLarge, CorruptFrame (length 0); the caller closes the connection.
        """
        if self._parts:
            self._parts.append(data)
            if len(data) < self._missing:
                self._missing -= len(data)
                return
            data = b"".join(self._parts)
            self._parts = []
        at, size, end = 0, len(data), PREFIX_BYTES
        while size - at >= PREFIX_BYTES:
            length, kind = PREFIX.unpack_from(data, at)
            if length > self._max:
                raise TooLarge(f"packet of {length} bytes, at most {self._max}")
            if length == 0:
                raise CorruptFrame("packet of length 0")
            end = at + 4 + length
            if end > size:
                break
            body = data[at + PREFIX_BYTES : end]
            at = end
            end = at + PREFIX_BYTES
            yield kind, body
        if at < size:
            self._parts = [data[at:]]
            self._missing = end - size


def encode_batch(run: Run, ends: bytes, blob: bytes) -> bytes:
    """Give a BATCH packet; `ends` is the packed u32 column of end offsets in `blob`."""
    return packet(Type.BATCH, RUN.pack(run[0], run[1], run[2], run[3], 0), ends, blob)


def encode_call(session: int, seq: int, acked: int, message: bytes) -> bytes:
    """Give a BATCH packet of one message: the same bytes as `encode_batch`, in one step."""
    size = len(message)
    return ONE_CALL.pack(ONE_CALL.size - 4 + size, Type.BATCH, session, seq, acked, 1, 0, size) + message


def _cover(ends: tuple[int, ...], size: int) -> bool:
    """Do these end offsets cut a blob of `size` bytes into items, without gap or overlap?"""
    return (ends[-1] if ends else 0) == size and all(map(le, ends, ends[1:]))


def decode_batch(body: bytes) -> Batch:
    """Take a BATCH apart; checks lengths, not messages.

    Raises: CorruptFrame when columns and blob disagree.
    """
    if len(body) < RUN.size:
        raise CorruptFrame("BATCH shorter than its head")
    session, first_seq, acked, count, _ = RUN.unpack_from(body)
    blob_at = RUN.size + 4 * count
    ends = body[RUN.size : blob_at]
    blob = body[blob_at:]
    if count == 1 and ends == U32.pack(len(blob)):
        return Batch(Run(session, first_seq, acked, 1), ends, blob)
    if len(ends) != 4 * count or not _cover(struct.unpack(f"<{count}I", ends), len(blob)):
        raise CorruptFrame("BATCH: end offsets and blob disagree")
    return Batch(Run(session, first_seq, acked, count), ends, blob)


def _columns(ids: Sequence[int], items: Sequence[bytes]) -> tuple[bytes, bytes, bytes]:
    n = len(items)
    return struct.pack(f"<{n}Q", *ids), struct.pack(f"<{n}I", *accumulate(map(len, items))), b"".join(items)


def _items(body: bytes, at: int, count: int) -> tuple[tuple[int, ...], list[bytes]]:
    blob_at = at + 12 * count
    if blob_at > len(body):
        raise CorruptFrame("columns pass the packet's end")
    ids: tuple[int, ...] = struct.unpack_from(f"<{count}Q", body, at)
    ends: tuple[int, ...] = struct.unpack_from(f"<{count}I", body, at + 8 * count)
    blob = body[blob_at:]
    if not _cover(ends, len(blob)):
        raise CorruptFrame("end offsets and blob disagree")
    return ids, [blob[start:end] for start, end in pairwise((0, *ends))]


def _stretches(answers: Sequence[bytes]) -> Iterator[slice[int, int, None]]:
    """Cut answers that are too long for one packet: each stretch has ANSWER_BYTES_MAX bytes at most, or one answer."""
    start = size = 0
    for at, answer in enumerate(answers):
        size += len(answer)
        if size > ANSWER_BYTES_MAX and at > start:
            yield slice(start, at)
            start, size = at, len(answer)
    yield slice(start, len(answers))


def encode_replies(session: int, seqs: Sequence[int], replies: Sequence[bytes]) -> bytes:
    """Give a REPLIES packet, or several where one would be too long; reply i answers seq i."""
    if len(replies) == 1:  # a client that waits for each call: the same bytes, in one step
        size = len(replies[0])
        return ONE_REPLY.pack(ONE_REPLY.size - 4 + size, Type.REPLIES, session, 1, 0, seqs[0], size) + replies[0]
    columns = _columns(seqs, replies)
    if len(columns[2]) > ANSWER_BYTES_MAX:
        return b"".join(encode_replies(session, seqs[some], replies[some]) for some in _stretches(replies))
    return packet(Type.REPLIES, REPLIES_HEAD.pack(session, len(seqs), 0), *columns)


def decode_one_reply(data: bytes, session: int, seq: int) -> bytes | None:
    """Give the reply to `seq` where `data` is a REPLIES packet with that one, and nothing else; None: it is not."""
    size = len(data) - ONE_REPLY.size
    if size < 0:
        return None
    length, kind, theirs, count, _, its_seq, end = ONE_REPLY.unpack_from(data)
    if kind != Type.REPLIES or count != 1 or end != size or length != len(data) - 4:
        return None
    return data[ONE_REPLY.size :] if theirs == session and its_seq == seq else None


def decode_replies(body: bytes) -> tuple[int, tuple[int, ...], list[bytes]]:
    """Give (session, seqs, replies). Raises: CorruptFrame."""
    if len(body) < REPLIES_HEAD.size:
        raise CorruptFrame("REPLIES shorter than its head")
    session, count, _ = REPLIES_HEAD.unpack_from(body)
    seqs, replies = _items(body, REPLIES_HEAD.size, count)
    return session, seqs, replies


def encode_queries(ids: Sequence[int], messages: Sequence[bytes], *, stale: bool, answers: bool = False) -> bytes:
    """Give a QUERIES packet, or with `answers` an ANSWERS packet, several where one would be too long."""
    return _encode_ids(Type.ANSWERS if answers else Type.QUERIES, ids, messages, STALE if stale else 0)


def _encode_ids(kind: Type, ids: Sequence[int], items: Sequence[bytes], flags: int = 0) -> bytes:
    columns = _columns(ids, items)
    if len(columns[2]) > ANSWER_BYTES_MAX and len(items) > 1 and kind != Type.QUERIES:
        return b"".join(_encode_ids(kind, ids[some], items[some], flags) for some in _stretches(items))
    return packet(kind, QUERIES_HEAD.pack(len(ids), flags), *columns)


def decode_queries(body: bytes) -> tuple[bool, tuple[int, ...], list[bytes]]:
    """Give (stale allowed, ids, messages or answers). Raises: CorruptFrame."""
    if len(body) < QUERIES_HEAD.size:
        raise CorruptFrame("QUERIES shorter than its head")
    count, flags = QUERIES_HEAD.unpack_from(body)
    ids, items = _items(body, QUERIES_HEAD.size, count)
    return bool(flags & STALE), ids, items


def encode_attach(ids: Sequence[int], invocations: Sequence[int]) -> bytes:
    """Give an ATTACH packet; answer i is asked for invocation i."""
    n = len(ids)
    return packet(Type.ATTACH, QUERIES_HEAD.pack(n, 0), struct.pack(f"<{2 * n}Q", *ids, *invocations))


def decode_attach(body: bytes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Give (ids, invocations). Raises: CorruptFrame."""
    if len(body) < QUERIES_HEAD.size:
        raise CorruptFrame("ATTACH shorter than its head")
    count, _ = QUERIES_HEAD.unpack_from(body)
    if len(body) != QUERIES_HEAD.size + 16 * count:
        raise CorruptFrame("ATTACH: count and columns disagree")
    columns: tuple[int, ...] = struct.unpack_from(f"<{2 * count}Q", body, QUERIES_HEAD.size)
    return columns[:count], columns[count:]


def encode_results(ids: Sequence[int], replies: Sequence[bytes]) -> bytes:
    """Give a RESULTS packet, or several where one would be too long; reply i answers id i."""
    return _encode_ids(Type.RESULTS, ids, replies)


def decode_results(body: bytes) -> tuple[tuple[int, ...], list[bytes]]:
    """Give (ids, replies). Raises: CorruptFrame."""
    return decode_queries(body)[1:]


def encode_peer_commit(session: int, through: int) -> bytes:
    """Give a PEER_COMMIT packet: everything up to position `through` is confirmed at the receiver."""
    return packet(Type.PEER_COMMIT, PEER_COMMIT.pack(session, through))


def decode_peer_commit(body: bytes) -> tuple[int, int]:
    """Give (session, through). Raises: CorruptFrame."""
    if len(body) != PEER_COMMIT.size:
        raise CorruptFrame(f"PEER_COMMIT of {len(body)} bytes, {PEER_COMMIT.size} expected")
    session, through = PEER_COMMIT.unpack(body)
    return session, through


def ok_reply(result: bytes) -> bytes:
    """Give an OK reply around a msgpack result."""
    return b"\x00" + result


def error_reply(code: str, kind: str, text: str) -> bytes:
    """Give an ERROR reply; `kind` is the exception's type name, `text` ours (I5)."""
    return b"\x01" + _encode(ReplyError(code, kind, text))


def accepted_reply(invocation: int) -> bytes:
    """Give an ACCEPTED reply: the handler waits; `invocation` is what ATTACH asks for."""
    return b"\x02" + U64.pack(invocation)


def accepted_invocation(reply: bytes) -> int | None:
    """Give the invocation of an ACCEPTED reply; None: the reply is none."""
    if len(reply) != 9 or reply[0] != Status.ACCEPTED:
        return None
    return int.from_bytes(reply[1:], "little")
