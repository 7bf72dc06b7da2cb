"""UUIDv7 as text: an idempotency key that carries its time (RFC 9562, 5.7).

Guarantees: 74 random bits. Does not: ascend within a millisecond. Imports nothing of ours.
"""

from __future__ import annotations

import os


def uuid7(now_ns: int) -> str:
    """Give a fresh key for the time `now_ns` (nanoseconds since 1970), 36 characters."""
    raw = (now_ns // 1_000_000).to_bytes(6, "big") + os.urandom(10)
    bits = int.from_bytes(raw, "big")
    bits = bits & ~(0xF << 76) | 7 << 76  # version
    bits = bits & ~(0b11 << 62) | 0b10 << 62  # variant
    text = f"{bits:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
