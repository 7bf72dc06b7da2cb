"""The generator behind `ctx.random` and `ctx.uuid`: the same numbers for the same message, in every process.

A handler must give the same result when it is replayed in another process, so chance has to come from the log. The
service's seed is drawn once, when the service is created; with the lsn of the message it fixes a stream of bytes:

    stream  = block 0, block 1, block 2, ...
    block i = BLAKE2b-512(seed (32 bytes), u64 lsn, u64 i), little-endian

    randbytes(n)   the next n bytes of the stream
    random()       the next 8 bytes as u64, shifted right by 11, times 2**-53
    randint(a, b)  span = b - a + 1, k = bits of span - 1; the next ceil(k / 8) bytes as an integer, its lowest k
                   bits; drawn again while it is >= span. A span of 1 draws nothing
    choice(s)      s[randint(0, len(s) - 1)]
    shuffle(x)     for i from len(x) - 1 down to 1: swap x[i] and x[randint(0, i)]
    uuid()         the next 16 bytes with version 4 and the RFC 9562 variant set

Guarantees: this table never changes within a format version (golden values in the tests); two messages never share a
stream. Does not: keep secrets from who knows the seed; it is no source for keys or tokens. Imports base only.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import MutableSequence, Sequence
from typing import Final, TypeVar

from deathless.base.errors import Closed

SEED_BYTES: Final = 32
BLOCK_BYTES: Final = 64
_PLACE: Final = struct.Struct("<QQ")
T = TypeVar("T")


class Random:
    """Chance for one turn; refuses everything once the turn has ended.

    Args:
        seed: 32 bytes of the service.
        lsn: of the message whose turn this is, [0, 2**64).
    """

    __slots__ = ("_at", "_block", "_count", "_lsn", "_seed")

    def __init__(self, seed: bytes, lsn: int) -> None:
        assert len(seed) == SEED_BYTES
        self._seed: bytes | None = seed  # None: the turn has ended
        self._lsn = lsn
        self._count = 0  # blocks drawn
        self._block = b""  # the last block drawn
        self._at = 0  # bytes of it that are used

    def close(self) -> None:
        """End it with its turn."""
        self._seed = None

    def randbytes(self, size: int) -> bytes:
        """Give the next `size` bytes.

        Raises: ValueError when `size` is negative; Closed when the turn has ended.
        """
        if size < 0:
            raise ValueError("size must not be negative")
        seed = self._seed
        if seed is None:
            raise Closed("this generator belongs to a turn that has ended; take ctx.random anew in each turn")
        parts = self._block[self._at : self._at + size]
        self._at += len(parts)
        while len(parts) < size:
            self._block = hashlib.blake2b(seed + _PLACE.pack(self._lsn, self._count)).digest()
            self._count += 1
            self._at = min(size - len(parts), BLOCK_BYTES)
            parts += self._block[: self._at]
        return parts

    def random(self) -> float:
        """Give a float in [0, 1), 53 bits of chance."""
        return (int.from_bytes(self.randbytes(8), "little") >> 11) * 2.0**-53

    def randint(self, low: int, high: int) -> int:
        """Give an integer in [low, high], each equally likely.

        Raises: ValueError when `high` < `low`.
        """
        span = high - low + 1
        if span < 1:
            raise ValueError(f"no integer lies in [{low}, {high}]")
        bits = (span - 1).bit_length()
        mask = (1 << bits) - 1
        while True:
            drawn = int.from_bytes(self.randbytes((bits + 7) // 8), "little") & mask
            if drawn < span:
                return low + drawn

    def choice(self, items: Sequence[T]) -> T:
        """Give one of `items`.

        Raises: IndexError when there is none.
        """
        if not items:
            raise IndexError("cannot choose from nothing")
        return items[self.randint(0, len(items) - 1)]

    def shuffle(self, items: MutableSequence[T]) -> None:
        """Bring `items` into a random order, in place."""
        for at in range(len(items) - 1, 0, -1):
            other = self.randint(0, at)
            items[at], items[other] = items[other], items[at]

    def uuid(self) -> str:
        """Give a UUID (version 4) as its 36 characters."""
        drawn = bytearray(self.randbytes(16))
        drawn[6] = drawn[6] & 0x0F | 0x40
        drawn[8] = drawn[8] & 0x3F | 0x80
        text = drawn.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
