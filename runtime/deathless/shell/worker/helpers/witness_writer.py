"""Copies a primary's witness from its page to a file beside the log, as a process of its own.

The page outlives kill -9 but no power cut; where the lock is in the directory, no lock store does that instead. A sync
takes what the disk takes, so neither the worker, which answers callers, nor its supervisor, which answers for the
worker, may make it. This process may: it is started by a worker that becomes primary, looks at the page each
`interval` seconds, and writes what is new to `replicas/<replica>/confirmed`. Nobody waits for it. When its standard
input ends, which it does with the worker however that ends, it writes once more and ends.

    python -I -S witness_writer.py <page> <file> <interval>

The file is 4096 bytes; its slots (`codec.witness`) stand at 0 and 512, and are written in turns. Within an incarnation
it is never lowered. The lsn that stands durably is told in cell 50 of the page.

Guarantees: one write at a time; an error is tried again at the next look. What an error left in the file is written
again before it counts: a sync that failed may have lost what reads back all the same. Does not: import anything of
ours or of others: it must start in a few milliseconds and stay small. Standard library alone.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import struct
import sys
import zlib
from typing import Final

PAGE_BYTES: Final = 4096
PAGE_SLOTS: Final = (128, 256)
FILE_SLOTS: Final = (0, 512)
SLOT_BYTES: Final = 128
MAGIC: Final = b"DLW1"
CRC_AT: Final = 120
DURABLE_AT: Final = 8 * 50
ORDER: Final = struct.Struct("<QQ")  # epoch and lsn, at 32


def order_of(slot: bytes) -> tuple[int, int, int] | None:
    """Give (epoch, lsn, flags) of a slot; None: it is empty or was not written whole."""
    if slot[:4] != MAGIC or zlib.crc32(slot[:CRC_AT]) != int.from_bytes(slot[CRC_AT : CRC_AT + 4], "little"):
        return None
    epoch, lsn = ORDER.unpack_from(slot, 32)
    return epoch, lsn, int.from_bytes(slot[4:8], "little")


def newest(data: bytes, places: tuple[int, int]) -> bytes:
    """Give the slot that was written last; empty: there is none."""
    slots = [data[at : at + SLOT_BYTES] for at in places]
    known = [(order, slot) for slot in slots if (order := order_of(slot)) is not None]
    return max(known)[1] if known else b""


class WitnessFile:
    """The file; opened at the first write and again after an error."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = -1
        self._doubted = False  # what stands there may not be on the disk

    def write(self, slot: bytes) -> None:
        """Write a slot durably, unless a newer one of the same incarnation stands. Raises: OSError."""
        doubted, self._doubted = self._doubted, True
        if self._descriptor < 0:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            os.posix_fallocate(self._descriptor, 0, PAGE_BYTES)
        data = os.pread(self._descriptor, PAGE_BYTES, 0)
        standing = newest(data, FILE_SLOTS)
        same = standing[8:32] == slot[8:32]  # service id and incarnation
        if same and (order_of(standing) or ()) >= (order_of(slot) or ()):
            if not doubted:
                self._doubted = False
                return
            slot = standing
        at = FILE_SLOTS[0] if standing == data[FILE_SLOTS[1] : FILE_SLOTS[1] + SLOT_BYTES] else FILE_SLOTS[1]
        os.pwrite(self._descriptor, slot, at)
        if standing and not same:  # of another history: it is not to be the newest because its epoch is higher
            os.pwrite(self._descriptor, bytes(SLOT_BYTES), FILE_SLOTS[0] + FILE_SLOTS[1] - at)
        os.fdatasync(self._descriptor)
        self._doubted = False

    def close(self) -> None:
        """Forget the descriptor: after an error it proves nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(descriptor)


def map_page(page_path: str, interval_s: float) -> mmap.mmap | None:
    """Map the page; one that can't be opened now is tried again each `interval_s`. None: standard input has ended."""
    while True:
        try:
            descriptor = os.open(page_path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                return mmap.mmap(descriptor, PAGE_BYTES)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            return None  # there is nothing to copy, and nobody to tell
        except (OSError, ValueError):
            if select.select([0], [], [], interval_s)[0]:
                return None


def run(page_path: str, path: str, interval_s: float) -> None:
    """Copy until standard input ends, and once more then."""
    page = map_page(page_path, interval_s)
    if page is None:
        return
    file = WitnessFile(path)
    written = b""
    ended = False
    while not ended:
        ended = bool(select.select([0], [], [], interval_s)[0])
        slot = newest(bytes(page[: PAGE_SLOTS[1] + SLOT_BYTES]), PAGE_SLOTS)
        if not slot or slot == written:
            continue
        try:
            file.write(slot)
        except OSError:
            file.close()
            continue
        written = slot
        page[DURABLE_AT : DURABLE_AT + 8] = slot[40:48]


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2], float(sys.argv[3]))
