"""Length-prefixed packets over asyncio: the connection class that worker, supervisor and tools share.

Guarantees: HELLO comes first, in time, and is authorised before anything else is read; a peer that does not read is cut
off at a named maximum, so it stalls nobody (I10). Does not: interpret packets beyond the handshake.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable
from typing import Protocol as TypingProtocol
from typing import cast

import msgspec

from deathless.base.errors import (
    DeathlessError,
    Internal,
    OtherDirectory,
    TooLarge,
)
from deathless.base.identities import Identity
from deathless.base.limits import FIRST_WORD_MAX_S
from deathless.codec.versions import check_welcome
from deathless.codec.wire import (
    PREFIX_BYTES,
    Challenge,
    Hello,
    PacketReader,
    Refused,
    Type,
    Welcome,
    decode_struct,
    packet,
    struct_packet,
)
from deathless.core.access.authorisation import ASKED, authorise, check_types
from deathless.core.access.callers import Caller, KeysWanted
from deathless.core.access.directory_proof import BeforeProof
from deathless.shell.net import tls as tls_files
from deathless.shell.net.port_guard import PortGuard
from deathless.shell.net.proof import Asked, Asker, Door
from deathless.shell.net.silent_connections import SilentConnections

_LOG = logging.getLogger("deathless.packets")
DEAD_PEER_MS = 4000  # unacknowledged bytes end a connection after this
CLOSING_TURNS = 8  # of the event loop, until asyncio has closed the socket below a TLS connection
CLOSED_S = 1.0  # the longest that the end of a connection we closed is waited for
HELLO_BYTES_MAX = 64 << 10  # received without it
SEND_BYTES_MAX = 16 << 20  # unsent bytes of a connection we opened; beyond, it is cut off
SOON_S = 0.005  # the longest that `send_soon` waits
SOON_BYTES = 256 << 10  # or until it has so much


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
    """An accepted connection.

    Args:
        guard: of the port it came in at; None: whoever has the token is let in.
        door: asks who orders, reports or follows for a proof of the directory; None: nobody is asked.
        silent: those of the port that have not said HELLO; None: they are not counted.
    """

    def __init__(
        self,
        owner: Owner,
        number: int,
        *,
        service: str,
        token: str,
        packet_bytes_max: int,
        buffer_bytes_max: int,
        guard: PortGuard | None = None,
        door: Door | None = None,
        silent: SilentConnections | None = None,
    ) -> None:
        self.number = number
        self.caller: Caller | None = None  # who it has proved to be, where callers do
        self._callers = guard.callers if guard is not None else None  # who prove who they are; None: `token` lets in
        self._entering: asyncio.Task[None] | None = None  # waits for an issuer's keys
        self.hello: Hello | None = None
        self.proved = True  # of one that was let in: it showed all that it was asked for
        self.identity: Identity | None = None  # that its certificate names, once HELLO was accepted
        self._guard = guard
        self._door = door
        self._asked: Asked | None = None  # while it is to show where it stands
        self._before = BeforeProof()  # what comes meanwhile
        self._kept: list[tuple[int, bytes]] = []  # what comes while it waits for an issuer's keys
        self._named = False  # certificates name who connects here
        self._silent = silent
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
        self._deadline = asyncio.get_running_loop().call_later(FIRST_WORD_MAX_S, self._too_late)
        self._descriptor = plain_descriptor(transport)
        if self._silent is not None:
            self._silent.came(self, self._transport.abort)
        keep_alive(transport)
        tls_files.watch(self, transport)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        try:
            packets = self._reader.take(data)
            if self.hello is None:
                self._before_hello += len(data)
                if not packets and self._before_hello > HELLO_BYTES_MAX:
                    self.refuse(TooLarge(f"no HELLO within {HELLO_BYTES_MAX} bytes"))
                    return
            if self._entering is not None:
                self._kept += packets
                return
            if self.hello is None and self._asked is None and packets:
                token = "" if self._callers is not None else self._token
                hello = authorise(*packets.pop(0), service=self._service, token=token)
                try:
                    self._admit(hello)
                except KeysWanted:
                    self._kept = packets
                    self._entering = asyncio.get_running_loop().create_task(self._enter_later(hello))
                    return
            if self._asked is not None:
                packets = self._shown(self._asked, packets)
            self._take(packets)
        except Exception as error:  # noqa: BLE001  one bad message never takes the service down (I11)
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, DeathlessError):
            _LOG.error("error while reading packets", extra={"connection": self.number}, exc_info=error)
            error = Internal(f"{type(error).__name__} while the packets were read")
        self.refuse(error)

    def _take(self, packets: list[tuple[int, bytes]]) -> None:
        if self.hello is not None and (self._named or self._door is not None):
            allowed = ASKED.get(self.hello.kind, frozenset())
            for kind, _ in packets:
                if kind not in allowed:
                    check_types(self.hello.kind, [kind])
        if packets and not self._closing:
            self._owner.packets(self, packets)

    def _shown(self, asked: Asked, packets: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """Keep what comes before the proof; gives what is to be taken in now. Raises: OtherDirectory, TooLarge."""
        found = self._before.keep(packets)
        if found is None:
            return []
        body, behind = found
        asked.shown(body)
        return behind

    def _let_in(self, hello: Hello, *, proved: bool) -> None:
        if self._closing:
            return
        self.hello, self.proved, self._asked = hello, proved, None
        self._end_deadline()
        self._owner.opened(self, hello)
        self._take(self._before.release())

    def _too_late(self) -> None:
        if self._asked is not None:
            self.refuse(OtherDirectory(f"there was no proof of your directory within {FIRST_WORD_MAX_S:g} s"))
        elif self._transport is not None:
            self._transport.abort()

    def _admit(self, hello: Hello, *, again: bool = False) -> None:
        """Let the connection in. Raises: what it is refused with; KeysWanted."""
        if self._callers is not None:
            self.caller = self._callers.enter(self._transport, hello.kind, hello.token, again=again)
        if self.caller is not None:
            self.identity, self._named = tls_files.shown_identity(self._transport), True
        elif self._guard is not None:
            self.identity = self._guard.admit(self._transport, hello.kind)
            self._named = self._guard.names_callers
        if self._door is not None and not self._named and self._door.asks(hello.kind):
            self._asked = self._door.ask(hello, self.send, self._let_in, self.refuse)
        else:
            self._let_in(hello, proved=True)

    async def _enter_later(self, hello: Hello) -> None:
        """Let the connection in once the keys that its token needs were fetched, or could not be."""
        transport = self._transport
        assert self._callers is not None and transport is not None
        transport.pause_reading()
        await self._callers.fetch()
        if self._closing:
            return
        self._entering, packets = None, self._kept
        self._kept = []
        try:
            self._admit(hello, again=True)
            self._take(packets)
        except Exception as error:  # noqa: BLE001  as in `data_received`
            self._failed(error)
        if not self._closing:
            transport.resume_reading()

    def look_again(self) -> None:
        """End a caller's connection whose token was taken away or has expired: it may come again with a new one."""
        if self.caller is None or self._callers is None or self.hello is None:
            return
        if not self._callers.still(self._transport, self.hello.token.encode()):
            _LOG.info("a caller must authenticate again", extra={"connection": self.number})
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._transport = None
        self._end_deadline()
        self._asked = None
        if self._entering is not None:
            self._entering.cancel()
        if self.hello is not None:
            self._owner.lost(self)

    def _end_deadline(self) -> None:
        if self._silent is not None:
            self._silent.spoke(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    @property
    def _closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    @property
    def certified(self) -> str:
        """Who it has proved to be, or else the name in the certificate that was shown; empty: none was."""
        if self.caller is not None:
            return self.caller.full
        if self.identity is not None:
            return self.identity.uri
        return tls_files.common_name(self._transport)

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
            _LOG.warning("connection closed: the peer does not read", extra={"connection": self.number})
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
    """A connection we open.

    Args:
        hello: who we are.
        received: called with what comes, a buffer at a time.
        lost: called at its end.
        packet_bytes_max: a longer packet ends it.
        asker: shows in which directory we stand, where we are asked; None: nothing is shown.
    """

    def __init__(
        self,
        hello: Hello,
        received: Callable[[list[tuple[int, bytes]]], None],
        lost: Callable[[], None],
        packet_bytes_max: int,
        asker: Asker | None = None,
    ) -> None:
        self._hello = hello if asker is None else msgspec.structs.replace(hello, proof=asker.word)
        self._asker = asker
        self._received = received
        self._lost = lost
        self._reader = PacketReader(packet_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._ended = asyncio.Event()
        self._welcomed = False  # the other end has answered, in a version that we speak

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop has classes of its own
        keep_alive(transport)
        tls_files.watch(self, transport)
        self._transport.write(struct_packet(Type.HELLO, self._hello))

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        try:
            packets = self._reader.take(data)
            if self._asker is not None and any(kind == Type.CHALLENGE for kind, _ in packets):
                for kind, body in packets:
                    if kind == Type.CHALLENGE:
                        self._challenged(self._asker, body)
                packets = [each for each in packets if each[0] != Type.CHALLENGE]
            if not self._welcomed and packets and packets[0][0] == Type.WELCOME:
                check_welcome(decode_struct(Welcome, packets[0][1]).version)
                self._welcomed = True
            if packets:
                self._received(packets)
        except DeathlessError as error:  # another program may listen where one of ours did
            _LOG.log(
                logging.WARNING if self._welcomed else logging.INFO,
                "what the other end sends can't be read, so its connection ends: %s",
                error,
            )
            self.close()
        except Exception:  # noqa: BLE001  one packet that nobody can read ends its connection, and nothing else
            _LOG.exception("can't process received packets")
            self.close()

    def _challenged(self, asker: Asker, body: bytes) -> None:
        def found(shown: bytes | OtherDirectory) -> None:
            if not self.open:
                return
            if isinstance(shown, bytes):
                self.send(packet(Type.PROOF, shown))
                return
            refused = struct_packet(Type.REFUSED, Refused(shown.code, shown.message))
            self._received([(Type.REFUSED, refused[PREFIX_BYTES:])])  # as if it had come: we refuse to go on
            self.close()

        try:
            asker.look(decode_struct(Challenge, body), found)
        except DeathlessError:
            _LOG.exception("can't process a CHALLENGE")
            self.close()

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
