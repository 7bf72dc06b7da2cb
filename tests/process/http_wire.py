"""A raw HTTP client for tests: bytes out, and h11 as the judge of what comes back."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import h11

from deathless.shell.web.protocol import HttpServer, OpenConnection
from deathless.shell.web.request import HttpLimits, Request


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes
    informational: list[int] = field(default_factory=list)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Wire:
    """One connection to a HTTP port."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.rest = b""  # read and not yet part of an answer
        self.loop = asyncio.get_running_loop()

    opened: ClassVar[list[Wire]] = []  # all of them, for `close_all`

    @classmethod
    async def connect(cls, address: str, **options: Any) -> Wire:
        host, _, port = address.rpartition(":")
        wire = cls(*await asyncio.open_connection(host, int(port), **options))
        cls.opened.append(wire)
        return wire

    @classmethod
    async def close_all(cls) -> None:
        """End every connection that tests have left open."""
        wires = cls.opened[:]
        cls.opened.clear()
        for wire in wires:
            if wire.loop is asyncio.get_running_loop():  # another's went with it, and its test has failed
                wire.writer.transport.abort()
        await asyncio.sleep(0)

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self, method: str = "POST") -> Answer:
        """Read one answer to a request of this method."""
        judge = h11.Connection(h11.CLIENT)
        judge.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
        judge.send(h11.EndOfMessage())
        if self.rest:
            judge.receive_data(self.rest)
        informational: list[int] = []
        response: h11.Response | None = None
        body = b""
        while True:
            event = judge.next_event()
            if event is h11.NEED_DATA:
                judge.receive_data(await self.reader.read(65536))
            elif isinstance(event, h11.InformationalResponse):
                informational.append(event.status_code)
            elif isinstance(event, h11.Response):
                response = event
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            else:
                assert isinstance(event, h11.EndOfMessage), event
                break
        self.rest = bytes(judge.trailing_data[0])
        assert response is not None
        headers = {name.decode(): value.decode() for name, value in response.headers}
        assert len(headers) == len(response.headers), "a header came twice"
        return Answer(response.status_code, headers, body, informational)

    async def ask(self, data: bytes) -> Answer:
        self.send(data)
        return await self.answer("HEAD" if data.startswith(b"HEAD ") else "POST")

    async def ended(self) -> bool:
        """Wait for the end of the connection. True: nothing more came."""
        return not self.rest and await self.reader.read(1) == b""

    def close(self) -> None:
        self.writer.close()


def post(path: str, body: bytes = b"{}", *headers: str) -> bytes:
    """A POST of JSON."""
    lines = [f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + body


def get(path: str, *headers: str, method: str = "GET") -> bytes:
    """A GET."""
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


LIMITS = HttpLimits(
    target_bytes_max=200, header_bytes_max=1000, headers_max=10, body_bytes_max=5000, waiting_max=4,
    connections_max=8, sweep_s=3600,
)  # fmt: skip


async def until(holds: Callable[[], object]) -> None:
    """Give way until something is so; the run's own time limit bounds it."""
    while not holds():  # noqa: ASYNC110  what is waited for is plain state without an event
        await asyncio.sleep(0)


class Echo:
    """Answers with what it got; keeps requests back while `hold` is set."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.hold = False
        self.held: list[Request] = []
        self.came = asyncio.Event()

    def handle(self, request: Request) -> None:
        self.requests.append(request)
        self.came.set()
        if self.hold:
            self.held.append(request)
        else:
            self.answer(request)

    @staticmethod
    def answer(request: Request) -> None:
        request.respond(200, b"%s %s|%s|%s" % (request.method, request.target, request.query, request.body))

    async def wait(self, count: int) -> None:
        while len(self.requests) < count:
            self.came.clear()
            await self.came.wait()


class Bench:
    """A server, its application, and a clock that tests move."""

    def __init__(self, limits: HttpLimits, http2: Callable[[HttpServer], OpenConnection] | None = None) -> None:
        self.now = 100.0
        self.app = Echo()
        self.refused: list[int] = []
        self.server = HttpServer(
            self.app, limits, now=lambda: self.now, wall=lambda: 0.0, refused=self.refused.append, http2=http2
        )
        self.address = ""

    async def connect(self) -> Wire:
        before = len(self.server.connections)
        wire = await Wire.connect(self.address)
        await until(lambda: len(self.server.connections) != before)
        return wire

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.server.sweep()

    async def settle(self, wire: Wire, data: bytes) -> None:
        """Send bytes and let the server read them."""
        if data:
            wire.send(data)
            await wire.writer.drain()
        for _ in range(20):
            await asyncio.sleep(0)


@asynccontextmanager
async def bench(
    *,
    http2: Callable[[HttpServer], OpenConnection] | None = None,
    tls: ssl.SSLContext | None = None,
    **changes: object,
) -> AsyncIterator[Bench]:
    made = Bench(replace(LIMITS, **changes), http2)  # type: ignore[arg-type]  # each test knows its fields
    made.address = await made.server.start("127.0.0.1:0", tls)
    try:
        yield made
    finally:
        await Wire.close_all()
        await made.server.stop(0.0)
