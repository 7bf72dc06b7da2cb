"""Answers that are compressed for whoever accepts that.

Guarantees: an answer that is short, or long enough to keep the event loop busy, goes as it is. Does not: read
compressed bodies; a request with a Content-Encoding is refused.
"""

from __future__ import annotations

import zlib
from typing import Final

LEAST_BYTES: Final = 1024
"""Below this a compressed answer saves less than its headers cost."""
MOST_BYTES: Final = 1 << 20
"""Above this the time for compressing it would be others' waiting time; 15 ms for so much."""
LEVEL: Final = 1
_GZIP: Final = 16 + zlib.MAX_WBITS


def accepts_gzip(accepted: bytes) -> bool:
    """Say whether a header Accept-Encoding allows gzip (RFC 9110, 12.5.3)."""
    found = False
    for part in accepted.lower().split(b","):
        coding, _, rest = part.partition(b";")
        coding, weight = coding.strip(), rest.strip()
        refused = weight.startswith(b"q=") and weight[2:].strip(b"0.") == b""
        if coding in (b"gzip", b"x-gzip"):
            return not refused
        found = found or (coding == b"*" and not refused)
    return found


def compressed(body: bytes) -> bytes | None:
    """Give a body in the format of gzip; None: it stays as it is."""
    if not LEAST_BYTES <= len(body) <= MOST_BYTES:
        return None
    packer = zlib.compressobj(LEVEL, zlib.DEFLATED, _GZIP)
    packed = packer.compress(body) + packer.flush()
    return packed if len(packed) < len(body) else None
