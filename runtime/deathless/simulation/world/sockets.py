"""Connections of simulated programs that speak packets: handshake, cut-off of who does not read; twin of the shell's.

Guarantees: HELLO comes first and is authorised before anything else is read; where a door asks, whoever orders,
reports or follows shows where it stands before anything that it says is taken in; a peer that does not read is cut off
at a named maximum (I10). Does not: interpret packets beyond the handshake. May import engine and below, network,
directory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from deathless.base.errors import DeathlessError
from deathless.codec.wire import (
    PREFIX_BYTES,
    Challenge,
    Hello,
    PacketReader,
    Refused,
    Type,
    decode_struct,
    packet,
    struct_packet,
)
from deathless.core.access.authorisation import authorise
from deathless.core.access.directory_proof import BeforeProof
from deathless.simulation.world.directory import Asked, Asker, Door
from deathless.simulation.world.network import Endpoint, Network
from deathless.simulation.world.scheduler import Process

PACKET_BYTES_MAX: Final = 1 << 20
LOOKS_MAX: Final = 4  # an asker looks for a secret so often
LOOK_AGAIN_US: Final = 100_000


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
        door: asks who connects to show that it stands in our directory.
    """

    def __init__(
        self, owner: Owner, number: int, end: Endpoint, buffer_bytes_max: int, service: str, door: Door
    ) -> None:
        self.number = number
        self.hello: Hello | None = None
        self._door = door
        self._asked: Asked | None = None  # while it is to show where it stands
        self._before = BeforeProof()  # what comes meanwhile
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
            if self.hello is None and self._asked is None and packets:
                hello = authorise(*packets.pop(0), service=self._service, token="")
                if self._door.asks(hello.kind):
                    self._asked = self._door.ask(hello)
                    self.send(struct_packet(Type.CHALLENGE, self._asked.challenge))
                else:
                    self._let_in(hello)
            if self._asked is not None:
                packets = self._shown(self._asked, packets)
            if packets:
                self._owner.packets(self, packets)
        except DeathlessError as error:
            self.send(struct_packet(Type.REFUSED, Refused(error.code, error.message)))
            self.close()

    def _shown(self, asked: Asked, packets: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """Keep what comes before the proof; gives what is to be taken in now. Raises: OtherDirectory, TooLarge."""
        found = self._before.keep(packets)
        if found is None:
            return []
        body, behind = found
        asked.shown(body)
        self._asked = None
        self._let_in(asked.hello)
        return [*self._before.release(), *behind]

    def _let_in(self, hello: Hello) -> None:
        self.hello = hello
        self._owner.opened(self, hello)

    @property
    def machine(self) -> str:
        """Whose the other end is."""
        return self._end.peer.host

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
        asker: shows in which directory we stand, where we are asked; None: nothing is shown.
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
        asker: Asker | None = None,
    ) -> None:
        self._hello = hello if asker is None else msgspec.structs.replace(hello, proof=asker.word)
        self._asker = asker
        self._process = process
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
        if self._asker is not None:
            for kind, body in packets:
                if kind == Type.CHALLENGE:
                    self._challenged(self._asker, decode_struct(Challenge, body), 1)
            packets = [each for each in packets if each[0] != Type.CHALLENGE]
        if packets and self._lost is not None:
            self._received(packets)

    def _challenged(self, asker: Asker, challenge: Challenge, tries: int) -> None:
        if not self.open:
            return
        shown = asker.look(challenge)
        if shown is not None:
            self.send(packet(Type.PROOF, shown))
        elif tries < LOOKS_MAX:
            self._process.call_later(LOOK_AGAIN_US, lambda: self._challenged(asker, challenge, tries + 1))
        else:
            error = asker.refusal()
            refused = struct_packet(Type.REFUSED, Refused(error.code, error.message))
            if self._lost is not None:
                self._received([(Type.REFUSED, refused[PREFIX_BYTES:])])  # as if it had come: we refuse to go on
            if self._end is not None and self._end.open:
                self._end.close()
            self._gone()

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
