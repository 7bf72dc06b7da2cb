"""A follower's connection to its primary's replication port.

Guarantees: what comes on a connection that was left, or whose primary was, is not delivered; a lost connection is told
once. Does not: decide when to follow whom, or connect again (core.replica.follower does).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from deathless.base.config import ReplicaConfig
from deathless.base.errors import InvalidConfig
from deathless.codec.versions import say_hello
from deathless.codec.wire import Follow, Type, struct_packet
from deathless.shell.net.connections import ClientConnection
from deathless.shell.net.listening import split_address
from deathless.shell.net.proof import Asker
from deathless.shell.net.tls import client_context

CONNECT_MAX_S: Final = 1.0


class Upstream:
    """The one connection to a primary that a follower has at a time.

    Args:
        config: the replica's.
        packet_bytes_max: of packets that a primary sends.
        where: gives, of a replica that leads, the address at which it is followed (empty: that is not known), and the
            fingerprint of our code.
        spawn: runs work beside the caller; its failure stops the replica.
        made: called when a connection stands.
        packets: called with what comes, a buffer at a time.
        lost: called when a connection that was not left ends, or could not be made.
        upgrader: says whether this replica leads only by an upgrade.
    """

    def __init__(
        self,
        config: ReplicaConfig,
        packet_bytes_max: int,
        *,
        where: Callable[[str], tuple[str, bytes]],
        spawn: Callable[[Awaitable[None]], object],
        made: Callable[[], None],
        packets: Callable[[list[tuple[int, bytes]]], None],
        lost: Callable[[], None],
        upgrader: Callable[[], bool] = bool,
    ) -> None:
        self._config = config
        self._packet_bytes_max = packet_bytes_max
        self._where = where
        self._spawn = spawn
        self._made = made
        self._packets = packets
        self._lost = lost
        self._upgrader = upgrader
        self._connection: ClientConnection | None = None

    def follow(self, replica: str) -> None:
        """Connect to this primary in place of whoever was followed before."""
        self._spawn(self.connect(*self._where(replica)))

    async def connect(self, address: str, fingerprint: bytes) -> None:
        """Connect to the primary at `address` in place of whoever was followed before."""
        config = self._config
        hello = say_hello("follower", config.shard_name, config.replica, config.token, fingerprint=fingerprint)
        connection = ClientConnection(
            hello,
            lambda packets: self._received(connection, packets),
            lambda: self._ended(connection),
            self._packet_bytes_max,
            Asker(config.directory, in_thread=False),
        )
        self._connection = connection
        loop = asyncio.get_running_loop()
        try:
            host, port = split_address(address)
            async with asyncio.timeout(CONNECT_MAX_S):
                await loop.create_connection(lambda: connection, host, port, ssl=client_context(config.tls))
        except (OSError, TimeoutError, InvalidConfig):
            self._ended(connection)
            return
        if self._connection is connection:
            self._made()
        else:  # left while it was being made
            connection.close()

    def ask(self, lsn: int, chain: bytes) -> None:
        """Ask for the frames after `lsn`, whose chain hash is `chain`."""
        self.send(struct_packet(Type.FOLLOW, Follow(self._config.replica, lsn, chain, False, self._upgrader())))

    def send(self, data: bytes) -> None:
        """Send to the primary, if one is followed."""
        if self._connection is not None:
            self._connection.send(data)

    def leave(self) -> None:
        """Follow nobody."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _ended(self, connection: ClientConnection) -> None:
        if self._connection is connection:
            self._connection = None
            self._lost()

    def _received(self, connection: ClientConnection, packets: list[tuple[int, bytes]]) -> None:
        if self._connection is connection:
            self._packets(packets)
