"""Length-prefixed packets over asyncio: the connection class that worker, supervisor and tools share.

Guarantees: HELLO comes first, in time, and is authorised before anything else is read; a peer that does not read is cut
off at a named maximum, so it stalls nobody (I10). Does not: interpret packets beyond the handshake.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import socket
import ssl
from collections.abc import Callable
from typing import Protocol as TypingProtocol
from typing import cast

from deathless.base.errors import DeathlessError, Internal, InvalidConfig, PortTaken, TooLarge
from deathless.codec.wire import Hello, PacketReader, Refused, Type, struct_packet
from deathless.engine.intake import authorise

_LOG = logging.getLogger("deathless.packets")
DEAD_PEER_MS = 4000  # unacknowledged bytes end a connection after this
HELLO_MAX_S = 5.0  # a connection that has not said who it is by then is closed
CLOSING_TURNS = 8  # of the event loop, until asyncio has closed the socket below a TLS connection
CLOSED_S = 1.0  # the longest that the end of a connection we closed is waited for
HELLO_BYTES_MAX = 64 << 10  # received without it
SEND_BYTES_MAX = 16 << 20  # unsent bytes of a connection we opened; beyond, it is cut off
SOON_S = 0.005  # the longest that `send_soon` waits
SOON_BYTES = 256 << 10  # or until it has so much
_HANDLER_CLOSED = "the handler is closed"
DESCRIPTORS_KEPT = 256  # for files, other ports and helpers, beside the connections


class Owner(TypingProtocol):
    """Who gets a server's connections."""

    def opened(self, connection: ServerConnection, hello: Hello) -> None:
        """HELLO was accepted."""
        ...

    def packets(self, connection: ServerConnection, packets: list[tuple[int, bytes]]) -> None:
        """All packets of one buffer."""
        ...

    def lost(self, connection: ServerConnection) -> None:
        """The connection ended after `opened`."""
        ...


class ServerConnection(asyncio.Protocol):
    """An accepted connection."""

    def __init__(
        self, owner: Owner, number: int, *, service: str, token: str, packet_bytes_max: int, buffer_bytes_max: int
    ) -> None:
        self.number = number
        self.hello: Hello | None = None
        self._owner = owner
        self._service = service
        self._token = token
        self._reader = PacketReader(packet_bytes_max)
        self._buffer_bytes_max = buffer_bytes_max
        self._transport: asyncio.Transport | None = None
        self._descriptor = -1  # to write to at once; -1: everything goes through the transport
        self._later: list[bytes] = []  # of `send_soon`
        self._later_bytes = 0
        self._deadline: asyncio.TimerHandle | None = None  # for HELLO
        self._before_hello = 0  # bytes received

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop has classes of its own
        self._deadline = asyncio.get_running_loop().call_later(HELLO_MAX_S, self._transport.abort)
        self._descriptor = plain_descriptor(transport)
        keep_alive(transport)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        try:
            packets = self._reader.take(data)
            if self.hello is None:
                self._before_hello += len(data)
                if not packets and self._before_hello > HELLO_BYTES_MAX:
                    self.refuse(TooLarge(f"no HELLO within {HELLO_BYTES_MAX} bytes"))
                    return
            if self.hello is None and packets:
                self.hello = authorise(*packets.pop(0), service=self._service, token=self._token)
                self._end_deadline()
                self._owner.opened(self, self.hello)
            if packets and not self._closing:
                self._owner.packets(self, packets)
        except DeathlessError as error:
            self.refuse(error)
        except Exception as error:  # noqa: BLE001  one bad message never takes the service down (I11)
            _LOG.exception("a peer's packets", extra={"connection": self.number})
            self.refuse(Internal(f"{type(error).__name__} while the packets were read"))

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._transport = None
        self._end_deadline()
        if self.hello is not None:
            self._owner.lost(self)

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    @property
    def _closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def refuse(self, error: DeathlessError) -> None:
        """Say why, and close."""
        self.send(struct_packet(Type.REFUSED, Refused(error.code, error.message)))
        self.close()

    def send(self, data: bytes) -> None:
        """Write, or cut the peer off when it has not read for too long."""
        if self._later:
            data = b"".join((*self._later, data))
            self._later.clear()
            self._later_bytes = 0
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        buffered = transport.get_write_buffer_size()
        if buffered > self._buffer_bytes_max:
            _LOG.warning("peer does not read", extra={"connection": self.number})
            transport.abort()
            return
        if not buffered and self._descriptor >= 0:
            # The transport may keep bytes until the end of this turn of the loop; a reply need not wait for that.
            try:
                written = os.write(self._descriptor, data)
            except OSError:
                written = 0  # full, or broken: the transport finds out
            if written == len(data):
                return
            data = data[written:]
        transport.write(data)

    def send_soon(self, data: bytes) -> None:
        """Write within SOON_S, together with what comes until then: for a receiver whom nobody waits for."""
        if not self._later:
            asyncio.get_running_loop().call_later(SOON_S, self.send_kept)
        self._later.append(data)
        self._later_bytes += len(data)
        if self._later_bytes >= SOON_BYTES:
            self.send_kept()

    def send_kept(self) -> None:
        """Write what `send_soon` keeps."""
        if self._later:
            self.send(b"")

    @property
    def flushed(self) -> bool:
        """Has everything left this process?"""
        return self._transport is None or self._transport.get_write_buffer_size() == 0

    def close(self) -> None:
        """Close after what was written."""
        self.send_kept()
        if self._transport is not None:
            self._transport.close()


class ClientConnection(asyncio.Protocol):
    """A connection we open."""

    def __init__(
        self,
        hello: Hello,
        received: Callable[[list[tuple[int, bytes]]], None],
        lost: Callable[[], None],
        packet_bytes_max: int,
    ) -> None:
        self._hello = hello
        self._received = received
        self._lost = lost
        self._reader = PacketReader(packet_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop has classes of its own
        keep_alive(transport)
        self._transport.write(struct_packet(Type.HELLO, self._hello))

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        try:
            packets = self._reader.take(data)
        except DeathlessError:
            _LOG.exception("broken stream")
            self.close()
            return
        if packets:
            self._received(packets)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._transport = None
        self._ended.set()
        self._lost()

    @property
    def open(self) -> bool:
        """Connected and not closing."""
        return self._transport is not None and not self._transport.is_closing()

    def send(self, data: bytes) -> None:
        """Write; dropped when the connection is gone, and the connection ends when the peer does not read."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if transport.get_write_buffer_size() > SEND_BYTES_MAX:
            transport.abort()
            return
        transport.write(data)

    def close(self) -> None:
        """Abort at once."""
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        """After `close`: until the socket is closed too, which takes TLS, and a handshake that failed, a few turns.

        uvloop closes a connection whose opening was cancelled after it stood, and tells its protocol nothing: that end
        is waited for CLOSED_S and no longer.
        """
        if self._transport is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), CLOSED_S)
        for _ in range(CLOSING_TURNS):
            await asyncio.sleep(0)


def is_broken_link(context: dict[str, object]) -> bool:
    """Tell whether what the event loop reports is a peer's broken connection, which is nobody's bug.

    Args:
        context: as `call_exception_handler` gives it. uvloop's TLS says of a connection that is closed while data of it
            are still handed over that "the handler is closed", as RuntimeError.
    """
    error = context.get("exception")
    closed = isinstance(error, RuntimeError) and _HANDLER_CLOSED in str(error)
    return (closed or isinstance(error, OSError)) and not context.keys().isdisjoint(("transport", "protocol", "socket"))


def plain_descriptor(transport: asyncio.BaseTransport) -> int:
    """Give the descriptor of a stream without TLS, to be written to past the transport; -1: there is none."""
    sock = transport.get_extra_info("socket")
    if sock is None or transport.get_extra_info("sslcontext") is not None:
        return -1
    descriptor: int = sock.fileno()
    return descriptor


def keep_alive(transport: asyncio.BaseTransport) -> None:
    """Have the kernel end a connection whose other end is gone without a word: nothing waits for it for ever."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_PEER_MS)


def descriptors_for(connections_max: int) -> int:
    """Raise this process's limit of descriptors; gives how many connections fit, at most `connections_max`."""
    wanted = connections_max + DESCRIPTORS_KEPT
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        soft = allowed
    fit = wanted if soft == resource.RLIM_INFINITY else soft
    return min(connections_max, max(fit - DESCRIPTORS_KEPT, 1))


def split_address(address: str) -> tuple[str, int]:
    """Take host:port apart. Raises: InvalidConfig."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise InvalidConfig(f"address {address!r} is not host:port")
    return host.strip("[]"), int(port)


def announced(address: str, host: str) -> str:
    """Give the address to announce for one that is listened on: at `host`, if there is one."""
    if not host:
        return address
    return f"[{host}]:{split_address(address)[1]}" if ":" in host else f"{host}:{split_address(address)[1]}"


async def listen(
    factory: Callable[[], asyncio.Protocol], address: str, tls: ssl.SSLContext | None = None
) -> tuple[asyncio.Server, str]:
    """Listen; gives the server and the address with its real port. Raises: PortTaken, InvalidConfig."""
    host, port = split_address(address)
    try:
        server = await asyncio.get_running_loop().create_server(factory, host, port, ssl=tls, backlog=512)
    except OSError as error:
        raise PortTaken(f"{address}: {error.strerror or error}") from None
    bound = server.sockets[0].getsockname()[1]
    return server, f"{host}:{bound}"
