"""Which pages of other origins may call from a browser (CORS, the Fetch standard). Off unless origins are named.

A browser asks first (a preflight) whether a page may send what it wants to send, and lets the page read an answer only
where that allows it. Callers that are no browsers are not concerned, and no caller is let in by this: who may call is
`spec.ingress.authentication`'s. Cookies mean nothing here, so credentials are never allowed.

Guarantees: an origin that is not named gets no header. Does not: refuse a call; browsers do.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

ANY: Final = "*"
Lines = tuple[tuple[bytes, bytes], ...]
_METHODS: Final = b"GET, HEAD, POST"
_HEADERS: Final = b"authorization, content-type, idempotency-key, prefer, traceparent, tracestate"
_SHOWN: Final = b"idempotency-key, location, retry-after, www-authenticate"
_REMEMBERED: Final = b"600"


class CrossOrigin:
    """What pages of other origins may do.

    Args:
        origins: as a browser names them, `https://app.example:8443`, or `*` for all; empty: none.
    """

    def __init__(self, origins: Collection[str] = ()) -> None:
        self._any = ANY in origins
        self._named = frozenset(each.encode() for each in origins if each != ANY)

    def headers(self, origin: bytes) -> Lines:
        """Give the headers of an answer to a page of this origin; empty `origin`: whoever asks is no page."""
        if self._any:
            return ((b"access-control-allow-origin", b"*"), (b"access-control-expose-headers", _SHOWN))
        if not self._named:
            return ()
        if origin not in self._named:
            return ((b"vary", b"origin"),)
        return (
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", _SHOWN),
            (b"vary", b"origin"),
        )

    def preflight(self, origin: bytes) -> Lines | None:
        """Give the headers that answer a preflight; None: this origin may not call."""
        if not self._any and origin not in self._named:
            return None
        allowed = ((b"access-control-allow-methods", _METHODS), (b"access-control-allow-headers", _HEADERS))
        return (*self.headers(origin), *allowed, (b"access-control-max-age", _REMEMBERED))
