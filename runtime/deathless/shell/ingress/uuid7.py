"""Idempotency keys as text: a UUIDv7, which carries its time (RFC 9562, 5.7), or one that carries none.

Guarantees: 74 random bits. Does not: ascend within a millisecond. Imports nothing of ours.
"""

from __future__ import annotations

import os
import uuid


def drawn_key(time_us: int | None) -> str:
    """Give a fresh key for a call to a service whose logical time is this; None: it is not known.

    By the service's own time, since it refuses keys whose time lies far from that. Where nobody has told it yet, the
    key carries none (UUIDv4): the service forgets it after its window, long after this call has been given up.
    """
    return str(uuid.UUID(bytes=os.urandom(16), version=4)) if time_us is None else uuid7(time_us * 1000)


def uuid7(now_ns: int) -> str:
    """Give a fresh key for the time `now_ns` (nanoseconds since 1970), 36 characters."""
    raw = (now_ns // 1_000_000).to_bytes(6, "big") + os.urandom(10)
    bits = int.from_bytes(raw, "big")
    bits = bits & ~(0xF << 76) | 7 << 76  # version
    bits = bits & ~(0b11 << 62) | 0b10 << 62  # variant
    text = f"{bits:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
