"""A file of the simulated disk: what programs see of it, and what of that would survive a power cut.

Guarantees: a block is kept, undone or torn by itself, a size likewise. Does not: count space, or know names. Imports
nothing of ours.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final

BLOCK: Final = 4096
SECTOR: Final = 512
ZEROS: Final = bytes(BLOCK)


@dataclass(slots=True, eq=False)
class Inode:
    """One file: content as programs see it, and what of it is not durable."""

    blocks: dict[int, bytes] = field(default_factory=dict)  # by index; a missing one reads as zeros
    size: int = 0  # bytes
    room: int = 0  # bytes the file takes from the disk's capacity
    undo: dict[int, bytes | None] = field(default_factory=dict)  # durable block of each index written since the sync
    size_synced: int = 0  # size at the last sync

    def read(self, offset: int, size: int) -> bytes:
        """Read up to `size` bytes."""
        size = min(size, self.size - offset)
        if size <= 0:
            return b""
        first, last = offset // BLOCK, (offset + size - 1) // BLOCK
        if first == last:
            start = offset - first * BLOCK
            return self.blocks.get(first, ZEROS)[start : start + size]
        get = self.blocks.get
        data = b"".join([get(index, ZEROS) for index in range(first, last + 1)])
        start = offset - first * BLOCK
        return data[start : start + size]

    def write(self, offset: int, data: bytes) -> None:
        """Write, not durable."""
        end, at = offset + len(data), offset
        while at < end:
            index, start = divmod(at, BLOCK)
            stop = min(BLOCK, start + end - at)
            old = self.blocks.get(index)
            self.undo.setdefault(index, old)
            part = data[at - offset : at - offset + stop - start]
            if stop - start < BLOCK:
                before = ZEROS if old is None else old
                part = before[:start] + part + before[stop:]
            self.blocks[index] = part
            at += stop - start
        self.size = max(self.size, end)
        self.room = max(self.room, end)

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes, not durable."""
        for index in [index for index in self.blocks if index * BLOCK >= size]:
            self.undo.setdefault(index, self.blocks[index])
        self.size = self.room = min(self.size, size)
        self._forget_beyond_end()

    def sync(self) -> None:
        """Make everything durable."""
        self.undo.clear()
        self.size_synced = self.size

    def cut_power(self, rng: random.Random) -> None:
        """Keep, undo or tear each block not synced."""
        for index, old in self.undo.items():
            match rng.randrange(3):
                case 0:
                    self._put(index, old)
                case 1:
                    self._put(index, _torn(ZEROS if old is None else old, self.blocks.get(index, ZEROS), rng))
                case _:
                    pass
        if self.size != self.size_synced and rng.randrange(2):
            self.size = rng.randrange(min(self.size, self.size_synced), max(self.size, self.size_synced) + 1)
            self._forget_beyond_end()
        self.undo.clear()
        self.size_synced = self.size

    def _put(self, index: int, block: bytes | None) -> None:
        if block is None:
            self.blocks.pop(index, None)
        else:
            self.blocks[index] = block

    def _forget_beyond_end(self) -> None:
        last, used = divmod(self.size, BLOCK)
        for index in [index for index in self.blocks if index > last or (index == last and used == 0)]:
            del self.blocks[index]
        if used and last in self.blocks:
            self.blocks[last] = self.blocks[last][:used] + bytes(BLOCK - used)


def _torn(old: bytes, new: bytes, rng: random.Random) -> bytes:
    """Each sector old or new."""
    sectors = [(new if rng.randrange(2) else old)[at : at + SECTOR] for at in range(0, BLOCK, SECTOR)]
    return b"".join(sectors)


def put(inode: Inode, offset: int, data: bytes) -> None:
    """Change bytes durably, behind the back of whoever syncs."""
    held = dict(inode.undo)
    inode.write(offset, data)
    inode.undo = held
