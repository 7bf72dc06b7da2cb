"""The record of what is confirmed that stands outside the log: as text in the lock store, as a slot in pages and files.

Why it exists: a log that was put back to an older state, or lost its end, looks whole. Only what was written elsewhere
knows that more was confirmed. `core.replica.witness` says what a record means; this module gives its bytes.

A slot is 128 bytes, little-endian; two of them stand side by side and are written in turns, so that one is whole
whenever its writer dies:

    offset size field
    0      4    magic b"DLW1"
    4      4    flags, u32: 1 = the writer stopped in order, nothing was confirmed after this
    8      16   service id
    24     8    incarnation
    32     8    epoch of the primary
    40     8    lsn: everything up to it is confirmed
    48     16   chain hash there
    64     8    when, microseconds since 1970 by the writer's clock
    72     8    boot of the machine: a number that differs from boot to boot; 0: not known
    80     40   reserved, 0
    120    4    CRC-32 of the bytes before
    124    4    reserved, 0

Guarantees: a slot that is given was written as it is, by CRC. Does not: compare. Imports codec.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

import msgspec

from deathless.codec.peer_messages import UInt64
from deathless.codec.untrusted import JsonReader

SLOT: Final = struct.Struct("<4sI16sQQQ16sQQ40xI4x")
SLOT_BYTES: Final = SLOT.size
MAGIC: Final = b"DLW1"
FINAL_FLAG: Final = 1
CRC_AT: Final = 120
assert SLOT_BYTES == 128


class Point(msgspec.Struct, array_like=True, frozen=True):
    """A place of the log that was confirmed, and who said so."""

    service_id: bytes
    incarnation: UInt64
    epoch: UInt64
    lsn: UInt64
    chain: bytes
    at_us: UInt64 = 0  # wall clock of who wrote it, microseconds since 1970
    by: str = ""  # replica
    final: bool = False  # written with an orderly stop: nothing was confirmed after it
    boot: UInt64 = 0  # of a page: the boot of the machine it was written in; 0: not known


_JSON: Final = JsonReader(Point)


def encode_point(point: Point) -> bytes:
    """Give a point as the lock store keeps it."""
    return msgspec.json.encode(point)


def decode_point(data: bytes) -> Point:
    """Read a point of the lock store. Raises: msgspec.MsgspecError."""
    return _JSON.decode(data)


def encode_slot(point: Point) -> bytes:
    """Give a point as it stands in a page or file; who wrote it is told by where it stands."""
    flags = FINAL_FLAG if point.final else 0
    bare = SLOT.pack(
        MAGIC,
        flags,
        point.service_id,
        point.incarnation,
        point.epoch,
        point.lsn,
        point.chain,
        point.at_us,
        point.boot,
        0,
    )
    return bare[:CRC_AT] + zlib.crc32(bare[:CRC_AT]).to_bytes(4, "little") + bare[CRC_AT + 4 :]


def decode_slot(data: bytes, by: str = "") -> Point | None:
    """Read a slot; None: it is empty, or was not written whole."""
    if len(data) < SLOT_BYTES or data[:4] != MAGIC:
        return None
    _, flags, service_id, incarnation, epoch, lsn, chain, at_us, boot, crc = SLOT.unpack_from(data)
    if zlib.crc32(data[:CRC_AT]) != crc:
        return None
    return Point(service_id, incarnation, epoch, lsn, chain, at_us, by, bool(flags & FINAL_FLAG), boot)


def newest(points: list[Point | None]) -> Point | None:
    """Give the one of two slots of one writer that was written last; clocks may step, its epoch and lsn do not."""
    known = [point for point in points if point is not None]
    return max(known, key=lambda point: (point.epoch, point.lsn, point.final), default=None)
