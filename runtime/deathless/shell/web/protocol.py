"""HTTP/1.1 for the ingress: httptools parses, everything around it is here; and the port, for every version.

httptools says where a message begins and ends and refuses what is ambiguous (two lengths, length beside chunks, bare
line feeds, folded lines). It has no limits, no timeouts and no opinion on the rest, so these are ours:

- Limits (I10): request line, header bytes and count, body, requests waiting on one connection, connections.
- Time: for the head, for the body, idle between requests, for a client that does not read, all found by one sweep.
- Order: answers leave in the order of the requests (pipelining), whoever is ready first.
- A body that is streamed goes out in chunks, a piece at a time, while the client reads; one that is torn cuts the
  connection, so that it is never taken for a whole one.
- Reading stops while answers are not taken, or too many requests wait; what was read meanwhile is bounded.
- Expect: 100-continue is answered when the request's turn comes and its body will be read; others give 417.
- Transfer-Encoding must be `chunked` alone, and not in HTTP/1.0; a Host must come once in HTTP/1.1; upgrades and
  CONNECT give 501; other versions 505. After any refusal of the message itself the connection ends.
- The end of a refused connection is lingering: the answer is sent, our side closed, and what still comes is read and
  thrown away for a moment, so that the answer is not lost in a reset.
- A client that speaks HTTP/2, agreed on in TLS or shown by its first bytes, is given over where the port has it.

Guarantees: each request reaches the application once, whole, in order; `Request.respond` after the client left does
nothing. Does not: routes, TLS settings, what a body means. Imports nothing of ours but errors.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from email.utils import formatdate
from typing import Final, cast

import httptools

from deathless.base.errors import DeathlessError, InvalidArgument, Overloaded, TooLarge
from deathless.shell.net import tls as tls_files
from deathless.shell.net.listening import listen, stop_listening
from deathless.shell.net.silent_connections import SilentConnections
from deathless.shell.web.request import (
    Application,
    BodyTorn,
    HttpLimits,
    Request,
    head_refusal,
    problem,
    unforeseen,
)

_LOG: Final = logging.getLogger("deathless.http")
SLICE: Final = 16384  # bytes given to the parser at once; bounds what a pause can't stop
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # with which clients of HTTP/2 begin (RFC 9113, 3.4)


class OpenConnection(asyncio.Protocol):
    """What the port knows of a connection, whatever version it speaks."""

    def begin(self, transport: asyncio.Transport, data: bytes, *, full: bool) -> None:
        """Go on with a connection that another protocol began.

        Args:
            transport: of it.
            data: what has been read.
            full: there is no place for it: say so, and end.
        """

    @property
    @abstractmethod
    def idle_since(self) -> float | None:
        """Since when nothing of a request is under way here; None: something is."""

    @abstractmethod
    def sweep(self, now: float) -> None:
        """End what has taken too long."""

    def announce_stop(self) -> None:
        """The port will stop; requests are taken for a moment yet."""

    @abstractmethod
    def stop(self) -> None:
        """Read no further request; end when everything is answered."""

    @abstractmethod
    def abort(self) -> None:
        """End at once."""


class HttpConnection(OpenConnection):
    """One connection."""

    def __init__(self, server: HttpServer) -> None:
        self.server = server
        self._limits = server.limits
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[Request] = deque()  # requests without an answer that was sent, in order
        self._request: Request | None = None  # the one being read
        self._in_body = False
        self._parts: list[bytes] = []  # of its body
        self._size = 0  # bytes of its head, then of its body, so far
        self._headers = 0  # header lines of it
        self._silent = 0  # bytes fed since the parser last told anything. Invariant: bounded in a head
        self._refusal: tuple[int, DeathlessError] | None = None  # the message can't be read: answer and end
        self._held = b""  # read, not fed: reading is paused (at most one buffer of the transport), or version unknown
        self._paused = False  # reading is paused
        self._write_paused = False
        self._spoke = False  # a whole request came
        self._ended = False  # no further request is read
        self._half_closed = False  # the client has said everything
        self._since = server.now()  # when the present phase began
        self._write_since = 0.0

    @property
    def date_line(self) -> bytes:
        """The header that every answer carries."""
        return self.server.date_line

    @property
    def transport(self) -> asyncio.BaseTransport | None:
        """See Sender."""
        return self._transport

    # ---- transport -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop has classes of its own
        server = self.server
        server.make_room()
        full = len(server.connections) >= self._limits.connections_max
        secured = transport.get_extra_info("ssl_object")
        if server.http2 is not None and secured is not None and secured.selected_alpn_protocol() == "h2":
            self._give_over(server.http2(server), b"", full=full)
            return
        if full:
            self._begin_refused(503, Overloaded(f"{self._limits.connections_max} connections are open"))
        server.connections[self] = None
        server.silent.came(self, self.abort)
        tls_files.watch(self, transport)

    def _give_over(self, successor: OpenConnection, data: bytes, *, full: bool) -> None:
        """The client speaks HTTP/2."""
        transport, server = self._transport, self.server
        assert transport is not None, "it has just spoken"
        self._ended = True
        self._transport = None
        transport.set_protocol(successor)
        server.connections[successor] = None
        server.silent.came(successor, successor.abort)
        server.left(self)
        tls_files.watch(successor, transport)
        successor.begin(transport, data, full=full)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._transport = None
        self._ended = True
        self.server.left(self)
        for request in self._waiting:
            request.forget()
        self._waiting.clear()
        self._request = None

    def eof_received(self) -> bool:
        """A half-closed client still gets its answers; one that owes us the rest of a request does not."""
        self._ended = True
        transport = self._transport
        if self._waiting and self._request is None and transport is not None and transport.can_write_eof():
            self._waiting[-1].close = True
            self._half_closed = True
            return True
        return False

    def pause_writing(self) -> None:
        """See asyncio.Protocol: the client does not read, so neither do we."""
        self._write_paused = True
        self._write_since = self.server.now()
        self._adjust_reading()

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        self._write_paused = False
        self._adjust_reading()
        self.answered()  # a body that is streamed goes on

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self._ended:
            return
        if self._paused:
            self._held += data
            return
        if self._request is None and not self._waiting and not self._silent:
            if not self._held:
                self._since = self.server.now()
            if not self._spoke and self.server.http2 is not None:
                data = self._opening(data, self.server.http2)
        self._feed(data)

    def _opening(self, data: bytes, http2: Callable[[HttpServer], OpenConnection]) -> bytes:
        """Look at a connection's first bytes; gives what is HTTP/1.1. Over TLS the version is agreed on before."""
        data, self._held = self._held + data, b""
        transport = self._transport
        if data[0] != PREFACE[0] or transport is None or transport.get_extra_info("sslcontext") is not None:
            return data
        if data.startswith(PREFACE):
            self._give_over(http2(self.server), data, full=False)
        elif PREFACE.startswith(data):
            self._held = data
        else:
            return data
        return b""

    def _feed(self, data: bytes) -> None:
        """Give the parser what was read, piece by piece, as long as nothing says stop."""
        at = 0
        while at < len(data) and not self._ended:
            if self._paused:
                self._held = data[at:]
                return
            piece = data[at : at + SLICE] if len(data) > SLICE else data
            at += len(piece)
            self._silent += len(piece)
            try:
                self._parser.feed_data(piece)
            except httptools.HttpParserUpgrade:
                self._refuse(501, InvalidArgument("upgrades are not supported"))
            except httptools.HttpParserError as error:
                if not self._ended:
                    self._refuse(400, InvalidArgument(f"not a HTTP/1.1 request: {error}"))
            if self._silent > self._limits.header_bytes_max + SLICE:
                self._refuse(431, TooLarge(f"header longer than {self._limits.header_bytes_max} bytes"))
            if self._refusal is not None:
                self._begin_refused(*self._refusal)
                return
            self._adjust_reading()

    def _adjust_reading(self) -> None:
        """Pause or resume reading, whichever the waiting requests and the client's own reading call for."""
        transport = self._transport
        if transport is None or self._ended:
            return
        paused = self._write_paused or len(self._waiting) >= self._limits.waiting_max
        if paused and not self._paused:
            self._paused = True
            transport.pause_reading()
        elif not paused and self._paused:
            self._paused = False
            held, self._held = self._held, b""
            if held:
                self._feed(held)
            if not self._paused and self._transport is not None:
                transport.resume_reading()

    # ---- parser ----------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """httptools: a request begins."""
        if self._ended or self._refusal is not None:
            return
        self._silent = 0
        self._request = Request(self)
        self._in_body = False
        self._size = self._headers = 0
        self._since = self.server.now()

    def on_url(self, url: bytes) -> None:
        """httptools: a piece of the target."""
        self._silent = 0
        request = self._request
        if request is None:
            return
        request.target += url
        if len(request.target) > self._limits.target_bytes_max:
            self._refuse(414, TooLarge(f"target longer than {self._limits.target_bytes_max} bytes"))

    def on_header(self, name: bytes, value: bytes) -> None:
        """httptools: a whole header line, or a trailer."""
        self._silent = 0
        request = self._request
        if request is None:
            return
        self._size += len(name) + len(value) + 4
        self._headers += 1
        if self._in_body:
            if self._headers > self._limits.headers_max:
                self._refuse(431, TooLarge(f"more than {self._limits.headers_max} header lines"))
            return
        if self._size > self._limits.header_bytes_max or self._headers > self._limits.headers_max:
            self._refuse(431, TooLarge(f"header longer than {self._limits.header_bytes_max} bytes"))
            return
        name = name.lower()
        known = request.headers.get(name)
        if known is None:
            request.headers[name] = value
        elif name in (b"host", b"content-type", b"authorization", b"idempotency-key"):
            self._refuse(400, InvalidArgument(f"header {name.decode()} occurs twice"))
        else:
            request.headers[name] = known + b", " + value

    def on_headers_complete(self) -> None:
        """httptools: the head is whole; decide whether the body will be read."""
        self._silent = 0
        request = self._request
        if request is None or self._refusal is not None:
            return
        parser = self._parser
        request.method = parser.get_method()
        request.version = parser.get_http_version()
        request.close = not parser.should_keep_alive()
        refusal = head_refusal(request, self._limits, upgrade=parser.should_upgrade())
        if refusal is not None:
            self._refuse(*refusal)
            return
        request.target, _, request.query = request.target.partition(b"?")
        self._in_body = True
        self._size = 0
        self._parts = []
        self._since = self.server.now()
        if request.expects and not self._waiting:
            self._continue(request)

    def on_body(self, body: bytes) -> None:
        """httptools: a piece of the body."""
        self._silent = 0
        request = self._request
        if request is None or self._refusal is not None:
            return
        request.expects = False  # it did not wait
        self._size += len(body)
        if self._size > self._limits.body_bytes_max:
            self._refuse(413, TooLarge(f"body longer than {self._limits.body_bytes_max} bytes"))
            return
        self._parts.append(body)

    def on_message_complete(self) -> None:
        """httptools: the request is whole."""
        self._silent = 0
        request = self._request
        if request is None or self._refusal is not None or self._ended:
            return
        if not self._spoke:
            self._spoke = True
            self.server.silent.spoke(self)
        self._request = None
        self._in_body = False
        parts = self._parts
        request.body = parts[0] if len(parts) == 1 else b"".join(parts)
        self._parts = []
        if self.server.stopping:
            request.close = True
        if request.close:
            self._ended = True
        self._waiting.append(request)
        try:
            self.server.application.handle(request)
        except Exception as error:  # noqa: BLE001  one bad request never touches another
            unforeseen(request, error)

    # ---- answers ---------------------------------------------------------------------------------------------

    def _continue(self, request: Request) -> None:
        request.expects = False
        if self._transport is not None:
            self._transport.write(_CONTINUE)

    def answered(self) -> None:
        """A request has its answer, or more of it: send what is in turn."""
        transport = self._transport
        waiting = self._waiting
        if transport is None or not waiting or waiting[0].taken() is None:
            return
        ready: list[bytes] = []
        close = False
        try:
            while waiting and waiting[0].taken() is not None and not (waiting[0].streams and self._write_paused):
                piece, whole = waiting[0].pieces()
                ready.append(piece)
                if not whole:
                    break
                close = waiting.popleft().close
        except BodyTorn:
            transport.abort()
            return
        if not ready:
            return
        try:
            transport.write(ready[0] if len(ready) == 1 else b"".join(ready))
        except Exception:  # noqa: BLE001  uvloop raises where its TLS has ended already
            _LOG.debug("can't write a response", exc_info=True)
            transport.abort()
            return
        if close and not waiting:
            self._linger()
            return
        if not waiting:
            if self._request is None:
                self._since = self.server.now()
            elif self._request.expects:
                self._continue(self._request)
        if self._paused:
            self._adjust_reading()

    def _refuse(self, status: int, error: DeathlessError) -> None:
        """Remember the first refusal of the message being read; the parser can't be stopped within a piece."""
        if self._refusal is None:
            self._refusal = (status, error)
            self._request = None

    def _begin_refused(self, status: int, error: DeathlessError) -> None:
        """Answer a message that can't be read, in its turn, and end the connection."""
        self._ended = True
        self._request = None
        request = Request(self)
        request.close = True
        self._waiting.append(request)
        self.server.refused(status)
        request.respond(status, problem(error, door={}))

    def _linger(self) -> None:
        """Everything is answered and nothing more is read: end, but let the client read first."""
        transport = self._transport
        if transport is None:
            return
        self._ended = True
        self._since = self.server.now()
        if self._paused:
            self._paused = False
            transport.resume_reading()
        if transport.can_write_eof() and not self._half_closed:
            try:
                transport.write_eof()
            except OSError:  # the client had left: our answer was met by a reset that nobody has read yet
                transport.abort()
        else:
            transport.close()

    # ---- time ------------------------------------------------------------------------------------------------

    def sweep(self, now: float) -> None:
        """End what has taken too long."""
        transport, limits = self._transport, self._limits
        if transport is None:
            return
        age = now - self._since
        if self._write_paused and now - self._write_since > limits.write_timeout_s:
            transport.abort()
        elif self._ended:
            if not self._waiting and age > limits.linger_s:
                transport.abort()
        elif self._request is not None:
            limit = limits.body_timeout_s if self._in_body else limits.head_timeout_s
            if age > limit and not (self._request.expects and self._waiting):
                self._begin_refused(408, InvalidArgument(f"the request was not complete within {limit:g} s"))
        elif not self._waiting and age > self._idle_limit_s:
            transport.close()

    @property
    def _idle_limit_s(self) -> float:
        limits = self._limits
        if self._silent or self._held:
            return limits.head_timeout_s
        return limits.idle_timeout_s if self._spoke else limits.first_timeout_s

    @property
    def idle_since(self) -> float | None:
        """Since when nothing of a request is under way here; None: something is."""
        return self._since if self._request is None and not self._waiting else None

    def stop(self) -> None:
        """Read no further request; end when everything is answered."""
        if self._waiting:
            self._waiting[-1].close = True
        elif self._request is None and self._transport is not None:
            self._ended = True
            self._transport.close()

    def abort(self) -> None:
        """End at once."""
        if self._transport is not None:
            self._transport.abort()


class HttpServer:
    """A listening HTTP port.

    Args:
        application: answers the requests.
        limits: of this port.
        now: gives seconds, monotonic.
        wall: gives seconds since 1970, for the date header.
        refused: told the status of each message that could not be read.
        http2: makes what goes on with a client that speaks HTTP/2; None: this port does not speak it.
    """

    def __init__(
        self,
        application: Application,
        limits: HttpLimits,
        *,
        now: Callable[[], float],
        wall: Callable[[], float],
        refused: Callable[[int], None] = lambda _: None,
        http2: Callable[[HttpServer], OpenConnection] | None = None,
    ) -> None:
        self.application = application
        self.limits = limits
        self.now = now
        self.refused = refused
        self.http2 = http2
        self.connections: dict[OpenConnection, None] = {}  # in the order they came
        self.silent = SilentConnections(limits.connections_max)  # those without a whole request so far
        self.stopping = False
        self.date_line = b""
        self._wall = wall
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()  # set when the last connection ends while stopping
        self._set_date()

    def make(self) -> HttpConnection:
        """Give the protocol of one connection."""
        return HttpConnection(self)

    async def start(self, address: str, tls: ssl.SSLContext | None = None) -> str:
        """Listen; gives the address with its real port. Raises: PortTaken, InvalidConfig."""
        self._server, bound = await listen(self.make, address, tls)
        self._tick()
        return bound

    def make_room(self) -> None:
        """End the connection that has been idle longest, if all places are taken."""
        if len(self.connections) < self.limits.connections_max:
            return
        idle = [
            (since, number) for number, each in enumerate(self.connections) if (since := each.idle_since) is not None
        ]
        if idle:
            longest = list(self.connections)[min(idle)[1]]
            longest.abort()
            self.left(longest)

    def left(self, connection: OpenConnection) -> None:
        """A connection ended."""
        self.silent.spoke(connection)
        self.connections.pop(connection, None)
        if self.stopping and not self.connections:
            self._empty.set()

    def _set_date(self) -> None:
        self.date_line = b"date: %s\r\n" % formatdate(self._wall(), usegmt=True).encode()

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self.limits.sweep_s, self._tick)  # first: it must not end
        self.sweep()

    def sweep(self) -> None:
        """Look at the clock: renew the date, end what has taken too long."""
        self._set_date()
        now = self.now()
        for connection in list(self.connections):
            try:
                connection.sweep(now)
            except Exception:  # noqa: BLE001  nobody else's time is over later for it
                _LOG.exception("could not check a connection")
                connection.abort()

    async def stop(self, grace_s: float, linger_s: float = 0.0) -> None:
        """Stop listening; answer what was read, for at most `grace_s` seconds.

        Before that, connections that are open may send one more request for `linger_s` seconds; its answer closes
        them. A caller whose request crosses the end of an idle connection can't know whether it was read.
        """
        self.stopping = True
        if self._server is not None:
            await stop_listening(self._server)
        for connection in list(self.connections):
            connection.announce_stop()
        if self.connections and linger_s:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), linger_s)
        for connection in list(self.connections):
            connection.stop()
        if self.connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), grace_s)
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self.connections):
            connection.abort()
