"""What the bytes are where a frame should stand and none does: never written, torn by a crash, or changed later.

Why it exists: at the end of a log all three look alike to a reader that knows only "no valid frame here". A torn write
was never confirmed and is passed over; a frame that was whole once and changed may have been confirmed, and passing
over it would lose acknowledged messages without a word.

It can be told because a frame is written over zeros, a disk writes a sector of 512 bytes whole or not at all, and a
kernel ends a killed process's write between two pages, not within one (tests/process/test_killed_writes.py). So after a
crash each sector of a torn frame is as it was written or all zeros, and the header counts the sectors that were zeros
to begin with:

    bytes at the place                                             remains
    the first sector is zeros, or the file ends within it          TORN: the header never arrived
    the first sector is not zeros, but the header's checksum
    is wrong                                                       CHANGED
    the header is good, more sectors are zeros than it counted,
    or the file ends before the frame does                         TORN
    the header is good, as many or fewer                           CHANGED

A frame of the version before these fields (bytes 100 to 107 are zeros) has neither checksum nor count of its header:
without magic it is CHANGED, and so it is with no zero sector in it; with one it passes for TORN.

Guarantees: with sectors written whole, no torn write is called CHANGED, and no flipped bit, byte or foreign sector is
called TORN. Does not: see a sector that was lost and reads as zeros, which looks just like one that never arrived; a
witness of what is confirmed tells that (`core.replica.witness`). Storage that tears inside a sector makes a torn write
look CHANGED: an unconfirmed frame then needs an operator's word. Imports `codec.frames`.
"""

from __future__ import annotations

import enum

from deathless.codec.frames import (
    HEADER_BYTES,
    HEADER_CRC_AT,
    MAGIC,
    SECTOR,
    ZERO_SECTOR,
    ZERO_SECTORS_AT,
    frame_length,
    header_crc,
    zero_sector_count,
)


class Remains(enum.Enum):
    """What stands where no valid frame does."""

    TORN = "torn"  # a crash cut the write short, or nothing was written: it was never confirmed
    CHANGED = "changed"  # it was written whole, and other bytes stand there now


def judge_remains(data: bytes, offset: int = 0) -> Remains:
    """Say what stands at `offset`, where `decode_frame` gave None.

    Args:
        data: bytes of the file with the whole frame in them, as far as the file goes and the header tells.
        offset: of the place in `data`, bytes.
    """
    first = data[offset : offset + SECTOR]
    if len(first) < SECTOR or first == ZERO_SECTOR:
        return Remains.TORN
    length = frame_length(data, offset)
    header = data[offset : offset + HEADER_BYTES]
    older = not header[HEADER_CRC_AT : ZERO_SECTORS_AT + 4].strip(b"\0")
    if older:
        if length is None or header[:4] != MAGIC:
            return Remains.CHANGED
        counted = 0
    else:
        known = int.from_bytes(header[HEADER_CRC_AT:ZERO_SECTORS_AT], "little")
        if length is None or known != header_crc(header):
            return Remains.CHANGED
        counted = int.from_bytes(header[ZERO_SECTORS_AT : ZERO_SECTORS_AT + 4], "little")
    found = data[offset : offset + length]
    short = len(found) < length  # the file ends within the frame: its rest never arrived
    return Remains.TORN if short or zero_sector_count(found) > counted else Remains.CHANGED
