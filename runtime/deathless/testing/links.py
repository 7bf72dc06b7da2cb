"""Connections in memory: between a caller and a service, and between services.

    open_link --> accept(end) at whoever serves the name --> bytes both ways --> closed, told to the other end

Bytes arrive later in the same moment of time, in the order in which they were sent. When a process ends, its ends are
closed; what it sent before still arrives.

Guarantees: order within a connection; a closed end hears nothing more. Does not: read packets (`Talk` does), lose or
delay anything by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from deathless.base.errors import DeathlessError
from deathless.codec.wire import Hello, PacketReader, Type, struct_packet
from deathless.testing.loop import Life, Loop

PACKET_BYTES_MAX: Final = 64 << 20
Packets = list[tuple[int, bytes]]


class End:
    """One end of a connection; `data` and `closed` are told of what happens to it."""

    __slots__ = ("_loop", "_net", "closed", "data", "life", "open", "peer")

    def __init__(self, net: Links, loop: Loop, life: Life | None) -> None:
        self._net = net
        self._loop = loop
        self.life = life
        self.open = True
        self.peer: End
        self.data: Callable[[bytes], object] = bytes
        self.closed: Callable[[], object] = int

    def send(self, data: bytes) -> None:
        """Send; lost where the connection is gone."""
        if self.open:
            peer = self.peer
            self._loop.post(partial(peer.arrive, data), peer.life)

    def arrive(self, data: bytes) -> None:
        """Bytes came."""
        if self.open:
            self.data(data)

    def close(self) -> None:
        """End it after what was sent; the other end is told, this one is not."""
        if self.open:
            self.open = False
            self._net.forget(self)
            peer = self.peer
            self._loop.post(peer.gone, peer.life)

    def gone(self) -> None:
        """The other end closed."""
        if self.open:
            self.open = False
            self._net.forget(self)
            self.closed()


class Links:
    """All connections of an environment, and who accepts some under which name."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._listeners: dict[str, tuple[Life | None, Callable[[End], object]]] = {}
        self._ends: dict[Life, dict[End, None]] = {}

    def listen(self, name: str, life: Life | None, accept: Callable[[End], object]) -> None:
        """Accept connections under a name, in the place of whoever did before."""
        self._listeners[name] = life, accept

    def dial(self, name: str, life: Life | None, made: Callable[[End], object], refused: Callable[[], object]) -> None:
        """Connect to a name; one of the two is called, later in the same moment."""
        self._loop.post(partial(self._dialled, name, life, made, refused))

    def _dialled(
        self, name: str, life: Life | None, made: Callable[[End], object], refused: Callable[[], object]
    ) -> None:
        listener = self._listeners.get(name)
        if listener is None or (listener[0] is not None and not listener[0].alive):
            self._loop.post(refused, life)
            return
        if life is not None and not life.alive:
            return
        theirs, accept = listener
        near, far = End(self, self._loop, life), End(self, self._loop, theirs)
        near.peer, far.peer = far, near
        for end in (near, far):
            if end.life is not None:
                self._ends.setdefault(end.life, {})[end] = None
        self._loop.run(partial(accept, far), theirs)
        self._loop.post(partial(made, near), life)

    def forget(self, end: End) -> None:
        """An end is closed."""
        if end.life is not None:
            self._ends.get(end.life, {}).pop(end, None)

    def died(self, life: Life) -> None:
        """A process ended: whoever was connected to it is told."""
        for end in list(self._ends.pop(life, {})):
            end.close()


class Talk:
    """A connection that is opened to speak packets.

    Args:
        hello: said first.
        received: told of all packets of one piece of bytes.
        lost: told once when dialling failed or the connection ended; not after `close`.
    """

    def __init__(
        self,
        links: Links,
        name: str,
        life: Life | None,
        hello: Hello,
        *,
        received: Callable[[Packets], object],
        lost: Callable[[], object],
    ) -> None:
        self._hello = hello
        self._received = received
        self._lost: Callable[[], object] | None = lost
        self._reader = PacketReader(PACKET_BYTES_MAX)
        self._end: End | None = None
        links.dial(name, life, self._made, self._gone)

    def _made(self, end: End) -> None:
        if self._lost is None:  # closed meanwhile
            end.close()
            return
        if not end.open:  # who accepted it died of that
            self._gone()
            return
        self._end = end
        end.data, end.closed = self._data, self._gone
        end.send(struct_packet(Type.HELLO, self._hello))

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
        """Send; lost where the connection is gone."""
        if self._end is not None:
            self._end.send(data)

    def close(self) -> None:
        """Close; `lost` is not called any more."""
        self._lost = None
        if self._end is not None:
            self._end.close()
