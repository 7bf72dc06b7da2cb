"""A HTTP request, its answer, and the maxima of the port; what the protocol and the application share.

An answer is given whole (`respond`), or its head alone and then its body as it is made (`stream`).

Guarantees: one answer per request, the first; none after the client left. Does not: read or write. Imports errors.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Protocol

import msgspec

from deathless.base.errors import DeathlessError, Internal, InvalidArgument, TooLarge
from deathless.base.limits import FIRST_REQUEST_MAX_S
from deathless.shell.web import remedies
from deathless.shell.web.compression import LEAST_BYTES, accepts_gzip, compressed
from deathless.shell.web.streamed_body import StreamedBody

_LOG: Final = logging.getLogger("deathless.http")
JSON: Final = b"application/json"
NO_CONTENT: Final = 204  # of an answer without a body
_PACKED: Final = ((b"content-encoding", b"gzip"), (b"vary", b"accept-encoding"))
_ABSOLUTE: Final = re.compile(rb"https?://[^/?#]*", re.IGNORECASE)
_VERSIONS: Final = ("1.0", "1.1", "2")  # what HTTP/1.1's parser calls "2.0" is none of them
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
    first_timeout_s: float = FIRST_REQUEST_MAX_S  # until the first byte of the first request
    head_timeout_s: float = 10.0  # from the first byte of a request to the end of its header
    body_timeout_s: float = 30.0  # from there to its last byte
    idle_timeout_s: float = 75.0  # between requests
    write_timeout_s: float = 30.0  # a client that does not read is cut off after this
    linger_s: float = 1.0  # how long a refused connection is still read
    sweep_s: float = 0.5  # how often the above are looked at


_LAST_CHUNK: Final = b"0\r\n\r\n"


class BodyTorn(Exception):
    """An answer can't be brought to its end: its client must see that."""


class Sender(Protocol):
    """The connection a request came on."""

    @property
    def date_line(self) -> bytes:
        """The header that every answer carries."""
        ...

    @property
    def transport(self) -> asyncio.BaseTransport | None:
        """Of the connection; None: it ended."""
        ...

    def answered(self) -> None:
        """A request of yours has its answer, or more of it."""
        ...


class Request:
    """One request; answer it with `respond`, once, now or later."""

    __slots__ = (
        "_connection",
        "_response",
        "_stream",
        "body",
        "close",
        "expects",
        "headers",
        "lines",
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
        self.close = False  # the connection ends behind the answer (HTTP/1.1)
        self.expects = False  # the client waits for 100 Continue
        self.lines: Sequence[tuple[bytes, bytes]] = ()  # headers of its answer, whatever that is
        self._connection: Sender | None = connection
        self._response: bytes | None = None
        self._stream: StreamedBody | None = None

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
        packed = self._compressed(body, headers)
        if packed is not None:
            body, headers = packed, (*headers, *_PACKED)
        self._give(connection, status, body, content_type, _with(headers, self.lines) if self.lines else headers)

    def stream(
        self, status: int, *, content_type: bytes, headers: Sequence[tuple[bytes, bytes]] = ()
    ) -> StreamedBody | None:
        """Begin an answer whose body is sent while it is made; None: it has one, or the client left.

        Not for HTTP/1.0, where the end of a body can't be told from a connection that was cut, nor for HEAD.
        """
        connection = self._connection
        if connection is None or self._response is not None:
            return None
        assert self.version != "1.0" and self.method != b"HEAD", "there is no way to say where its body ends"
        body = self._stream = StreamedBody(connection.answered)
        self._begin(connection, status, content_type, _with(headers, self.lines) if self.lines else headers, body)
        return body

    def _begin(
        self,
        connection: Sender,
        status: int,
        content_type: bytes,
        headers: Sequence[tuple[bytes, bytes]],
        body: StreamedBody,
    ) -> None:
        """Leave the head of the answer, in HTTP/1.1; the body is taken behind it."""
        lines = b"".join(b"%s: %s\r\n" % pair for pair in headers) + (b"connection: close\r\n" if self.close else b"")
        self._response = b"%scontent-type: %s\r\ntransfer-encoding: chunked\r\n%s%s\r\n" % (
            _STATUS_LINES[status],
            content_type,
            connection.date_line,
            lines,
        )
        connection.answered()

    def _give(
        self, connection: Sender, status: int, body: bytes, content_type: bytes, headers: Sequence[tuple[bytes, bytes]]
    ) -> None:
        """Leave the bytes of the answer, in HTTP/1.1, for the connection to take in its turn."""
        lines = b"".join(b"%s: %s\r\n" % pair for pair in headers)
        if self.close:
            lines += b"connection: close\r\n"
        elif self.version == "1.0":
            lines += b"connection: keep-alive\r\n"
        of_body = b"content-type: %s\r\ncontent-length: %d\r\n" % (content_type, len(body))
        self._response = b"%s%s%s%s\r\n%s" % (
            _STATUS_LINES[status],
            b"" if status == NO_CONTENT else of_body,  # RFC 9110, 8.6: such an answer has neither
            connection.date_line,
            lines,
            b"" if self.method == b"HEAD" else body,
        )
        connection.answered()

    def _compressed(self, body: bytes, headers: Sequence[tuple[bytes, bytes]]) -> bytes | None:
        """The body as it goes to a client that accepts gzip; None: as it is."""
        accepted = self.headers.get(b"accept-encoding")
        if accepted is None or len(body) < LEAST_BYTES or not accepts_gzip(accepted):
            return None
        return None if any(name == b"content-encoding" for name, _ in headers) else compressed(body)

    @property
    def answered(self) -> bool:
        """An answer was given, or the client left."""
        return self._response is not None or self._connection is None

    @property
    def transport(self) -> asyncio.BaseTransport | None:
        """Of the connection that it came on, whose certificate says who calls; None: the client left."""
        return self._connection.transport if self._connection is not None else None

    def taken(self) -> bytes | None:
        """The bytes of the answer, or of its head where the body is streamed; None: not given yet."""
        return self._response

    @property
    def streams(self) -> bool:
        """Its body is sent while it is made."""
        return self._stream is not None

    def pieces(self) -> tuple[bytes, bool]:
        """Take what goes out now, of an answer that was given, in HTTP/1.1; and whether that is all of it.

        Raises: BodyTorn.
        """
        body, head = self._stream, self._response
        assert head is not None, "there is an answer"
        if body is None:
            return head, True
        self._response = b""  # the head goes out once
        piece = body.take()
        out = head + (b"%x\r\n%s\r\n" % (len(piece), piece) if piece else b"")
        if not body.finished:
            return out, False
        if body.torn:
            raise BodyTorn
        return out + _LAST_CHUNK, True

    def forget(self) -> None:
        """The client left."""
        self._connection = None
        if self._stream is not None:
            self._stream.leave()


def _with(headers: Sequence[tuple[bytes, bytes]], more: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Join headers; both may say on which headers of a request the answer depends."""
    varies = [value for name, value in (*headers, *more) if name == b"vary"]
    joined = [pair for pair in (*headers, *more) if pair[0] != b"vary"]
    return [*joined, (b"vary", b", ".join(varies))] if varies else joined


class Application(Protocol):
    """What answers requests."""

    def handle(self, request: Request) -> None:
        """Take a whole request; answer it now or later."""
        ...


def head_refusal(request: Request, limits: HttpLimits, *, upgrade: bool) -> tuple[int, DeathlessError] | None:
    """Give the status and error for a head that is not good; None: it is, and the body will be read.

    Takes an absolute target's path for the target, and notes whether the client waits to be asked for the body.
    """
    headers = request.headers
    request.target = _origin_form(request.target)
    if request.version not in _VERSIONS:
        return 505, InvalidArgument(f"HTTP/{request.version} is not supported")
    if request.version == "1.1" and b"host" not in headers:
        return 400, InvalidArgument("header host is missing")
    if request.method == b"CONNECT" or upgrade:
        return 501, InvalidArgument("upgrades are not supported")
    if not request.target.startswith(b"/") or b"#" in request.target:
        return 400, InvalidArgument("the target must be a path")
    return _body_refusal(request, limits)


def _origin_form(target: bytes) -> bytes:
    absolute = _ABSOLUTE.match(target)
    if absolute is None:  # RFC 9112, 3.2.2: a server must accept the absolute form
        return target
    path = target[absolute.end() :]
    return path if path.startswith(b"/") else b"/" + path


def _body_refusal(request: Request, limits: HttpLimits) -> tuple[int, DeathlessError] | None:
    coding = request.headers.get(b"transfer-encoding")
    length = request.headers.get(b"content-length", b"0")
    expect = request.headers.get(b"expect") if request.version != "1.0" else None
    if coding is not None and request.version == "1.0":
        return 400, InvalidArgument("transfer-encoding in HTTP/1.0")
    if coding is not None and coding.strip().lower() != b"chunked":
        return 501, InvalidArgument("transfer-encoding must be chunked")
    if len(length) > 20 or int(length) > limits.body_bytes_max:
        return 413, TooLarge(f"body longer than {limits.body_bytes_max} bytes")
    if expect is not None and expect.strip().lower() != b"100-continue":
        return 417, InvalidArgument("expect must be 100-continue")
    request.expects = expect is not None and (coding is not None or int(length) > 0)
    return None


def problem(
    error: DeathlessError, *, field: str = "", kind: str = "", door: Mapping[str, str] = remedies.HTTP
) -> bytes:
    """Give the JSON body of an error: code, error, remedy, docs, and field and type where there is one."""
    what = remedies.remedy(error, door)
    told = {"code": error.code, "error": error.message, "remedy": what, "docs": f"docs/errors/{error.code}.md"}
    if field:
        told["field"] = field
    if kind:
        told["type"] = kind
    return msgspec.json.encode(told)


def unforeseen(request: Request, error: Exception) -> None:
    """Answer a request whose answering raised what nobody foresaw: 500, and its traceback once in our log."""
    target = request.target[:200].decode("utf-8", "replace")
    _LOG.error("a request could not be answered", exc_info=error, extra={"target": target})
    told = Internal(f"{type(error).__name__} while the request was answered", remedy="see the log of the replica")
    request.respond(told.http_status, problem(told))


class RequestTasks:
    """Requests that are answered by tasks: each is answered, whatever its task raises."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, request: Request, work: Coroutine[object, object, None]) -> None:
        """Have `work` answer a request."""
        task = asyncio.get_running_loop().create_task(self._run(request, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @staticmethod
    async def _run(request: Request, work: Coroutine[object, object, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001  its caller is answered, nobody else is touched
            unforeseen(request, error)

    async def close(self) -> None:
        """End those under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
