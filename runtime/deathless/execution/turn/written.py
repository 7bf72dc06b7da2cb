"""What turns wrote, on its way into the digests (I6): CRC-32 per message, BLAKE2b-256 over all since the last question.

Guarantees: the digests do not depend on how messages were cut into batches. Does not: keep what large messages wrote
for long. Imports nothing of ours.
"""

from __future__ import annotations

import hashlib
from typing import Final
from zlib import crc32

ROLLING_BYTES: Final = 32


class Written:
    """What was written since the last `rolling_update`."""

    __slots__ = ("_hash", "_parts")

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # since the last fold
        # Over what was folded since the last `rolling_update`; None: nothing was. Most runs are hashed in one step.
        self._hash: hashlib.blake2b | None = None

    def hand_in(self, wrote: list[bytes], digests: list[int]) -> None:
        """Take what messages wrote into the digests; what was handed in before goes into the hash and is let go."""
        if self._parts:
            self._fold()
        digests.extend(map(crc32, wrote))
        self._parts += wrote
        wrote.clear()

    def only(self, wrote: bytes) -> bytes | None:
        """Give `rolling_update` for a run of one message that wrote this; None: something was handed in before it."""
        if self._parts or self._hash is not None:
            return None
        return hashlib.blake2b(wrote, digest_size=ROLLING_BYTES).digest()

    def add(self, wrote: bytes) -> None:
        """Take in what a record caused; it has no digest of its own."""
        if wrote:
            self._parts.append(wrote)
            self._fold()

    def _fold(self) -> None:
        if self._hash is None:
            self._hash = hashlib.blake2b(digest_size=ROLLING_BYTES)
        self._hash.update(b"".join(self._parts))
        self._parts.clear()

    def rolling_update(self) -> bytes:
        """Give 32 bytes that stand for all new states, replies and outputs since the last call.

        They are BLAKE2b-256 over what each message wrote, new state bytes and then reply bytes, one after the other;
        behind them what it sent and caused, so they do not depend on how messages were cut into batches.
        """
        if self._hash is None:
            update = hashlib.blake2b(b"".join(self._parts), digest_size=ROLLING_BYTES).digest()
        else:
            self._fold()
            update = self._hash.digest()
            self._hash = None
        self._parts.clear()
        return update
