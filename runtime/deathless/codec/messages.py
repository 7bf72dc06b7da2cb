"""One message of the log and of the client wire, verbatim the same bytes in both (format version 2).

    offset size field
    0      1    kind (see Kind)
    1      1    flags: 0; of a CALL also TRACED, then a trace context ends the message (see traces)
    2      2    method length M, u16
    4      2    key length K, u16
    6      2    idempotency key length I, u16 (0: none)
    8      M    method, UTF-8 (name of handler; empty for system kinds)
    8+M    K    key, UTF-8
    ...    I    idempotency key
    ...    rest arguments: a msgpack map of the named arguments, or the body of a system kind

All integers are little-endian. A message carries no session and no seq: its run does (see frames), so a
batch of a client goes into the log without being touched. Guarantees: `encode` and `decode` are inverse.
Does not: look into the arguments. Imports base only.
"""

from __future__ import annotations

import enum
import struct
from typing import Final, NamedTuple

from deathless.base.errors import CorruptFrame, TooLarge
from deathless.base.times import Times

HEADER: Final = struct.Struct("<BBHHH")
HEADER_BYTES: Final = HEADER.size
U64: Final = struct.Struct("<Q")
TIMES: Final = struct.Struct("<QQQQ")
REGISTER_NONCE_BYTES: Final = 16
TRACED: Final = 1
"""Flag of a CALL: its last TRACE_BYTES are a trace context."""
TRACE_BYTES: Final = 25


class Kind(enum.IntEnum):
    """What a message is. 1 to 15 run a turn, 16 and above are the shard's own records."""

    CALL = 1  # a client's request to a handler; the arguments follow
    FORK = 2  # of a peer: a request that nobody waits for
    REQUEST = 3  # of a peer: a request whose RESPONSE an invocation waits for
    RESPONSE = 4  # of a peer: the reply to a REQUEST of ours
    CANCEL = 5  # of a peer: nobody waits for the REQUEST any more
    MARK = 6  # of a stream: an id without a message; runs nothing. Arguments: a note, which may be empty
    TIME = 16  # body: u64 time, u64 elapsed, u64 age, u64 wall clock, microseconds; of version 1: u64 time alone
    REGISTER = 17  # body: 16 bytes drawn by the client; its session id is this message's lsn
    PARKED = 18  # body: u64 session, u64 seq, then the message that was set aside, verbatim and unrun (I11)
    REBASED = 19  # body: u64 lsn of the checkpoint that the others reload; replay and verify begin there (I6)
    PEER = 20  # bodies of 20 to 25: codec.peer_messages. A peer introduced itself: its session's id is this lsn
    TRIM = 21  # a peer has confirmed our messages up to a position
    OUTCOME = 22  # an activity ended
    ATTEMPT = 23  # an at-most-once activity begins once this is confirmed
    ADOPT = 24  # an operator adopts a peer that was created anew
    ORDER = 25  # an operator's command for an invocation
    UPGRADED = 26  # body: codec.generations. What follows is of other code; nobody runs across it (design 0026)
    STREAM = 27  # body: codec.streams.records. Who owns a stream; the first one's lsn is the stream's session


BEGINNING: Final = frozenset({Kind.CALL, Kind.FORK, Kind.REQUEST})
"""What begins a handler, by its name, and so can be run again where it was not run."""
RECORDS_WITH_TURNS = frozenset({Kind.PARKED, Kind.OUTCOME, Kind.ADOPT, Kind.ORDER})
"""Records that may wake handlers that wait; so does TIME, where a timer is due."""


class Message(NamedTuple):
    """A decoded message; fields as in the table above."""

    kind: int
    method: bytes
    key: bytes
    idempotency_key: bytes
    args: bytes


def encode(
    kind: int, *, method: bytes = b"", key: bytes = b"", idempotency_key: bytes = b"", args: bytes = b""
) -> bytes:
    """Give the bytes of one message.

    Raises: TooLarge when method, key or idempotency key is longer than 65535 bytes.
    """
    try:
        header = HEADER.pack(kind, 0, len(method), len(key), len(idempotency_key))
    except struct.error:
        raise TooLarge("method, key and idempotency key hold at most 65535 bytes each") from None
    return b"".join((header, method, key, idempotency_key, args))


def decode(data: bytes) -> Message:
    """Take one message apart; a trace context is left out.

    Raises: CorruptFrame when the lengths pass the end or flags are set that version 2 does not know.
    """
    if len(data) < HEADER_BYTES:
        raise CorruptFrame(f"message of {len(data)} bytes is shorter than its header")
    kind, flags, method_len, key_len, idem_len = HEADER.unpack_from(data)
    end = len(data)
    if flags:
        if flags != TRACED or kind != Kind.CALL:
            raise CorruptFrame(f"message has unknown flags {flags:#x}")
        end -= TRACE_BYTES
    key_at = HEADER_BYTES + method_len
    idem_at = key_at + key_len
    args_at = idem_at + idem_len
    if args_at > end:
        raise CorruptFrame("message is shorter than its lengths say")
    return Message(kind, data[HEADER_BYTES:key_at], data[key_at:idem_at], data[idem_at:args_at], data[args_at:end])


def encode_time(times: Times) -> bytes:
    """Give a TIME record (microseconds, each in [0, 2**64))."""
    return encode(Kind.TIME, args=TIMES.pack(*times))


def decode_time(body: bytes) -> Times:
    """Read the body of a TIME record. One of version 1 knows a single clock, so all counters stand at what it says.

    Raises: CorruptFrame.
    """
    if len(body) == TIMES.size:
        return Times(*TIMES.unpack(body))
    if len(body) == U64.size:
        return Times.of_version_1(*U64.unpack(body))
    raise CorruptFrame(f"a time record of {len(body)} bytes, {TIMES.size} expected")


def encode_register(nonce: bytes) -> bytes:
    """Give a REGISTER record for a client's 16 random bytes."""
    assert len(nonce) == REGISTER_NONCE_BYTES
    return encode(Kind.REGISTER, args=nonce)


PARKED_HEADER: Final = struct.Struct("<QQ")


def encode_parked(session: int, seq: int, message: bytes) -> bytes:
    """Give a PARKED record that carries `message` unrun."""
    return encode(Kind.PARKED, args=PARKED_HEADER.pack(session, seq) + message)


def encode_rebased(lsn: int) -> bytes:
    """Give a REBASED record that names the checkpoint at `lsn`."""
    return encode(Kind.REBASED, args=U64.pack(lsn))
