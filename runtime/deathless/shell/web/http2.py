"""HTTP/2 for the ingress: h2 keeps the protocol's state, everything around it is here (RFC 9113).

A connection comes here from `HttpConnection`, when TLS agreed on `h2` or its first bytes are HTTP/2's preface. What its
streams ask for reaches the application as the same `Request` that HTTP/1.1 makes, and each is answered when its answer
is there: nobody waits for another stream's.

- Limits (I10): those of HTTP/1.1, for each stream; `waiting_max` streams at once, and what only makes work (`Frames`).
- Time: for a frame, a head, a body, idle, for a client that takes nothing, of one answer or at all; found by the sweep.
- A body that is streamed is taken a piece at a time, as far as the client's windows reach; one that is torn ends its
  stream by RST_STREAM, so that it is never taken for a whole one.
- Flow control: a body's window opens again as it is read, since no body is larger than its maximum; an answer goes
  out as far as the client's windows reach, a frame of each stream at a time. Nothing is read while nothing is taken.
- What is wrong with one request is answered 4xx, and RST_STREAM ends its stream if it is still sent a moment later. A
  stream too many is REFUSED_STREAM: nothing was done. What is wrong with the connection ends it with GOAWAY.
- A stop is told by GOAWAY at once, and again with the last stream that is answered, as HTTP/1.1 tells it by
  `connection: close`. The end of a connection is lingering, as there.

Guarantees: as HTTP/1.1's, but for the order; no frame of one stream touches another. Does not: push, or weigh streams
(priorities are read and count for nothing). Imports h2, and of ours what HTTP/1.1 does.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings

from deathless.base.errors import DeathlessError, InvalidArgument, TooLarge
from deathless.shell.web.http2_frames import FRAME_BYTES_MAX, Frames, Refused
from deathless.shell.web.http2_head import LENGTH, Heads, read_head
from deathless.shell.web.protocol import HttpServer, OpenConnection
from deathless.shell.web.request import NO_CONTENT, Request, Sender, problem, unforeseen
from deathless.shell.web.streamed_body import StreamedBody

_LOG: Final = logging.getLogger("deathless.http")
logging.getLogger("hpack").setLevel(logging.INFO)  # at DEBUG it would log each header line, and tokens with them
ALPN: Final = ("h2", "http/1.1")  # what a port that speaks both offers in TLS
STREAM_WINDOW: Final = 1 << 18  # bytes of a body that may come before we have read any
CONNECTION_WINDOW: Final = 1 << 20
_WINDOW_AT_FIRST: Final = 65535  # RFC 9113, 6.9.2
_STREAM_MAX: Final = (1 << 31) - 1
_TABLE_BYTES_MAX: Final = 4096  # of header lines that we remember for a client, however many it offers to
_PROGRESS_BYTES: Final = 1024  # of an answer, that a slow client must take in the time for it
_CONFIG: Final = H2Configuration(
    client_side=False,
    validate_outbound_headers=False,
    normalize_outbound_headers=False,
    validate_inbound_headers=False,  # see http2_head
    normalize_inbound_headers=False,
)


_OF_BODY: Final = (b"content-type", b"content-length")


class _Library(H2Connection):
    """h2, but it remembers fewer streams that have ended: it would keep 65,536 of each connection."""

    MAX_CLOSED_STREAMS = 1024


class StreamRequest(Request):
    """A request that came on a stream."""

    __slots__ = ("_send",)

    def __init__(
        self, connection: Sender, send: Callable[[list[tuple[bytes, bytes]], bytes, StreamedBody | None], None]
    ) -> None:
        super().__init__(connection)
        self._send = send

    def _begin(
        self,
        connection: Sender,
        status: int,
        content_type: bytes,
        headers: Sequence[tuple[bytes, bytes]],
        body: StreamedBody,
    ) -> None:
        """Give head and body to the connection, which takes the body as it can."""
        self._response = b""  # one answer
        self._send(_lines(connection, status, content_type, headers), b"", body)

    def _give(
        self, connection: Sender, status: int, body: bytes, content_type: bytes, headers: Sequence[tuple[bytes, bytes]]
    ) -> None:
        """Give the answer to the connection, which sends it as it can."""
        self._response = b""  # one answer
        lines = _lines(connection, status, content_type, ((b"content-length", b"%d" % len(body)), *headers))
        if status == NO_CONTENT:
            lines = [line for line in lines if line[0] not in _OF_BODY]
        self._send(lines, b"" if self.method == b"HEAD" else body, None)


def _lines(
    connection: Sender, status: int, content_type: bytes, headers: Sequence[tuple[bytes, bytes]]
) -> list[tuple[bytes, bytes]]:
    """Give the header lines of an answer."""
    return [
        (b":status", b"%d" % status),
        (b"content-type", content_type),
        (b"date", connection.date_line[len(b"date: ") : -2]),
        *((name.lower(), value) for name, value in headers),
    ]


@dataclass(slots=True, eq=False)
class _Stream:
    """One request and its answer, as far as they are."""

    number: int
    request: StreamRequest
    since: float  # when its head came; with an answer: when the client last took something of that, or all
    ended: bool  # the client sends no more on it
    taken: bool = False  # nothing more of the request is read: it is whole, or refused
    refused: bool = False  # by us, unread
    over: bool = False  # the whole answer was sent, and the client sends on
    parts: list[bytes] = field(default_factory=list)  # of its body
    size: int = 0  # bytes of them
    rest: memoryview = memoryview(b"")  # noqa: RUF009  of the answer's body, without room yet; never written to
    moved: int = 0  # bytes of it that were taken since `since`
    body: StreamedBody | None = None  # that the rest comes from, if it is made while it is sent

    @property
    def wants(self) -> bool:
        """Is there something to send: bytes, or the end of what is streamed?"""
        return bool(self.rest) or (self.body is not None and self.body.ready and not self.over)


class Http2Connection(OpenConnection):
    """One connection.

    Args:
        server: whose it is.
    """

    def __init__(self, server: HttpServer) -> None:
        limits = server.limits
        now = server.now()
        self.server = server
        self._transport: asyncio.Transport | None = None
        self._library = _Library(_CONFIG)
        self._frames = Frames(4 * limits.header_bytes_max, now)
        self._streams: dict[int, _Stream] = {}
        self._last = 0  # the highest stream that was taken
        self._reading = False  # what is sent is written when the piece has been read
        self._closing = False  # no more streams are taken; ends when all are answered
        self._half_closed = False  # the client has said everything
        self._ended = False  # GOAWAY was sent for good: nothing is read or sent any more
        self._spoke = False  # a whole request came
        self._since = now  # when the last stream ended; once `_ended`: when that was
        self._write_since: float | None = None  # since when the client takes nothing; None: it does

    @property
    def date_line(self) -> bytes:
        """See Sender."""
        return self.server.date_line

    @property
    def transport(self) -> asyncio.BaseTransport | None:
        """See Sender."""
        return self._transport

    def answered(self) -> None:
        """See Sender; each answer was sent when it came, but what is streamed."""
        if not self._reading:
            self._pump()
            self._end_if_done()

    # ---- transport -------------------------------------------------------------------------------------------

    def begin(self, transport: asyncio.Transport, data: bytes, *, full: bool) -> None:
        """See OpenConnection."""
        self._transport = transport
        library, limits = self._library, self.server.limits
        told = {
            SettingCodes.MAX_CONCURRENT_STREAMS: limits.waiting_max,
            SettingCodes.MAX_HEADER_LIST_SIZE: limits.header_bytes_max,
            SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
            SettingCodes.MAX_FRAME_SIZE: FRAME_BYTES_MAX,
        }
        library.local_settings = Settings(client=False, initial_values=told)
        library.initiate_connection()
        # h2 ends the connection for one stream too many, and for one head too long: it is told of larger maxima, and
        # what is above ours is refused by stream. Who has not read our settings yet can't know them either.
        most = told | {SettingCodes.MAX_CONCURRENT_STREAMS: _STREAM_MAX}
        library.local_settings = Settings(client=False, initial_values=most)
        library.decoder = Heads(8 * (limits.header_bytes_max + limits.target_bytes_max))
        library.increment_flow_control_window(CONNECTION_WINDOW - _WINDOW_AT_FIRST)
        self._flush()
        if full:
            self._end(ErrorCodes.ENHANCE_YOUR_CALM)
        elif self.server.stopping:
            self.announce_stop()
        self.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._transport = None
        self._ended = True
        self._forget()
        self.server.left(self)

    def eof_received(self) -> bool:
        """A half-closed client still gets its answers; requests of which the rest is owed do not."""
        self._closing = self._half_closed = True
        for stream in [each for each in self._streams.values() if not each.taken]:
            stream.request.forget()
            del self._streams[stream.number]
        return bool(self._streams) and self._transport is not None and self._transport.can_write_eof()

    def pause_writing(self) -> None:
        """See asyncio.Protocol: the client does not read, so neither do we."""
        self._write_since = self.server.now()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        self._write_since = None
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        self._pump()
        self._end_if_done()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._reading = True
        try:
            self._take(data)
        finally:
            self._reading = False
        self._pump()
        self._end_if_done()

    def _take(self, data: bytes) -> None:
        """Have h2 read what came, frame by frame: what it tells of one must be done before it knows the next."""
        try:
            for piece in self._frames.take(data, self.server.now()):
                if self._ended:
                    return
                for event in self._library.receive_data(piece):
                    self._on(event)
        except Refused as refused:
            _LOG.debug("HTTP/2 connection ended", extra={"why": str(refused)})
            self._end(refused.code)
        except ProtocolError as error:
            _LOG.debug("HTTP/2 connection ended", extra={"why": str(error)})
            self._end(None)
        except Exception:  # noqa: BLE001  whatever h2 meets in bytes of strangers costs their connection alone
            _LOG.warning("HTTP/2 connection ended", exc_info=True)
            self._end(ErrorCodes.INTERNAL_ERROR)

    # ---- requests --------------------------------------------------------------------------------------------

    def _on(self, event: Event) -> None:
        """Raises: Refused."""
        match event:
            case RequestReceived(stream_id=int(number)):
                self._on_head(number, event)
            case DataReceived(stream_id=int(number)):
                self._on_data(number, event)
            case TrailersReceived(stream_id=int(number)):
                self._on_end(number)
            case StreamReset(stream_id=int(number)):
                self._on_reset(number)
            case RemoteSettingsChanged():
                encoder = self._library.encoder
                encoder.header_table_size = min(encoder.header_table_size, _TABLE_BYTES_MAX)
            case _:
                pass  # windows are looked at when the piece was read; h2 has answered pings and settings

    def _on_head(self, number: int, event: RequestReceived) -> None:
        limits = self.server.limits
        if self._closing or self._frames.goodbye or len(self._streams) >= limits.waiting_max:
            self._library.reset_stream(number, ErrorCodes.REFUSED_STREAM)
            self._frames.reset()
            return
        self._last = max(self._last, number)
        request = StreamRequest(self, partial(self._answer, number))
        stream = _Stream(number, request, self.server.now(), ended=event.stream_ended is not None)
        self._streams[number] = stream
        refusal = read_head(request, event.headers or (), limits)
        if refusal is not None:
            self._refuse(stream, *refusal)
        elif stream.ended:
            self._whole(stream)
        elif b"expect" in request.headers:
            self._library.send_headers(number, [(b":status", b"100")])

    def _on_data(self, number: int, event: DataReceived) -> None:
        data, stream = event.data or b"", self._streams.get(number)
        self._library.acknowledge_received_data(event.flow_controlled_length or 0, number)
        self._frames.moved(len(data))
        if stream is None:
            return
        stream.ended = event.stream_ended is not None
        if stream.taken:
            self._let_go(stream)
            return
        stream.size += len(data)
        if stream.size > self.server.limits.body_bytes_max:
            self._refuse(stream, 413, TooLarge(f"body longer than {self.server.limits.body_bytes_max} bytes"))
            return
        stream.parts.append(data)
        if stream.ended:
            self._whole(stream)

    def _on_end(self, number: int) -> None:
        """Trailers came, which count for nothing."""
        stream = self._streams.get(number)
        if stream is not None:
            stream.ended = True
            if stream.taken:
                self._let_go(stream)
            else:
                self._whole(stream)

    def _on_reset(self, number: int) -> None:
        """The client wants no answer any more, or h2 gave its stream up."""
        stream = self._streams.pop(number, None)
        if stream is not None:
            stream.request.forget()
            self._went()
            self._frames.reset()

    def _whole(self, stream: _Stream) -> None:
        """A request is whole: have it answered."""
        request = stream.request
        length = request.headers.get(LENGTH)
        if length is not None and int(length) != stream.size:  # RFC 9113, 8.1.1
            self._refuse(stream, 400, InvalidArgument("the body is not as long as content-length says"))
            return
        stream.taken = True
        request.body = b"".join(stream.parts)
        stream.parts = []
        if not self._spoke:
            self._spoke = True
            self.server.silent.spoke(self)
        try:
            self.server.application.handle(request)
        except Exception as error:  # noqa: BLE001  one bad request never touches another
            unforeseen(request, error)

    def _refuse(self, stream: _Stream, status: int, error: DeathlessError) -> None:
        """Answer a request that can't be read. Raises: Refused."""
        stream.taken = stream.refused = True
        stream.parts = []
        self.server.refused(status)
        stream.request.respond(status, problem(error, door={}))
        self._frames.reset()

    # ---- answers ---------------------------------------------------------------------------------------------

    def _answer(
        self, number: int, lines: list[tuple[bytes, bytes]], body: bytes, streamed: StreamedBody | None
    ) -> None:
        """Send the answer to the request of a stream, as far as there is room."""
        stream = self._streams.get(number)
        if stream is None or self._ended:
            if streamed is not None:
                streamed.leave()
            return
        self._library.send_headers(number, lines, end_stream=not body and streamed is None)
        stream.since = self.server.now()
        stream.rest, stream.body = memoryview(body), streamed
        if not body and streamed is None:
            self._done(stream)
        while stream.rest and self._advance(stream):
            pass
        if not self._reading:
            self._flush()
            self._end_if_done()

    def _advance(self, stream: _Stream) -> bool:
        """Send one frame of an answer's body. False: there is no room for any."""
        library = self._library
        room = min(library.local_flow_control_window(stream.number), library.max_outbound_frame_size, FRAME_BYTES_MAX)
        body = stream.body
        if body is not None and body.finished and not stream.rest and not self._ended:  # which needs no room
            self._end_streamed(stream, body)
            return False
        if room <= 0 or self._write_since is not None or self._ended:
            return False
        if body is not None and not stream.rest:
            stream.rest, stream.since = memoryview(body.take()), self.server.now()
        piece, stream.rest = stream.rest[:room], stream.rest[room:]
        library.send_data(stream.number, piece, end_stream=not stream.rest and body is None)
        self._frames.moved(len(piece))
        stream.moved += len(piece)
        if stream.moved >= _PROGRESS_BYTES:
            stream.since, stream.moved = self.server.now(), 0
        if stream.rest or body is not None:
            self._flush()
        else:
            self._done(stream)
        return True

    def _end_streamed(self, stream: _Stream, body: StreamedBody) -> None:
        """Say that a body is whole, or that it is not."""
        if body.torn:
            self._library.reset_stream(stream.number, ErrorCodes.INTERNAL_ERROR)
            stream.request.forget()
            del self._streams[stream.number]
            self._went()
            return
        self._library.send_data(stream.number, b"", end_stream=True)
        self._done(stream)

    def _pump(self) -> None:
        """Send what has found room meanwhile: a frame of each stream at a time, so that none waits for a large one."""
        waiting = [stream for stream in self._streams.values() if stream.wants]
        while waiting:
            waiting = [stream for stream in waiting if self._advance(stream) and stream.wants]
        self._flush()

    def _done(self, stream: _Stream) -> None:
        """An answer was sent to its end."""
        if not stream.refused:
            self._frames.answered()
        stream.over = True
        stream.since = self.server.now()
        self._let_go(stream)

    def _let_go(self, stream: _Stream) -> None:
        """Forget a stream on which both sides have said everything.

        Who still sends on one that was refused is let, for a moment: some clients lose an answer that a reset follows.
        """
        if stream.over and stream.ended:
            del self._streams[stream.number]
            self._went()

    def _went(self) -> None:
        if not self._streams:
            self._since = self.server.now()

    def _flush(self) -> None:
        data, transport = self._library.data_to_send(), self._transport
        if data and transport is not None:
            self._write(transport, data)

    @staticmethod
    def _write(transport: asyncio.Transport, data: bytes) -> None:
        try:
            transport.write(data)
        except Exception:  # noqa: BLE001  uvloop raises where its TLS has ended already
            _LOG.debug("can't write a response", exc_info=True)
            transport.abort()

    # ---- the end ---------------------------------------------------------------------------------------------

    def _goaway(self, code: ErrorCodes, last: int) -> None:
        """Say that no stream above `last` is answered. h2 would send nothing behind its own."""
        self._flush()
        if self._transport is not None:
            self._write(self._transport, struct.pack("!BHBBIII", 0, 8, 0x7, 0, 0, last, code))

    def _end(self, code: ErrorCodes | None) -> None:
        """Say why (None: h2 has said it), and end; what is under way is given up."""
        if self._ended or self._transport is None:
            return
        if code is None:
            self._flush()
        else:
            self._goaway(code, self._last)
        self._forget()
        self._linger()

    def _forget(self) -> None:
        for stream in self._streams.values():
            stream.request.forget()
        self._streams.clear()

    def _linger(self) -> None:
        """Nothing more is read or sent: end, but let the client read first."""
        transport = self._transport
        self._ended = True
        self._since = self.server.now()
        if transport is None:
            return
        if transport.can_write_eof() and not self._half_closed:
            try:
                transport.write_eof()
            except OSError:  # the client had left
                transport.abort()
        else:
            transport.close()

    def _end_if_done(self) -> None:
        if (self._closing or self._frames.goodbye) and not self._streams and not self._ended:
            self._flush()
            self._linger()

    # ---- time ------------------------------------------------------------------------------------------------

    def sweep(self, now: float) -> None:
        """See OpenConnection."""
        limits, transport, frames = self.server.limits, self._transport, self._frames
        frames.pass_time(now)
        if transport is None:
            return
        limit = limits.body_timeout_s if frames.in_data else limits.head_timeout_s
        if self._write_since is not None and now - self._write_since > limits.write_timeout_s:
            transport.abort()
        elif self._ended:
            if now - self._since > limits.linger_s:
                transport.abort()
        elif frames.open_since is not None and now - frames.open_since > limit:
            self._end(ErrorCodes.ENHANCE_YOUR_CALM)
        elif self._streams:
            self._sweep_streams(now)
        elif now - self._since > (limits.idle_timeout_s if self._spoke else limits.first_timeout_s):
            self._end(ErrorCodes.NO_ERROR)

    def _sweep_streams(self, now: float) -> None:
        limits = self.server.limits
        try:
            for stream in list(self._streams.values()):
                if not stream.taken and now - stream.since > limits.body_timeout_s:
                    told = f"the request was not complete within {limits.body_timeout_s:g} s"
                    self._refuse(stream, 408, InvalidArgument(told))
                elif stream.over and now - stream.since > limits.linger_s:  # RFC 9113, 8.1
                    self._library.reset_stream(stream.number, ErrorCodes.NO_ERROR)
                    stream.ended = True
                    self._let_go(stream)
                elif stream.rest and now - stream.since > limits.write_timeout_s:
                    self._library.reset_stream(stream.number, ErrorCodes.CANCEL)
                    self._on_reset(stream.number)
        except Refused as refused:
            self._end(refused.code)
        self._flush()
        self._end_if_done()

    @property
    def idle_since(self) -> float | None:
        """See OpenConnection."""
        return None if self._streams else self._since

    def announce_stop(self) -> None:
        """See OpenConnection; requests that cross this are still taken (RFC 9113, 6.8)."""
        if not self._ended:
            self._goaway(ErrorCodes.NO_ERROR, _STREAM_MAX)

    def stop(self) -> None:
        """See OpenConnection."""
        if not self._ended:
            self._closing = True
            self._goaway(ErrorCodes.NO_ERROR, self._last)
            self._end_if_done()

    def abort(self) -> None:
        """See OpenConnection."""
        if self._transport is not None:
            self._transport.abort()
