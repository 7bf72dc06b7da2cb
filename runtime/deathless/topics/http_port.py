"""Requests to the HTTP ports of a service's replicas, as a program makes them that may block.

Any replica answers, so the next one is asked where one does not; each after the other, and then again after a pause
that grows. A replica whose machine hangs takes connections and never answers, so each is waited for briefly at first,
and twice as long with each further try: what is slow is answered in the end. The standard library's client does it, so
that whoever reads a topic needs pyarrow and nothing else.

Guarantees: what is asked is asked again until it is answered or `patience_s` is over; an answer with an error is raised
as the error that it names, with its code. Does not: ask again for the rest of an answer (`remote` does). Imports base,
codec.untrusted and the shell's small files.
"""

from __future__ import annotations

import http.client
import random
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from deathless.base import errors
from deathless.base.backoff import next_pause, pause_after
from deathless.base.errors import (
    DeathlessError,
    Internal,
    InvalidArgument,
    InvalidConfig,
    PeerUnreachable,
    RetryLater,
)
from deathless.codec.untrusted import read_json
from deathless.shell.disk.small_files import read_small

T = TypeVar("T")
FIRST_S: Final = 2.0  # what an answer is waited for at first
AGAIN_MIN_S: Final = 0.05
AGAIN_MAX_S: Final = 2.0
ERROR_BYTES_MAX: Final = 1 << 16  # of an answer with an error
BODY_BYTES_MAX: Final = 16 << 20  # of one that is read at once
REST_BYTES_MAX: Final = 1024  # behind the last record of a stream


class _Problem(msgspec.Struct):
    """An answer with an error."""

    code: str = ""
    error: str = ""
    remedy: str = ""


class HttpPort:
    """The HTTP ports of a service.

    Args:
        urls: of one or several replicas: `https://airports.example.org`, with a path before ours if there is one.
        token_file: holds the token to show; empty: none is shown. It is read at each request, so it may change.
        ca_file: authorities that are trusted; empty: the machine's.
        certificate_file: a certificate to show, with its key behind it or in `key_file`; empty: none.
        key_file: its key.
        timeout_s: without a byte of an answer after this the next replica is asked, at the latest.
        patience_s: so long a request is repeated.
        first_s: the same for the first try of a request; each further one is given twice as long.
        sleep: pauses for so many seconds.
        clock: gives seconds, monotonic.

    Raises: InvalidConfig when a URL is none, or a file can't be read.
    """

    _idle: http.client.HTTPConnection | None = None  # to the one that is asked next

    def __init__(  # noqa: PLR0913  each is a setting of its own
        self,
        urls: Sequence[str],
        *,
        token_file: str = "",
        ca_file: str = "",
        certificate_file: str = "",
        key_file: str = "",
        timeout_s: float = 30.0,
        patience_s: float = 60.0,
        first_s: float = FIRST_S,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._urls = [_checked(url) for url in urls]
        if not self._urls:
            raise InvalidConfig("no URL of a replica is given")
        self._token_file = token_file
        self._tls = (
            _context(ca_file, certificate_file, key_file)
            if any(url.startswith("https:") for url in self._urls)
            else None
        )
        self._timeout_s = timeout_s
        self._patience_s = patience_s
        self._first_s = first_s
        self._sleep = sleep
        self._clock = clock
        self._at = 0  # whom to ask, of `urls`

    def __del__(self) -> None:
        """Nobody else knows the connection."""
        self.close()

    def close(self) -> None:
        """End the connection that is kept; the next request begins another one."""
        if self._idle is not None:
            self._idle.close()
            self._idle = None

    def ask(self, method: str, path: Sequence[str], query: Mapping[str, object], *, wait_s: float = 0.0) -> bytes:
        """Give the body of an answer.

        Args:
            method: `GET`, or one that may be repeated.
            path: its parts.
            query: what stands behind it.
            wait_s: the answer may take so much longer.

        Raises: the error that the answer names; PeerUnreachable; InvalidConfig.
        """

        def work(answer_s: float) -> bytes:
            answer, connection = self._begin(method, path, query, answer_s, wait_s)
            whole = False
            try:
                body = answer.read(BODY_BYTES_MAX)
                whole = True
            finally:
                self._done(answer, connection, whole=whole)
            return body

        return self._until_answered(work)

    @contextmanager
    def open(self, path: Sequence[str], query: Mapping[str, object]) -> Iterator[http.client.HTTPResponse]:
        """Give an answer whose body is read as it comes. Raises: as `ask`; and what reading raises."""
        answer, connection = self._until_answered(lambda answer_s: self._begin("GET", path, query, answer_s, 0.0))
        whole = False
        try:
            yield answer
            answer.read(REST_BYTES_MAX)  # the end of the stream, behind the last rows
            whole = True
        finally:
            self._done(answer, connection, whole=whole)

    def _done(
        self, answer: http.client.HTTPResponse, connection: http.client.HTTPConnection, *, whole: bool = True
    ) -> None:
        """Keep a connection whose answer came to its end, unless another one was meanwhile."""
        if whole and self._idle is None and answer.isclosed() and not answer.will_close:
            self._idle = connection
        else:
            answer.close()
            connection.close()

    def pause(self, failures: int) -> None:
        """Pause after so many failures in a row, and ask the next replica after it."""
        self._next()
        pause_s = 0.0
        for _ in range(failures):
            pause_s = next_pause(pause_s, first_s=AGAIN_MIN_S, most_s=AGAIN_MAX_S)
        self._sleep(pause_s)

    def _until_answered(self, work: Callable[[float], T]) -> T:
        began, pause_s, asked = self._clock(), 0.0, 0
        while True:
            reused = self._idle is not None
            try:
                return work(pause_after(asked, first_s=self._first_s, most_s=self._timeout_s))
            except RetryLater as error:
                last: RetryLater = error
            except (OSError, http.client.HTTPException) as error:
                if reused:  # it had ended while nobody looked
                    continue
                what = str(error) or type(error).__name__
                last = PeerUnreachable(f"{self._urls[self._at]}: {what}", remedy="check URL, TLS and replicas")
            self._next()
            asked += 1
            if asked % len(self._urls) and not last.retry_after_s:
                continue
            pause_s = next_pause(pause_s, first_s=AGAIN_MIN_S, most_s=AGAIN_MAX_S)
            if self._clock() - began + pause_s > self._patience_s:
                raise last
            self._sleep(max(last.retry_after_s, pause_s * (0.5 + random.random() / 2)))  # noqa: S311  no secret

    def _next(self) -> None:
        self._at = (self._at + 1) % len(self._urls)
        self.close()

    def _begin(
        self, method: str, path: Sequence[str], query: Mapping[str, object], answer_s: float, wait_s: float
    ) -> tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
        """Send a request, and read the head of its answer.

        Args:
            method: of it.
            path: its parts.
            query: what stands behind it.
            answer_s: how long it is waited for, and before that for the connection.
            wait_s: the answer may take so much longer.

        Raises: the error that it names; OSError; HTTPException.
        """
        url = urlsplit(self._urls[self._at])
        connection, self._idle = self._idle or self._connect(), None
        answer = None
        connection.timeout = answer_s
        target = url.path.rstrip("/") + "".join(f"/{quote(part, safe='')}" for part in path)
        try:
            if connection.sock is None:
                connection.connect()
            connected = connection.sock
            assert connected is not None, "it is connected"
            connected.settimeout(answer_s + wait_s)
            connection.request(method, f"{target}?{urlencode(query)}" if query else target, headers=self._headers())
            answer = connection.getresponse()
            if connected.fileno() >= 0:  # it is closed with an answer that has no more to come
                connected.settimeout(self._timeout_s + wait_s)
            if answer.status == http.client.OK:
                return answer, connection
            raw, after = answer.read(ERROR_BYTES_MAX), answer.getheader("retry-after", "")
        except BaseException:
            connection.close()
            if answer is not None:
                answer.close()
            raise
        self._done(answer, connection)
        # No variable holds it: it would hold us, in a circle that is collected in any order, the socket first.
        raise _error(f"HTTP {answer.status} {answer.reason}", answer.status, raw, after)

    def _connect(self) -> http.client.HTTPConnection:
        url = urlsplit(self._urls[self._at])
        host = url.hostname or ""
        if url.scheme == "https":
            return http.client.HTTPSConnection(host, url.port, timeout=self._timeout_s, context=self._tls)
        return http.client.HTTPConnection(host, url.port, timeout=self._timeout_s)

    def _headers(self) -> dict[str, str]:
        if not self._token_file:
            return {}
        try:
            token = read_small(self._token_file).strip().decode("ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidConfig(f"{self._token_file} holds no token: {error}") from None
        return {"Authorization": f"Bearer {token}"}


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port  # raises where it is no number
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and port != 0 and not parts.query
    except ValueError:
        good = False
    if not good:
        raise InvalidConfig(f"{url!r} is no URL of a replica", remedy="http://HOST:PORT or https://HOST:PORT")
    return url


def _context(ca_file: str, certificate_file: str, key_file: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
        if certificate_file:
            context.load_cert_chain(certificate_file, key_file or None)
    except (OSError, ValueError) as error:
        raise InvalidConfig(f"{ca_file or certificate_file}: {error}") from None
    return context


def _error(what: str, status: int, raw: bytes, after: str) -> DeathlessError:
    """Give the error that an answer names; one that names none is somebody's between the service and us.

    Args:
        what: the answer in words.
        status: of it.
        raw: its body.
        after: its header Retry-After; empty: it has none.
    """
    try:
        told = read_json(raw, _Problem)
    except msgspec.MsgspecError:
        told = _Problem()
    if not told.code:
        return PeerUnreachable(what) if status >= http.client.INTERNAL_SERVER_ERROR else InvalidArgument(what)
    kind = _CODED.get(told.code)
    if kind is None:
        return Internal(f"{told.code} {told.error}", remedy="the service is newer than this reader")
    error = kind(told.error)
    error.advice = told.remedy or error.advice
    if isinstance(error, RetryLater) and after.isdecimal():
        error.retry_after_s = float(after)
    return error


_CODED: Final = {
    each.code: each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, DeathlessError) and "code" in vars(each)
}
