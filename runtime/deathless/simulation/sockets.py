"""Connections of simulated programs that speak packets: handshake, cut-off of who does not read; twin of the shell's.

Guarantees: HELLO comes first and is authorised before anything else is read; a peer that does not read is cut off at
a named maximum (I10). Does not: interpret packets beyond the handshake. May import engine and below, network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from deathless.base.errors import DeathlessError
from deathless.codec.wire import Hello, PacketReader, Refused, Type, struct_packet
from deathless.engine.intake import authorise
from deathless.simulation.network import Endpoint, Network
from deathless.simulation.scheduler import Process

PACKET_BYTES_MAX: Final = 1 << 20


class Owner(Protocol):
    """Who gets accepted connections."""

    def opened(self, connection: Accepted, hello: Hello) -> None:
        """HELLO was accepted."""
        ...

    def packets(self, connection: Accepted, packets: list[tuple[int, bytes]]) -> None:
        """All packets of one piece of bytes."""
        ...

    def lost(self, connection: Accepted) -> None:
        """The connection ended after `opened`."""
        ...


class Accepted:
    """An accepted connection.

    Args:
        buffer_bytes_max: sent and not yet read by the peer, at most.
        service: name of the service that is served here.
    """

    def __init__(self, owner: Owner, number: int, end: Endpoint, buffer_bytes_max: int, service: str) -> None:
        self.number = number
        self.hello: Hello | None = None
        self._owner = owner
        self._service = service
        self._end = end
        self._buffer_bytes_max = buffer_bytes_max
        self._reader = PacketReader(PACKET_BYTES_MAX)
        end.on_data = self._data
        end.on_closed = self._closed

    def _data(self, data: bytes) -> None:
        try:
            packets = list(self._reader.feed(data))
            if self.hello is None and packets:
                self.hello = authorise(*packets.pop(0), service=self._service, token="")
                self._owner.opened(self, self.hello)
            if packets:
                self._owner.packets(self, packets)
        except DeathlessError as error:
            self.send(struct_packet(Type.REFUSED, Refused(error.code, error.message)))
            self.close()

    def _closed(self, _why: str) -> None:
        if self.hello is not None:
            self._owner.lost(self)

    def send(self, data: bytes) -> None:
        """Send, or cut the peer off when it has not read for too long."""
        if not self._end.open:
            return
        if self._end.buffered_bytes > self._buffer_bytes_max:
            self.close()
            return
        self._end.send(data)

    def close(self) -> None:
        """End it; the owner is told."""
        if self._end.open:
            self._end.close()
            owner = self._end.owner
            assert owner is not None
            owner.post(lambda: self._closed("closed"))


class Opened:
    """A connection that a program opens, and keeps until it is lost or closed.

    Args:
        received: called with all packets of one piece of bytes.
        ready: called once the connection stands, HELLO is sent.
        lost: called once, when dialing failed or the connection ended; not after `close`.
    """

    def __init__(
        self,
        network: Network,
        process: Process,
        address: str,
        hello: Hello,
        *,
        received: Callable[[list[tuple[int, bytes]]], None],
        ready: Callable[[], None],
        lost: Callable[[], None],
    ) -> None:
        self._hello = hello
        self._received = received
        self._ready = ready
        self._lost: Callable[[], None] | None = lost
        self._reader = PacketReader(PACKET_BYTES_MAX)
        self._end: Endpoint | None = None
        network.connect(process, address, self._opened, lambda _why: self._gone())

    @property
    def open(self) -> bool:
        """Connected."""
        return self._end is not None and self._end.open

    def _opened(self, end: Endpoint) -> None:
        if self._lost is None:  # closed meanwhile
            end.close()
            return
        if not end.open:  # it ended before we were told that it stands
            self._gone()
            return
        self._end = end
        end.on_data = self._data
        end.on_closed = lambda _why: self._gone()
        end.send(struct_packet(Type.HELLO, self._hello))
        self._ready()

    def _data(self, data: bytes) -> None:
        try:
            packets = list(self._reader.feed(data))
        except DeathlessError:
            self.close()
            return
        if packets and self._lost is not None:
            self._received(packets)

    def _gone(self) -> None:
        lost, self._lost = self._lost, None
        if lost is not None:
            lost()

    def send(self, data: bytes) -> None:
        """Send; dropped when the connection is gone."""
        if self._end is not None and self._end.open:
            self._end.send(data)

    def close(self) -> None:
        """Close; `lost` is not called any more."""
        self._lost = None
        if self._end is not None and self._end.open:
            self._end.close()
