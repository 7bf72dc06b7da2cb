"""Log records: the only thing that a coordinator sends to an application.

A record is a header of 24 bytes, little-endian, and messages:

    offset size field
    0      4    committer id, i32: one number for the life of a service
    4      4    size, i32: of header and messages
    8      8    check bytes, u64: xxHash64 of the messages; 0 in the record of a checkpoint
    16     8    sequence id, i64: counts records with logged messages from 0; -1: a control message; -2: a checkpoint

The bytes of a checkpoint follow its record and count in no size. The original stores the size as a negative number on
its disk; an application always gets the positive one. Records are made for an application alone; our log has frames.

Guarantees: a record that is too long for its size field is refused before it is made. Does not: number records.
Imports base.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from deathless.base.errors import TooLarge
from deathless.protocols.ambrosia.check_bytes import xxhash64
from deathless.protocols.ambrosia.messages import MessageType, encode_checkpoint, encode_message

HEADER: Final = struct.Struct("<iiQq")
HEADER_BYTES: Final = HEADER.size
RECORD_BYTES_MAX: Final = (1 << 31) - 1
CONTROL: Final = -1
CHECKPOINT: Final = -2
Check = Callable[[bytes], int]
assert HEADER_BYTES == 24


def committer_of(service_id: bytes) -> int:
    """Give a service's committer id: the low 31 bits of its id, as the original takes them of a clock."""
    return int.from_bytes(service_id[:4], "little") & 0x7FFFFFFF


def encode_record(committer: int, sequence: int, payload: bytes, check: Check = xxhash64) -> bytes:
    """Give a record.

    Args:
        committer: in [-2**31, 2**31).
        sequence: >= 0, or CONTROL.
        payload: messages.
        check: computes the check bytes.

    Raises:
        TooLarge: the size field can't hold it; the caller makes two records of it.
    """
    size = HEADER_BYTES + len(payload)
    if size > RECORD_BYTES_MAX:
        raise TooLarge(f"a record of {size} bytes, at most {RECORD_BYTES_MAX}")
    return HEADER.pack(committer, size, check(payload), sequence) + payload


def encode_control(committer: int, kind: MessageType, check: Check = xxhash64) -> bytes:
    """Give the record of one message without data."""
    return encode_record(committer, CONTROL, encode_message(kind), check)


def encode_checkpoint_record(committer: int, length: int) -> bytes:
    """Give the record that a checkpoint of so many bytes follows."""
    message = encode_checkpoint(length)
    return HEADER.pack(committer, HEADER_BYTES + len(message), 0, CHECKPOINT) + message
