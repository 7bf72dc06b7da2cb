"""A supervisor's connections to the others: found through members/, made again for ever, told our reports.

    members/ --> Peers.meet --> one connection per other replica --> its control port
                                  lost, refused: again after 0.05 s, doubling up to 2 s; at once when it announces
                                  another address or is heard from

Guarantees: at most one connection per replica; an address that changed is followed without waiting for the old one to
time out; a peer that does not read is cut off, nobody else notices (I10). Does not: judge what a silence means
(core.supervisor.detection does).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from deathless.base.backoff import next_pause
from deathless.base.config import ReplicaConfig
from deathless.base.errors import CorruptFrame, InvalidConfig, OtherSupervisor
from deathless.codec.versions import say_hello
from deathless.codec.wire import Refused, Type, decode_struct
from deathless.shell.directory.members import Member
from deathless.shell.net.connections import ClientConnection
from deathless.shell.net.listening import split_address
from deathless.shell.net.proof import Asker
from deathless.shell.net.tls import client_context

_LOG: Final = logging.getLogger("deathless.peers")
AGAIN_MIN_S: Final = 0.05
AGAIN_MAX_S: Final = 2.0
CONNECT_S: Final = 1.0
PACKET_BYTES_MAX: Final = 1 << 20


class Peer:
    """Another replica's supervisor, as it announced itself."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.connection: ClientConnection | None = None
        self.attempt: asyncio.Task[None] | None = None
        self.delay_s = 0.0
        self.try_at = 0.0  # monotonic seconds
        self.connected_at = 0.0
        self.told = ""  # the refusal that was logged

    def close(self) -> None:
        """End what stands or is being made."""
        if self.attempt is not None:
            self.attempt.cancel()
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()


class Peers:
    """All other supervisors.

    Args:
        config: of this replica.
        changed: called when a connection stands.
        superseded: called when a peer says that it has heard a later instance of our replica; who knows finds out.
    """

    def __init__(
        self, config: ReplicaConfig, changed: Callable[[], None], superseded: Callable[[], None] | None = None
    ) -> None:
        self._config = config
        self._changed = changed
        self._superseded = superseded
        self._loop = asyncio.get_running_loop()
        self._peers: dict[str, Peer] = {}
        self._closed = False

    def meet(self, members: Mapping[str, Member]) -> None:
        """Take in who has announced itself; those that have gone are left. Does nothing after `close`."""
        if self._closed:  # a look at members/ that was under way comes later, and nobody would end what it opens
            return
        for name in [name for name in self._peers if name not in members]:
            self._peers.pop(name).close()
        for name, member in members.items():
            if name == self._config.replica:
                continue
            old = self._peers.get(name)
            if old is None or _whom(old.member) != _whom(member):
                if old is not None:
                    old.close()
                self._peers[name] = Peer(member)
        self.connect_due()

    def heard(self, name: str) -> None:
        """A report of it came in, so it lives: no need to wait longer."""
        peer = self._peers.get(name)
        if peer is not None and peer.connection is None and peer.attempt is None:
            peer.try_at = 0.0

    def connect_due(self) -> None:
        """Try those whose time has come; call it with each heartbeat."""
        now = self._loop.time()
        for peer in self._peers.values():
            if peer.connection is None and peer.attempt is None and now >= peer.try_at:
                peer.attempt = self._loop.create_task(self._connect(peer))

    def tell(self, data: bytes) -> None:
        """Send to every peer that is connected."""
        for peer in list(self._peers.values()):
            if peer.connection is not None:
                peer.connection.send(data)

    def close(self) -> None:
        """End all, and connect to nobody any more."""
        self._closed = True
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()

    async def _connect(self, peer: Peer) -> None:
        hello = say_hello("supervisor", self._config.shard_name, self._config.replica, self._config.token)
        connection = ClientConnection(
            hello,
            lambda packets: self._received(peer, packets),
            lambda: self._lost(peer, connection),
            PACKET_BYTES_MAX,
            Asker(self._config.directory),
        )
        try:
            host, port = split_address(peer.member.control)
            async with asyncio.timeout(CONNECT_S):
                await self._loop.create_connection(lambda: connection, host, port, ssl=client_context(self._config.tls))
        except (OSError, TimeoutError, InvalidConfig):
            self._try_later(peer)
            return
        except asyncio.CancelledError:
            connection.close()
            raise
        finally:
            peer.attempt = None
        if not connection.open:  # it ended before we were told that it stood
            self._try_later(peer)
            return
        peer.connection = connection
        peer.connected_at = self._loop.time()
        self._changed()

    def _received(self, peer: Peer, packets: list[tuple[int, bytes]]) -> None:
        for kind, body in packets:
            if kind == Type.REFUSED:
                try:
                    why = decode_struct(Refused, body)
                except CorruptFrame as error:  # it ends the connection behind it, and we try again
                    why = Refused(error.code, error.message)
                if why.text != peer.told:
                    _LOG.warning(
                        "peer refuses this replica",
                        extra={"peer": peer.member.replica, "code": why.code, "why": why.text},
                    )
                peer.told = why.text
                if why.code == OtherSupervisor.code and self._superseded is not None:
                    self._superseded()

    def _lost(self, peer: Peer, connection: ClientConnection) -> None:
        if peer.connection is connection:
            peer.connection = None
            if self._loop.time() - peer.connected_at > AGAIN_MAX_S:  # it was no refusal
                peer.delay_s = 0.0
            self._try_later(peer)

    def _try_later(self, peer: Peer) -> None:
        peer.delay_s = next_pause(peer.delay_s, first_s=AGAIN_MIN_S, most_s=AGAIN_MAX_S)
        peer.try_at = self._loop.time() + peer.delay_s


def _whom(member: Member) -> tuple[str, int, str]:
    """What tells one supervisor from another; in a pod each is process 1."""
    return member.control, member.pid, member.instance
