"""A simulated follower's connection to its primary; twin of the shell's.

Guarantees: what comes on a connection that was left is not delivered; a lost connection is told once. Does not: decide
when to follow whom.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deathless.codec.versions import say_hello
from deathless.codec.wire import Follow, Type, struct_packet
from deathless.core import events as ev
from deathless.simulation.world.sockets import Opened

if TYPE_CHECKING:
    from deathless.simulation.nodes.worker_node import WorkerNode


class SimUpstream:
    """The one connection to a primary that a follower has at a time."""

    def __init__(self, worker: WorkerNode) -> None:
        self._worker = worker
        self._connection: Opened | None = None

    def follow(self, replica: str) -> None:
        """See Upstream."""
        worker, host = self._worker, self._worker.host
        connection = Opened(
            host.network,
            worker.process,
            worker.followed_address(replica),
            say_hello("follower", host.service_name, host.name, fingerprint=worker.running.fingerprint),
            received=self._received,
            ready=lambda: self._ready(connection),
            lost=lambda: self._lost(connection),
            asker=host.asker("worker"),
        )
        self._connection = connection

    def ask(self, lsn: int, chain: bytes) -> None:
        """See Upstream."""
        upgrader = bool(self._worker.running.core.upgrade)
        self.send(struct_packet(Type.FOLLOW, Follow(self._worker.host.name, lsn, chain, False, upgrader)))

    def send(self, data: bytes) -> None:
        """See Upstream."""
        if self._connection is not None:
            self._connection.send(data)

    def leave(self) -> None:
        """See Upstream."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _ready(self, connection: Opened) -> None:
        if self._connection is connection:
            place = self._worker.running.place
            self.ask(place.lsn, place.chain)

    def _lost(self, connection: Opened) -> None:
        if self._connection is connection:
            self._connection = None
            self._worker.post(ev.ConnectionLost(ev.UPSTREAM))

    def _received(self, packets: list[tuple[int, bytes]]) -> None:
        worker = self._worker
        worker.page.upstream_us = worker.host.clock.steady_us()
        worker.host_of_engine.intake.upstream(packets)
        worker.host_of_engine.after()
