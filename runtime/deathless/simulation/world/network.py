"""A network of byte streams that delays, holds, cuts, and delivers a dead connection's bytes late.

Why it exists: replicas and clients talk over TCP. TCP keeps the order of bytes within one connection and nothing
else: bytes of an old connection may arrive after those of a newer one, a peer may be gone without a word, a sender
that was deposed may still be heard. The simulation has all of this, and leaves out only what TCP rules out.

The machines. A connection has two ``Endpoint``s and two pipes. Each piece of bytes gets an arrival time of its own,
never before the one of the piece ahead of it in its pipe. What happens to a pipe:

    link held      pieces wait at the link; when it heals they arrive (TCP sends again)
    link cut       as held, and both ends are told "timeout" after a while
    reset          what is in flight is lost or arrives late, as chance has it; each end is told "reset", in its time
    half-open      one end is told, the other learns it only when it sends
    process died   what was sent still arrives, then "closed"; what is under way to it is lost
    host died      what was sent still arrives; nobody is told; who sends later gets "reset" when the host is back

Ghosts: with ``ghosts_share`` above 0 the bytes that an initiator sent over a closed connection come once more, over
a connection of their own: a duplicate at another time than any retry of the client's.

Who sees what. A reader frozen by SIGSTOP keeps its connections: bytes wait in its buffer, and the sender sees
``buffered_bytes`` grow. ``taps`` see every piece at the moment it leaves its process: that is "released".

Guarantees: a piece reaches one reader at most once, in order within its pipe. Does not: model packets, or TLS.
May import scheduler.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from deathless.simulation.world.scheduler import Process, Scheduler

CONNECT_TIMEOUT_US: Final = 1_000_000
RESET_MAX_US: Final = 2_000_000
GHOST_BYTES_MAX: Final = 1 << 16
GHOST_HOST: Final = "ghost"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkProfile:
    """How the network is on a fair day.

    Attributes:
        latency_min_us, latency_max_us: of a piece, one way, drawn evenly.
        spike_share: of pieces that take up to ``spike_max_us`` longer, [0, 1].
        split_share: of pieces that arrive in two parts, [0, 1].
        ghosts_share: of closed connections whose bytes come again, [0, 1].
    """

    latency_min_us: int = 50
    latency_max_us: int = 400
    spike_share: float = 0.01
    spike_max_us: int = 20_000
    split_share: float = 0.02
    ghosts_share: float = 0.0


class Endpoint:
    """One side of a connection, owned by a process.

    Set ``on_data`` and ``on_closed`` as soon as it is handed out; they run in the owner, one at a time.
    """

    __slots__ = (
        "_network",
        "arrival_us",
        "buffered_bytes",
        "ends",
        "held",
        "lost",
        "name",
        "on_closed",
        "on_data",
        "open",
        "owner",
        "peer",
        "sent",
    )  # fmt: skip

    def __init__(self, network: Network, name: str, owner: Process | None, generation: int) -> None:
        self._network = network
        self.name = name
        self.owner = owner  # None: a ghost
        self.ends = generation  # generation of the owner that this end belongs to
        self.peer: Endpoint = self  # the other end; set by the network
        self.open = True  # this side was not told of an end yet
        self.buffered_bytes = 0  # sent by this side, not yet read by the other
        self.sent: list[bytes] | None = None  # for ghosts: what the initiator sent; None: not kept
        self.lost = False  # nothing this side sent and that is still under way arrives
        self.on_data: Callable[[bytes], None] = _ignore_data
        self.on_closed: Callable[[str], None] = _ignore_closed
        self.arrival_us = 0  # of the last piece this side sent; later ones arrive no earlier
        self.held: deque[tuple[str, bytes]] = deque()  # pieces that wait at a held link

    @property
    def host(self) -> str:
        """Machine this side is on."""
        return GHOST_HOST if self.owner is None else self.owner.host

    @property
    def mine(self) -> bool:
        """True while the generation that opened this side lives."""
        return self.owner is None or (self.owner.alive and self.owner.generation == self.ends)

    def send(self, data: bytes) -> None:
        """Send bytes; after an end they go nowhere. Raises: ProcessKilled when the owner is dead."""
        if self.owner is not None:
            self.owner.check()
        if self.open and data:
            self._network.send(self, data)

    def close(self) -> None:
        """End the connection in order: what was sent arrives, then the peer is told "closed"."""
        if self.owner is not None:
            self.owner.check()
        if self.open:
            self._network.close(self)


def _ignore_data(_data: bytes) -> None:
    """Nobody reads yet."""


def _ignore_closed(_why: str) -> None:
    """Nobody listens."""


class _Listener:
    """A process that accepts at an address."""

    __slots__ = ("accept", "generation", "process")

    def __init__(self, process: Process, accept: Callable[[Endpoint], None]) -> None:
        self.process = process
        self.generation = process.generation
        self.accept = accept


class Network:
    """All connections of a run.

    Args:
        scheduler: time.
        chance: generator for latency and loss.
        profile: how it is on a fair day.
    """

    def __init__(self, scheduler: Scheduler, chance: random.Random, profile: NetworkProfile) -> None:
        self._scheduler = scheduler
        self._chance = chance
        self.profile = profile
        self.taps: list[Callable[[Endpoint, bytes], None]] = []
        self.connections: dict[int, tuple[Endpoint, Endpoint]] = {}  # by ordinal; (initiator, acceptor)
        self._ordinal = 0
        self._listeners: dict[str, _Listener] = {}
        self._held: dict[tuple[str, str], int] = {}  # (from host, to host) -> how many faults hold it; never 0
        self._slow_us: dict[str, int] = {}  # host -> added latency
        self._down: dict[str, bool] = {}  # hosts without power

    # ---------------------------------------------------------------- opening

    def listen(self, process: Process, address: str, accept: Callable[[Endpoint], None]) -> None:
        """Accept connections at ``address`` ("host:port") until the process dies."""
        process.check()
        self._listeners[address] = _Listener(process, accept)

    def connect(
        self, process: Process, address: str, on_open: Callable[[Endpoint], None], on_failed: Callable[[str], None]
    ) -> None:
        """Open a connection; one of the two callbacks runs in ``process``."""
        process.check()
        host = address.partition(":")[0]
        generation = process.generation

        def tell(callback: Callable[[], None]) -> None:
            if process.generation == generation:
                process.post(callback)

        def arrive() -> None:
            if self._is_held(process.host, host) or self._is_held(host, process.host) or self._down.get(host, False):
                self._scheduler.call_later(CONNECT_TIMEOUT_US, lambda: tell(lambda: on_failed("timeout")))
                return
            listener = self._maybe_listener(address)
            if listener is None:
                self._scheduler.call_later(self._latency_us(host), lambda: tell(lambda: on_failed("refused")))
                return
            if not process.alive or process.generation != generation:
                return
            near, far = self._pair(process, listener.process)
            listener.process.post(lambda: listener.accept(far))
            self._scheduler.call_later(self._latency_us(host), lambda: tell(lambda: on_open(near)))

        self._scheduler.call_later(self._latency_us(process.host), arrive)

    def _maybe_listener(self, address: str) -> _Listener | None:
        listener = self._listeners.get(address)
        if listener is None or not listener.process.alive or listener.process.generation != listener.generation:
            return None
        return listener

    def _pair(self, initiator: Process | None, acceptor: Process) -> tuple[Endpoint, Endpoint]:
        number = self._ordinal
        self._ordinal += 1
        near_name = GHOST_HOST if initiator is None else initiator.name
        generation = 0 if initiator is None else initiator.generation
        near = Endpoint(self, f"{near_name}>{acceptor.name}#{number}", initiator, generation)
        far = Endpoint(self, f"{acceptor.name}<{near_name}#{number}", acceptor, acceptor.generation)
        near.peer, far.peer = far, near
        self.connections[number] = (near, far)
        if initiator is not None and self.profile.ghosts_share > 0:
            near.sent = []
        return near, far

    # ---------------------------------------------------------------- moving bytes

    def _latency_us(self, host: str) -> int:
        profile = self.profile
        chance = self._chance
        latency = profile.latency_min_us + int(chance.random() * (profile.latency_max_us - profile.latency_min_us))
        if chance.random() < profile.spike_share:
            latency += int(chance.random() * profile.spike_max_us)
        return latency + self._slow_us.get(host, 0)

    def send(self, end: Endpoint, data: bytes) -> None:
        """Carry a piece from ``end`` to its peer (Endpoint.send calls this)."""
        for tap in self.taps:
            tap(end, data)
        if end.sent is not None:
            end.sent.append(data)
        end.buffered_bytes += len(data)
        if len(data) > 1 and self._chance.random() < self.profile.split_share:
            at = self._chance.randrange(1, len(data))
            self._carry(end, "data", data[:at])
            self._carry(end, "data", data[at:])
        else:
            self._carry(end, "data", data)

    def close(self, end: Endpoint) -> None:
        """Close from one side (Endpoint.close calls this)."""
        end.open = False
        self._carry(end, "closed", b"")
        self._maybe_ghost(end)

    def _carry(self, end: Endpoint, what: str, data: bytes) -> None:
        if end.held or self._is_held(end.host, end.peer.host):
            end.held.append((what, data))
            return
        at_us = max(end.arrival_us, self._scheduler.now_us + self._latency_us(end.host))
        end.arrival_us = at_us
        self._scheduler.call_at(at_us, lambda: self._arrive(end, what, data))

    def _arrive(self, end: Endpoint, what: str, data: bytes) -> None:
        """A piece of ``end`` reaches the host of its peer."""
        reader = end.peer
        if end.lost and what == "data" and reader.open:
            return
        if self._is_held(end.host, reader.host):  # the link went down while it was under way
            end.held.append((what, data))
            return
        if not reader.open or not reader.mine or self._down.get(reader.host, False):
            if what == "data" and not self._down.get(reader.host, False):
                self._tell_later(end, "reset")
            return
        if what == "data":
            self._deliver(end, reader, data)
        else:
            self._tell(reader, what)

    def _deliver(self, end: Endpoint, reader: Endpoint, data: bytes) -> None:
        def read() -> None:
            end.buffered_bytes -= len(data)
            if reader.open:
                reader.on_data(data)

        if reader.owner is not None:
            reader.owner.post(read)

    def _tell(self, end: Endpoint, why: str) -> None:
        """Tell one side that the connection has ended."""
        if not end.open or not end.mine:
            return

        def tell() -> None:
            if end.open:
                end.open = False
                end.on_closed(why)
                self._maybe_ghost(end)

        if end.owner is not None:
            end.owner.post(tell)

    def _tell_later(self, end: Endpoint, why: str) -> None:
        self._scheduler.call_later(self._latency_us(end.host), lambda: self._tell(end, why))

    # ---------------------------------------------------------------- ends

    def process_died(self, process: Process) -> None:
        """Close what a dead process had open, as its operating system does."""
        for near, far in list(self.connections.values()):
            for end in (near, far):
                if end.owner is process and end.open and not end.mine:
                    end.open = False
                    self._carry(end, "closed", b"")
        self._forget_closed()

    def host_lost_power(self, host: str) -> None:
        """Everything of a host stops without a word; its processes must be killed by the caller first or next."""
        self._down[host] = True
        for near, far in list(self.connections.values()):
            for end in (near, far):
                if end.host == host:
                    end.open = False
        self._forget_closed()

    def host_has_power(self, host: str) -> None:
        """The host is back; who still sends on an old connection is told "reset"."""
        self._down.pop(host, None)

    def _forget_closed(self) -> None:
        gone = [number for number, (near, far) in self.connections.items() if not near.open and not far.open]
        for number in gone:
            del self.connections[number]

    def reset(self, near: Endpoint, *, half_open: bool = False) -> None:
        """Lose a connection: each side is told in its time; what is in flight is gone, or late, as chance has it.

        Args:
            near: either end.
            half_open: tell only this end; the other learns it when it sends.
        """
        far = near.peer
        self._scheduler.note("network", f"reset {near.name}{' half-open' if half_open else ''}")
        near.lost = self._chance.random() < 0.5
        far.lost = self._chance.random() < 0.5
        self._tell_later(near, "reset")
        if not half_open:
            self._scheduler.call_later(self._chance.randrange(1_000, 50_000), lambda: self._tell(far, "reset"))

    def open_connections(self, host: str | None = None) -> list[Endpoint]:
        """Give the initiators' ends of open connections, oldest first; with ``host`` only those that touch it."""
        self._forget_closed()
        return [
            near
            for near, far in self.connections.values()
            if near.open and far.open and (host is None or host in (near.host, far.host))
        ]

    # ---------------------------------------------------------------- links

    def _is_held(self, source: str, target: str) -> bool:
        return bool(self._held) and (source, target) in self._held

    def hold(self, source: str, target: str) -> None:
        """Hold everything from one host to another until ``heal``; holds add up."""
        self._held[source, target] = self._held.get((source, target), 0) + 1

    def heal(self, source: str, target: str) -> None:
        """Take one hold away; with the last one, what waited arrives."""
        count = self._held.get((source, target), 0) - 1
        if count > 0:
            self._held[source, target] = count
            return
        self._held.pop((source, target), None)
        for near, far in list(self.connections.values()):
            for end in (near, far):
                if end.held and end.host == source and end.peer.host == target:
                    waiting = list(end.held)
                    end.held.clear()
                    for what, data in waiting:
                        self._carry(end, what, data)

    def cut(self, source: str, target: str) -> None:
        """Hold a link one way and let both ends of its connections time out."""
        self.hold(source, target)
        for near, far in list(self.connections.values()):
            if (near.host, far.host) in ((source, target), (target, source)):
                for end in (near, far):
                    self._later_timeout(end)

    def _later_timeout(self, end: Endpoint) -> None:
        self._scheduler.call_later(
            self._chance.randrange(RESET_MAX_US // 10, RESET_MAX_US), lambda: self._tell(end, "timeout")
        )

    def slow(self, host: str, by_us: int) -> None:
        """Delay everything a host sends; 0 ends it."""
        if by_us:
            self._slow_us[host] = by_us
        else:
            self._slow_us.pop(host, None)

    # ---------------------------------------------------------------- ghosts

    def _maybe_ghost(self, end: Endpoint) -> None:
        """Perhaps send what an initiator sent over this connection once more, later, over a new one."""
        sent, end.sent = end.sent, None
        if not sent or end.owner is None or self._chance.random() >= self.profile.ghosts_share:
            return
        data = b"".join(sent)[:GHOST_BYTES_MAX]
        acceptor = end.peer.owner
        address = next((a for a, held in self._listeners.items() if held.process is acceptor), None)
        if address is None:
            return
        delay_us = self._chance.randrange(1_000, 3_000_000)
        self._scheduler.call_later(delay_us, lambda: self._ghost(address, data))

    def _ghost(self, address: str, data: bytes) -> None:
        listener = self._maybe_listener(address)
        if listener is None:
            return
        near, far = self._pair(None, listener.process)
        self._scheduler.note("network", f"ghost of {len(data)} bytes to {address}")
        listener.process.post(lambda: listener.accept(far))
        for tap in self.taps:
            tap(near, data)
        self._carry(near, "data", data)
        self._scheduler.call_later(RESET_MAX_US, lambda: self.close(near) if near.open else None)
