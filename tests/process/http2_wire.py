"""A client of HTTP/2 for tests: h2 at the other end, and bytes of one's own where h2 would refuse to send them."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

import h2.config
import h2.connection
import h2.events
import h2.settings
from h2.settings import SettingCodes
from http_wire import Bench, Wire, until

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 2, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS, PADDED = 1, 1, 4, 8
UNCHECKED = h2.config.H2Configuration(
    validate_outbound_headers=False, normalize_outbound_headers=False, validate_inbound_headers=True
)
Lines = list[tuple[bytes, bytes]]


def frame(kind: int, flags: int = 0, stream: int = 0, body: bytes = b"") -> bytes:
    """The bytes of a frame."""
    return struct.pack("!I", len(body))[1:] + struct.pack("!BBI", kind, flags, stream) + body


def head(method: str = "GET", path: str = "/", *more: tuple[bytes, bytes]) -> Lines:
    """The head of a request."""
    return [
        (b":method", method.encode()),
        (b":scheme", b"http"),
        (b":path", path.encode()),
        (b":authority", b"x"),
        *more,
    ]


@dataclass
class StreamSeen:
    """What came on a stream."""

    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""
    ended: bool = False
    reset: int | None = None
    informational: list[bytes] = field(default_factory=list)


class Http2Wire:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.h2 = h2.connection.H2Connection(UNCHECKED)
        self.streams: dict[int, StreamSeen] = {}
        self.goaway: list[tuple[int, int]] = []  # error code and last stream of each
        self.over = False
        self.open_windows = True
        self.pongs = 0
        self.said_all = False
        self.judged = True  # h2 looks at what comes; it does not know of streams that a test made up
        Wire.opened.append(Wire(reader, writer))  # for `close_all`

    @classmethod
    async def connect(
        cls, address: str, tls: ssl.SSLContext | None = None, *, settings: Mapping[str, int] | None = None
    ) -> Http2Wire:
        host, _, port = address.rpartition(":")
        name = None if tls is None else host
        wire = cls(*await asyncio.open_connection(host, int(port), ssl=tls, server_hostname=name))
        given = {SettingCodes[key.upper()]: value for key, value in (settings or {}).items()}
        wire.h2.local_settings = h2.settings.Settings(client=True, initial_values={SettingCodes.ENABLE_PUSH: 0} | given)
        wire.h2.decoder.max_allowed_table_size = wire.h2.local_settings.header_table_size
        wire.h2.initiate_connection()
        wire.flush()
        return wire

    def flush(self) -> None:
        data = self.h2.data_to_send()
        if not self.said_all:
            self.writer.write(data)

    def raw(self, data: bytes) -> None:
        self.writer.write(data)

    def ask(self, lines: Lines, body: bytes | None = None, *, end: bool = True) -> int:
        """Begin a request; gives its stream."""
        number = self.h2.get_next_available_stream_id()
        self.streams[number] = StreamSeen()
        self.h2.send_headers(number, lines, end_stream=end and body is None)
        if body is not None:
            self.h2.send_data(number, body, end_stream=end)
        self.flush()
        return number

    async def read(self) -> bool:
        """Take what comes. False: the connection has ended."""
        try:
            data = await self.reader.read(65536)
        except ConnectionResetError:
            data = b""
        if not data:
            self.over = True
            return False
        while data:
            size = int.from_bytes(data[:3], "big") + 9
            while len(data) < max(9, size):
                data += await self.reader.readexactly(max(9, size) - len(data))
                size = int.from_bytes(data[:3], "big") + 9
            one, data = data[:size], data[size:]
            if one[3] == GOAWAY:  # the library would take nothing behind it
                last, code = struct.unpack("!II", one[9:17])
                self.goaway.append((code, last))
                continue
            for event in self.h2.receive_data(one) if self.judged else ():
                self.see(event)
        self.flush()
        return True

    def see(self, event: h2.events.Event) -> None:
        stream = self.streams.get(getattr(event, "stream_id", None) or 0, StreamSeen())
        match event:
            case h2.events.InformationalResponseReceived():
                stream.informational.append(dict(event.headers or ())[b":status"])
            case h2.events.ResponseReceived():
                stream.headers = dict(event.headers or ())
                stream.status = int(stream.headers[b":status"])
            case h2.events.DataReceived():
                stream.body += event.data or b""
                if self.open_windows:
                    self.h2.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id or 0)
            case h2.events.StreamEnded():
                stream.ended = True
            case h2.events.StreamReset():
                stream.reset = int(event.error_code or 0)
            case h2.events.PingAckReceived():
                self.pongs += 1
            case _:
                pass

    async def answer(self, number: int) -> StreamSeen:
        """The whole answer on a stream, or its end."""
        stream = self.streams[number]
        while not stream.ended and stream.reset is None and await self.read():
            pass
        return stream

    async def end(self) -> list[tuple[int, int]]:
        """Read to the end of the connection; gives the reasons that were told."""
        while await self.read():
            pass
        return self.goaway

    async def pong(self) -> None:
        """Wait until the server has read everything so far, or the end."""
        wanted = self.pongs + 1
        self.h2.ping(b"12345678")
        self.flush()
        while self.pongs < wanted and await self.read():
            pass


async def opened(b: Bench, *, settled: bool = True, **settings: int) -> Http2Wire:
    """Connect to a bench."""
    before = len(b.server.connections)
    wire = await Http2Wire.connect(b.address, settings=settings)
    await until(lambda: len(b.server.connections) != before)
    if settled:
        await wire.pong()
    return wire
