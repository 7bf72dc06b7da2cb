"""A HTTP request, its answer, and the maxima of the port; what the protocol and the application share.

Guarantees: one answer per request, the first; none after the client left. Does not: read or write. Imports errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Protocol

import msgspec

from deathless.base.errors import DeathlessError

JSON: Final = b"application/json"
_STATUS_LINES: Final = {s.value: b"HTTP/1.1 %d %s\r\n" % (s.value, s.phrase.encode()) for s in HTTPStatus}


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """Maxima and periods of the HTTP port; bytes and seconds."""

    target_bytes_max: int = 8192
    header_bytes_max: int = 16384  # all header lines of a request together
    headers_max: int = 100
    body_bytes_max: int = 1 << 20
    waiting_max: int = 64  # requests of one connection without an answer
    connections_max: int = 4096
    head_timeout_s: float = 10.0  # from the first byte of a request to the end of its header
    body_timeout_s: float = 30.0  # from there to its last byte
    idle_timeout_s: float = 75.0  # between requests
    write_timeout_s: float = 30.0  # a client that does not read is cut off after this
    linger_s: float = 1.0  # how long a refused connection is still read
    sweep_s: float = 0.5  # how often the above are looked at


class Sender(Protocol):
    """The connection a request came on."""

    @property
    def date_line(self) -> bytes:
        """The header that every answer carries."""
        ...

    def answered(self) -> None:
        """A request of yours has its answer."""
        ...


class Request:
    """One request; answer it with `respond`, once, now or later."""

    __slots__ = (
        "_connection",
        "_response",
        "body",
        "close",
        "expects",
        "headers",
        "method",
        "query",
        "target",
        "version",
    )

    def __init__(self, connection: Sender) -> None:
        self.method = b""
        self.target = b""  # path as sent, still percent-encoded
        self.query = b""  # behind the first '?', as sent
        self.version = "1.1"
        self.headers: dict[bytes, bytes] = {}  # names in lower case; repeated ones joined by ", "
        self.body = b""
        self.close = False  # the connection ends behind the answer
        self.expects = False  # the client waits for 100 Continue
        self._connection: Sender | None = connection
        self._response: bytes | None = None

    def respond(
        self,
        status: int,
        body: bytes,
        *,
        content_type: bytes = JSON,
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        """Answer. The caller made sure that header values hold no control characters."""
        connection = self._connection
        if connection is None or self._response is not None:
            return
        lines = b"".join(b"%s: %s\r\n" % pair for pair in headers)
        if self.close:
            lines += b"connection: close\r\n"
        elif self.version == "1.0":
            lines += b"connection: keep-alive\r\n"
        self._response = b"%scontent-type: %s\r\ncontent-length: %d\r\n%s%s\r\n%s" % (
            _STATUS_LINES[status],
            content_type,
            len(body),
            connection.date_line,
            lines,
            b"" if self.method == b"HEAD" else body,
        )
        connection.answered()

    @property
    def answered(self) -> bool:
        """An answer was given, or the client left."""
        return self._response is not None or self._connection is None

    def taken(self) -> bytes | None:
        """The bytes of the answer; None: not given yet."""
        return self._response

    def forget(self) -> None:
        """The client left."""
        self._connection = None


class Application(Protocol):
    """What answers requests."""

    def handle(self, request: Request) -> None:
        """Take a whole request; answer it now or later."""
        ...


def problem(error: DeathlessError, *, field: str = "", kind: str = "") -> bytes:
    """Give the JSON body of an error: code, error, remedy, docs, and field and type where there is one."""
    told = {"code": error.code, "error": error.message, "remedy": error.advice, "docs": f"docs/errors/{error.code}.md"}
    if field:
        told["field"] = field
    if kind:
        told["type"] = kind
    return msgspec.json.encode(told)
