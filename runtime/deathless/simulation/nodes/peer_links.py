"""A simulated primary's connections to the services it sends to; twin of the shell's.

    dial -> ask one replica after the other who leads -> HELLO (kind `peer`) -> PEER_HELLO -> PEER_WELCOME = ready
             ^------------------ lost, silent, refused, not the primary ------------------------------'

Guarantees: at most one connection per target, made again for ever (I4); a connection that answers no PING is given up.
Does not: read what is sent. May import engine and below, sockets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from deathless.base.backoff import pause_after
from deathless.codec.peer_messages import Target
from deathless.codec.versions import say_hello
from deathless.codec.wire import (
    PeerWelcome,
    Role,
    Type,
    Welcome,
    decode_peer_commit,
    decode_struct,
    packet,
)
from deathless.core import events as ev
from deathless.simulation.world.sockets import Opened

if TYPE_CHECKING:
    from deathless.simulation.nodes.worker_node import WorkerNode

AGAIN_MIN_S: Final = 0.01
AGAIN_MAX_S: Final = 0.2
PING_S: Final = 0.1
PINGS_MAX: Final = 4  # without an answer


class PeerLink:
    """One target."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.connection: Opened | None = None
        self.ready = False
        self.unanswered = 0
        self.failures = 0  # since it was ready last
        self.next = 0  # which address is asked next
        self.hint = ""


class PeerLinks:
    """All targets of one worker."""

    def __init__(self, worker: WorkerNode) -> None:
        self._worker = worker
        self._links: dict[Target, PeerLink] = {}

    def dial(self, target: Target) -> None:
        """See Peers."""
        if target not in self._links:
            link = self._links[target] = PeerLink(target)
            self._attempt(link)

    def send(self, target: Target, data: bytes) -> None:
        """See Peers."""
        link = self._links.get(target)
        if link is not None and link.ready and link.connection is not None:
            self._worker.host.left_for(target, data)
            link.connection.send(data)

    def drop(self, target: Target) -> None:
        """See Peers."""
        link = self._links.pop(target, None)
        if link is not None and link.connection is not None:
            link.connection.close()

    def _current(self, link: PeerLink) -> bool:
        return self._links.get(link.target) is link

    def _attempt(self, link: PeerLink) -> None:
        if not self._current(link):
            return
        host = self._worker.host
        addresses = host.addresses_of(link.target)
        if not addresses:
            self._again(link)
            return
        address = link.hint or addresses[link.next % len(addresses)]
        link.next += not link.hint
        link.hint = ""
        connection = Opened(
            host.network,
            self._worker.process,
            address,
            say_hello("peer", host.name_of(link.target), host.service_name),
            received=lambda packets: self._received(link, connection, packets),
            ready=lambda: None,
            lost=lambda: self._lost(link, connection),
        )
        link.connection, link.ready, link.unanswered = connection, False, 0
        self._later(PING_S, lambda: self._ping(link, connection))

    def _ping(self, link: PeerLink, connection: Opened) -> None:
        if not self._current(link) or link.connection is not connection:
            return
        if link.unanswered >= PINGS_MAX:
            connection.close()
            self._lost(link, connection)
            return
        link.unanswered += 1
        connection.send(packet(Type.PING))
        self._later(PING_S, lambda: self._ping(link, connection))

    def _lost(self, link: PeerLink, connection: Opened) -> None:
        if not self._current(link) or link.connection is not connection:
            return
        link.connection = None
        if link.ready:
            link.ready = False
            self._worker.post(ev.PeerLost(link.target))
        self._again(link)

    def _again(self, link: PeerLink) -> None:
        link.failures += 1
        chance = self._worker.host.chance.random()
        pause = pause_after(link.failures, first_s=AGAIN_MIN_S, most_s=AGAIN_MAX_S, chance=chance)
        self._later(pause, lambda: self._attempt(link))

    def _later(self, delay_s: float, callback: Callable[[], None]) -> None:
        self._worker.process.call_later(round(delay_s * 1e6), callback)

    def _received(self, link: PeerLink, connection: Opened, packets: list[tuple[int, bytes]]) -> None:
        for kind, body in packets:
            if not self._current(link) or link.connection is not connection:
                return
            link.unanswered = 0
            if not self._taken(link, connection, kind, body):
                connection.close()
                self._lost(link, connection)

    def _taken(self, link: PeerLink, connection: Opened, kind: int, body: bytes) -> bool:
        """Take a packet; False ends the connection."""
        match kind:
            case Type.PEER_COMMIT:
                if link.ready:
                    self._worker.post(ev.PeerCommitted(link.target, decode_peer_commit(body)[1]))
            case Type.PEER_WELCOME:
                told = decode_struct(PeerWelcome, body)
                link.ready, link.failures = True, 0
                self._worker.post(ev.PeerReady(link.target, told.session, told.next_position, told.history))
            case Type.WELCOME:
                welcome = decode_struct(Welcome, body)
                if welcome.role != "primary":
                    link.hint = welcome.primary
                    return False
                connection.send(self._worker.introduction(link.target))
            case Type.ROLE:
                role = decode_struct(Role, body)
                if role.role != "primary":
                    link.hint = role.primary
                    return False
            case Type.REFUSED | Type.PEER_REFUSED | Type.BATCH_REFUSED:
                return False
            case _:
                pass
        return True
