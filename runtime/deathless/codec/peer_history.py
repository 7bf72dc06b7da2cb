"""The history of what one service has sent to another, as 16 bytes that both sides compute by themselves.

    H(0) = 16 zero bytes            H(n) = BLAKE2b-128(H(n-1), message n)           message n: the bytes at position n

Equal positions with different histories mean that one side was copied or put back and went on differently; then the
receiver would take the sender's new messages for repetitions of old ones and swallow them.

Outboxes and sessions of peers that began before histories were kept have none: `UNKNOWN`, which is compared with
nothing and stays so until positions begin anew. Imports nothing of ours.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

HISTORY_BYTES: Final = 16
NOTHING: Final = bytes(HISTORY_BYTES)  # H(0)
UNKNOWN: Final = b""


def extended(history: bytes, messages: Iterable[bytes]) -> bytes:
    """Give the history behind further messages; an unknown one stays unknown."""
    if history == UNKNOWN:
        return UNKNOWN
    for message in messages:
        history = hashlib.blake2b(history + message, digest_size=HISTORY_BYTES).digest()
    return history


def differ(ours: bytes, theirs: bytes) -> bool:
    """Are these two histories of one position different? Unknown ones are not."""
    return UNKNOWN not in (ours, theirs) and ours != theirs
